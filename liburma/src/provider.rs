//! Providers: which of them drives which device.
//!
//! *Owns*: the registry of providers (the built-in one is its first), the shared objects that bring
//! others, the devices that the system lists for them. *Takes*: tables that providers register,
//! folders, the environment. *Gives*: providers that started, and `urma_device_t` of their devices.
//! *Must not*: call a provider's operations on a device or a context; the face does. No lock is held
//! while a provider's code runs, a constructor or destructor of a shared object for one.
#![expect(unsafe_code, reason = "tables, structs and code of providers")]

mod device;
mod load;
mod registry;
mod start;
mod sysfs;

pub(crate) use device::{discover, eid_at, eids, given};
pub(crate) use load::SharedObject;
pub(crate) use registry::{abandon, closed, driver, is_running, opened, register, unregister};
pub(crate) use start::{start, stop, unload};
pub(crate) use sysfs::read;

use core::ffi::{CStr, c_char};

/// The text at `text`, for log lines and comparisons; empty for NULL.
///
/// # Safety
/// A C string, or NULL.
unsafe fn text_at(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the contract of this function: a C string, or NULL, which was refused above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
