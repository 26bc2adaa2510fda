//! Where lines go.
//!
//! *Owns*: the addresses of the callbacks. *Takes*: finished lines. *Must not*: call a callback from
//! within one: a function of the library that it calls may log too.

use core::{cell::Cell, ffi::c_int};
use std::io::Write;

use urma_mem::sync::{AtomicUsize, Ordering};

use super::{SourcePlace, line::Line};
use crate::abi::*;

/// Addresses of the callbacks; 0: none. At most one is set.
static PLAIN: AtomicUsize = AtomicUsize::new(0);
static LOCATED: AtomicUsize = AtomicUsize::new(0);

std::thread_local! {
    static IS_CALLING: Cell<bool> = const { Cell::new(false) };
}

/// Lines go to `to` from now on.
pub(crate) fn register(to: unsafe extern "C" fn(c_int, *mut core::ffi::c_char)) {
    LOCATED.store(0, Ordering::Release);
    PLAIN.store((to as *const ()).expose_provenance(), Ordering::Release);
}

/// Lines go to the callback, with where they come from; NULL was checked.
pub(crate) fn register_located(to: urma_loc_log_cb) {
    PLAIN.store(0, Ordering::Release);
    let addr = to.map_or(0, |to| (to as *const ()).expose_provenance());
    LOCATED.store(addr, Ordering::Release);
}

/// Lines go to standard error again.
pub(crate) fn unregister() {
    PLAIN.store(0, Ordering::Release);
    LOCATED.store(0, Ordering::Release);
}

/// Whether a program registered a function for lines.
pub(super) fn is_registered() -> bool {
    PLAIN.load(Ordering::Acquire) | LOCATED.load(Ordering::Acquire) != 0
}

/// Hands a line on, with where it comes from.
pub(super) fn give(level: u32, line: &mut Line, (file, function, number): SourcePlace<'_>) {
    if IS_CALLING.replace(true) {
        return;
    }
    let _done = Done;
    let level = c_int::try_from(level).unwrap_or(c_int::MAX);
    if let Some(call) = located() {
        // SAFETY: the program's function, with strings that live until it returns.
        unsafe { call(level, file.as_ptr(), function.as_ptr(), number, line.as_mut_ptr()) };
    } else if let Some(call) = plain() {
        // SAFETY: the program registered the function with this type; the line ends with a zero byte.
        unsafe { call(level, line.as_mut_ptr()) };
    } else {
        // A program without standard error gets no line.
        let _ = to_stderr(line);
    }
}

fn to_stderr(line: &Line) -> std::io::Result<()> {
    let mut to = std::io::stderr().lock();
    to.write_all(b"urma: ")?;
    to.write_all(line.text().trim_ascii_end())?;
    to.write_all(b"\n")
}

struct Done;

impl Drop for Done {
    fn drop(&mut self) {
        IS_CALLING.set(false);
    }
}

fn plain() -> urma_log_cb_t {
    let addr = core::ptr::with_exposed_provenance::<()>(PLAIN.load(Ordering::Acquire));
    // SAFETY: null, which is `None`, or the address of a function of that type.
    unsafe { core::mem::transmute::<*const (), urma_log_cb_t>(addr) }
}

fn located() -> urma_loc_log_cb {
    let addr = core::ptr::with_exposed_provenance::<()>(LOCATED.load(Ordering::Acquire));
    // SAFETY: null, which is `None`, or the address of a function of that type.
    unsafe { core::mem::transmute::<*const (), urma_loc_log_cb>(addr) }
}
