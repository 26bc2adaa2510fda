//! Deleting several objects by one call.
//!
//! *Owns*: the walk. The single delete does everything, book-keeping too, so a provider's batch
//! operation is not needed: a call for each is what it would come to on this device.
#![expect(unsafe_code, reason = "arrays of C programs")]

use core::ffi::c_int;

use crate::{
    abi::urma_status_t,
    call::{self, Answer, Code},
};

/// Deletes in order, stops at the first that is refused, and names it.
///
/// # Errors
/// EINVAL: a null array or place, or less than one. The status of the refused one.
///
/// # Safety
/// `list`, unless NULL, has `count` elements; `bad`, unless NULL, is a place for one.
pub(super) unsafe fn each<T>(
    list: *mut *mut T,
    count: c_int,
    bad: *mut *mut T,
    delete: unsafe extern "C" fn(*mut T) -> urma_status_t,
) -> Answer {
    let (list, bad) = (call::place(list)?, call::place(bad)?);
    let count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(Code::EINVAL)?;
    for index in 0..count {
        // SAFETY: inside the caller's array.
        let element = unsafe { list.add(index) };
        // SAFETY: as above.
        let object = unsafe { element.read() };
        // SAFETY: the function checks what it is given.
        if let Err(code) = Code::from_c(unsafe { delete(object) }) {
            // SAFETY: the caller's place.
            unsafe { bad.write(object) };
            return Err(code);
        }
    }
    Ok(())
}
