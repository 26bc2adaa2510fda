//! The send ring of a JFS or jetty.
//!
//! Checked requests become entries in the ring and one doorbell per batch (a batch of exactly one one-block request
//! goes as a direct entry if the device supports that). Must not allocate, lock or make a system call, or reuse a
//! position while its request's completion may still come.

mod alone;
mod room;

use std::sync::{Arc, Mutex};

use udma_abi::{
    Addressed, Atomic, CompletionBy, DirectEntry, MovableAtomic, MovableBlock, NextEntry, OneSided,
    Opcode, SendDoorbell,
    cmd::SqArgs,
    sqe::{BLOCK_WORDS, BLOCKS_MAX, SGE_LEN, SQE_WORDS_MAX, SqeFlags, blocks_for},
};
use urma_core::{
    PostError, PostReason, SendCfg, SendFlags, SendWr, Status, TargetId,
    ops::{LikeLast, SendQueue, TransferDelta},
};
use urma_mem::{
    Blocks,
    sync::{AtomicBool, AtomicU32, Ordering},
};

use crate::{
    alloc::{DmaBuf, lock},
    doorbell::SqDoorbell,
    jfc::JfcCore,
    local_completion::LocalCompletionWriter,
    shadow::{SEQ_MASK, Tag},
    sqe,
    table::PolledQueue,
};

/// The posting half of a send queue.
///
/// The fields that each post touches are in the first cache lines: a program with many queues loads them each time.
///
/// A position is free once its completion was taken or cannot come any more. That is so if its own completion was
/// polled; or one of a later request of an in-order queue; or if the consumer record shows it retired and the JFC was
/// polled past everything that it held when the record was read (the device writes a request's completion before it
/// moves the record). A polled completion frees its position even while the record lags behind: the device has read
/// the entry by then.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct SendPoster {
    doorbell: SqDoorbell,
    /// Position of the next block, free running.
    pi: u32,
    /// Lower bound of the one-block requests for which there is room.
    sure: u32,
    /// Requests may be executed locally as long as the number passed on is below `granted_to`. While `is_granting`,
    /// `sure` and `seq` are as of `granted_from` and do not count those since; otherwise both fields are the current
    /// number.
    granted_from: u32,
    granted_to: u32,
    /// The newest request was executed locally; once it, or an earlier one, was polled, more are granted.
    is_granting: bool,
    /// The device executed a block like `last`, and no other one since.
    is_executed: bool,
    /// The cache lines that a post touches are recorded for polls.
    is_noted: bool,
    /// Sequence number of the next request, and of the one at `done`.
    seq: u32,
    done_seq: u32,
    /// Everything before it is completed and its positions are free; `pi - done` never exceeds the ring.
    done: u32,
    /// Passes on what the doorbell executed, if this is the one queue of its JFC that may.
    local_completions: LocalCompletionWriter,
    parts: SendParts,
    link: Arc<PolledQueue>,
    ring: Blocks,
    /// Positions before `.0` are done once the JFC is polled up to `.1`.
    snapshot: Option<(u32, u32)>,
    /// Scratch words in which entries are built; the newest entry starts at the front.
    scratch: Box<[u64; SQE_WORDS_MAX]>,
    /// Block of the last WRITE or READ of one piece.
    last: MovableBlock,
    /// Block of the last SEND of one piece.
    last_message: Option<MovableBlock>,
    /// Blocks of the last FETCH_ADD or CAS, and whether the device executed one like it, and no other one since.
    last_atomic: Option<MovableAtomic>,
    is_atomic_executed: bool,
    /// Cached RC target, and the version at which it was read.
    target: Option<TargetId>,
    target_version: u32,
}

/// Arguments of [`SendPoster::new`], for one queue.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SendParts {
    /// Set when the device is gone.
    pub(crate) failed: Arc<AtomicBool>,
    /// JFC of the completions.
    pub(crate) jfc: Arc<JfcCore>,
    /// Requests that may be outstanding.
    pub(crate) depth: u32,
    /// log2 of the number of blocks in the ring.
    pub(crate) log2: u8,
    /// Whether one-block requests may be posted as direct entries.
    pub(crate) direct: bool,
    /// Whether completions come in posting order.
    pub(crate) in_order: bool,
    /// Target of an RC jetty; read again when its version changes.
    pub(crate) bound: Arc<BoundTarget>,
    /// Set when the queue is gone.
    pub(crate) closed: Arc<AtomicBool>,
    /// The ring; held here too, so that it outlives a control part that is dropped first.
    pub(crate) memory: Arc<DmaBuf>,
    /// Doorbell record, into which the device stores the consumer index.
    pub(crate) record: Arc<DmaBuf>,
}

