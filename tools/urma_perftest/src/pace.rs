//! Open loop: when requests shall start.
//!
//! *Owns*: the plan of intended starts, the latencies counted from them. *Takes*: the clock's
//! nanoseconds. *Gives*: how many may be posted by now; a distribution. *Must not*: wait.
//!
//! A latency counts from the moment at which the request was to start, whether or not it could be
//! posted then: a stall of the system is seen by every request that was to start meanwhile.

use hdrhistogram::Histogram;

use crate::plan::{OpenLoopRate, Speed};

/// Highest latency with a bucket of its own: one minute; more counts as a minute.
const NS_MAX: u64 = 60_000_000_000;

/// An empty distribution of nanoseconds, three digits exact.
pub(crate) fn distribution() -> Histogram<u64> {
    Histogram::new_with_bounds(1, NS_MAX, 3).expect("the bounds are right: 1 < 2 * 1 <= NS_MAX")
}

/// Intended starts of one lane.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    start_ns: u64,
    /// Time between the starts of two bursts, in nanoseconds.
    gap_ns: f64,
    burst: u64,
    /// Latencies from the intended starts.
    pub(crate) latency: Histogram<u64>,
}

impl Pace {
    /// The plan of one of `lanes` lanes with messages of `bytes`, from `now_ns` on.
    pub(crate) fn new(rate: &OpenLoopRate, bytes: u64, lanes: u64, now_ns: u64) -> Self {
        let per_second = match rate.speed {
            Speed::BytesPerSecond(speed) => speed as f64 / bytes.max(1) as f64,
            Speed::MessagesPerSecond(speed) => speed as f64,
        } / lanes.max(1) as f64;
        let burst = u64::from(rate.burst.max(1));
        let gap_ns = burst as f64 * 1e9 / per_second.max(f64::MIN_POSITIVE);
        Self { start_ns: now_ns, gap_ns, burst, latency: distribution() }
    }

    /// When message `number` is to start.
    #[inline]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "time goes on")]
    pub(crate) fn intended_ns(&self, number: u64) -> u64 {
        self.start_ns.saturating_add(((number / self.burst) as f64 * self.gap_ns) as u64)
    }

    /// Messages that were to start until `now_ns`.
    #[inline]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "time goes on")]
    pub(crate) fn due(&self, now_ns: u64) -> u64 {
        let bursts = now_ns.saturating_sub(self.start_ns) as f64 / self.gap_ns;
        (bursts as u64 + 1).saturating_mul(self.burst)
    }

    /// Message `number` is complete at `now_ns`. One that was not to start by then has no latency:
    /// it was posted early, to end the run.
    #[inline]
    pub(crate) fn on_completed(&mut self, number: u64, now_ns: u64) {
        if let Some(latency) = now_ns.checked_sub(self.intended_ns(number)) {
            self.latency.saturating_record(latency.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(messages_per_second: u64, burst: u32) -> Pace {
        let speed = Speed::MessagesPerSecond(messages_per_second);
        Pace::new(&OpenLoopRate { speed, burst }, 8, 1, 1000)
    }

    #[test]
    fn starts_are_a_gap_apart() {
        let pace = pace(1_000_000, 4);
        assert_eq!([0, 3, 4, 8].map(|number| pace.intended_ns(number)), [1000, 1000, 5000, 9000]);
        assert_eq!([1000, 4999, 5000, 9100].map(|now| pace.due(now)), [4, 4, 8, 12]);
    }

    #[test]
    fn bytes_and_lanes_share_the_rate() {
        let speed = Speed::BytesPerSecond(1_000_000_000);
        let pace = Pace::new(&OpenLoopRate { speed, burst: 1 }, 1000, 2, 0);
        assert_eq!(pace.intended_ns(3), 6000);
    }

    #[test]
    fn a_message_before_its_moment_has_no_latency() {
        let mut pace = pace(1_000_000, 1);
        pace.on_completed(5, 5999);
        assert_eq!(pace.latency.len(), 0);
        pace.on_completed(5, 6000);
        assert_eq!(pace.latency.len(), 1);
    }

    #[test]
    fn a_stall_is_seen_by_all_that_were_to_start_meanwhile() {
        // One message per microsecond; the system stands still for 100 us, then all complete at once.
        let mut pace = pace(1_000_000, 1);
        for number in 0..100 {
            pace.on_completed(number, 1000 + 100_000);
        }
        // A closed loop would have counted one sample of 100 us; the mean of these is half of it.
        assert_eq!(pace.latency.len(), 100);
        assert!((pace.latency.mean() - 50_500.0).abs() < 100.0, "{}", pace.latency.mean());
        assert!(pace.latency.max() >= 99_900);
    }
}
