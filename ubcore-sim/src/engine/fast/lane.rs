//! The express lane: a WRITE, READ or atomic on an idle queue, executed straight from its blocks.
//!
//! *Owns*: which requests may take it. *Takes*: a direct entry, or the ring. *Gives*: the request executed and
//! retired, or nothing changed. *Must not*: decide on a status: what does not fit takes the long path, which has the
//! statuses; check a target in another way than the long path ([`PathState::reach`]).
//!
//! The lane has no state of its own. It uses the engine's caches (paths used before, the peer's entries, local
//! segments) and revalidates each: a path that ended, a segment that was withdrawn, a queue that left READY are seen
//! in the same words as on the long path. With no request outstanding there is nothing to wait for: order, fence and
//! retirement hold.

use std::sync::Arc;

use udma_abi::{
    Atomic, CqeStatus, OneSided, Tail, Tailed,
    cmd::{Access, Mode},
    sqe::{BLOCK_WORDS, SqeFlags},
};
use urma_mem::Region;
use urma_mem::hazard::CHUNK_MAX;
use urma_mem::sync::Ordering;

use super::execute_known_entry;
use super::known::{AtomicBlocks, KnownName, MovedEntry};
use crate::cfg::ExpressLane;
use crate::context::queue::Queue;
use crate::context::segment::LocalSegment;
use crate::context::tables::Tables;
use crate::engine::direct::atomic_at;
use crate::engine::gather::{EntryWords, Store, inline_bytes};
use crate::engine::pass_length::STREAM_MIN;
use crate::engine::pieces::{FoundPieces, len_of, local_of};
use crate::engine::remote::{AccessResult, PathState, Want};
use crate::engine::retire::Started;
use crate::engine::send::{SendEngine, SendState, StepOutcome, Visit};
use crate::fault::Faults;

/// Result of trying an entry on the lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LaneResult {
    /// The request succeeded and is retired.
    Done,
    /// It failed and is retired; the queue may have stopped.
    Failed,
    /// Nothing happened: the long path takes the entry.
    NotTaken,
}

impl SendEngine {
    /// Executes what can take the lane, and the rest by the long path.
    #[inline(always)]
    pub(in crate::engine) fn execute_on_lane(&mut self, visit: &Visit<'_>) -> StepOutcome {
        let tables = visit.tables;
        if tables.cfg.lane == ExpressLane::Off || tables.faults.is_planted() || !self.is_idle() {
            return self.execute_requests(visit);
        }
        let posted = self.posted(visit);
        // A direct entry is the newest one posted, so it is the next one only if it is the only one.
        let Some(block) = visit.direct.filter(|_| posted == 1) else {
            return self.execute_list(visit, posted);
        };
        match self.lane(visit, block, 1) {
            LaneResult::Done => StepOutcome::BUSY,
            LaneResult::Failed => self.execute_rest(visit, StepOutcome::BUSY),
            LaneResult::NotTaken => self.execute_requests(visit),
        }
    }

    /// Executes `block`, which is not in the ring, as the next entry. `None`: nothing happened.
    #[inline(always)]
    pub(crate) fn execute_block(
        &mut self,
        (tables, queue): (&Tables, &Queue),
        block: &[u64; BLOCK_WORDS],
    ) -> Option<StepOutcome> {
        if !self.is_idle() || queue.pi.load(Ordering::Acquire) != self.ring.head {
            return None;
        }
        if !self.execute_cached(queue, block) {
            return self.execute_new((tables, queue), block);
        }
        queue.pi.store(self.ring.head, Ordering::Release);
        Some(self.clear_slots(StepOutcome::BUSY))
    }

    /// Executes a whole block like any cached one, which becomes the newest; the driver makes its CQE. Returns the
    /// JFC index as [`SendEngine::repeat`] does.
    #[inline(always)]
    pub(crate) fn execute_known(
        &mut self,
        queue: &Queue,
        block: &[u64; BLOCK_WORDS],
    ) -> Option<u32> {
        let head = self.ring.head;
        if !self.is_idle() || queue.pi.load(Ordering::Acquire) != head {
            return None;
        }
        let ends = self.known.seen_ends();
        let known = self.known.find_executed(block)?;
        if !(self.ring.is_at_head(block[0]) && known.lives(ends)) {
            return None;
        }
        let moved = MovedEntry::of(block, head);
        known.open()?.copy(&moved)?;
        self.count_unreported(1, 1);
        queue.fast.unreported(u64::from(moved.len));
        queue.pi.store(self.ring.head, Ordering::Release);
        Some(self.retire.port().next_index())
    }