impl SendPoster {
    /// Creates the poster; `None`: the memory is shorter than the ring.
    pub(crate) fn new(
        parts: SendParts,
        link: Arc<PolledQueue>,
        doorbell: SqDoorbell,
    ) -> Option<Self> {
        Some(Self {
            ring: Blocks::new(parts.memory.region().clone(), u32::from(parts.log2)).ok()?,
            parts,
            link,
            doorbell,
            pi: 0,
            done: 0,
            sure: 0,
            granted_from: 0,
            granted_to: 0,
            is_granting: false,
            is_noted: false,
            seq: 0,
            done_seq: 0,
            snapshot: None,
            scratch: Box::new([0; SQE_WORDS_MAX]),
            last: MovableBlock::default(),
            is_executed: false,
            local_completions: LocalCompletionWriter::default(),
            last_message: None,
            last_atomic: None,
            is_atomic_executed: false,
            target: None,
            target_version: 0,
        })
    }

    /// Encodes one request into the ring; on an error nothing has happened.
    #[inline]
    fn push(&mut self, wr: &SendWr<'_>) -> Result<u32, PostReason> {
        let Some((mut request, to)) = sqe::one_sided_of(wr, self.target.as_ref()) else {
            return self.push_other(wr);
        };
        self.find_room(1)?;
        (request.entry_idx, request.owner) = self.place();
        self.set_last(MovableBlock::new(request.encode(&to)));
        self.store_block(self.pi, self.last.block())?;
        self.commit(1, wr.user_ctx)
    }

    /// Encodes a WRITE or READ of one piece, and passes its block with the doorbell.
    #[inline(always)]
    fn post_direct(
        &mut self,
        (mut request, to): (OneSided, Addressed),
        user_ctx: u64,
    ) -> Result<(), PostReason> {
        self.find_room(1)?;
        (request.entry_idx, request.owner) = self.place();
        self.set_last(MovableBlock::new(request.encode(&to)));
        let is_signalled = request.flags.contains(SqeFlags::COMPLETE);
        if is_signalled && self.execute_known((user_ctx, request.piece.len)) {
            return Ok(());
        }
        let at = self.note_block(user_ctx)?;
        self.give_last(at)
    }

    /// Passes the block `last`, which is signalled, to be executed locally. `false`: nothing happened.
    #[inline(always)]
    fn execute_known(&mut self, request: (u64, u32)) -> bool {
        let ring = self.parts.jfc.local_completions();
        if self.local_completions.room(ring) == 0 {
            return false;
        }
        let Some(next) = self.doorbell.execute(DirectEntry::Known(self.last.block())) else {
            return false;
        };
        self.pass_on((1, next), request);
        self.is_executed = true;
        true
    }

    /// Passes on a request of so many blocks that was executed without a grant, and ends the grant.
    #[inline(always)]
    fn pass_on(&mut self, (blocks, next): (u32, NextEntry), request: (u64, u32)) {
        self.pi = self.pi.wrapping_add(blocks);
        self.seq = (self.seq + 1) & SEQ_MASK;
        self.local_completions.push(self.parts.jfc.local_completions(), (self.pi, next), request);
        self.end_grant();
    }

    /// Sets `last` to `block`.
    #[inline(always)]
    fn set_last(&mut self, block: MovableBlock) {
        (self.last, self.is_executed) = (block, false);
    }

    /// Passes the block `last` with the doorbell; it is recorded at position `at`.
    #[inline(always)]
    fn give_last(&mut self, at: u32) -> Result<(), PostReason> {
        let block = self.last.block();
        self.is_executed = self.doorbell.execute(DirectEntry::Reported(block)).is_some();
        if !self.is_executed {
            self.store_block(at, block)?;
            self.parts.jfc.show_room();
            self.doorbell.ring(SendDoorbell::Direct(block));
        } else {
            self.claim_local();
        }
        Ok(())
    }

