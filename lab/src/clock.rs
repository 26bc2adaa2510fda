//! How fast the machine simulates, and what it takes for packets; no result of an experiment depends on it.
//!
//! - owns: the only clocks of the crate. takes: nothing. gives: time that has passed.
//! - must not: reach an experiment.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Measures the time of a run.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// A stopwatch that starts now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the speed of the simulator is a result")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    #[must_use]
    pub fn passed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Processor time of the calling thread so far, in ns.
#[must_use]
pub fn thread_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
