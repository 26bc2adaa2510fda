//! Slow start that ends when queues begin to grow: HyStart++ (RFC 9406).
//!
//! - owns: the least round-trip times of this round and the one before. takes: samples, rounds.
//! - gives: how much of what is acknowledged the window may grow by. must not: know the window.

use udma_abi::Nanos;

use super::PathNews;

/// Constants of RFC 9406, 4.3.
const RTT_THRESHOLD_MIN_NS: Nanos = 4_000_000;
const RTT_THRESHOLD_MAX_NS: Nanos = 16_000_000;
const RTT_DIVISOR: Nanos = 8;
const SAMPLES_MIN: u32 = 8;
const CAUTIOUS_DIVISOR: f64 = 4.0;
const CAUTIOUS_ROUNDS: u32 = 5;

/// Phases of slow start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StartPhase {
    /// The window doubles per round trip.
    Fast,
    /// It grows by a quarter, for so many more rounds, unless round trips get shorter than that again.
    Cautious { rounds: u32, baseline: Nanos },
    /// The window follows something else.
    Over,
}

/// When slow start ends.
#[derive(Debug)]
pub(super) struct SlowStart {
    phase: StartPhase,
    last_min: Nanos,
    current_min: Nanos,
    samples: u32,
}

impl SlowStart {
    pub(super) const fn new() -> Self {
        Self { phase: StartPhase::Fast, last_min: Nanos::MAX, current_min: Nanos::MAX, samples: 0 }
    }

    /// How many packets the window grows by for each that is acknowledged; none when slow start is over.
    pub(super) const fn growth(&self) -> Option<f64> {
        match self.phase {
            StartPhase::Fast => Some(1.0),
            StartPhase::Cautious { .. } => Some(1.0 / CAUTIOUS_DIVISOR),
            StartPhase::Over => None,
        }
    }

    /// Takes feedback; returns whether slow start ends by it.
    pub(super) fn on_news(&mut self, news: &PathNews) -> bool {
        if let Some(rtt) = news.rtt {
            self.current_min = self.current_min.min(rtt);
            self.samples += 1;
        }
        if self.samples >= SAMPLES_MIN && self.last_min < Nanos::MAX {
            self.look();
        }
        if news.is_round_over {
            self.last_min = std::mem::replace(&mut self.current_min, Nanos::MAX);
            self.samples = 0;
            if let StartPhase::Cautious { rounds, .. } = &mut self.phase {
                *rounds -= 1;
                if *rounds == 0 {
                    self.phase = StartPhase::Over;
                    return true;
                }
            }
        }
        false
    }

    fn look(&mut self) {
        let threshold =
            (self.last_min / RTT_DIVISOR).clamp(RTT_THRESHOLD_MIN_NS, RTT_THRESHOLD_MAX_NS);
        match self.phase {
            StartPhase::Fast if self.current_min >= self.last_min.saturating_add(threshold) => {
                let baseline = self.current_min;
                self.phase = StartPhase::Cautious { rounds: CAUTIOUS_ROUNDS, baseline };
            }
            StartPhase::Cautious { baseline, .. } if self.current_min < baseline => {
                self.phase = StartPhase::Fast;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn sample_round(start: &mut SlowStart, rtt: Nanos) -> bool {
        for _ in 0..SAMPLES_MIN {
            start.on_news(&PathNews { rtt: Some(rtt), ..PathNews::default() });
        }
        start.on_news(&PathNews { is_round_over: true, ..PathNews::default() })
    }

    #[test]
    fn it_gets_cautious_when_round_trips_grow_and_ends_after_five_rounds() {
        let mut start = SlowStart::new();
        assert!(!sample_round(&mut start, 40 * MS));
        assert!(!sample_round(&mut start, 44 * MS));
        assert_eq!(start.growth(), Some(1.0), "an eighth more is the threshold");
        assert!(!sample_round(&mut start, 50 * MS));
        assert_eq!(start.growth(), Some(0.25));
        let ends: Vec<bool> = (0..4).map(|_| sample_round(&mut start, 50 * MS)).collect();
        assert_eq!(ends, [false, false, false, true]);
        assert_eq!(start.growth(), None);
    }

    #[test]
    fn a_round_trip_that_grew_by_chance_makes_it_fast_again() {
        let mut start = SlowStart::new();
        for (rtt, growth) in [(40, 1.0), (60, 0.25), (41, 1.0)] {
            sample_round(&mut start, rtt * MS);
            assert_eq!(start.growth(), Some(growth), "{rtt}");
        }
    }

    /// An eighth of the round trip, but 4 ms at least and 16 ms at most (RFC 9406, 4.2).
    #[test]
    fn the_threshold_has_bounds() {
        for (usual, grown, is_cautious) in [
            (10_000, 13_999, false),
            (10_000, 14_000, true),
            (80_000, 89_999, false),
            (80_000, 90_000, true),
            (400_000, 415_999, false),
            (400_000, 416_000, true),
        ] {
            let mut start = SlowStart::new();
            sample_round(&mut start, usual * 1000);
            sample_round(&mut start, grown * 1000);
            assert_eq!(start.growth() == Some(0.25), is_cautious, "{usual} {grown} us");
        }
    }

    #[test]
    fn fewer_than_eight_samples_show_nothing() {
        let mut start = SlowStart::new();
        sample_round(&mut start, 40 * MS);
        let sample = PathNews { rtt: Some(90 * MS), ..PathNews::default() };
        (0..SAMPLES_MIN - 1).for_each(|_| assert!(!start.on_news(&sample)));
        assert_eq!(start.growth(), Some(1.0));
        start.on_news(&sample);
        assert_eq!(start.growth(), Some(0.25));
    }

    /// One sample of a round that is as short as those before shows that there is no queue.
    #[test]
    fn a_round_is_as_long_as_its_shortest_sample() {
        let mut start = SlowStart::new();
        sample_round(&mut start, 10 * MS);
        for rtt in [30, 10, 30, 30, 30, 30, 30, 30, 30] {
            start.on_news(&PathNews { rtt: Some(rtt * MS), ..PathNews::default() });
        }
        assert_eq!(start.growth(), Some(1.0));
        start.on_news(&PathNews { is_round_over: true, ..PathNews::default() });
        sample_round(&mut start, 30 * MS);
        assert_eq!(start.growth(), Some(1.0 / CAUTIOUS_DIVISOR));
    }
}
