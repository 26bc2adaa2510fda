//! In-network computing on real machines: sockets and threads around the switches and hosts of `inc`.
//!
//! - owns: how ranks find each other ([`bootstrap`]), UDP sockets ([`udp`]), packet sockets ([`raw`]) and ports that others own
//!   ([`shared`]), a loop that drives a station ([`drive`]), a host that threads share ([`host`]), a switch
//!   with its thread ([`switch`]).
//! - takes: an address, commands of the controller, operations. gives: results, reports.
//! - must not: know the protocol: that is `inc`, without sockets.

#![forbid(unsafe_code)]

use std::time::Instant;

pub mod bootstrap;
pub mod drive;
pub mod group;
pub mod host;
pub mod raw;
pub mod shared;
pub mod switch;
pub mod udp;
mod waker;

/// The time now: only the drivers read the clock; stations are given the time.
#[expect(clippy::disallowed_methods, reason = "drivers own the clock")]
pub(crate) fn clock() -> Instant {
    Instant::now()
}
