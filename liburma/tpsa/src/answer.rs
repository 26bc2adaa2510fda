//! Answers: the forms of a refusal.
//!
//! *Owns*: the two forms of a refusal, `errno`, the stop for panics. *Must not*: know what is asked.

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a call is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum No {
    /// The library itself refuses: the negated errno.
    Argument(c_int),
    /// The service refuses: -1, and this errno.
    Service(c_int),
}

pub(crate) const EINVAL: No = No::Argument(libc::EINVAL);

/// Runs a call; a panic in it is a failure of the call.
pub(crate) fn status(f: impl FnOnce() -> Result<(), No>) -> c_int {
    let answer = catch_unwind(AssertUnwindSafe(f));
    match answer.unwrap_or(Err(No::Service(libc::EIO))) {
        Ok(()) => 0,
        Err(No::Argument(errno)) => -errno,
        Err(No::Service(errno)) => {
            // SAFETY: the address of this thread's errno, always valid.
            let place = unsafe { libc::__errno_location() };
            // SAFETY: it is valid, and no other thread writes this one's errno.
            unsafe { *place = errno };
            -1
        }
    }
}
