//! What lies behind a device: the software device, and the struct that `dev->sysfs_dev` names.
//!
//! *Owns*: the memory of that struct. *Must not*: open the device.

use core::ptr::NonNull;
use std::sync::Arc;

use crate::{abi::*, udma::hardware::Hardware};

/// What lies behind a device.
pub(crate) struct DeviceOwn {
    /// The software device; none behind a device of another provider.
    pub(crate) hardware: Option<Arc<Hardware>>,
    pub(crate) sysfs: Sysfs,
}

/// The struct behind `dev->sysfs_dev`; lives as long as the device.
pub(crate) struct Sysfs(NonNull<urma_sysfs_dev_t>);

// SAFETY: owned memory; it moves between threads with the device that owns it.
unsafe impl Send for Sysfs {}

impl Sysfs {
    /// It is in a list of its own: programs walk the library's list by calls.
    pub(crate) fn new(sysfs: Box<urma_sysfs_dev_t>) -> Self {
        let sysfs = Box::leak(sysfs);
        let node = &raw mut sysfs.node;
        sysfs.node = ub_list { prev: node, next: node };
        Self(NonNull::from(sysfs))
    }

    pub(crate) const fn as_ptr(&self) -> *mut urma_sysfs_dev_t {
        self.0.as_ptr()
    }
}

impl Drop for Sysfs {
    fn drop(&mut self) {
        // SAFETY: leaked by `new`, and this is its one owner.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
