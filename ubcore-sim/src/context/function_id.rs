//! Numbers of functions.
//!
//! *Owns*: the number of the owner's function. *Must not*: hold what a function has.

/// Number of a function of the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FunctionId(u16);

impl FunctionId {
    /// The function that exists as long as the device: that of its owner.
    pub const FIRST: Self = Self(0);
    /// No function: a cache with this owner finds the segments of all.
    pub(crate) const ANY: Self = Self(u16::MAX);

    /// The function with this number.
    pub(crate) const fn new(number: u16) -> Self {
        Self(number)
    }

    /// The number, from 0.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }
}
