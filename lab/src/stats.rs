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
    if sorted.is_empty() {
        return None;
    }
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
        p99: percentile_99(&sorted),
        n: sorted.len(),
    })
}

/// The least value of `sorted`, which has one at least, that 99 % do not exceed.
#[must_use]
pub fn percentile_99(sorted: &[f64]) -> f64 {
    sorted[(sorted.len() * 99).div_ceil(100).saturating_sub(1)]
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

    /// The numbers 1 to `n` in an order that is neither rising nor falling; 101 divides no `n` of these tests.
    fn shuffled(n: u32) -> Vec<f64> {
        (0..n).map(|at| f64::from(1 + at * 101 % n)).collect()
    }

    #[test]
    fn medians_and_percentiles_are_those_counted_by_hand() {
        // Of an even number the mean of both in the middle; p99 is the least value that 99 % do not exceed.
        for (n, median, p99) in [
            (1, 1.0, 1.0),
            (2, 1.5, 2.0),
            (5, 3.0, 5.0),
            (99, 50.0, 99.0),
            (100, 50.5, 99.0),
            (200, 100.5, 198.0),
            (250, 125.5, 248.0),
            (1000, 500.5, 990.0),
        ] {
            let found = summary(&shuffled(n)).expect("values");
            assert_eq!((found.median, found.p99), (median, p99), "1 to {n}");
            assert_eq!(found.n, n as usize);
        }
        let one = summary(&[4.0, -1.0, 9.5]).expect("values");
        assert_eq!((one.median, one.p99), (4.0, 9.5), "not in order, and below 0");
        let same = summary(&[7.0; 30]).expect("values");
        assert_eq!((same.median, same.lo, same.hi, same.p99), (7.0, 7.0, 7.0, 7.0));
    }

    /// Chance that the median of a resample of 1 to `n`, an odd number, is at most `value`: more than half of the draws are.
    fn chance_of_at_most(n: i32, value: i32) -> f64 {
        let part = f64::from(value) / f64::from(n);
        let ways = |k: i32| (0..k).map(|i| f64::from(n - i) / f64::from(i + 1)).product::<f64>();
        (n / 2 + 1..=n).map(|k| ways(k) * part.powi(k) * (1.0 - part).powi(n - k)).sum()
    }

    /// The bootstrap of a median has a distribution that can be written down: 2,000 resamples may miss its quantiles by
    /// chance, by 0.7 % of the resamples (two standard deviations of 2.5 % among 2,000).
    #[test]
    fn the_interval_holds_the_middle_95_percent_of_the_resamples() {
        for n in [21, 51, 151] {
            let found = summary(&shuffled(n)).expect("values");
            let n = n.cast_signed();
            let (lo, hi) = (found.lo.round(), found.hi.round());
            let part = |value: f64| {
                let at = (0..=n).find(|at| f64::from(*at) >= value).expect("one of the values");
                (chance_of_at_most(n, at - 1), chance_of_at_most(n, at))
            };
            let ((below_lo, to_lo), (below_hi, to_hi)) = (part(lo), part(hi));
            assert!(below_lo < 0.025 + 0.007 && to_lo > 0.025 - 0.007, "{n}: {below_lo} {to_lo}");
            assert!(below_hi < 0.975 + 0.007 && to_hi > 0.975 - 0.007, "{n}: {below_hi} {to_hi}");
            assert_eq!((lo, hi), (found.lo, found.hi), "medians of an odd number are values");
        }
        // Of 21 by hand: at most 6 with a chance of 1.9 %, at most 7 with 5.5 %; the other end mirrors it.
        assert!((chance_of_at_most(21, 6) - 0.019).abs() < 0.001);
        assert!((chance_of_at_most(21, 7) - 0.055).abs() < 0.002);
        let found = summary(&shuffled(21)).expect("values");
        assert_eq!((found.lo, found.hi), (7.0, 15.0));
    }

    #[test]
    fn numbers_are_those_of_splitmix64() {
        // The first numbers of the reference (Vigna, splitmix64.c) for the seed 1234567.
        let mut dice = Dice::new(1_234_567);
        let wanted: [u64; 3] =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([dice.roll(), dice.roll(), dice.roll()], wanted);
        let mut counts = [0_u32; 6];
        (0..60_000).for_each(|_| counts[dice.below(6)] += 1);
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
    }
}