    /// Becomes the queue of the JFC that passes on what the doorbell executed, unless another queue is.
    #[inline(always)]
    fn claim_local(&mut self) {
        if !self.local_completions.is_claimed() && self.parts.in_order {
            self.local_completions = self.parts.jfc.claim_local(&self.link).unwrap_or_default();
            self.end_grant();
        }
    }

    /// Has a signalled request like the last one executed by the device; this driver makes its completion. `false`:
    /// nothing happened.
    #[inline(always)]
    fn execute_local(&mut self, user_ctx: u64, place: (u64, u64, u32)) -> bool {
        let next = self.doorbell.repeat(self.pi, place, CompletionBy::Driver);
        let Some(next) = next else { return false };
        self.pi = self.pi.wrapping_add(1);
        self.local_completions.push(
            self.parts.jfc.local_completions(),
            (self.pi, next),
            (user_ctx, place.2),
        );
        true
    }

    /// Renews the grant, then executes the signalled request. Reached by a tail call, so that the usual case saves no
    /// registers.
    #[inline(never)]
    fn grant_and_execute(&mut self, user_ctx: u64, remote: u64, local: u64, len: u32) -> bool {
        self.is_granting
            && (self.grant_all() || self.grant_again())
            && self.execute_repeat(user_ctx, remote, local, len, true)
    }

    /// Executes an unsignalled request. Reached by a tail call, as [`SendPoster::grant_and_execute`].
    #[inline(never)]
    fn execute_silent(&mut self, remote: u64, local: u64, len: u32) -> bool {
        let is_there = self.is_executed && !self.parts.failed.load(Ordering::Relaxed);
        if !is_there || self.find_room(1).is_err() {
            return false;
        }
        // Where the device refuses, `sure` is too low until room is next looked for.
        self.execute_unreported((remote, local, len))
    }

    /// Posts one request like the last one, executed within the call or as a direct entry. Returns whether it did.
    #[inline(always)]
    fn repeat_transfer(&mut self, delta: &TransferDelta) -> bool {
        if self.execute_like_last(delta) {
            return true;
        }
        // What the device executed was a direct entry, and the last one.
        if !(self.is_executed || self.parts.direct && !self.last.is_none())
            || !self.is_same_target()
        {
            return false;
        }
        if self.find_room(1).is_err() {
            return false;
        }
        let Ok(at) = self.note_block(delta.user_ctx) else { return false };
        self.give_moved(at, delta)
    }

    /// Has a request like the last one executed by the device at once, and passes its completion on if that is
    /// possible. `false`: nothing happened. The device checks queue and target: if one of them ended since, it
    /// refuses.
    #[inline(always)]
    fn execute_like_last(&mut self, moved: &TransferDelta) -> bool {
        let is_there = self.is_executed && !self.parts.failed.load(Ordering::Relaxed);
        if !is_there || self.find_room(1).is_err() {
            return false;
        }
        let place = (moved.remote, moved.local, moved.len);
        if !moved.is_signalled {
            if self.execute_unreported(place) {
                return true;
            }
        } else if self.local_completions.room(self.parts.jfc.local_completions()) != 0
            && self.execute_local(moved.user_ctx, place)
        {
            self.seq = (self.seq + 1) & SEQ_MASK;
            self.grant();
            return true;
        } else if self.execute_reported(moved) {
            return true;
        }
        self.sure += 1;
        false
    }

    /// Has an unsignalled request executed by the device, when there is room for it. `false`: nothing happened.
    #[inline(always)]
    fn execute_unreported(&mut self, place: (u64, u64, u32)) -> bool {
        let is_executed = self.doorbell.repeat(self.pi, place, CompletionBy::Nobody).is_some();
        if is_executed {
            // It is retired: no completion will look at its position.
            self.pi = self.pi.wrapping_add(1);
            self.seq = (self.seq + 1) & SEQ_MASK;
        }
        is_executed
    }

