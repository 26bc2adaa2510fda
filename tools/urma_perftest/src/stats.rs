//! Numbers out of samples.
//!
//! *Owns*: percentiles over exact sorted samples; peak over windows. *Takes*: nanoseconds.
//! *Gives*: what the report prints. *Must not*: read a clock.

/// The two largest samples are dropped, as UMDK does: the first iterations and one
/// interruption are not the operation's latency.
const DROPPED: usize = 2;

/// Latency of one size, all times in microseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Latency {
    /// Smallest sample, in microseconds.
    pub(crate) min: f64,
    /// Largest sample that was kept.
    pub(crate) max: f64,
    /// Median of the samples, in microseconds.
    pub(crate) median: f64,
    /// Mean of the samples, in microseconds.
    pub(crate) avg: f64,
    /// Standard deviation of the samples as a population, in microseconds.
    pub(crate) stdev: f64,
    /// 99, 99.9, 99.99 and 99.999 per cent of the samples are at most this.
    pub(crate) tail: [f64; 4],
}

/// Ranks of the values in `Latency::tail`, as fractions.
const TAIL: [f64; 4] = [0.99, 0.999, 0.9999, 0.99999];

impl Latency {
    /// Sorts `samples` (nanoseconds of a round trip) and sums them up. `divisor` is 1 for a round
    /// trip, 2 for one way. `None` with fewer than 3 samples: nothing is left after the drop.
    pub(crate) fn of(samples: &mut [u32], divisor: f64) -> Option<Self> {
        samples.sort_unstable();
        let kept = &samples[..samples.len().saturating_sub(DROPPED)];
        let (first, last) = (kept.first()?, kept.last()?);
        let us = |ns: f64| ns / divisor / 1000.0;
        let count = kept.len() as f64;
        let avg = kept.iter().map(|ns| f64::from(*ns)).sum::<f64>() / count;
        let variance = kept.iter().map(|ns| (f64::from(*ns) - avg).powi(2)).sum::<f64>() / count;
        Some(Self {
            min: us(f64::from(*first)),
            max: us(f64::from(*last)),
            median: us(median(kept)),
            avg: us(avg),
            stdev: us(variance.sqrt()),
            tail: TAIL.map(|rank| us(percentile(kept, rank))),
        })
    }
}

/// The middle of sorted samples; the mean of both when there are two.
fn median(sorted: &[u32]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        f64::from(sorted[half])
    } else {
        f64::midpoint(f64::from(sorted[half - 1]), f64::from(sorted[half]))
    }
}

/// The smallest sample that at least `rank` of all samples do not exceed (nearest rank).
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 < rank < 1")]
fn percentile(sorted: &[u32], rank: f64) -> f64 {
    let index = (sorted.len() as f64 * rank).ceil() as usize;
    f64::from(sorted[index.clamp(1, sorted.len()) - 1])
}

/// Bytes of a "MB" in every report.
pub(crate) const MB: f64 = 1_048_576.0;

/// Bandwidth of one size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Bandwidth {
    /// Best window, MB/s; 0 when it was not asked for.
    pub(crate) peak: f64,
    /// Mean bandwidth over all, in MB/s.
    pub(crate) average: f64,
    /// Million messages per second.
    pub(crate) rate: f64,
}

impl Bandwidth {
    /// `messages` of `bytes` in `nanos`; the best window took `best_ns` a message, if known.
    pub(crate) fn of(bytes: u32, messages: u64, nanos: u64, best_ns: Option<f64>) -> Self {
        let seconds = (nanos.max(1)) as f64 / 1e9;
        let messages = messages as f64;
        let bytes = f64::from(bytes);
        Self {
            peak: best_ns.map_or(0.0, |ns| bytes / MB * 1e9 / ns.max(f64::MIN_POSITIVE)),
            average: messages * bytes / MB / seconds,
            rate: messages / seconds / 1e6,
        }
    }

    /// In another unit: `factor` of it are a MB.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self { peak: self.peak * factor, average: self.average * factor, rate: self.rate }
    }

    /// Both directions, or several jetties, together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            peak: self.peak + other.peak,
            average: self.average + other.average,
            rate: self.rate + other.rate,
        }
    }
}

/// Finds the fastest stretch of completions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peak {
    window: u64,
    started_ns: u64,
    started_count: u64,
    best_ns: Option<f64>,
}

impl Peak {
    /// Looks at stretches of at least `window` messages, from `now_ns` on.
    pub(crate) fn new(window: u64, now_ns: u64) -> Self {
        Self { window: window.max(1), started_ns: now_ns, started_count: 0, best_ns: None }
    }

