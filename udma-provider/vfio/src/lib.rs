//! Backings for devices outside of this process.
//!
//! - owns: the ioctls of VFIO (`kernel`), the vfio-user protocol, its client and its server (`user`).
//! - takes: a PCI function or a socket. gives: a `DeviceBacking`. must not: know what registers or rings mean.

pub mod config;
pub mod device;
pub mod kernel;
pub mod memory;
pub mod nic;
pub mod signal;
pub mod user;

pub use device::{
    AccessWidth, InterruptKind, PciDevice, PciError, PciInterrupts, PciWindow, WindowId,
};
pub use memory::DmaBuffer;
pub use nic::PciNic;
pub use signal::InterruptSignal;
