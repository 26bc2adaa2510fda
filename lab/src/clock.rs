//! How fast the machine simulates; no result depends on it.
//!
//! - owns: the only clock of the crate. takes: nothing. gives: time that has passed.
//! - must not: reach an experiment.

use std::time::{Duration, Instant};

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
