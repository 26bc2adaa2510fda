//! Copies to and from bytes that others may change: at memcpy speed, assuming nothing.
//!
//! Owns: the order in which bytes land, and the choice of instructions.
//! Takes: raw ranges that `Region` has checked.
//! Gives: `copy` (any order), `copy_ordered` (last 8 bytes last), `copy_streaming` (past the caches).
//! Must not: check bounds (its callers do), overlap stores (a word is written exactly once).
//!
//! Aligned words: every 1-, 2-, 4- or 8-byte word that is aligned both at the source and at the
//! destination moves by one load and one store, so nobody sees it torn. `copy_ordered` stores the part
//! from the last 8-byte boundary that is at least 8 bytes before the end with separate release stores,
//! in ascending order: whoever sees the last byte (or, of an aligned message, the last word) sees all.
#![expect(unsafe_code, reason = "raw copies are this file's purpose")]

#[cfg_attr(all(target_arch = "x86_64", not(miri)), expect(dead_code, reason = "checked twin"))]
mod words;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use words as imp;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use x86 as imp;

/// Copies `len` bytes, in any order, whole aligned words.
///
/// # Safety
/// Both ranges are mapped for `len` bytes (the destination writable) until the call returns. They may
/// overlap or be changed by others meanwhile; the bytes that arrive are then unspecified.
#[inline]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    if len == 8 && (to.addr() | from.addr()) & 7 == 0 {
        // SAFETY: the caller keeps both words mapped; both are aligned.
        unsafe { imp::move_8(to, from) };
        return;
    }
    // SAFETY: passed on to the caller.
    unsafe { imp::copy(to, from, len) };
}

/// Copies `len` bytes, the last 8 after all before them.
///
/// # Safety
/// As [`copy`].
#[inline]
pub(crate) unsafe fn copy_ordered(to: *mut u8, from: *const u8, len: usize) {
    let body = body_len(to.addr(), len);
    if body != 0 {
        // SAFETY: passed on to the caller; body <= len.
        unsafe { imp::copy(to, from, body) };
    }
    let (to, from) = (to.wrapping_add(body), from.wrapping_add(body));
    // SAFETY: passed on to the caller, for the rest of the ranges.
    unsafe { imp::copy_tail(to, from, len - body) };
}

/// Copies `len` bytes with stores that go past the caches, and orders them before everything after it.
///
/// # Safety
/// As [`copy`].
pub(crate) unsafe fn copy_streaming(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: passed on to the caller.
    unsafe { imp::copy_streaming(to, from, len) };
    crate::barrier::flush_wc();
}

/// How many bytes come before the tail that is stored in order: up to the last 8-byte boundary (of the
/// destination) that lies at least 8 bytes before the end.
#[inline]
fn body_len(to: usize, len: usize) -> usize {
    if len <= 8 {
        return 0;
    }
    let boundary = (to + (len - 8)) & !7;
    boundary.saturating_sub(to)
}

#[cfg(test)]
mod tests;
