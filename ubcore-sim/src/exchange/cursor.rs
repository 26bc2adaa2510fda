//! How far the receives of a ring are taken.
//!
//! *Owns*: the consumer index. *Takes*: the driver's record and ring. *Gives*: entries, each copied once. *Must not*:
//! believe an index that cannot be.

use std::sync::Arc;

use udma_abi::{
    Sge,
    rqe::{self, record},
    sqe::SGE_LEN,
};
use urma_mem::Region;

use super::sides::RecvSide;
use crate::context::segment::LocalSegment;
use crate::engine::gather::EntryWords;

/// The consumer side of a receive ring.
#[derive(Clone, Debug)]
pub(super) struct ReceiveCursor {
    record: Region,
    ring: Region,
    depth_log2: u8,
    /// Bytes of an entry.
    stride: usize,
    /// Entries taken, free running.
    ci: u32,
}

/// The driver's index cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BadIndex;

impl ReceiveCursor {
    pub(super) fn new(side: &RecvSide) -> Self {
        Self {
            record: side.record.clone(),
            ring: side.ring.clone(),
            depth_log2: side.depth_log2,
            stride: rqe::stride(usize::from(side.max_sge)),
            ci: 0,
        }
    }

    /// Receives posted and not taken.
    #[inline]
    pub(super) fn posted(&self) -> Result<u32, BadIndex> {
        let pi = self.record.load_u32_acquire(record::RQ_PI).unwrap_or(self.ci);
        let posted = pi.wrapping_sub(self.ci);
        if posted <= 1 << self.depth_log2 { Ok(posted) } else { Err(BadIndex) }
    }

    /// The only piece of the next receive; `None`: it has several, or none is posted.
    #[inline]
    pub(super) fn next_piece(&self) -> Option<Sge> {
        if self.posted().unwrap_or(0) == 0 {
            return None;
        }
        let at = self.at(self.ci);
        let piece = Sge::from_words(self.ring.load_block::<2>(at).ok()?);
        if piece.len == 0 {
            return None;
        }
        let has_more = self.stride > SGE_LEN && {
            let next = self.ring.load_block::<2>(at + SGE_LEN).ok()?;
            Sge::from_words(next).len != 0
        };
        (!has_more).then_some(piece)
    }

    /// A copy of the next entry, which is posted. `None`: it cannot be read.
    pub(super) fn next_words(&self) -> Option<EntryWords> {
        let at = self.at(self.ci);
        let mut words = EntryWords::default();
        for (pair, offset) in words.chunks_exact_mut(2).zip((at..at + self.stride).step_by(16)) {
            pair.copy_from_slice(&self.ring.load_block::<2>(offset).ok()?);
        }
        Some(words)
    }

    /// Takes the next receive; returns its index.
    #[inline]
    pub(super) fn consume(&mut self) -> u16 {
        let entry_idx = low16(self.ci);
        self.ci = self.ci.wrapping_add(1);
        // The record's length was checked when the queue was made.
        let _ = self.record.store_u32_release(record::RQ_CI, self.ci);
        entry_idx
    }

    /// Token id of the receive that was taken last: a guess at that of the next one.
    pub(super) fn last_token_id(&self) -> Option<u32> {
        let words = self.ring.load_block::<2>(self.at(self.ci.wrapping_sub(1))).ok()?;
        Some(Sge::from_words(words).token_id)
    }

    /// Offset of an entry in the ring.
    #[inline]
    fn at(&self, index: u32) -> usize {
        (index & ((1 << self.depth_log2) - 1)) as usize * self.stride
    }
}

/// Receives of one piece, all of one segment.
#[derive(Debug)]
pub(super) struct ReceivePlace {
    pub(super) cursor: ReceiveCursor,
    segment: Arc<LocalSegment>,
}

impl ReceivePlace {
    pub(super) fn new(cursor: ReceiveCursor, segment: Arc<LocalSegment>) -> Self {
        Self { cursor, segment }
    }

    /// Where a message of `len` bytes comes, if the next receive is of the segment and has room.
    #[inline(always)]
    pub(super) fn next_for(&self, len: usize) -> Option<(&Region, usize)> {
        let (piece, segment) = (self.cursor.next_piece()?, &*self.segment);
        let offset = segment.offset_of(piece.va, u64::from(piece.len))?;
        let is_fit = piece.token_id == segment.token_id && len <= piece.len as usize;
        debug_assert!(segment.is_live(), "its end ends the ping-pong");
        (is_fit && segment.region.is_writable()).then(|| segment.memory.window(offset, len))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "entries are named modulo 2^16")]
const fn low16(index: u32) -> u16 {
    index as u16
}
