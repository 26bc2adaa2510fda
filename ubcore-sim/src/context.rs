//! What exists between creation and destruction: queues, completion queues, events, segments, paths.
//!
//! *Owns*: the objects and their tables. *Takes*: checked arguments of commands. *Gives*: lookups
//! that never wait. *Must not*: move payload.

pub(crate) mod counts;
pub(crate) mod event;
pub(crate) mod function;
pub(crate) mod jfc;
pub(crate) mod link;
pub(crate) mod objects;
pub(crate) mod plugged;
pub(crate) mod queue;
pub(crate) mod segment;
pub(crate) mod table;
pub(crate) mod tables;
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
