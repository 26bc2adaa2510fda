//! Calls of providers: their registration, and devices.

use core::ffi::{c_char, c_int};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use crate::{
    abi::*,
    call::{self, UserArray, refuse},
    face::library,
    provider,
    udma::table,
};

/// Registers a provider; a shared object does so in its constructor. `urma_init` starts it. -1: NULL,
/// no name, registered already, or 32 are.
pub unsafe extern "C" fn urma_register_provider_ops(
    provider_ops: *mut urma_provider_ops_t,
) -> c_int {
    call::as_count(call::in_child(|| {
        provider::register(provider_ops).inspect_err(|code| {
            let status = code.status();
            tracing::warn!(target: "urma", status, "a provider is not registered");
        })?;
        Ok(0)
    }))
}

/// Removes a provider, and its devices from the list; a shared object does so in its destructor. 0
/// also when it is not registered. -1: NULL.
pub unsafe extern "C" fn urma_unregister_provider_ops(
    provider_ops: *mut urma_provider_ops_t,
) -> c_int {
    call::as_count(call::in_child(|| {
        call::aligned(provider_ops)?;
        // The list is the parent's in a forked child, where destructors run too.
        if !call::is_forked() {
            library::forget(provider_ops);
        }
        provider::unregister(provider_ops)?;
        Ok(0)
    }))
}

/// Lists a device that its provider made itself, with the flag
/// `URMA_SYSFS_DEV_FLAG_DRIVER_CREATED`; `dev` and its `urma_device` stay the provider's, until it
/// unregisters. -1: NULL, no `urma_device`, no provider for it, a device of this name is listed, or
/// before `urma_init`.
pub unsafe extern "C" fn urma_register_sysfs_dev(dev: *mut urma_sysfs_dev_t) -> c_int {
    call::count(|| {
        let made = provider::given(call::aligned(dev)?, table::provider())?;
        library::add(made)?;
        Ok(0)
    })
}

/// Reads the value in `dir`/`file` into `buf`, without a newline at its end and with a zero behind
/// it. Its length, or -1: not readable, empty, or `size` is too small.
pub unsafe extern "C" fn urma_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> isize {
    let len = call::as_count(call::in_child(|| {
        // SAFETY: a C string of the caller's (room card of `face`).
        let dir = unsafe { call::text(dir) }?;
        // SAFETY: another C string of the caller's.
        let file = unsafe { call::text(file) }?;
        // SAFETY: a buffer of the caller's.
        let buf = unsafe { UserArray::new(buf.cast::<u8>(), size) }?;
        let [dir, file] = [dir, file].map(|part| Path::new(OsStr::from_bytes(part.to_bytes())));
        let mut value = vec![0; size.min(VALUE_MAX)];
        let len = provider::read(&dir.join(file), &mut value)
            .ok_or_else(|| refuse!(FAIL, "the file {file:?} cannot be read"))?;
        buf.copy_from(&value[..=len])?;
        c_int::try_from(len).map_err(|_| refuse!(FAIL, "the file has {len} bytes"))
    }));
    isize::try_from(len).unwrap_or(-1)
}

/// Bytes of a file that are looked at.
const VALUE_MAX: usize = 1 << 16;
