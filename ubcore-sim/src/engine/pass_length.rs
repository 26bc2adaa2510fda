//! Guesses whether the destination of long writes lies outside the caches.
//!
//! *Owns*: the length of the present and the last pass of writes over the memory of one path. *Takes*: addresses and
//! lengths. *Gives*: a guess. *Must not*: be asked for short messages, which would lose more than they gain.
//!
//! Stores that bypass the caches make long writes 2-3.5 times faster if the destination is in no cache, and slower if
//! it is, or if its owner reads it at once. A program that walks through more memory than the caches hold before it
//! starts again finds none of it there: the destination counts as cold if this pass or the last one has that length.

/// Shortest message that is asked about, in bytes: below it, starting to stream (100 ns) costs more than it saves.
pub(crate) const STREAM_MIN: u64 = 16 << 10;

/// Position and length of the present pass of writes over the memory of one path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PassLength {
    token_id: u32,
    /// One past the last byte written.
    end: u64,
    /// Bytes since the last write to an address below the previous one.
    len: u64,
    /// Length in bytes of the pass before.
    last: u64,
}

impl PassLength {
    /// Notes a write of `len` bytes to `va` of a segment. Returns whether it should bypass caches of `cache` bytes.
    pub(crate) fn is_cold(&mut self, (token_id, va): (u32, u64), len: u64, cache: u64) -> bool {
        if token_id == self.token_id && va >= self.end {
            self.len = self.len.saturating_add(len);
        } else {
            (self.last, self.len) = (self.len, len);
        }
        (self.token_id, self.end) = (token_id, va.saturating_add(len));
        self.len.max(self.last) >= cache
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: u64 = 1 << 20;
    const LEN: u64 = 64 << 10;

    /// Writes of `LEN` bytes side by side, `count` of them; how many were cold.
    fn walk(pass_length: &mut PassLength, token_id: u32, count: u64) -> u64 {
        (0..count).map(|n| u64::from(pass_length.is_cold((token_id, n * LEN), LEN, CACHE))).sum()
    }

    #[test]
    fn a_walk_beyond_the_caches_is_cold_from_there_and_at_once_the_next_time() {
        let mut pass_length = PassLength::default();
        assert_eq!(walk(&mut pass_length, 1, 32), 17, "from the sixteenth write on");
        assert_eq!(walk(&mut pass_length, 1, 32), 32);
    }

    #[test]
    fn what_is_written_again_and_again_stays_in_the_caches() {
        let mut pass_length = PassLength::default();
        for _ in 0..100 {
            assert_eq!(walk(&mut pass_length, 1, 15), 0);
            assert!(!pass_length.is_cold((1, 0), LEN, CACHE));
        }
        // After a long walk the second write to one place is to a cache again.
        walk(&mut pass_length, 1, 32);
        pass_length.is_cold((1, 0), LEN, CACHE);
        assert!(!pass_length.is_cold((1, 0), LEN, CACHE));
        // Alternating between two segments is no walk.
        for n in 0..100 {
            assert!(!pass_length.is_cold((2 + n % 2, u64::from(n) * LEN), LEN, CACHE), "{n}");
        }
    }

    #[test]
    fn the_end_of_the_address_space_is_nothing_special() {
        let mut pass_length = PassLength::default();
        assert!(!pass_length.is_cold((1, u64::MAX), LEN, CACHE));
        assert!(pass_length.is_cold((1, u64::MAX), u64::MAX, CACHE));
    }
}
