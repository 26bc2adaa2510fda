//! The life of the library: `urma_init`, `urma_uninit`, `urma_get_uasid`; what providers call: registration, devices.

use core::ffi::{c_char, c_int};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use crate::{
    abi::*,
    call::{self, Code, UserArray, refuse},
    choice,
    face::{cdev, family, jetty, library, notifier},
    log, provider,
    udma::table,
};

/// Starts the library; `conf` may be NULL. `URMA_EEXIST`: it runs already. In a forked child it starts afresh, without the
/// objects of the parent. `URMA_EINVAL`, `URMA_ENOTSUP`: `URMA_ABI` asks for a release of the C API that is not available.
pub unsafe extern "C" fn urma_init(conf: *mut urma_init_attr_t) -> urma_status_t {
    call::as_status(call::in_child(|| {
        log::install();
        choice::check()?;
        if call::is_forked() {
            library::abandon();
            for abandon in [jetty::abandon, family::abandon, notifier::abandon, cdev::abandon] {
                abandon();
            }
        }
        library::start(conf)
    }))
}

/// Stops the library and its providers; succeeds without effect if it does not run. `URMA_FAIL`: a provider's `uninit`
/// failed, but everything was stopped.
pub unsafe extern "C" fn urma_uninit() -> urma_status_t {
    call::status(library::stop)
}

/// Writes the user address space id of this process.
pub unsafe extern "C" fn urma_get_uasid(uasid: *mut u32) -> urma_status_t {
    call::status(|| {
        library::devices()?;
        // SAFETY: a place of the caller's, or NULL (room card of `face`).
        Code::from_c(unsafe { table::get_uasid(uasid) })
    })
}

/// `urma_init` under the name that programs built with our headers ask for, so that the loader refuses a library of
/// another release.
#[cfg(not(feature = "abi-25-12-0-b081"))]
pub unsafe extern "C" fn urma_init_abi_26_06(conf: *mut urma_init_attr_t) -> urma_status_t {
    // SAFETY: the contract of this function is that of the callee.
    unsafe { urma_init(conf) }
}

/// `urma_init` under the name that programs built with our headers ask for, so that the loader refuses a library of
/// another release.
#[cfg(feature = "abi-25-12-0-b081")]
pub unsafe extern "C" fn urma_init_abi_25_12_0_b081(conf: *mut urma_init_attr_t) -> urma_status_t {
    // SAFETY: the contract of this function is that of the callee.
    unsafe { urma_init(conf) }
}

/// Registers a provider, which `urma_init` starts; a shared object calls it in its constructor. -1: it is NULL, has no
/// name, is registered already, or 32 others are.
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

/// Removes a provider and its devices; a shared object calls it in its destructor. Returns 0 even if the provider is not
/// registered. -1: it is NULL.
pub unsafe extern "C" fn urma_unregister_provider_ops(
    provider_ops: *mut urma_provider_ops_t,
) -> c_int {
    call::as_count(call::in_child(|| {
        call::aligned(provider_ops)?;
        // Destructors run in a forked child too, where the list is the parent's.
        if !call::is_forked() {
            library::forget(provider_ops);
        }
        provider::unregister(provider_ops)?;
        Ok(0)
    }))
}

/// Lists a device that its provider created, and sets the flag `URMA_SYSFS_DEV_FLAG_DRIVER_CREATED`. The provider keeps
/// `dev` and its `urma_device` until it unregisters. -1: `dev` is NULL or has no `urma_device`, no provider drives it, a
/// device of this name is listed, or the library is not initialised.
pub unsafe extern "C" fn urma_register_sysfs_dev(dev: *mut urma_sysfs_dev_t) -> c_int {
    call::count(|| {
        let made = provider::given(call::aligned(dev)?, table::provider())?;
        library::add(made)?;
        Ok(0)
    })
}

/// Reads the value in `dir`/`file` into `buf`, without the final newline and zero-terminated. Returns its length, or -1:
/// the file is not readable or empty, or `size` is too small.
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

/// Most bytes of a file that are read.
const VALUE_MAX: usize = 1 << 16;