    /// Executes a request that missed the cache, by the rest of the express lane.
    #[inline(never)]
    fn execute_new(
        &mut self,
        (tables, queue): (&Tables, &Queue),
        block: &[u64; BLOCK_WORDS],
    ) -> Option<StepOutcome> {
        if tables.cfg.lane == ExpressLane::Off || tables.faults.is_planted() {
            return None;
        }
        let visit = Visit { tables, queue, direct: None };
        let result = self.lane_new(&visit, block, 1);
        if result == LaneResult::NotTaken {
            return None;
        }
        queue.pi.store(self.ring.head, Ordering::Release);
        let mut left = StepOutcome::BUSY;
        if result == LaneResult::Failed {
            left = self.execute_rest(&visit, left);
        }
        Some(self.clear_slots(left))
    }

    /// Executes up to a budget of the `posted` blocks in the ring on the lane, and the rest by the long path.
    #[inline(never)]
    fn execute_list(&mut self, visit: &Visit<'_>, posted: u32) -> StepOutcome {
        let mut posted = posted;
        if posted == 0 || posted > self.ring.blocks() {
            return self.execute_requests(visit);
        }
        let mut left = StepOutcome::NOTHING;
        let mut budget = visit.tables.step.requests();
        while budget != 0 {
            let before = self.ring.head;
            let done = self.execute_cached_list(visit.queue, posted, budget);
            let mut result = LaneResult::Done;
            if done == 0 {
                // An entry that does not take the lane is fetched again, and the long path decides on that copy
                // alone.
                result = self.lane_new(visit, &self.ring.block(0), posted);
            }
            left |= StepOutcome::BUSY.when(result != LaneResult::NotTaken);
            posted -= self.ring.head.wrapping_sub(before);
            budget -= done.max(1);
            if result != LaneResult::Done {
                break;
            }
            if posted == 0 {
                return left;
            }
        }
        self.execute_rest(visit, left)
    }

    /// Takes the long path for what is posted behind requests that took the lane.
    #[cold]
    pub(super) fn execute_rest(&mut self, visit: &Visit<'_>, left: StepOutcome) -> StepOutcome {
        let mut left = left;
        let direct = visit.direct.filter(|_| left == StepOutcome::NOTHING);
        left |= self.execute_requests(&Visit { direct, ..*visit });
        left
    }

    /// Executes the entry that starts with `block`, the next of `posted` blocks of an idle queue.
    #[inline(always)]
    fn lane(&mut self, visit: &Visit<'_>, block: &[u64; BLOCK_WORDS], posted: u32) -> LaneResult {
        if self.execute_cached(visit.queue, block) {
            return LaneResult::Done;
        }
        self.lane_new(visit, block, posted)
    }

    /// Executes a request that missed the cache of known requests.
    #[inline(never)]
    pub(super) fn lane_new(
        &mut self,
        visit: &Visit<'_>,
        block: &[u64; BLOCK_WORDS],
        posted: u32,
    ) -> LaneResult {
        let Some(entry) = OneSided::decode(block) else {
            return self.lane_tailed(visit, block, posted);
        };
        if !self.starts(visit, &entry, u64::from(entry.piece.len)) {
            return LaneResult::NotTaken;
        }
        let copied = self.copy_request(visit, &entry);
        if matches!(copied, Ok(AccessResult::Yes(..))) && self.known.wants(block) {
            self.keep_known(visit, KnownName::of(block, entry.is_write), &entry);
        }
        self.end(visit, (&entry, 1), copied)
    }

    /// Caches the request with this name, which was just executed.
    #[cold]
    fn keep_known(&mut self, visit: &Visit<'_>, name: KnownName, entry: &OneSided) {
        let Some(segment) = self.segments.known_arc(entry.piece.token_id) else { return };
        let Some(path) = self.path_states.find_open(entry.tpn) else { return };
        if let Some(remote) = path.known_memory(entry.seg_token_id) {
            let link = Arc::clone(&path.link);
            self.known.keep(name, (link, segment, short_max(visit.tables.step_max)), remote);
        }
    }