    /// Has a signalled request executed by the device, which writes its CQE. `false`: nothing happened.
    #[inline(always)]
    fn execute_reported(&mut self, moved: &TransferDelta) -> bool {
        let Some(send) = self.link.send.as_ref() else { return false };
        let at = self.pi;
        send.shadow.put(Tag::new(at, 1, self.seq), moved.user_ctx);
        let place = (moved.remote, moved.local, moved.len);
        if self.doorbell.repeat(at, place, CompletionBy::Device).is_none() {
            // It is not posted: no completion must match it.
            send.shadow.take_at(at);
            return false;
        }
        self.seq = (self.seq + 1) & SEQ_MASK;
        self.pi = at.wrapping_add(1);
        send.pi.store(self.pi, Ordering::Release);
        if !self.is_noted {
            self.note_lines();
        }
        true
    }

    /// Records a one-block entry, for which there is room, as posted. Returns its position.
    #[inline(always)]
    fn note_block(&mut self, user_ctx: u64) -> Result<u32, PostReason> {
        self.note_blocks(1, user_ctx)
    }

    /// Records an entry of `blocks` blocks, for which there is room, as posted. Returns its position.
    #[inline(always)]
    fn note_blocks(&mut self, blocks: u32, user_ctx: u64) -> Result<u32, PostReason> {
        let send = self.link.send.as_ref().ok_or(PostReason::Device)?;
        let at = self.pi;
        send.shadow.put(Tag::new(at, blocks, self.seq), user_ctx);
        self.seq = (self.seq + 1) & SEQ_MASK;
        self.pi = at.wrapping_add(blocks);
        send.pi.store(self.pi, Ordering::Release);
        Ok(at)
    }

    /// Encodes any request that is not one of the usual ones.
    fn push_other(&mut self, wr: &SendWr<'_>) -> Result<u32, PostReason> {
        if let Some((mut atomic, to)) = sqe::atomic_of(wr, self.target.as_ref()) {
            self.find_room(Atomic::BLOCKS)?;
            (atomic.request.entry_idx, atomic.request.owner) = self.place();
            self.store_atomic(self.pi, &atomic.encode(&to))?;
            return self.commit(Atomic::BLOCKS, wr.user_ctx);
        }
        let encoded = sqe::build(&mut self.scratch, wr, self.target.as_ref())?;
        let (mut sqe, blocks) = (encoded.sqe, encoded.blocks);
        self.find_room(blocks)?;
        (sqe.entry_idx, sqe.owner) = self.place();
        sqe.encode(&mut self.scratch);
        self.store(blocks)?;
        self.commit(blocks, wr.user_ctx)
    }

    /// Index and owner bit of the next entry.
    #[inline]
    fn place(&self) -> (u16, bool) {
        self.place_of(self.pi)
    }

    /// Index and owner bit of the entry at position `at`.
    #[inline(always)]
    fn place_of(&self, at: u32) -> (u16, bool) {
        (low16(at), (at >> self.parts.log2) & 1 == 0)
    }

    /// Records the entry that was stored into the ring as posted. Returns its position.
    #[inline]
    fn commit(&mut self, blocks: u32, user_ctx: u64) -> Result<u32, PostReason> {
        let pi = self.pi;
        let send = self.link.send.as_ref().ok_or(PostReason::Device)?;
        send.shadow.put(Tag::new(pi, blocks, self.seq), user_ctx);
        self.seq = (self.seq + 1) & SEQ_MASK;
        self.pi = pi.wrapping_add(blocks);
        Ok(blocks)
    }

    /// Copies the scratch words into the ring block by block, since an entry may wrap around its end.
    #[inline]
    fn store(&self, blocks: u32) -> Result<(), PostReason> {
        let scratch = self.scratch.as_chunks::<BLOCK_WORDS>().0;
        (self.pi..)
            .zip(scratch)
            .take(blocks as usize)
            .try_for_each(|(at, block)| self.store_block(at, block))
    }

    /// Stores a block at position `at`, free running.
    #[inline]
    fn store_block(&self, at: u32, block: &[u64; BLOCK_WORDS]) -> Result<(), PostReason> {
        self.ring.store(at, block).map_err(|_| PostReason::Device)
    }

    /// Whether the queue or the device is gone.
    #[inline(always)]
    fn is_gone(&self) -> bool {
        self.parts.failed.load(Ordering::Relaxed) || self.parts.closed.load(Ordering::Relaxed)
    }

