//! Small fields: 64 bits of a context that change by one exchange.
//!
//! *Owns*: what an access may do to them. *Must not*: touch a strong field.

/// A change of the 64 bits of small fields of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SmallOp {
    /// Reads the small fields.
    Read,
    /// Adds to the small fields, modulo 2^64.
    Add(u64),
    /// Replaces the bits of a mask.
    Store {
        /// Bits that are replaced.
        mask: u64,
        /// New values of these bits.
        value: u64,
    },
}

impl SmallOp {
    /// Returns the fields after the change.
    #[must_use]
    pub const fn apply(self, small: u64) -> u64 {
        match self {
            Self::Read => small,
            Self::Add(by) => small.wrapping_add(by),
            Self::Store { mask, value } => small & !mask | value & mask,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_store_replaces_the_bits_of_its_mask_alone() {
        let small = 0xffff_0000_1234_5678;
        let store = |mask, value| SmallOp::Store { mask, value }.apply(small);
        assert_eq!(store(0xffff, 0xabcd_9abc), 0xffff_0000_1234_9abc);
        assert_eq!((store(0, u64::MAX), store(u64::MAX, 7)), (small, 7));
        assert_eq!(store(0xff << 56, 0), 0x00ff_0000_1234_5678);
        assert_eq!(SmallOp::Read.apply(small), small);
        assert_eq!(SmallOp::Add(1 << 63 | 8).apply(small), 0x7fff_0000_1234_5680);
    }
}
