//! Medians and their intervals.
//!
//! - owns: order statistics, a seeded bootstrap. takes: one number per seed.
//! - gives: median and 95 % interval. must not: draw from anything but its seed.

use serde::Serialize;

/// Resamples of a bootstrap.
const RESAMPLES: usize = 2000;

/// Median over seeds with its 95 % interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// Middle value of all.
    pub median: f64,
    /// Lower end of the interval of the median.
    pub lo: f64,
    /// Upper end of it.
    pub hi: f64,
    /// Largest value; with 100 seeds or more the 99th percentile.
    pub p99: f64,
    /// How many values there are.
    pub n: usize,
}

/// Summary of `values`; `None` when there is none.
#[must_use]
pub fn summary(values: &[f64]) -> Option<Summary> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let mut dice = Dice::new(0x6c61_6273);
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let mut drawn: Vec<f64> =
                (0..sorted.len()).map(|_| sorted[dice.below(sorted.len())]).collect();
            drawn.sort_by(f64::total_cmp);
            middle(&drawn)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    Some(Summary {
        median: middle(&sorted),
        lo: medians[RESAMPLES / 40],
        hi: medians[RESAMPLES - 1 - RESAMPLES / 40],
        p99: sorted[(sorted.len() * 99).div_ceil(100).saturating_sub(1).min(last)],
        n: sorted.len(),
    })
}

/// Middle value of `sorted`, which has one at least; of an even number the mean of both in the middle.
#[must_use]
pub fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 }
}

/// Numbers from a seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// A generator whose numbers follow from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, which is not 0.
    #[expect(clippy::cast_possible_truncation, reason = "the result is below a usize")]
    pub const fn below(&mut self, bound: usize) -> usize {
        ((self.roll() as u128 * bound as u128) >> 64) as usize
    }
}

/// Spreads a number over 64 bits (the finalizer of splitmix64).
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let z = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_encloses_the_median() {
        let values: Vec<f64> = (0..21).map(f64::from).collect();
        let summary = summary(&values).expect("values");
        assert_eq!(summary.median, 10.0);
        assert!(summary.lo < 10.0 && 10.0 < summary.hi);
        assert_eq!((summary.p99, summary.n), (20.0, 21));
        assert_eq!(super::summary(&[]), None);
    }
}
