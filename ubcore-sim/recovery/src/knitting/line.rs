//! Packed Adamap lines: runs of missing packets as byte-wise differences.
//!
//! - owns: the code of a line, in the NIC and in a block of the pool. takes: runs of missing packets.
//! - gives: them again, in order. must not: believe a line of the pool whose sum is another one.
//!
//! In the pool a line is 64 bytes. Word 0 has the low bits of the base sequence (32 bits), the number of bytes in use (8
//! bits) and a sum (24 bits), the next six are runs, the last one is the link. A run is the distance from the end of the
//! one before it, shifted by one; the low bit says that a count follows (less 2), otherwise the run is one packet. Both
//! are little-endian groups of seven bits.

use super::narrow::{low_bits, near};
use crate::report::LossRun;

/// Bytes of runs in a line.
pub(super) const LINE_BYTES: usize = 48;
/// Words of a line before its link.
pub(super) const LINE_WORDS: usize = LINE_BYTES / 8 + 1;
/// Longest code of a number.
const NUMBER_BYTES_MAX: usize = 10;
const SUM_BITS: u32 = 24;

/// Order of the runs in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum RunOrder {
    /// Each begins after the end of the one before it.
    Rising,
    /// In any order at all.
    Any,
}

/// A line that is being filled or emptied.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedLine {
    /// End of the run before the first one.
    base: u64,
    /// End of the last run, where it was written here.
    end: u64,
    bytes: [u8; LINE_BYTES],
    used: u8,
}

impl PackedLine {
    pub(super) const fn new(base: u64) -> Self {
        Self { base, end: base, bytes: [0; LINE_BYTES], used: 0 }
    }

    /// Bytes that runs take.
    pub(super) const fn used(&self) -> u8 {
        self.used
    }

    /// End of the last run.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Appends a run; `false` when the line is full.
    pub(super) fn push(&mut self, order: RunOrder, run: LossRun) -> bool {
        let delta = run.start.wrapping_sub(self.end).cast_signed();
        let delta = match order {
            RunOrder::Rising => delta.cast_unsigned(),
            RunOrder::Any => ((delta << 1) ^ (delta >> 63)).cast_unsigned(),
        };
        let mut code = [0; 2 * NUMBER_BYTES_MAX];
        let mut len = put(&mut code, 0, delta << 1 | u64::from(run.count > 1));
        if run.count > 1 {
            len = put(&mut code, len, u64::from(run.count) - 2);
        }
        let from = usize::from(self.used);
        let Some(room) = self.bytes.get_mut(from..from + len) else { return false };
        room.copy_from_slice(&code[..len]);
        self.used += u8::try_from(len).unwrap_or(u8::MAX);
        self.end = run.end();
        true
    }

    /// Reads the run at byte `at`, which follows one that ends at `end`; where the next one is. `None`: that is no run.
    pub(super) fn read(&self, order: RunOrder, at: u8, end: u64) -> Option<(LossRun, u8)> {
        let end = if at == 0 { self.base } else { end };
        let bytes = self.bytes.get(..usize::from(self.used))?;
        let (code, mut at) = take(bytes, usize::from(at))?;
        let delta = match order {
            RunOrder::Rising => i64::try_from(code >> 1).ok()?,
            RunOrder::Any => (code >> 2).cast_signed() ^ -((code >> 1 & 1).cast_signed()),
        };
        let mut count = 1;
        if code & 1 != 0 {
            let more;
            (more, at) = take(bytes, at)?;
            count = u32::try_from(more).ok()?.checked_add(2)?;
        }
        let run = LossRun { start: end.checked_add_signed(delta)?, count };
        run.start.checked_add(count.into())?;
        Some((run, u8::try_from(at).ok()?))
    }

    /// The words of a block that hold it.
    pub(super) fn to_words(self) -> [u64; LINE_WORDS] {
        let mut words = [0; LINE_WORDS];
        for (word, bytes) in words[1..].iter_mut().zip(self.bytes.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        words[0] = u64::from(low_bits(self.base)) | u64::from(self.used) << 32;
        words[0] |= sum(&words) << (64 - SUM_BITS);
        words
    }

    /// The line that a block holds whose base lies near `edge`; `None`: that is no line.
    pub(super) fn from_words(mut words: [u64; LINE_WORDS], edge: u64) -> Option<Self> {
        let claimed = words[0] >> (64 - SUM_BITS);
        words[0] &= u64::MAX >> SUM_BITS;
        if claimed != sum(&words) {
            return None;
        }
        let mut line = Self::new(near(edge, low_bits(words[0])));
        line.used = u8::try_from(words[0] >> 32).ok()?;
        for (bytes, word) in line.bytes.chunks_exact_mut(8).zip(&words[1..]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Some(line)
    }
}

/// A sum in which each bit of each word counts.
fn sum(words: &[u64; LINE_WORDS]) -> u64 {
    let mut sum = 0x9e37_79b9_7f4a_7c15_u64;
    for &word in words {
        let mixed = (sum ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        sum = mixed ^ (mixed >> 32);
    }
    sum >> (64 - SUM_BITS)
}

/// Writes groups of seven bits at `at`; where they end.
fn put(bytes: &mut [u8], mut at: usize, mut value: u64) -> usize {
    while value > 0x7f {
        bytes[at] = 0x80 | value.to_le_bytes()[0];
        value >>= 7;
        at += 1;
    }
    bytes[at] = value.to_le_bytes()[0];
    at + 1
}

fn take(bytes: &[u8], mut at: usize) -> Option<(u64, usize)> {
    let (mut value, mut shift) = (0_u64, 0);
    loop {
        let byte = *bytes.get(at)?;
        at += 1;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some((value, at));
        }
        shift += 7;
    }
}
