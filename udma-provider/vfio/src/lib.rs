//! Backings for devices outside of this process.
//!
//! - owns: the ioctls of VFIO (`kernel`), the vfio-user protocol, its client and its server (`user`).
//! - takes: a PCI function or a socket. gives: a `DeviceBacking`. must not: know what registers or rings mean.

pub mod user;
