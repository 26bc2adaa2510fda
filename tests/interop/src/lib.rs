//! The endpoint of the standard opcodes (urma-rc) against the RoCE driver of Linux.
//!
//! *Owns*: a virtual machine with Linux rxe ([`Guest`]), the cable to it and this side's endpoint
//! ([`Bench`]). *Takes*: programs and packages of the system. *Gives*: both ends of a connection.
//! *Must not*: need privileges, or change anything outside its own folder of temporary files.
#![forbid(unsafe_code)]

mod bench;
mod clock;
mod guest;
mod image;
mod shell;

pub use bench::{Bench, Cable, Place};
pub use clock::now;
pub use guest::{Guest, GuestCompletion};
pub use image::Image;
pub use shell::ShellGuest;
pub use urma_vm::Missing;
