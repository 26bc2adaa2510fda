//! The clock of the workers: bounds of waits, and short rests.
//!
//! *Owns*: the only reads of a clock here. *Must not*: measure speed.

use std::time::{Duration, Instant};

/// A moment after which waiting is over.
#[derive(Clone, Copy, Debug)]
pub struct Bound(Instant);

impl Bound {
    /// In `duration` from now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this room owns the clock")]
    pub fn after(duration: Duration) -> Self {
        Self(Instant::now() + duration)
    }

    /// Whether it has come.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this room owns the clock")]
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.0
    }

    /// Time until it comes.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this room owns the clock")]
    pub fn left(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// Gives the core away for a while.
#[expect(clippy::disallowed_methods, reason = "this room owns the clock")]
pub fn rest(duration: Duration) {
    std::thread::sleep(duration);
}
