//! The log: callbacks, level, tag; the rate limit of one place in a program, 100 lines in five seconds.
//!
//! *Owns*: the layout of `urma_log_rl_state_t` of UMDK release 26.06, which lives in the program.

use core::ffi::{CStr, c_char, c_int};

use urma_mem::sync::{AtomicU32, AtomicU64, Ordering};

use crate::{
    abi::*,
    call::{self, Code, refuse},
    log, perf,
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

/// Length of a window, in seconds.
const WINDOW_S: u64 = 5;
/// Lines allowed in a window.
const LINES: u64 = 100;

/// State of one place. The program sets `left` to 100 and the rest to zero.
#[repr(C)]
#[derive(Debug)]
pub struct urma_log_rl_state_t {
    lock: AtomicU32,
    left: AtomicU64,
    missed: AtomicU64,
    begin_s: AtomicU64,
    /// Bit 0: the state is in use.
    flags: AtomicU32,
    file: *const c_char,
    function: *const c_char,
    line: c_int,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<urma_log_rl_state_t>() == 64);
    assert!(core::mem::offset_of!(urma_log_rl_state_t, begin_s) == 24);
    assert!(core::mem::offset_of!(urma_log_rl_state_t, file) == 40);
};

/// Whether this place may write a line; always if `rs` is NULL. Suppressed lines are counted in `missed`, until the window
/// ends.
pub unsafe extern "C" fn urma_log_rl_check(
    rs: *mut urma_log_rl_state_t,
    _file: *const c_char,
    _function: *const c_char,
    _line: c_int,
) -> bool {
    if rs.is_null() || !rs.is_aligned() {
        return true;
    }
    // SAFETY: the program's state: atomics and pointers that are not read here.
    let state = unsafe { &*rs };
    let now_s = perf::now_ns() / 1_000_000_000;
    let begin_s = state.begin_s.load(Ordering::Relaxed);
    let is_new = state.flags.fetch_or(1, Ordering::AcqRel) & 1 == 0;
    if is_new || now_s.saturating_sub(begin_s) >= WINDOW_S {
        // Of several threads that see the window end, one begins the next.
        let order = Ordering::AcqRel;
        if is_new
            || state.begin_s.compare_exchange(begin_s, now_s, order, Ordering::Relaxed).is_ok()
        {
            state.begin_s.store(now_s, Ordering::Relaxed);
            state.left.store(LINES, Ordering::Relaxed);
            state.missed.store(0, Ordering::Relaxed);
        }
        if is_new {
            return true;
        }
    }
    let less = |left: u64| left.checked_sub(1);
    let may = state.left.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less).is_ok();
    if !may {
        state.missed.fetch_add(1, Ordering::Relaxed);
    }
    may
}
