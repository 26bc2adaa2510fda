//! The receive ring of a JFR or jetty.
//!
//! *Owns*: the producer index. *Takes*: checked receive requests. *Gives*: entries in the ring; storing the producer
//! index into the record in host memory with release is the whole doorbell. *Must not*: reuse an entry before its
//! completion was polled.

use std::sync::Arc;

use udma_abi::{
    Sge,
    cmd::RqArgs,
    rqe::{RQE_WORDS_MAX, SGE_MAX, record, stride},
    sqe::SGE_LEN,
};
use urma_core::{LocalSge, PostError, PostReason, RecvCfg, RecvWr, Status, Token, ops::RecvQueue};
use urma_mem::{
    Region,
    sync::{AtomicBool, Ordering},
};

use crate::{alloc::DmaBuf, shadow::Tag, table::RecvLink};

/// The posting half of a receive queue.
#[derive(Debug)]
pub(crate) struct RecvPoster {
    parts: RecvParts,
    ring: Region,
    /// Position of the next entry, free running.
    pi: u32,
    /// Oldest entry whose completion was not polled, as last read.
    done: u32,
}

/// Arguments of [`RecvPoster::new`], for one queue.
#[derive(Debug)]
pub(crate) struct RecvParts {
    /// Memory of the receive ring.
    pub(crate) memory: Arc<DmaBuf>,
    /// Doorbell record, into which the producer index is stored.
    pub(crate) record: Arc<DmaBuf>,
    /// Receives that the device has not completed.
    pub(crate) link: Arc<RecvLink>,
    /// log2 of the number of entries, all of which may be outstanding.
    pub(crate) log2: u8,
    /// Most pieces of a request.
    pub(crate) max_sge: u8,
    /// Set when the queue is gone.
    pub(crate) closed: Arc<AtomicBool>,
    /// Set when the device is gone.
    pub(crate) failed: Arc<AtomicBool>,
}

/// Entries of the smallest ring, the same as in UDMA's driver (UMDK release 26.06). Programs post more than the depth
/// that they asked for: as many as such a ring holds.
const ENTRIES_MIN: u32 = 64;

/// log2 of the entries for `cfg`.
///
/// # Errors
/// `Invalid`: more entries or pieces than the contract allows.
pub(crate) fn depth_log2(cfg: &RecvCfg) -> Result<u8, Status> {
    if usize::from(cfg.max_sge) > SGE_MAX {
        return Err(Status::Invalid.why(format_args!(
            "max_sge of the receives is {}; {SGE_MAX} is the most",
            cfg.max_sge
        )));
    }
    let too_deep = || {
        Status::Invalid.why(format_args!(
            "the depth of the receives is {}; 65536 entries are the most",
            cfg.depth
        ))
    };
    let depth = cfg.depth.max(ENTRIES_MIN).checked_next_power_of_two().ok_or_else(too_deep)?;
    u8::try_from(depth.trailing_zeros()).ok().filter(|log2| *log2 <= 16).ok_or_else(too_deep)
}

/// Length in bytes of a ring of `1 << log2` entries.
pub(crate) fn ring_len(cfg: &RecvCfg, log2: u8) -> usize {
    stride(usize::from(cfg.max_sge)) << log2
}

/// The arguments of CREATE_QUEUE for a receive ring at `base`.
pub(crate) fn rq_args(cfg: &RecvCfg, base: u64, depth_log2: u8, token: Option<Token>) -> RqArgs {
    RqArgs {
        base,
        depth_log2,
        max_sge: cfg.max_sge.max(1),
        jfcn: cfg.jfc,
        min_rnr_timer: cfg.min_rnr_timer,
        token_value: token.map_or(0, Token::value),
    }
}

/// The arguments that carry only the token of a jetty with a shared JFR.
pub(crate) fn token_args(jfcn: u32, token: Option<Token>) -> Option<RqArgs> {
    let token_value = token?.value();
    Some(RqArgs { base: 0, depth_log2: 0, max_sge: 1, jfcn, min_rnr_timer: 0, token_value })
}

