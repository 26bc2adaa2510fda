//! The endpoint of the standard opcodes (urma-rc) against the RoCE driver of Linux.
//!
//! *Owns*: a virtual machine with Linux rxe ([`Guest`]), the cable to it and this side's endpoint
//! ([`Bench`]). *Takes*: programs and packages of the system. *Gives*: both ends of a connection.
//! *Must not*: need privileges, or change anything outside its own folder of temporary files.
#![forbid(unsafe_code)]

use std::time::Instant;

mod bench;
mod guest;
mod image;
pub use bench::{Bench, Cable, Place};
pub use guest::ShellGuest;
pub use guest::{Guest, GuestCompletion};
pub use image::Image;
pub use urma_vm::Missing;

/// The time now, for bounds of waits and for the endpoint.
#[expect(clippy::disallowed_methods, reason = "a machine beside this one runs in real time")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}
