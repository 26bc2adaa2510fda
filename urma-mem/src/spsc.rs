//! The ring between two processes: one producer, one consumer, entries of any length.
//!
//! Owns: positions, headers, wrap markers; the producer's half is the entries, the consumer's half is
//! the head line; each half is written by its owner only. Takes: two windows; payload as bytes. Gives:
//! `Producer::reserve` -> write -> `publish`; `Consumer::next_entry` -> read -> `done`. Must not:
//! trust a byte of the other side's half; wait; store half an entry visibly.
//!
//! ```text
//! producer's half:  capacity bytes (power of two), each entry begins at a multiple of 64:
//!                   header u64 (len: u32 | kind: u32), payload, room up to the next multiple of 64
//!                   header 0: no entry yet; kind u32::MAX: wrap marker, its len fills up to the end
//! consumer's half:  0       head: u64, bytes consumed since the start (monotonic)
//! ```
//! The header is the mark of publication: it is stored last, and the place of the next header is 0 before
//! that. So a short entry is found, read and checked in one cache line, and the line that the consumer
//! polls is the one that it needs next. For the place of the next header, 64 bytes stay free.
//!
//! A producer that dies before `publish` leaves bytes that are never read.

mod ends;
use crate::region::OutOfBounds;
use crate::words::Words;

pub use ends::{Consumer, Entry, FRONT_WORDS, NextPlace};
pub use ends::{EntrySlot, Producer};

/// Bytes a position word takes: two cache lines, so that neither side's prefetcher drags the
/// other's.
pub const LINE_LEN: usize = 128;
/// Kinds from the caller are above 0 and below this one, which marks the unused end of the ring.
pub const KIND_WRAP: u32 = u32::MAX;
/// Entries begin at multiples of this, a cache line.
pub const ENTRY_ALIGN: usize = 64;
/// Smallest ring in bytes of entries.
pub const CAPACITY_MIN: usize = 256;
/// Largest ring in bytes of entries; lengths of entries stay within `u32`.
pub const CAPACITY_MAX: usize = 1 << 30;

const HEADER_LEN: u64 = 8;
/// Room that stays free, for the place of the next header.
const NEXT_LEN: u64 = ENTRY_ALIGN as u64;

/// Longest payload of an entry in a ring of `capacity` bytes: half the ring with its header.
const fn len_max(capacity: u64) -> u64 {
    capacity / 2 - HEADER_LEN
}

/// Why an entry could not be reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// No room until the consumer moves on.
    #[error("the ring is full")]
    Full,
    /// Longer than half the ring: it might never fit.
    #[error("the entry is longer than the ring takes")]
    TooLong,
    /// The consumer's half contains an impossible value.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// What a lying or broken peer wrote. The side that saw it stays with this answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// A position went backwards, beyond what can be outstanding, or is no multiple of [`ENTRY_ALIGN`].
    #[error("position {position} is impossible")]
    Position {
        /// The word as read.
        position: u64,
    },
    /// An entry is longer than the ring takes, or reaches beyond the ring's end.
    #[error("entry length {len} is impossible")]
    Length {
        /// The length as read.
        len: u32,
    },
    /// A wrap marker that does not end the ring exactly, or has no entry behind it.
    #[error("wrap marker of {len} bytes is misplaced")]
    Wrap {
        /// The length as read.
        len: u32,
    },
    /// A window does not have the length it was checked to have.
    #[error(transparent)]
    Window(#[from] OutOfBounds),
}

/// A ring cannot be laid over windows of these lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no ring of {capacity} bytes fits windows of {own} and {peer} bytes")]
pub struct BadLayout {
    /// Bytes of entries asked for.
    pub capacity: usize,
    /// Length of the caller's own window.
    pub own: usize,
    /// Length of the peer's window.
    pub peer: usize,
}

/// Header and payload, up to the next place for a header.
#[inline]
const fn entry_size(len: u64) -> u64 {
    (HEADER_LEN + len).next_multiple_of(ENTRY_ALIGN as u64)
}

/// The word of a header.
#[inline]
const fn header_word(kind: u32, len: u64) -> u64 {
    (kind as u64) << 32 | (len & u32::MAX as u64)
}

/// A ring offset as an index; capacities are at most `CAPACITY_MAX`, so nothing is lost.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "masked by a capacity of at most 2^30")]
fn index(position: u64) -> usize {
    position as usize
}

fn check_layout<W: Words>(capacity: usize, producer: &W, consumer: &W) -> Option<()> {
    let fits = capacity.is_power_of_two()
        && (CAPACITY_MIN..=CAPACITY_MAX).contains(&capacity)
        && producer.len_bytes() >= capacity
        && consumer.len_bytes() >= 8
        && producer.load(0).is_ok()
        && consumer.load(0).is_ok();
    fits.then_some(())
}

#[cfg(test)]
mod tests;
