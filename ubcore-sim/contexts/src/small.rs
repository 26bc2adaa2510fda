//! Small fields: 64 bits of a context that change by one exchange.
//!
//! *Owns*: what an access may do to them. *Must not*: touch a strong field.

/// A change of the 64 bits of small fields of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SmallOp {
    /// Reads them.
    Read,
    /// Adds, modulo 2^64.
    Add(u64),
    /// Replaces the bits of a mask.
    Store {
        /// Which bits.
        mask: u64,
        /// Their new values.
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