    /// Executes a request with several pieces or an inline payload; an atomic goes on to [`SendEngine::lane_atomic`].
    #[inline(never)]
    fn lane_tailed(
        &mut self,
        visit: &Visit<'_>,
        front: &[u64; BLOCK_WORDS],
        posted: u32,
    ) -> LaneResult {
        let Some(Tailed { mut request, tail }) = Tailed::decode(front) else {
            return self.lane_atomic(visit, front, posted);
        };
        let blocks = tail.blocks();

        self.words[..BLOCK_WORDS].copy_from_slice(front);
        if blocks > posted {
            return LaneResult::NotTaken;
        }
        self.ring.load_rest(blocks, &mut self.words);
        let len = match tail {
            Tail::Pieces(num) => len_of(pieces_in(&self.words, num)),
            Tail::Inline(len) => len as u64,
        };
        if !self.starts(visit, &request, len) {
            return LaneResult::NotTaken;
        }
        request.piece.len = u32::try_from(len).unwrap_or(0);
        let copied = match tail {
            Tail::Pieces(num) => self.copy_pieces(visit, &request, num),
            Tail::Inline(_) => self.copy_inline(visit, &request),
        };
        self.end(visit, (&request, blocks), copied)
    }

    /// Executes an atomic, from the cache of known requests if it hits.
    fn lane_atomic(
        &mut self,
        visit: &Visit<'_>,
        front: &[u64; BLOCK_WORDS],
        posted: u32,
    ) -> LaneResult {
        if posted < Atomic::BLOCKS {
            return LaneResult::NotTaken;
        }
        let blocks = [*front, self.ring.block(1)];
        let again = self.execute_cached_atomic(visit, &blocks);
        if again != LaneResult::NotTaken {
            return again;
        }
        let Some(atomic) = Atomic::decode(front, || Some(blocks[1])) else {
            return LaneResult::NotTaken;
        };
        let entry = &atomic.request;
        let is_word = matches!(entry.piece.len, 4 | 8);
        if !(is_word && self.is_next(entry) && self.retire.reserve()) {
            return LaneResult::NotTaken;
        }
        let copied = self.change_word(visit, &atomic);
        if matches!(copied, Ok(AccessResult::Yes(..))) && self.known.wants(front) {
            self.keep_known(visit, KnownName::of_atomic(&blocks, atomic.kind), entry);
        }
        self.end(visit, (entry, Atomic::BLOCKS), copied)
    }

    /// Executes an atomic like an earlier one, which is not in the ring, as the next entry. `None`: nothing happened.
    #[inline(always)]
    pub(crate) fn execute_atomic(
        &mut self,
        (tables, queue): (&Tables, &Queue),
        blocks: &AtomicBlocks,
    ) -> Option<StepOutcome> {
        if !self.is_idle() || queue.pi.load(Ordering::Acquire) != self.ring.head {
            return None;
        }
        let visit = Visit { tables, queue, direct: None };
        // Remembers the entry: from now on the fields that differ are enough.
        let _ = self.known.find_executed_atomic(blocks);
        let result = self.execute_cached_atomic(&visit, blocks);
        if result == LaneResult::NotTaken {
            return None;
        }
        queue.pi.store(self.ring.head, Ordering::Release);
        let left = match result {
            LaneResult::Failed => self.execute_rest(&visit, StepOutcome::BUSY),
            LaneResult::Done | LaneResult::NotTaken => StepOutcome::BUSY,
        };
        Some(self.clear_slots(left))
    }

