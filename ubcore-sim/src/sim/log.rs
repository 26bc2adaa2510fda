//! Event log: lines, and a hash of all of them.
//!
//! - owns: the FNV-1a hash of all lines, the last lines themselves.
//! - takes: lines. gives: the hash; the lines for reading after a failure.
//! - must not: contain anything that differs between two runs of one seed (addresses, real times).

use std::collections::VecDeque;
use std::fmt::{self, Write};

use udma_abi::Nanos;

/// 64-bit FNV-1a (Fowler, Noll, Vo; public domain).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Adds bytes to the hash.
    pub fn update(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Returns the hash of what was added so far.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }

    /// Returns the hash of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> u64 {
        let mut hash = Self::default();
        hash.update(bytes);
        hash.value()
    }
}

/// The log of a run.
#[derive(Debug, Default)]
pub struct Log {
    hash: Fnv,
    lines: VecDeque<String>,
    kept_max: usize,
    count: u64,
    /// Reused for each line.
    line: String,
}

impl Log {
    /// A log that keeps the last `kept_max` lines; the hash is over all lines.
    #[must_use]
    pub fn new(kept_max: usize) -> Self {
        Self { kept_max, ..Self::default() }
    }

    /// Adds a line with its virtual time.
    pub fn add(&mut self, now: Nanos, what: fmt::Arguments<'_>) {
        self.line.clear();
        // Writing to a String cannot fail.
        let _ = write!(self.line, "{now:>12} {what}");
        self.hash.update(self.line.as_bytes());
        self.hash.update(b"\n");
        self.count += 1;
        if self.kept_max > 0 {
            if self.lines.len() == self.kept_max {
                self.lines.pop_front();
            }
            self.lines.push_back(self.line.clone());
        }
    }

    /// Returns the hash of all lines.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash.value()
    }

    /// Returns the number of lines added.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the kept lines, oldest first.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(Fnv::of(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(Fnv::of(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(Fnv::of(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn the_log_keeps_the_last_lines_and_hashes_all() {
        let mut log = Log::new(2);
        for number in 0..3 {
            log.add(number, format_args!("event {number}"));
        }
        assert_eq!(log.text(), "           1 event 1\n           2 event 2\n");
        assert_eq!(log.count(), 3);
        let all = "           0 event 0\n           1 event 1\n           2 event 2\n";
        assert_eq!(log.hash(), Fnv::of(all.as_bytes()));
    }
}
