//! How often handles were used lately: four 4-bit counters of one word for each, the least of which counts.
//!
//! - owns: counters, their aging. takes: uses by handle. gives: an estimate of 0 to 15.
//! - must not: halve the counters of one handle before those of another.

/// Counters per slot of the cache, before rounding up to a power of two; 4 bits each.
const COUNTERS_PER_SLOT: u64 = 16;
/// All counters are halved once per so many uses times the capacity: a tenth of a word per use, or less.
const AGING: u64 = 20;
const COUNTERS_PER_WORD: u64 = 16;
const COUNT_MAX: u64 = 15;
/// Bits of a halved counter that stay in it.
const HALVED: u64 = 0x7777_7777_7777_7777;

/// Estimates of use by handle: 8 to 16 bytes per slot of the cache.
#[derive(Clone, Debug)]
pub(super) struct Sketch {
    words: Vec<u64>,
    /// Uses until all counters are halved.
    period: u64,
    /// Uses since all counters were halved.
    uses: u64,
}

impl Sketch {
    pub(super) fn new(capacity: u32) -> Self {
        let counters = (u64::from(capacity) * COUNTERS_PER_SLOT).next_power_of_two().max(64);
        let words = usize::try_from(counters / COUNTERS_PER_WORD).unwrap_or(usize::MAX);
        Self { words: vec![0; words], period: AGING * u64::from(capacity), uses: 0 }
    }

    /// Word of a scattered handle, and the bit of its counter in each quarter of the word.
    #[inline]
    fn place(&self, scattered: u32) -> (usize, [u32; 4]) {
        let word = scattered as usize & (self.words.len() - 1);
        (word, [0, 1, 2, 3].map(|row| 16 * row + ((scattered >> (24 + 2 * row)) & 3) * 4))
    }

    /// Estimated uses of a handle, at most 15.
    #[inline]
    pub(super) fn count(&self, scattered: u32) -> u64 {
        let (word, bits) = self.place(scattered);
        least(self.words[word], bits)
    }

    /// Counts a use: only the counters that are the least, so that others err less.
    #[inline]
    pub(super) fn add(&mut self, scattered: u32) {
        let (at, bits) = self.place(scattered);
        let word = self.words[at];
        let least = least(word, bits);
        if least < COUNT_MAX {
            let added = bits.map(|bit| u64::from((word >> bit) & COUNT_MAX == least) << bit);
            self.words[at] = word + (added[0] | added[1] | added[2] | added[3]);
        }
        self.uses += 1;
        if self.uses >= self.period {
            self.uses = 0;
            self.words.iter_mut().for_each(|word| *word = *word >> 1 & HALVED);
        }
    }
}

/// The least of a handle's four counters in its word.
fn least(word: u64, bits: [u32; 4]) -> u64 {
    let counts = bits.map(|bit| (word >> bit) & COUNT_MAX);
    counts[0].min(counts[1]).min(counts[2].min(counts[3]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::scatter;

    #[test]
    fn estimates_are_never_below_the_uses_and_are_halved() {
        let mut sketch = Sketch::new(100);
        for handle in 0..200 {
            (0..handle % 8).for_each(|_| sketch.add(scatter(handle)));
        }
        for handle in 0..200 {
            assert!(sketch.count(scatter(handle)) >= u64::from(handle % 8), "{handle}");
        }
        let many = (0..200)
            .filter(|handle| sketch.count(scatter(*handle)) > u64::from(handle % 8))
            .count();
        assert!(many < 40, "{many} of 200 are too high");
        let before = sketch.count(scatter(7));
        (0..2000).for_each(|_| sketch.add(scatter(1)));
        assert_eq!(
            (sketch.count(scatter(1)), sketch.count(scatter(7))),
            (15 - 15 / 2 + 7, before / 2)
        );
    }
}
