//! Pacing: packets of a TP leave in bursts of bounded length at a rate.
//!
//! - owns: when the packets sent so far are paid for. takes: time, the rate. gives: whether one may leave, when the next
//!   burst may. must not: read a clock.
//!
//! In any time T at most T / interval + burst + 1 packets leave.

use udma_abi::Nanos;

/// Most packets of a burst: one run of segmentation offload.
pub const PACER_BURST_MAX: u64 = 64;
/// Time that a burst may stand for, in ps: a timer that is late by that costs nothing.
const BURST_PS: u64 = 1_000_000_000;
const PS: u64 = 1000;

/// Bounds how fast packets leave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    /// When all packets sent so far are paid for, in ps.
    paid_at: u64,
    interval_ps: u64,
    /// Packets that may leave at once.
    burst: u64,
    /// Until then nothing leaves, in ns.
    blocked_until: Option<Nanos>,
}

impl Pacer {
    /// Packets leave at this mean distance from now on, 0: without limit; of a window of so many at most a quarter
    /// at once.
    pub const fn set_rate(&mut self, interval_ps: u64, window: u64) {
        self.interval_ps = interval_ps;
        if interval_ps == 0 {
            self.blocked_until = None;
            return;
        }
        let by_time = BURST_PS / interval_ps;
        let by_window = window / 4;
        let burst = if by_time < by_window { by_time } else { by_window };
        self.burst = if burst < 2 {
            2
        } else if burst > PACER_BURST_MAX {
            PACER_BURST_MAX
        } else {
            burst
        };
    }

    /// Whether a packet may leave at `now`; if not, [`Pacer::blocked_until`] says when.
    pub const fn admits(&mut self, now: Nanos) -> bool {
        if self.interval_ps == 0 {
            return true;
        }
        let now_ps = now.saturating_mul(PS);
        let most = self.interval_ps.saturating_mul(2 * self.burst);
        if self.paid_at > now_ps.saturating_add(most) {
            // The clock went back, or the rate grew: nothing waits for a time that may never be.
            self.paid_at = now_ps.saturating_add(most);
            self.blocked_until = None;
        }
        if let Some(until) = self.blocked_until
            && now < until
            && until - now <= most / PS + 1
        {
            return false;
        }
        self.blocked_until = None;
        if self.paid_at <= now_ps {
            return true;
        }
        // Half a burst leaves at once then, not a packet for each timer.
        let half = self.interval_ps.saturating_mul(self.burst / 2 - 1);
        self.blocked_until = Some(self.paid_at.saturating_add(half).div_ceil(PS));
        false
    }

    /// Counts a packet that left at `now`.
    pub const fn on_sent(&mut self, now: Nanos) {
        if self.interval_ps == 0 {
            return;
        }
        let credit = self.interval_ps.saturating_mul(self.burst);
        let least = now.saturating_mul(PS).saturating_sub(credit);
        let paid_at = if self.paid_at < least { least } else { self.paid_at };
        self.paid_at = paid_at.saturating_add(self.interval_ps);
    }

    /// When the next burst may leave, if none may now.
    #[must_use]
    pub const fn blocked_until(&self) -> Option<Nanos> {
        self.blocked_until
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Times at which packets leave when `polls` ask as often as they may.
    fn leave(pacer: &mut Pacer, polls: &[Nanos]) -> Vec<Nanos> {
        let mut left = Vec::new();
        for &now in polls {
            while left.len() < 100_000 && pacer.admits(now) {
                pacer.on_sent(now);
                left.push(now);
            }
        }
        left
    }

    #[test]
    fn the_rate_is_kept_by_polls_at_its_deadlines() {
        let mut pacer = Pacer::default();
        pacer.set_rate(1_000_000, 400);
        let mut now = 1_000_000_000;
        let (begin, mut sent) = (now, 0);
        while now < begin + 10_000_000 {
            while pacer.admits(now) {
                pacer.on_sent(now);
                sent += 1;
            }
            let until = pacer.blocked_until().expect("something waits");
            assert!(until > now);
            now = until;
        }
        // 10 ms of 1 us each, and the first burst.
        assert!((10_000..=10_130).contains(&sent), "{sent}");
    }

    /// Intervals of 1 us and 100 us; of a window a quarter at most, of time 1 ms, and no more than 64. One more leaves on
    /// credit, and the next ones when that and half a burst but one are paid for.
    #[test]
    fn a_burst_is_of_the_window_the_time_and_the_bound_and_waits_for_half_of_itself() {
        let now = 1_000_000_000;
        for (interval_ns, window, burst) in [
            (1000, 400, 64),
            (1000, 100, 25),
            (100_000, 400, 10),
            (1000, 4, 2),
            (10_000_000, 400, 2),
        ] {
            let mut pacer = Pacer::default();
            pacer.set_rate(interval_ns * PS, window);
            assert_eq!(leave(&mut pacer, &[now]).len() as u64, burst + 1, "{interval_ns} {window}");
            let until = now + interval_ns + (burst / 2 - 1) * interval_ns;
            assert_eq!(pacer.blocked_until(), Some(until), "{interval_ns} {window}");
            assert!(!pacer.admits(until - 1) && pacer.admits(until));
            // Half a burst then, and one on credit.
            assert_eq!(
                leave(&mut pacer, &[until]).len() as u64,
                (burst / 2).max(1),
                "{interval_ns}"
            );
        }
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pacer = Pacer::default();
        assert!((0..1000).all(|_| pacer.admits(0)));
        pacer.set_rate(1_000_000, 400);
        leave(&mut pacer, &[0]);
        assert!(pacer.blocked_until().is_some());
        pacer.set_rate(0, 400);
        assert!(pacer.admits(0) && pacer.blocked_until().is_none());
    }

    #[test]
    fn a_clock_that_goes_back_stops_nothing_for_long() {
        let mut pacer = Pacer::default();
        pacer.set_rate(1_000_000, 400);
        leave(&mut pacer, &[3_600_000_000_000]);
        let until = |pacer: &mut Pacer| (!pacer.admits(5)).then(|| pacer.blocked_until());
        assert!(until(&mut pacer).is_none_or(|until| until < Some(1_000_000)));
    }

    proptest! {
        #[test]
        fn in_no_time_more_leaves_than_the_rate_and_a_burst(
            interval_ps in 1000_u64..10_000_000,
            window in 2_u64..10_000,
            waits in prop::collection::vec(0_u64..200_000, 1..200),
        ) {
            let mut pacer = Pacer::default();
            pacer.set_rate(interval_ps, window);
            let mut now = 1_000_000_000;
            let polls: Vec<Nanos> = waits.iter().map(|wait| { now += wait; now }).collect();
            let left = leave(&mut pacer, &polls);
            for (at, from) in left.iter().enumerate().step_by(7) {
                for (count, until) in left[at..].iter().enumerate() {
                    let paid = (until - from) * PS / interval_ps;
                    prop_assert!(count as u64 <= paid + pacer.burst + 1);
                }
            }
        }
    }
}
