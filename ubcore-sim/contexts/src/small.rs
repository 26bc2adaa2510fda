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
