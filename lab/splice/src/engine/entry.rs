//! What passes between the write side, the memory and the read side.
//!
//! - owns: types. takes, gives: nothing. must not: know a scheme.

use crate::beat::Sideband;

/// A packet that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PacketEntry {
    pub(super) sideband: Sideband,
    /// Cycle in which its first byte was accepted.
    pub(super) accepted: u64,
    /// Number of the packet, for the count of mismatches.
    pub(super) serial: u32,
}

/// What the write side may do, by the state at the beginning of the cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "four wires of a design")]
pub(super) struct WriteRoom {
    /// A beat of data memory is free.
    pub(super) data: bool,
    /// An entry of the sideband FIFO is free.
    pub(super) sideband: bool,
    /// A message may open.
    pub(super) bank: bool,
    /// The message that fills has all the memory it can ever have.
    pub(super) too_long: bool,
}
