//! Names of blocks and of those that hold them.
//!
//! - owns: numbers. takes: nothing. gives: the vocabulary of pool and lists. must not: know what a block holds.

/// A block, by piece and position in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockId {
    pub(super) piece: u32,
    pub(super) index: u32,
}

impl BlockId {
    /// As one number whose low bits are the place in the piece, if that has no more of them.
    pub(super) fn number(self, index_bits: u32) -> Option<u32> {
        let is_small = self.index >> index_bits == 0;
        is_small
            .then_some(self.piece.checked_shl(index_bits)? | self.index)
            .filter(|number| number >> index_bits == self.piece)
    }

    /// The block with that number.
    pub(super) const fn of_number(number: u32, index_bits: u32) -> Self {
        Self { piece: number >> index_bits, index: number & ((1 << index_bits) - 1) }
    }
}

/// Number of the TP that holds a block; 0: none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Holder(pub(super) u32);

impl Holder {
    pub(crate) const fn new(number: u32) -> Self {
        // TPNs have 24 bits, so 0 stays free.
        Self((number & 0x00ff_ffff) + 1)
    }
}