    /// Executes and retires an atomic like an earlier one, the next entry; `blocks` may be in the ring or not.
    #[inline(always)]
    pub(super) fn execute_cached_atomic(
        &mut self,
        visit: &Visit<'_>,
        blocks: &AtomicBlocks,
    ) -> LaneResult {
        let ends = self.known.seen_ends();
        let Some(known) = self.known.find_atomic(blocks) else { return LaneResult::NotTaken };
        let word = blocks[0][0];
        if !(self.ring.is_at_head(word) && known.lives(ends) && self.retire.reserve()) {
            return LaneResult::NotTaken;
        }
        let changed = known.open().and_then(|open| open.change(blocks));
        let (entry_idx, flags) =
            (OneSided::entry_idx_of(&blocks[0]), OneSided::flags_of(&blocks[0]));
        let bytes = match changed {
            Some(Ok(bytes)) => bytes,
            // Executed in memory that was withdrawn meanwhile: it must not be executed twice.
            Some(Err(status)) => {
                return self.fail(visit, (entry_idx, Atomic::BLOCKS), (flags, true), status);
            }
            None => {
                self.retire.keep_or_give_back();
                return LaneResult::NotTaken;
            }
        };
        self.ring.head = self.ring.head.wrapping_add(Atomic::BLOCKS);
        visit.queue.fast.direct(u64::from(bytes));
        self.retire.succeed((entry_idx, Atomic::BLOCKS), (flags, bytes), &visit.queue.fast);
        LaneResult::Done
    }

    /// Executes the request in `block`, the next one, with the cached checks. `false`: nothing happened.
    #[inline(always)]
    pub(super) fn execute_cached(&mut self, queue: &Queue, block: &[u64; BLOCK_WORDS]) -> bool {
        let ends = self.known.seen_ends();
        let Some(known) = self.known.find_executed(block) else { return false };
        if !self.ring.is_at_head(block[0]) {
            return false;
        }
        if !known.lives(ends) {
            return false;
        }
        let moved = MovedEntry::of(block, self.ring.head);
        execute_known_entry(known, (&mut self.ring, &mut self.retire), queue, &moved)
    }

    /// Executes the next of `posted` blocks in the ring and those like it that follow, at most `most` requests, under
    /// one announcement. Returns how many.
    #[inline(always)]
    pub(super) fn execute_cached_list(&mut self, queue: &Queue, posted: u32, most: u32) -> u32 {
        let mut block = self.ring.block(0);
        let ends = self.known.seen_ends();
        let Some(known) = self.known.find(&block) else { return 0 };
        if !known.lives(ends) {
            return 0;
        }
        // Unregistering a segment of this node visits the engine, so the segment lives until the list is done.
        let Some(open) = known.open() else { return 0 };
        let (mut done, mut bytes) = (0, 0);
        let most = most.min(posted);
        while done < most && bytes < CHUNK_MAX as u64 {
            if !(self.ring.is_at_head(block[0]) && self.retire.reserve()) {
                break;
            }
            if open.copy(&MovedEntry::of(&block, self.ring.head)).is_none() {
                self.retire.keep_or_give_back();
                break;
            }
            self.ring.head = self.ring.head.wrapping_add(1);
            let len = OneSided::len_of(&block);
            let (entry_idx, flags) = (OneSided::entry_idx_of(&block), OneSided::flags_of(&block));
            self.retire.succeed_in_list(entry_idx, (flags, len), &queue.fast);
            (done, bytes) = (done + 1, bytes + u64::from(len));
            block = self.ring.block(0);
            if !open.is_of(&block) {
                break;
            }
        }
        drop(open);
        if done != 0 {
            queue.fast.direct_list(u64::from(done), bytes);
            self.retire.retire(done);
        }
        done
    }