    /// Reads the RC target again after a bind or unbind.
    #[inline]
    fn look_at_target(&mut self) {
        let version = self.parts.bound.version.load(Ordering::Acquire);
        if version != self.target_version {
            self.target_version = version;
            self.target = *lock(&self.parts.bound.target);
        }
    }

    /// Makes the batch visible and rings once. `direct`: it is the one block at the front of the scratch words.
    #[inline]
    fn publish(&self, requests: usize, direct: bool) {
        if requests == 0 {
            return;
        }
        if let Some(send) = self.link.send.as_ref() {
            send.pi.store(self.pi, Ordering::Release);
        }
        self.parts.jfc.show_room();
        match self.scratch.first_chunk::<BLOCK_WORDS>().filter(|_| direct) {
            Some(block) => self.doorbell.ring(SendDoorbell::Direct(block)),
            None => self.doorbell.ring(SendDoorbell::Producer(self.pi)),
        }
    }
}

impl SendPoster {
    /// Whether requests like the last WRITE or READ still have the same target.
    #[inline(always)]
    fn has_last(&self) -> bool {
        self.is_same_target() && !self.last.is_none()
    }

    /// Whether requests without a target have the same one as the last, and the queue still exists.
    #[inline(always)]
    fn is_same_target(&self) -> bool {
        let is_bound = self.parts.bound.version.load(Ordering::Acquire) == self.target_version;
        !self.is_gone() && is_bound
    }

    /// Turns the block `last` into that of the next request.
    #[inline(always)]
    fn move_last(&mut self, at: u32, moved: &TransferDelta) {
        let (entry_idx, owner) = self.place_of(at);
        let place = (entry_idx, owner, moved.is_signalled);
        self.last.move_to(place, (moved.remote, moved.local, moved.len));
    }

    /// Posts a request like the last one, recorded at position `at`, with its whole block: the device refused the
    /// short form.
    #[inline(never)]
    fn give_moved(&mut self, at: u32, delta: &TransferDelta) -> bool {
        self.move_last(at, delta);
        self.give_last(at).is_ok()
    }

    #[inline(never)]
    fn repeat_transfers(&mut self, list: &[TransferDelta]) -> usize {
        match list {
            [one] if self.repeat_transfer(one) => 1,
            _ => self.repeat_list(list),
        }
    }

    /// Posts the front of a list through the ring, as much as there is room for. Returns how many.
    #[inline(never)]
    fn repeat_list(&mut self, list: &[TransferDelta]) -> usize {
        if !self.has_last() {
            return 0;
        }
        let refused = list.iter().position(|delta| self.push_like_last(delta).is_err());
        let posted = refused.unwrap_or(list.len());
        self.publish(posted, false);
        posted
    }

    /// Stores a request like the last one into the ring.
    #[inline(always)]
    fn push_like_last(&mut self, moved: &TransferDelta) -> Result<(), PostReason> {
        self.find_room(1)?;
        self.move_last(self.pi, moved);
        self.store_block(self.pi, self.last.block())?;
        self.commit(1, moved.user_ctx).map(|_| ())
    }
}

impl SendQueue for SendPoster {
    #[inline]
    fn execute_repeat(
        &mut self,
        user_ctx: u64,
        remote: u64,
        local: u64,
        len: u32,
        is_signalled: bool,
    ) -> bool {
        if !is_signalled {
            return self.execute_silent(remote, local, len);
        }
        if !self.has_grant() {
            return self.grant_and_execute(user_ctx, remote, local, len);
        }
        // The device checks queue and target: if one of them ended since, it refuses.
        let is_failed = self.parts.failed.load(Ordering::Relaxed);
        !is_failed && self.execute_local(user_ctx, (remote, local, len))
    }

    #[inline]
    fn try_repeat(&mut self, repeats: LikeLast<'_>) -> usize {
        match repeats {
            LikeLast::Transfers(list) => self.repeat_transfers(list),
            // Reached by tail calls, so that none saves registers for another.
            LikeLast::Message(delta) => self.repeat_message(delta),
            LikeLast::Atomic(delta) => self.repeat_atomic(delta),
        }
    }

