//! The one place of this program that asks what time it is.
//!
//! *Owns*: the monotonic clock, its own cost, bounded pauses. *Gives*: nanoseconds since start.

use std::time::{Duration, Instant};

/// Clock that counts nanoseconds from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningClock {
    start: Instant,
}

impl RunningClock {
    /// A clock that shows 0 now.
    #[expect(clippy::disallowed_methods, reason = "a measuring program owns a clock")]
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Nanoseconds since the start; wraps after 584 years.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "584 years")]
    pub(crate) fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// What one look at the clock costs, in nanoseconds: the median of many.
    pub(crate) fn cost_ns(&self) -> u32 {
        const LOOKS: usize = 2001;
        let mut costs = Vec::with_capacity(LOOKS);
        let mut last = self.now_ns();
        for _ in 0..LOOKS {
            let now = self.now_ns();
            costs.push(u32::try_from(now - last).unwrap_or(u32::MAX));
            last = now;
        }
        costs.sort_unstable();
        costs[LOOKS / 2]
    }
}

/// The end of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitDeadline {
    at_ns: u64,
}

impl WaitDeadline {
    /// The moment `bound` from now.
    pub(crate) fn after(clock: &RunningClock, bound: Duration) -> Self {
        let bound_ns = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        Self { at_ns: clock.now_ns().saturating_add(bound_ns) }
    }

    /// Whether it has passed.
    pub(crate) fn is_over(&self, clock: &RunningClock) -> bool {
        clock.now_ns() >= self.at_ns
    }
}

/// Lets others run for a while; set-up only, never while something is measured.
#[expect(clippy::disallowed_methods, reason = "a bounded pause between two tries of the set-up")]
pub(crate) fn pause(bound: Duration) {
    std::thread::sleep(bound);
}
