//! Frames of one UDP port without the kernel's network stack: an `AF_XDP` socket on one queue of an interface.
//!
//! [`XdpSocket`] has the memory for frames (the umem) and four rings, two for each direction; a small program ([`steer`]) gives it the
//! frames for one UDP port of one IPv4 address and leaves all others to the kernel.
#![forbid(unsafe_code)]

mod program;
mod socket;

pub use program::steer;
pub use socket::{XdpCounts, XdpRefusal, XdpSocket};
