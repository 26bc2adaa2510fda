//! The clock of the real world.
//!
//! *Owns*: reads of the system's clocks. *Gives*: exact time for waits, a cheap lower bound for posts, and numbers of
//! lives. *Must not*: be read by the core.
//!
//! Measured here: exact 28 ns, cheap 2 ns with a resolution of 1 to 4 ms. A doorbell of 22 ns cannot afford the exact
//! clock; a timer that starts from the cheap one fires a little early.

use rustix::time::{ClockId, Timespec, clock_gettime};
use udma_abi::Nanos;
use urma_mem::sync::{AtomicU64, Ordering};

/// Monotonic time of this machine, in nanoseconds.
#[derive(Debug, Default)]
pub struct Clock {
    /// The latest exact time.
    latest: AtomicU64,
}

impl Clock {
    /// Reads the monotonic clock of the machine, in nanoseconds.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Nanos {
        let now = nanos(clock_gettime(ClockId::Monotonic));
        self.latest.store(now, Ordering::Relaxed);
        now
    }

    /// Returns a time that is not in the future, at most some milliseconds in the past, and not before an exact time
    /// that this thread has seen.
    #[inline]
    #[must_use]
    pub fn now_coarse(&self) -> Nanos {
        let coarse = nanos(clock_gettime(ClockId::MonotonicCoarse));
        coarse.max(self.latest.load(Ordering::Relaxed))
    }
}

fn nanos(time: Timespec) -> Nanos {
    // The system's monotonic clock counts from boot and is never negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarse_never_runs_ahead_nor_back() {
        let clock = Clock::default();
        for _ in 0..1000 {
            let before = clock.now();
            let coarse = clock.now_coarse();
            let after = clock.now();
            assert!(before <= coarse && coarse <= after);
        }
    }
}
