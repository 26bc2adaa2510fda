//! The clock of the drivers.
//!
//! - gives: the time. must not: be read by a station, which is given the time.

use std::time::Instant;

#[expect(clippy::disallowed_methods, reason = "drivers own the clock")]
pub(crate) fn clock() -> Instant {
    Instant::now()
}
