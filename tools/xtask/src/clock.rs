//! The one place of this program that asks what time it is.
//!
//! *Owns*: the monotonic clock and bounded pauses.

use std::time::{Duration, Instant};

/// Returns the present time of the monotonic clock.
#[expect(clippy::disallowed_methods, reason = "a measuring program owns a clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A short pause between two looks at a child process.
#[expect(clippy::disallowed_methods, reason = "waiting for a child process, with a bound")]
pub(crate) fn pause(length: Duration) {
    std::thread::sleep(length);
}
