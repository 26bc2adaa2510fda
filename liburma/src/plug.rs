//! Devices that a Rust program adds to the library's list: several nodes in one process.
//!
//! *Owns*: the life of an added device. *Takes*: a device of urma-core, such as one over a node.
//! *Gives*: the C struct, found by name too. *Must not*: open anything of its own.

use core::ptr::NonNull;
use std::sync::Arc;

use urma_core::{Device, Status};

use crate::{
    abi::urma_device_t,
    call::Code,
    face::library,
    provider,
    slab::Slot,
    udma::{device, hardware::Hardware, kind, table},
};

/// A device that was added; it goes with this value. Delete its contexts before.
pub struct Plugged {
    slot: Slot<kind::Device>,
}

impl std::fmt::Debug for Plugged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugged").field("device", &self.device()).finish()
    }
}

/// Adds `device` under `name`, of 1 to 63 bytes. `urma_init` was called.
///
/// # Errors
/// `NoDevice`: the library is not initialised. `Exists`: the name is taken. `Invalid`: no name, or
/// a longer one. `NoMemory`.
pub fn plug(name: &str, device: Device) -> Result<Plugged, Status> {
    const NAME_MAX: usize = 63;
    if name.is_empty() || name.len() > NAME_MAX {
        let len = name.len();
        return Err(Status::Invalid
            .why(format_args!("the device name has {len} bytes; allowed are 1 to {NAME_MAX}")));
    }
    let hardware = Arc::new(Hardware::of(device));
    let driver = provider::driver(table::provider()).map_err(refused)?;
    let slot = device::make(name, &hardware, driver).map_err(refused)?;
    let plugged = Plugged { slot };
    let device = NonNull::new(plugged.device()).ok_or(Status::Fail)?;
    library::add(device).map_err(refused)?;
    Ok(plugged)
}

fn refused(code: Code) -> Status {
    let known = [
        (Code::ENODEV, Status::NoDevice),
        (Code::EEXIST, Status::Exists),
        (Code::ENOMEM, Status::NoMemory),
    ];
    known
        .into_iter()
        .find(|(number, _)| code.is(*number))
        .map_or(Status::Fail, |(_, status)| status)
}

impl Plugged {
    /// The device, for the C functions.
    #[must_use]
    pub fn device(&self) -> *mut urma_device_t {
        self.slot.public()
    }
}

impl Drop for Plugged {
    fn drop(&mut self) {
        library::remove(self.device());
        self.slot.end();
    }
}
