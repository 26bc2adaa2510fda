//! The one clock of this crate.

use std::time::Instant;

/// The time now, for bounds of waits and for the endpoint.
#[expect(clippy::disallowed_methods, reason = "a machine beside this one runs in real time")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}
