//! The contract between driver and device: registers, doorbells, ring entries, commands, `Backing`.
//!
//! Has every layout and number that both sides share (prose: docs/device-spec.md), as 64-bit little-endian words in
//! host memory or registers. Must not have behaviour. Driver and device depend on this crate and never on each
//! other.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod backing;
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

/// `width` bits of `word` from bit `low` (0 = least significant).
#[inline]
const fn field(word: u64, low: u32, width: u32) -> u64 {
    (word >> low) & mask(width)
}

/// `value` placed at bit `low`; bits beyond `width` are cut off.
#[inline]
const fn place(value: u64, low: u32, width: u32) -> u64 {
    (value & mask(width)) << low
}

/// One bit as a `bool`.
#[inline]
const fn flag(word: u64, bit: u32) -> bool {
    (word >> bit) & 1 == 1
}

#[inline]
const fn mask(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// The low 32 bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
const fn low32(word: u64) -> u32 {
    word as u32
}

/// A field of at most 32 bits as `u32`.
#[inline]
const fn field32(word: u64, low: u32, width: u32) -> u32 {
    low32(field(word, low, width))
}

/// A field of at most 8 bits as `u8`.
#[expect(clippy::cast_possible_truncation, reason = "callers ask for at most 8 bits")]
#[inline]
const fn field8(word: u64, low: u32, width: u32) -> u8 {
    field(word, low, width) as u8
}

/// A field of at most 16 bits as `u16`.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "callers ask for at most 16 bits")]
const fn field16(word: u64, low: u32, width: u32) -> u16 {
    field(word, low, width) as u16
}

#[cfg(test)]
mod tests;
