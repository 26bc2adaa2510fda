//! Callbacks, level and tag of the log.

use core::ffi::{CStr, c_char};

use crate::{
    abi::*,
    call::{self, Code, refuse},
    log,
};

fn no_function() -> Code {
    refuse!(EINVAL, "func is NULL; urma_unregister_log_func ends what was registered")
}

/// Registers `func` as the receiver of log lines.
pub unsafe extern "C" fn urma_register_log_func(func: urma_log_cb_t) -> urma_status_t {
    call::as_status(call::in_child(|| {
        log::register(func.ok_or_else(no_function)?);
        log::install();
        Ok(())
    }))
}

/// Registers `func` as the receiver of log lines, with file, function and line number.
pub unsafe extern "C" fn urma_register_loc_log_func(func: urma_loc_log_cb) -> urma_status_t {
    call::as_status(call::in_child(|| {
        func.ok_or_else(no_function)?;
        log::register_located(func);
        log::install();
        Ok(())
    }))
}

/// Unregisters the callback: log lines go to standard error again.
pub unsafe extern "C" fn urma_unregister_log_func() -> urma_status_t {
    log::unregister();
    call::SUCCESS
}

/// Returns the log level; lines of larger numbers are left out.
pub unsafe extern "C" fn urma_log_get_level() -> urma_vlog_level_t {
    log::level()
}

/// Sets the log level; an unknown number is ignored.
pub unsafe extern "C" fn urma_log_set_level(level: urma_vlog_level_t) {
    log::set_level(level);
}

/// Returns the log tag of this thread, initially `-`.
pub unsafe extern "C" fn urma_log_get_thread_tag() -> *const c_char {
    log::tag()
}

/// Sets the tag in front of each line of this thread; NULL and tags of more than 63 bytes are ignored.
pub unsafe extern "C" fn urma_log_set_thread_tag(tag: *const c_char) {
    if !tag.is_null() {
        // SAFETY: a C string of the caller's (room card of `face`).
        log::set_tag(unsafe { CStr::from_ptr(tag) });
    }
}