    /// `count` messages are complete at `now_ns`.
    pub(crate) fn on_completed(&mut self, count: u64, now_ns: u64) {
        let done = count - self.started_count;
        if done < self.window {
            return;
        }
        let each = now_ns.saturating_sub(self.started_ns).max(1) as f64 / done as f64;
        self.best_ns = Some(self.best_ns.map_or(each, |best| best.min(each)));
        self.started_ns = now_ns;
        self.started_count = count;
    }

    /// Nanoseconds per message in the best stretch.
    pub(crate) fn best_ns(&self) -> Option<f64> {
        self.best_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_two_largest_are_dropped() {
        let mut samples = [1000, 9_000_000, 3000, 2000, 8_000_000];
        let latency = Latency::of(&mut samples, 1.0).unwrap();
        assert_eq!((latency.min, latency.median, latency.max), (1.0, 2.0, 3.0));
        assert_eq!(latency.tail, [3.0; 4]);
    }

    #[test]
    fn one_way_is_half() {
        let mut samples = [400, 200, 600, 800, 800];
        let latency = Latency::of(&mut samples, 2.0).unwrap();
        assert_eq!((latency.min, latency.median, latency.avg), (0.1, 0.2, 0.2));
    }

    /// Four samples that differ: every column has a value of its own.
    #[test]
    fn columns_are_those_of_their_definitions() {
        let mut samples = [9000, 2000, 10_000, 6000, 4000, 9_999_999];
        let latency = Latency::of(&mut samples, 1.0).unwrap();
        assert_eq!((latency.min, latency.max), (2.0, 9.0));
        assert_eq!((latency.median, latency.avg), (5.0, 5.25));
        // The mean of the squares of -3.25, -1.25, 0.75 and 3.75 is 6.6875.
        assert!((latency.stdev - 6.6875_f64.sqrt()).abs() < 1e-12, "{}", latency.stdev);
        let mut samples: Vec<u32> = (1..=1_000_002).collect();
        let latency = Latency::of(&mut samples, 2.0).unwrap();
        assert_eq!(latency.tail, [495.0, 499.5, 499.95, 499.995]);
    }

    #[test]
    fn directions_add_up_column_by_column() {
        let mine = Bandwidth { peak: 8.0, average: 4.0, rate: 2.0 };
        let theirs = Bandwidth { peak: 16.0, average: 1.0, rate: 0.5 };
        let both = Bandwidth { peak: 24.0, average: 5.0, rate: 2.5 };
        assert_eq!(mine.plus(theirs), both);
        let scaled = Bandwidth { peak: 4.0, average: 2.0, rate: 2.0 };
        assert_eq!(mine.scaled(0.5), scaled);
    }

    #[test]
    fn too_few_samples_give_nothing() {
        assert!(Latency::of(&mut [1, 2], 1.0).is_none());
        assert!(Latency::of(&mut [], 1.0).is_none());
    }

    #[test]
    fn megabytes_are_binary() {
        let bandwidth = Bandwidth::of(1 << 20, 1000, 1_000_000_000, Some(500_000.0));
        assert_eq!(bandwidth.average, 1000.0);
        assert_eq!(bandwidth.peak, 2000.0);
        assert_eq!(bandwidth.rate, 0.001);
    }

    #[test]
    fn the_peak_is_the_best_window() {
        let mut peak = Peak::new(10, 0);
        peak.on_completed(5, 1);
        assert_eq!(peak.best_ns(), None);
        peak.on_completed(10, 1000);
        peak.on_completed(30, 1400);
        peak.on_completed(40, 9000);
        assert_eq!(peak.best_ns(), Some(20.0));
    }

    proptest! {
        /// Against the definition: count how many samples do not exceed the answer.
        #[test]
        fn percentiles_are_nearest_rank(mut samples in prop::collection::vec(0_u32..1000, 3..400)) {
            let latency = Latency::of(&mut samples, 1.0).unwrap();
            let kept = &samples[..samples.len() - 2];
            for (rank, value) in TAIL.iter().zip(latency.tail) {
                let is_at_most = |sample: &&u32| f64::from(**sample) <= value * 1000.0 + 0.5;
                let is_below = |sample: &&u32| f64::from(**sample) < value * 1000.0 - 0.5;
                let at_most = kept.iter().filter(is_at_most).count();
                let below = kept.iter().filter(is_below).count();
                prop_assert!(at_most as f64 >= rank * kept.len() as f64 - 1e-9);
                prop_assert!((below as f64) < rank * kept.len() as f64 + 1e-9);
            }
        }
    }
}
