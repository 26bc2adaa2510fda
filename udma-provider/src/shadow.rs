//! The driver's record of each posted request, by ring position.
//!
//! *Owns*: user contexts, and whether a position was already completed. *Takes*: positions from the poster, 16-bit
//! indices from the device. *Gives*: the context exactly once. *Must not*: trust an index: one that was not posted,
//! or was completed before, yields nothing.
//!
//! Written by the poster before the doorbell, read by the poller after the owner bit; a position is reused only when
//! the poller marked it consumed (Release) and the poster saw that (Acquire).

use urma_mem::sync::{AtomicU64, Ordering};

/// Records of the requests of one ring.
#[derive(Debug)]
pub(crate) struct Shadow {
    entries: Box<[ShadowEntry]>,
    mask: u32,
}

#[derive(Debug)]
struct ShadowEntry {
    ctx: AtomicU64,
    tag: AtomicU64,
}

/// State of one position: position, consumed, blocks, request number modulo 2^28.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag(u64);

/// A request that was just completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CompletedRequest {
    /// The caller's 64-bit context of the request.
    pub(crate) ctx: u64,
    /// First position after the request.
    pub(crate) end: u32,
}

impl Tag {
    #[inline]
    pub(crate) fn new(pos: u32, blocks: u32, seq: u32) -> Self {
        let seq = u64::from(seq & SEQ_MASK) << SEQ_SHIFT;
        Self(u64::from(pos) | u64::from(blocks & 7) << BLOCKS_SHIFT | seq)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low half is the position")]
    pub(crate) fn pos(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(crate) fn is_consumed(self) -> bool {
        self.0 & CONSUMED != 0
    }

    #[inline]
    pub(crate) fn blocks(self) -> u32 {
        (self.0 >> BLOCKS_SHIFT) as u32 & 7
    }

    #[inline]
    pub(crate) fn seq(self) -> u32 {
        (self.0 >> SEQ_SHIFT) as u32
    }
}

impl Shadow {
    /// Creates the record of a ring of `1 << log2` positions, `log2` at most 16.
    pub(crate) fn new(log2: u8) -> Self {
        let len = 1usize << log2.min(16);
        let entry = |_| ShadowEntry { ctx: AtomicU64::new(0), tag: AtomicU64::new(CONSUMED) };
        Self { entries: (0..len).map(entry).collect(), mask: (1u32 << log2.min(16)) - 1 }
    }

    /// Records a request at `tag.pos()`.
    #[inline(always)]
    pub(crate) fn put(&self, tag: Tag, ctx: u64) {
        let entry = self.entry(tag.pos());
        entry.ctx.store(ctx, Ordering::Relaxed);
        entry.tag.store(tag.0, Ordering::Release);
    }

    /// Completes the request whose position ends in `index`; `None` if none is outstanding there.
    #[inline(always)]
    pub(crate) fn take(&self, index: u16) -> Option<CompletedRequest> {
        let entry = self.entry(u32::from(index));
        let tag = Tag(entry.tag.load(Ordering::Acquire));
        if tag.pos() & 0xffff != u32::from(index) || tag.is_consumed() {
            return None;
        }
        let ctx = entry.ctx.load(Ordering::Relaxed);
        entry.tag.store(tag.0 | CONSUMED, Ordering::Release);
        Some(CompletedRequest { ctx, end: tag.pos().wrapping_add(tag.blocks()) })
    }

    /// Completes the request at a position that the driver itself names.
    pub(crate) fn take_at(&self, pos: u32) -> Option<CompletedRequest> {
        if self.tag(pos).pos() != pos {
            return None;
        }
        self.take(u16::try_from(pos & 0xffff).ok()?)
    }

    /// Returns `from`, or the oldest position that the ring can still hold when it ends at `end`.
    pub(crate) fn oldest(&self, from: u32, end: u32) -> u32 {
        let len = self.mask + 1;
        if end.wrapping_sub(from) > len { end.wrapping_sub(len) } else { from }
    }

    /// State of the position.
    #[inline]
    pub(crate) fn tag(&self, pos: u32) -> Tag {
        Tag(self.entry(pos).tag.load(Ordering::Acquire))
    }

    #[inline]
    fn entry(&self, pos: u32) -> &ShadowEntry {
        &self.entries[(pos & self.mask) as usize]
    }
}

const CONSUMED: u64 = 1 << 32;
const BLOCKS_SHIFT: u32 = 33;
const SEQ_SHIFT: u32 = 36;
/// Request numbers are kept modulo 2^28: far more than any ring holds.
pub(crate) const SEQ_MASK: u32 = (1 << 28) - 1;

#[cfg(test)]
mod tests {
    use super::{Shadow, Tag};

    #[test]
    fn a_context_comes_back_once_and_only_for_what_was_posted() {
        let shadow = Shadow::new(3);
        assert_eq!(shadow.take(0), None, "a fresh ring has nothing outstanding");
        shadow.put(Tag::new(0x1_0005, 2, 9), 77);
        assert_eq!(shadow.take(13), None, "same slot, another pass");
        assert_eq!(shadow.take(6), None, "the second block of a request");
        let taken = shadow.take(5).unwrap();
        assert_eq!((taken.ctx, taken.end), (77, 0x1_0007));
        assert_eq!(shadow.take(5), None, "completed before");
        assert_eq!(shadow.tag(0x1_0005).seq(), 9);
    }
}