    /// Whether nothing is in flight: every request that was started is retired.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        // Completions in the mailbox are of unretired requests: without those it is empty.
        self.state == SendState::Ready && !self.under_way && self.retire.is_empty()
    }

    /// Whether a WRITE or READ of `len` bytes may take the lane; reserves its completion slot.
    #[inline(always)]
    fn starts(&mut self, visit: &Visit<'_>, entry: &OneSided, len: u64) -> bool {
        let is_short = is_short(len, visit.tables.step_max);
        is_short && self.is_next(entry) && self.retire.reserve()
    }

    /// Whether the entry is at the head of the ring, and the queue's mode has the operation.
    #[inline]
    fn is_next(&self, entry: &OneSided) -> bool {
        let may = match self.mode {
            Mode::Rm => true,
            Mode::Rc => self.bound.is_some_and(|(tpn, _)| tpn == entry.tpn),
            Mode::Um => false,
        };
        may && self.ring.is_head(entry.owner, entry.entry_idx)
    }

    /// Checks the request and copies its bytes. `NotDirect`: nothing was copied, and no error can be seen from here.
    #[inline(always)]
    fn copy_request(
        &mut self,
        visit: &Visit<'_>,
        entry: &OneSided,
    ) -> Result<AccessResult<()>, CqeStatus> {
        let Some((local, at)) = local_of(&self.segments, entry.piece, store_of(entry)) else {
            return Ok(AccessResult::NotDirect);
        };
        let Some(path) = self.path_states.find_open(entry.tpn) else {
            return Ok(AccessResult::NotDirect);
        };
        let want = want_of(entry, right_of(entry));
        let tables = visit.tables;
        let Some(place) = path.own_place(&tables.segments, tables.faults, &want) else {
            return copy_to_peer(path, tables.faults, want, ((local, at), entry.is_write));
        };
        let (segment, offset) = place?;
        copy((local, at), (&segment.region, offset), entry.is_write, entry.piece.len)?;
        Ok(AccessResult::Yes((), segment.life))
    }

    /// Checks the request and copies from or to the local pieces that the fetched words name.
    fn copy_pieces(
        &mut self,
        visit: &Visit<'_>,
        entry: &OneSided,
        num: usize,
    ) -> Result<AccessResult<()>, CqeStatus> {
        let words = pieces_in(&self.words, num);
        let mut pieces = FoundPieces::NONE;
        if pieces.find(&self.segments, words, store_of(entry)).is_none() {
            return Ok(AccessResult::NotDirect);
        }
        let Some(path) = self.path_states.find_open(entry.tpn) else {
            return Ok(AccessResult::NotDirect);
        };
        let want = want_of(entry, right_of(entry));
        let tables = visit.tables;
        path.reach(&tables.segments, tables.faults, &want, |memory, offset| {
            let there = (memory, offset);
            if entry.is_write { pieces.write_to(there) } else { pieces.read_from(there) }
        })
    }

    /// Checks the request and writes the inline payload behind the control words.
    fn copy_inline(
        &mut self,
        visit: &Visit<'_>,
        entry: &OneSided,
    ) -> Result<AccessResult<()>, CqeStatus> {
        let Some(path) = self.path_states.find_open(entry.tpn) else {
            return Ok(AccessResult::NotDirect);
        };
        let want = want_of(entry, Access::WRITE);
        let tables = visit.tables;
        let bytes = inline_bytes(&self.words);
        let bytes = bytes.get(Tailed::TAIL * 8..).and_then(|b| b.get(..entry.piece.len as usize));
        let bytes = bytes.ok_or(CqeStatus::LocLen)?;
        path.reach(&tables.segments, tables.faults, &want, |memory, offset| {
            memory.write_ordered(offset, bytes).map_err(|_| CqeStatus::RemAccessAbort)
        })
    }

    /// Checks the atomic, changes the remote word, and stores its old value locally.
    #[inline]
    fn change_word(
        &mut self,
        visit: &Visit<'_>,
        atomic: &Atomic,
    ) -> Result<AccessResult<()>, CqeStatus> {
        let entry = &atomic.request;
        let Some((local, at)) = local_of(&self.segments, entry.piece, Store::Yes) else {
            return Ok(AccessResult::NotDirect);
        };
        let Some(path) = self.path_states.find_open(entry.tpn) else {
            return Ok(AccessResult::NotDirect);
        };
        let want = want_of(entry, Access::ATOMIC);
        let operands = (atomic.operand, atomic.compare);
        let tables = visit.tables;
        let reached = path.reach(&tables.segments, tables.faults, &want, |memory, offset| {
            atomic_at((memory, offset), want.len, atomic.kind, operands)
        })?;
        let AccessResult::Yes(before, life) = reached else { return Ok(AccessResult::NotDirect) };
        let bytes = before.to_le_bytes();
        let bytes = bytes.get(..entry.piece.len as usize).unwrap_or(&bytes);
        local.region.write_ordered(at, bytes).map_err(|_| CqeStatus::LocAccess)?;
        Ok(AccessResult::Yes((), life))
    }

    /// Retires the request of `entry` with its status; if nothing happened, keeps the completion slot instead.
    #[inline(always)]
    fn end(
        &mut self,
        visit: &Visit<'_>,
        (entry, blocks): (&OneSided, u32),
        copied: Result<AccessResult<()>, CqeStatus>,
    ) -> LaneResult {
        match copied {
            Ok(AccessResult::Yes(..)) => {}
            Ok(AccessResult::NotDirect) => {
                self.retire.keep_or_give_back();
                return LaneResult::NotTaken;
            }
            Err(status) => {
                let fenced = !entry.is_write;
                return self.fail(visit, (entry.entry_idx, blocks), (entry.flags, fenced), status);
            }
        }
        self.ring.head = self.ring.head.wrapping_add(blocks);
        let bytes = entry.piece.len;
        visit.queue.fast.direct(u64::from(bytes));
        let at = (entry.entry_idx, blocks);
        self.retire.succeed(at, (entry.flags, bytes), &visit.queue.fast);
        LaneResult::Done
    }

    // Takes values: a reference to the entry would force it into memory on the usual path too.
    #[cold]
    #[inline(never)]
    pub(super) fn fail(
        &mut self,
        visit: &Visit<'_>,
        (entry_idx, blocks): (u16, u32),
        (flags, fenced): (SqeFlags, bool),
        status: CqeStatus,
    ) -> LaneResult {
        self.ring.head = self.ring.head.wrapping_add(blocks);
        let request = Started {
            entry_idx,
            blocks,
            flags,
            fenced,
            tpn: 0,
            end: Some((status, 0)),
            reported: false,
        };
        self.retire.finish(request, &visit.queue.fast, visit.tables.faults);
        self.after_error(visit, status);
        LaneResult::Failed
    }
}

