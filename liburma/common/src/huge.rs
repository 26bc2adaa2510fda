//! Memory of huge pages.
//!
//! *Owns*: the mapping flags. *Gives*: an address, or null when the machine has no such pages.

use core::ffi::{c_int, c_void};

/// Pages of 2 MiB, of 1 GiB; anything else takes the machine's default huge page.
const PAGE_2MB: c_int = 0;
const PAGE_1GB: c_int = 1;

/// Maps `len` bytes of huge pages, near `hint` if it is not null. Null: length 0, or no pages.
///
/// # Safety
/// `hint` is only a wish; it is never read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ub_hugemalloc(len: usize, page: c_int, hint: *mut c_void) -> *mut c_void {
    if len == 0 {
        return core::ptr::null_mut();
    }
    let kind = match page {
        PAGE_2MB => libc::MAP_HUGE_2MB,
        PAGE_1GB => libc::MAP_HUGE_1GB,
        _ => 0,
    };
    let flags = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE | libc::MAP_HUGETLB | kind;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, without MAP_FIXED: it takes the place of nothing.
    let address = unsafe { libc::mmap(hint, len, access, flags, -1, 0) };
    if address == libc::MAP_FAILED { core::ptr::null_mut() } else { address }
}

/// Gives memory of [`ub_hugemalloc`] back; 0, -`EINVAL` for null, -1 with errno from the system.
///
/// # Safety
/// `address` and `len` are of one call of [`ub_hugemalloc`], and no code uses the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ub_hugefree(address: *mut c_void, len: usize) -> c_int {
    if address.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: the caller's mapping, by the caller's promise.
    unsafe { libc::munmap(address, len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_and_nowhere_are_refused() {
        // SAFETY: NULL is allowed as the wanted address.
        assert!(unsafe { ub_hugemalloc(0, PAGE_2MB, core::ptr::null_mut()) }.is_null());
        // SAFETY: NULL is allowed as the wanted address.
        assert_eq!(unsafe { ub_hugefree(core::ptr::null_mut(), 4096) }, -libc::EINVAL);
    }

    #[test]
    fn pages_are_ours_or_there_are_none() {
        let len = 2 << 20;
        // SAFETY: NULL is allowed as the wanted address.
        let address = unsafe { ub_hugemalloc(len, PAGE_2MB, core::ptr::null_mut()) };
        if !address.is_null() {
            // SAFETY: the call above mapped the memory, readable and writable.
            unsafe { address.cast::<u64>().write(7) };
            // SAFETY: the word was written by the line above.
            assert_eq!(unsafe { address.cast::<u64>().read() }, 7);
            // SAFETY: the memory is that of the call above.
            assert_eq!(unsafe { ub_hugefree(address, len) }, 0);
        }
    }
}
