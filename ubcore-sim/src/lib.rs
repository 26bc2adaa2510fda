//! A software UDMA device (a NIC) behind the same registers and rings as hardware would have.
//!
//! The core takes time, packets and commands as arguments and gives packets, completions and
//! deadlines; only `host/` has threads, sockets and clocks.
#![forbid(unsafe_code)]

pub mod device;
pub mod hooks;
pub mod ports;
pub mod share;

pub use device::{Device, DeviceCfg, Ports};
