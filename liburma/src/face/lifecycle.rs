//! Library lifecycle: `urma_init`, `urma_uninit`, `urma_get_uasid`.

use crate::{
    abi::*,
    call::{self, Code},
    choice,
    face::{cdev, family, group, library, notifier},
    log,
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
            for abandon in [group::abandon, family::abandon, notifier::abandon, cdev::abandon] {
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
