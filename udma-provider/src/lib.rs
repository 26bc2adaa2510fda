//! The user-space UDMA driver: rings in host memory, doorbells, owner bits, commands.
//!
//! *Owns*: everything between urma-core's provider traits and a device's registers.
//! *Takes*: checked requests, and a device as an `Arc<dyn DeviceBacking>`. *Gives*: an
//! [`UdmaDevice`]. *Must not*: know which device or backing it drives; make a
//! system call, allocate or wait for a lock on the data path; trust a word that the device wrote.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod alloc;
mod bound;
mod channel;
mod cmdq;
mod context;
mod device;
mod doorbell;
mod events;
mod group;
mod index;
mod jetty;
mod jfc;
mod jfce;
mod jfr;
mod jfs;
mod local_completion;
mod path;
mod provider;
mod ranges;
mod segment;
mod shadow;
mod slots;
mod sqe;
mod table;
mod vectors;

#[cfg(test)]
mod tests;

pub use alloc::RingPages;
pub use device::DriverCfg;
pub use provider::{UdmaDevice, device_on};