impl RecvPoster {
    pub(crate) fn new(parts: RecvParts) -> Self {
        Self { ring: parts.memory.region().clone(), parts, pi: 0, done: 0 }
    }

    #[inline]
    fn push(&mut self, wr: &RecvWr<'_>) -> Result<(), PostReason> {
        if wr.dst.len() > usize::from(self.parts.max_sge.max(1)) {
            return Err(PostReason::Invalid("more pieces than the queue was created for"));
        }
        if self.pi.wrapping_sub(self.done) >= self.entries() && !self.make_room() {
            return Err(PostReason::Full);
        }
        let stride = stride(usize::from(self.parts.max_sge));
        let mask = self.entries() - 1;
        let at = (self.pi & mask) as usize * stride;
        if let [piece] = wr.dst {
            self.store_one(piece, at, stride).ok_or(PostReason::Device)?;
            self.commit(wr.user_ctx);
            return Ok(());
        }
        let mut words = [0; RQE_WORDS_MAX];
        // A piece of length 0 would end the list.
        let pieces = wr.dst.iter().filter(|piece| piece.len != 0);
        for (pair, piece) in words.chunks_exact_mut(2).zip(pieces) {
            let token_id = piece.segment.token_id().value();
            pair.copy_from_slice(&Sge { len: piece.len, token_id, va: piece.addr }.to_words());
        }
        for (offset, pair) in (at..).step_by(16).zip(words.as_chunks::<2>().0).take(stride / 16) {
            self.ring.store_block(offset, pair).map_err(|_| PostReason::Device)?;
        }
        self.commit(wr.user_ctx);
        Ok(())
    }

    /// Stores an entry of one piece in `stride` bytes at `at`.
    #[inline]
    fn store_one(&self, piece: &LocalSge<'_>, at: usize, stride: usize) -> Option<()> {
        let token_id = piece.segment.token_id().value();
        let words = Sge { len: piece.len, token_id, va: piece.addr }.to_words();
        self.ring.store_block(at, &words).ok()?;
        if stride > SGE_LEN {
            // It ends the list.
            self.ring.store_block(at + SGE_LEN, &[0; 2]).ok()?;
        }
        Some(())
    }

    /// Records the entry that was stored as posted.
    #[inline]
    fn commit(&mut self, user_ctx: u64) {
        self.parts.link.shadow.put(Tag::new(self.pi, 1, self.pi), user_ctx);
        self.pi = self.pi.wrapping_add(1);
    }

    /// Shows the device what was posted.
    #[inline]
    fn publish(&self) {
        self.parts.link.pi.store(self.pi, Ordering::Release);
        let record = self.parts.record.region();
        // The store is in memory that this driver allocated with the record's size.
        let _ = record.store_u32_release(record::RQ_PI, self.pi);
    }

    #[cold]
    fn make_room(&mut self) -> bool {
        while self.done != self.pi && self.parts.link.shadow.tag(self.done).is_consumed() {
            self.done = self.done.wrapping_add(1);
        }
        self.pi.wrapping_sub(self.done) < self.entries()
    }

    #[inline]
    fn entries(&self) -> u32 {
        1 << self.parts.log2
    }
}

impl RecvQueue for RecvPoster {
    #[inline]
    fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        if self.parts.failed.load(Ordering::Relaxed) || self.parts.closed.load(Ordering::Relaxed) {
            return Err(PostError { index: 0, reason: PostReason::Device });
        }
        let before = self.pi;
        if let [wr] = wrs {
            let pushed = self.push(wr);
            self.publish();
            return pushed.map_err(|reason| PostError { index: 0, reason });
        }
        let refused = wrs
            .iter()
            .enumerate()
            .find_map(|(index, wr)| self.push(wr).err().map(|reason| PostError { index, reason }));
        if self.pi != before {
            self.publish();
        }
        refused.map_or(Ok(()), Err)
    }
}
