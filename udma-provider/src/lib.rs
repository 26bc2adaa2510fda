//! The user-space UDMA driver: rings in host memory, doorbells, owner bits, commands.
//!
//! Everything between urma-core's provider traits and a device's registers: takes checked requests and a device,
//! gives an [`UdmaDevice`]. Must not know which device or backing it drives; make a system call, allocate or wait
//! for a lock on the data path; trust a word that the device wrote.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod alloc;
mod channel;
mod cmdq;
mod context;
mod device;
mod doorbell;
mod events;
mod jetty;
mod jfc;
mod jfr;
mod jfs;
mod local_completion;
mod path;
mod provider;
mod segment;
mod shadow;
mod sqe;
mod table;
mod vectors;

pub use alloc::RingPages;
pub use device::DriverCfg;
pub use provider::{UdmaDevice, device_on};

/// Whether free-running index `a` comes before `b`.
#[inline]
fn is_before(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}

#[cfg(test)]
mod tests;