/// Whether the request stores into its local pieces.
#[inline]
fn store_of(entry: &OneSided) -> Store {
    if entry.is_write { Store::No } else { Store::Yes }
}

/// The access right that the request needs on its remote segment.
#[inline]
fn right_of(entry: &OneSided) -> Access {
    if entry.is_write { Access::WRITE } else { Access::READ }
}

/// The words of `num` pieces; none if the entry is too short for them.
#[inline]
fn pieces_in(words: &EntryWords, num: usize) -> &[u64] {
    words.get(Tailed::TAIL..Tailed::TAIL + 2 * num).unwrap_or(&[])
}

/// Checks and copies on a path to another node, the part of [`SendEngine::copy_request`] that announces the access.
// A separate function: in one, the two paths run out of registers.
#[inline(never)]
fn copy_to_peer(
    path: &mut PathState,
    faults: Faults,
    want: Want,
    (place, is_write): ((&LocalSegment, usize), bool),
) -> Result<AccessResult<()>, CqeStatus> {
    let len = u32::try_from(want.len).map_err(|_| CqeStatus::LocLen)?;
    path.reach_peer(faults, &want, |memory, offset| copy(place, (memory, offset), is_write, len))
}

/// Copies the bytes between the local piece and the remote segment.
#[inline(always)]
fn copy(
    (local, at): (&LocalSegment, usize),
    (memory, offset): (&Region, usize),
    is_write: bool,
    len: u32,
) -> Result<(), CqeStatus> {
    let copied = if is_write {
        local.region.copy_to_ordered(at, memory, offset, len as usize)
    } else {
        memory.copy_to_ordered(offset, &local.region, at, len as usize)
    };
    copied.map_err(|_| CqeStatus::LocAccess)
}

/// The access that the request wants to its remote segment.
#[inline]
fn want_of(entry: &OneSided, right: Access) -> Want {
    Want {
        token_id: entry.seg_token_id,
        token: entry.token,
        va: entry.remote_va,
        len: u64::from(entry.piece.len),
        right,
        life: 0,
    }
}

/// Whether a request of `len` bytes takes one step of at most `step_max` bytes, and is too short to be written past
/// the caches ([`STREAM_MIN`]).
#[inline]
fn is_short(len: u64, step_max: u64) -> bool {
    len.wrapping_sub(1) < short_max(step_max)
}

/// Longest request in bytes that takes the lane.
#[inline]
fn short_max(step_max: u64) -> u64 {
    step_max.min(STREAM_MIN - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_go_past_the_caches_or_takes_several_steps_is_not_short() {
        let seen = [0, 1, STREAM_MIN - 1, STREAM_MIN].map(|len| is_short(len, 64 << 10));
        assert_eq!(seen, [false, true, true, false]);
        assert_eq!([1024, 1025].map(|len| is_short(len, 1024)), [true, false]);
    }
}