    #[inline]
    fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        if self.is_gone() {
            return Err(PostError { index: 0, reason: PostReason::Device });
        }
        self.look_at_target();
        if let ([wr], true) = (wrs, self.parts.direct)
            && let Some(request) = sqe::one_sided_of(wr, self.target.as_ref())
        {
            let posted = self.post_direct(request, wr.user_ctx);
            return posted.map_err(|reason| PostError { index: 0, reason });
        }
        if let ([wr], true) = (wrs, self.parts.direct)
            && let Some(posted) = self.post_message(wr)
        {
            return posted.map_err(|reason| PostError { index: 0, reason });
        }
        if let ([wr], true) = (wrs, self.parts.direct)
            && let Some(atomic) = sqe::atomic_of(wr, self.target.as_ref())
        {
            let posted = self.post_atomic(atomic, wr.user_ctx);
            return posted.map_err(|reason| PostError { index: 0, reason });
        }
        let mut last_blocks = 0;
        for (index, wr) in wrs.iter().enumerate() {
            match self.push(wr) {
                Ok(blocks) => last_blocks = blocks,
                Err(reason) => {
                    self.publish(index, false);
                    return Err(PostError { index, reason });
                }
            }
        }
        // A single usual request does not get here, so the block is in the scratch words.
        self.publish(wrs.len(), self.parts.direct && wrs.len() == 1 && last_blocks == 1);
        Ok(())
    }
}

impl Drop for SendPoster {
    fn drop(&mut self) {
        self.local_completions.end(self.parts.jfc.local_completions());
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "entry indices are modulo 2^16")]
fn low16(pos: u32) -> u16 {
    pos as u16
}

/// The target of an RC jetty; the poster reads it when the version changes.
///
/// Poster and control part of the jetty share it.
#[derive(Debug, Default)]
pub(crate) struct BoundTarget {
    pub(crate) version: AtomicU32,
    pub(crate) target: Mutex<Option<TargetId>>,
}

/// log2 of the blocks that `cfg` needs.
///
/// # Errors
/// `Invalid`: more than an entry index can name.
pub(crate) fn blocks_log2(cfg: &SendCfg) -> Result<u8, Status> {
    let tail = (usize::from(cfg.max_sge) * SGE_LEN).max(cfg.max_inline as usize);
    // WRITE_NOTIFY has the longest control part of those with a tail; atomics take two blocks.
    let per_request = blocks_for(Opcode::WriteNotify, tail).clamp(2, BLOCKS_MAX);
    let too_deep = || {
        Status::Invalid.why(format_args!(
            "a depth of {} with requests of {per_request} blocks (max_sge {}, max_inline {}); a ring has 65536 blocks",
            cfg.depth, cfg.max_sge, cfg.max_inline
        ))
    };
    let blocks = (cfg.depth.max(1) as usize).checked_mul(per_request).ok_or_else(too_deep)?;
    let log2 = blocks.checked_next_power_of_two().ok_or_else(too_deep)?.trailing_zeros();
    u8::try_from(log2).ok().filter(|log2| *log2 <= INDEX_BITS).ok_or_else(too_deep)
}

/// The arguments of CREATE_QUEUE for a send ring at `base`.
pub(crate) fn sq_args(cfg: &SendCfg, base: u64, blocks_log2: u8) -> SqArgs {
    SqArgs {
        base,
        blocks_log2,
        jfcn: cfg.jfc,
        rnr_retry: cfg.rnr_retry,
        err_timeout: cfg.err_timeout,
        priority: cfg.priority,
    }
}

/// Whether a queue with these flags completes in posting order.
pub(crate) fn is_in_order(cfg: &SendCfg) -> bool {
    !cfg.flags.contains(SendFlags::OUTORDER_COMP)
}

/// Entry indices in CQEs have 16 bits.
const INDEX_BITS: u8 = 16;

impl SendPoster {
    /// Records what a post touches. Called when the device writes this queue's CQEs, since the queue may then be one
    /// of many.
    #[cold]
    #[inline(never)]
    fn note_lines(&mut self) {
        self.is_noted = true;
        self.link.lines.note(0, self, HOT_LEN);
        self.doorbell.note_lines(&self.link.lines);
    }
}

/// Bytes at the front of a poster that each post touches.
const HOT_LEN: usize = 128;
