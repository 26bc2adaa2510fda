//! Arbitrary bytes as a source of choices.
//!
//! *Owns*: the position. *Must not*: run dry with a panic: it gives `None`.

/// Source of choices: takes them from the bytes of a fuzzer.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// Creates a source that begins at the first byte.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the next byte; `None` when all are used.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next two bytes as a number.
    pub fn short(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes([self.byte()?, self.byte()?]))
    }

    /// The next eight bytes as a number.
    pub fn word(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    /// A number below `limit`, which is at least 1.
    pub fn below(&mut self, limit: usize) -> Option<usize> {
        Some(usize::from(self.short()?) % limit.max(1))
    }

    /// A word that is often small, often huge, sometimes anything.
    pub fn odd_word(&mut self) -> Option<u64> {
        Some(match self.byte()? % 8 {
            0..3 => u64::from(self.byte()?),
            3 | 4 => u64::from(self.short()?),
            5 => u64::MAX - u64::from(self.byte()?),
            6 => 1 << (self.byte()? % 64),
            _ => self.word()?,
        })
    }

    /// Up to `most` of the next bytes.
    pub fn take(&mut self, most: usize) -> &'a [u8] {
        let (first, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        first
    }
}
