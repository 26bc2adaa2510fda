//! The contract between driver and device: registers, doorbells, ring entries, commands, `Backing`.
//!
//! *Owns*: every layout and number that both sides share (prose: docs/device-spec.md).
//! *Takes / gives*: 64-bit little-endian words, as they lie in host memory or registers.
//! *Must not*: have behaviour. Driver and device depend on this crate and never on each other.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod backing;
mod bits;
pub mod caps;
pub mod cmd;
pub mod counters;
pub mod cqe;
pub mod doorbell;
pub mod eqe;
pub mod message;
pub mod one_sided;
pub mod opcode;
pub mod regs;
pub mod rqe;
pub mod slots;
pub mod sqe;
pub mod status;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

pub use backing::{
    BackingError, CompletionBy, DeviceBacking, DeviceInfo, DirectEntry, DmaAccess, DmaSpace,
    GiveWay, JfcIndex, NextEntry, PollOfOne, QueueDoorbell, RegisterRegion, RepeatForm,
    SendDoorbell,
};
pub use cqe::{Cqe, ReceivedMessage};
pub use eqe::{Eqe, EqeKind};
pub use message::{MessageBody, MessageEntry};
pub use one_sided::{
    Addressed, Atomic, MovableAtomic, MovableBlock, MovedWord, OneSided, Tail, Tailed,
};
pub use opcode::{FetchKind, NotifyKind, OpKind, Opcode};
pub use rqe::Rqe;
pub use sqe::{Sge, Sqe};
pub use status::{CmdStatus, CqeStatus};

/// Nanoseconds of a monotonic clock; virtual in simulation.
pub type Nanos = u64;

/// 16 bytes of an endpoint id in network order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RawEid(pub [u8; 16]);

impl Ord for RawEid {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        // As numbers: bytes would be compared by a call, in each step of a search.
        u128::from_be_bytes(self.0).cmp(&u128::from_be_bytes(other.0))
    }
}

impl PartialOrd for RawEid {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl RawEid {
    /// Two words as commands carry them: bytes 0..8 and 8..16, big-endian within each word.
    #[inline]
    #[must_use]
    pub fn to_words(self) -> [u64; 2] {
        // As one number: taken apart into bytes they would be loaded one by one.
        let number = u128::from_be_bytes(self.0);
        #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
        [(number >> 64) as u64, number as u64]
    }

    /// The inverse of [`RawEid::to_words`].
    #[inline]
    #[must_use]
    pub fn from_words(words: [u64; 2]) -> Self {
        Self(((u128::from(words[0]) << 64) | u128::from(words[1])).to_be_bytes())
    }
}

impl std::fmt::Debug for RawEid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", std::net::Ipv6Addr::from(self.0))
    }
}
