//! Direct entries that come as eight writes, as a bus or a hypervisor cuts a write of 64 bytes.
//!
//! - owns: the words of blocks that are not whole yet, one for each page. takes: writes of 8 bytes. gives: whole
//!   blocks. must not: keep more pages than there can be queues.

use std::collections::BTreeMap;

use udma_abi::{doorbell, regs, sqe::BLOCK_WORDS};

/// Pages with a block that is not whole, at most: more than a driver has posters.
const PAGES_MAX: usize = 4096;

/// What a write of 8 bytes is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockWrite {
    /// No part of a block.
    Other,
    /// A part, after which the block is not whole.
    Part,
    /// The last part of the block at this offset.
    Whole(u64, [u64; BLOCK_WORDS]),
}

/// Blocks that are not whole: words by the offset of their first one. A word is expected after the one before it, as a
/// driver writes them.
#[derive(Debug, Default)]
pub(crate) struct DirectBlocks(BTreeMap<u64, Vec<u64>>);

impl DirectBlocks {
    /// Takes a write at a multiple of 8. A part that is not the next one of its block ends the block, and is dropped.
    pub(crate) fn take(&mut self, offset: u64, value: u64) -> BlockWrite {
        let Some(inside) = offset.checked_sub(regs::JETTY_PAGES) else { return BlockWrite::Other };
        let at = (inside % doorbell::PAGE_LEN).wrapping_sub(doorbell::DWQE);
        if at >= 8 * BLOCK_WORDS as u64 {
            return BlockWrite::Other;
        }
        let (first, position) = (offset - at, at / 8);
        let mut words = self.0.remove(&first).unwrap_or_default();
        if position == 0 {
            words.clear();
        } else if words.len() as u64 != position {
            return BlockWrite::Part;
        }
        words.push(value);
        match words.first_chunk() {
            Some(block) => BlockWrite::Whole(first, *block),
            None => {
                if self.0.len() < PAGES_MAX {
                    self.0.insert(first, words);
                }
                BlockWrite::Part
            }
        }
    }

    /// Forgets the blocks that are not whole.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_writes_in_order_are_a_block_also_between_those_of_another_page() {
        let mut blocks = DirectBlocks::default();
        let pages = [0, 7].map(|id| regs::JETTY_PAGES + id * doorbell::PAGE_LEN);
        for word in 0..8 {
            for page in pages {
                let words = std::array::from_fn(|at| page + at as u64);
                let whole = BlockWrite::Whole(page, words);
                let expected = if word == 7 { whole } else { BlockWrite::Part };
                assert_eq!(blocks.take(page + 8 * word, page + word), expected);
            }
        }
        assert!(blocks.0.is_empty());
    }

    #[test]
    fn what_is_no_next_part_makes_no_block() {
        let mut blocks = DirectBlocks::default();
        let page = regs::JETTY_PAGES;
        for offset in [0, regs::JFC_DB, page + 64, page + doorbell::SQ_PI] {
            assert_eq!(blocks.take(offset, 1), BlockWrite::Other);
        }
        for word in [1, 0, 1, 3, 4, 5, 6, 7] {
            assert_eq!(blocks.take(page + 8 * word, 1), BlockWrite::Part, "{word}");
        }
        // Eight words that are no block: one came twice, or one is missing.
        for words in [[0, 1, 2, 2, 3, 4, 5, 6], [0, 1, 2, 4, 5, 6, 7, 7], [0, 2, 3, 4, 5, 6, 7, 1]]
        {
            blocks.clear();
            for word in words {
                assert_eq!(blocks.take(page + 8 * word, 1), BlockWrite::Part, "{words:?}");
            }
        }
        blocks.clear();
        for id in 0..2 * PAGES_MAX as u64 {
            blocks.take(page + id * doorbell::PAGE_LEN, 1);
        }
        assert_eq!(blocks.0.len(), PAGES_MAX);
    }
}
