//! Fetches a send queue entry: copied once, and checked in that copy.
//!
//! *Owns*: the position in the ring. *Takes*: the ring, or a direct entry. *Gives*: a checked entry. *Must not*: read
//! a block twice to check it; trust a count.

use udma_abi::{
    OneSided, Sqe,
    sqe::{BLOCK_WORDS, BLOCKS_MAX, SQE_WORDS_MAX, SqeFlags, inline_max, sge_max},
};
use urma_mem::Blocks;

/// The consumer side of a send ring.
#[derive(Debug)]
pub(crate) struct SendRing {
    blocks: Blocks,
    log2: u32,
    /// Position of the next block to fetch, free running.
    pub(crate) head: u32,
}

/// Expected owner bits and indices of a ring's entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingMark {
    log2: u32,
    mask: u32,
}

impl RingMark {
    /// Whether an entry's first word has the owner bit and index of `position`.
    #[inline(always)]
    pub(crate) fn is_at(self, position: u32, word: u64) -> bool {
        let owner = u64::from(!position >> self.log2 & 1) << OneSided::OWNER_SHIFT;
        let mask = u64::from(self.mask) & 0xffff | 1 << OneSided::OWNER_SHIFT;
        (word ^ (u64::from(low16(position)) | owner)) & mask == 0
    }
}

/// A malformed entry, and how far to skip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed {
    /// Blocks that it seems to take: at least 1, at most what was posted.
    pub(crate) blocks: u32,
}

impl SendRing {
    pub(crate) fn new(blocks: Blocks) -> Self {
        Self { log2: blocks.mask().count_ones(), blocks, head: 0 }
    }

    /// Number of blocks of the ring.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks.mask() + 1
    }

    /// Copies the entry at the head to `words` and decodes it to `sqe`; returns its number of blocks. `posted` blocks
    /// are there, at least one. The head does not move.
    #[inline]
    pub(crate) fn fetch(
        &self,
        posted: u32,
        direct: Option<&[u64; BLOCK_WORDS]>,
        (words, sqe): (&mut [u64; SQE_WORDS_MAX], &mut Sqe),
    ) -> Result<u32, Malformed> {
        let bad = Malformed { blocks: 1 };
        match direct {
            Some(block) => words[..BLOCK_WORDS].copy_from_slice(block),
            None => words[..BLOCK_WORDS].copy_from_slice(&self.block(0)),
        }
        sqe.decode_into(words).map_err(|_| bad)?;
        if !self.is_ours(sqe) {
            return Err(bad);
        }
        let blocks = sqe.blocks();
        if blocks > BLOCKS_MAX || !counts_fit(sqe) {
            return Err(bad);
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most BLOCKS_MAX")]
        let blocks = blocks as u32;
        if blocks > posted {
            return Err(Malformed { blocks: posted });
        }
        if blocks > 1 {
            self.load_rest(blocks, words);
            sqe.decode_into(words).map_err(|_| bad)?;
        }
        Ok(blocks)
    }

    /// Reads the entry `ahead` blocks after the head before its turn; `posted` blocks are there from it on. Returns
    /// its number of blocks; `None`: it is malformed, which counts only once it is fetched.
    pub(crate) fn peek(
        &mut self,
        ahead: u32,
        posted: u32,
        entry: (&mut [u64; SQE_WORDS_MAX], &mut Sqe),
    ) -> Option<u32> {
        let head = self.head;
        self.head = head.wrapping_add(ahead);
        let found = self.fetch(posted, None, entry);
        self.head = head;
        found.ok()
    }

    /// A copy of the block `index` positions behind the head.
    #[inline]
    pub(crate) fn block(&self, index: u32) -> [u64; BLOCK_WORDS] {
        self.blocks.load(self.head.wrapping_add(index))
    }

    /// Copies blocks 1 to `blocks` after the head to their places in `words`, at most [`BLOCKS_MAX`].
    #[inline]
    pub(crate) fn load_rest(&self, blocks: u32, words: &mut [u64; SQE_WORDS_MAX]) {
        let (places, _) = words.as_chunks_mut::<BLOCK_WORDS>();
        for (index, place) in (0..blocks).zip(places).skip(1) {
            *place = self.block(index);
        }
    }

    /// Index of the head as CQEs name it.
    #[inline]
    pub(crate) fn entry_idx(&self) -> u16 {
        low16(self.head)
    }

    /// Whether owner bit and index are those of this pass of the ring.
    #[inline]
    fn is_ours(&self, sqe: &Sqe) -> bool {
        self.is_head(sqe.owner, sqe.entry_idx)
    }

    /// Whether an entry's first word has the owner bit and index of the head.
    #[inline(always)]
    pub(crate) fn is_at_head(&self, word: u64) -> bool {
        self.mark().is_at(self.head, word)
    }

    /// What a first word alone must have at each position.
    pub(crate) fn mark(&self) -> RingMark {
        RingMark { log2: self.log2, mask: self.blocks.mask() }
    }

    /// Whether these are owner bit and index of the entry at the head.
    #[inline]
    pub(crate) fn is_head(&self, owner: bool, entry_idx: u16) -> bool {
        let this_pass = (self.head >> self.log2) & 1 == 0;
        // Compares 16 bits: the field was stored just before, and a wider load would wait for that store.
        let same = (entry_idx ^ self.entry_idx()) & low16(self.blocks.mask()) == 0;
        owner == this_pass && same
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "indices are modulo 2^16")]
pub(super) const fn low16(index: u32) -> u16 {
    index as u16
}

#[inline]
fn counts_fit(sqe: &Sqe) -> bool {
    if sqe.flags.contains(SqeFlags::INLINE) {
        let carries = sqe.opcode.is_send() || sqe.opcode.is_write();
        carries && usize::from(sqe.inline_len) <= inline_max(sqe.opcode)
    } else {
        usize::from(sqe.sge_num) <= sge_max(sqe.opcode)
    }
}
