//! Copies to and from bytes that others may change: at memcpy speed, assuming nothing.
//!
//! Owns: the order in which bytes land, and the choice of instructions.
//! Takes: raw ranges that `Region` has checked.
//! Gives: `copy` (any order), `copy_ordered` (last 8 bytes last), `copy_streaming` (past the caches).
//! Must not: check bounds (its callers do), overlap stores (a word is written exactly once).
//!
//! Aligned words: every 1-, 2-, 4- or 8-byte word that is aligned both at the source and at the
//! destination moves by one load and one store, so no reader sees it torn. `copy_ordered` stores
//! the part from the last 8-byte boundary that is at least 8 bytes before the end with separate
//! release stores, in ascending order: a reader that sees the last byte (or, of an aligned message,
//! the last word) sees all.
//!
//! Measured in one thread, hot, on a 2-core virtual machine (AMD, AVX), ns per copy: 8 B 1.4, 64 B 2.1,
//! 256 B 2.8, 4 KiB 22 (187 GB/s), 64 KiB 656 (100 GB/s), 1 MiB 18 us (58 GB/s); `copy_ordered` adds
//! 1-4 ns; the word-atomic twin makes 11 GB/s. Streaming stores cost 100 ns to start and reach 43 GB/s
//! hot; to a destination outside the caches they are 2-3.5 times faster than ordinary ones
//! (512 MiB set: 17-37 against 5-10 GB/s), from `STREAMING_MIN` on.
#![expect(unsafe_code, reason = "raw copies are this file's purpose")]

#[cfg_attr(all(target_arch = "x86_64", not(miri)), expect(dead_code, reason = "checked twin"))]
mod words;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

/// Bytes of a word, which is moved whole where both ends are aligned.
pub(crate) const WORD_LEN: usize = 8;
/// From this length on, in bytes, a destination that is not in a cache is worth streaming stores.
pub const STREAMING_MIN: usize = 1 << 20;

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
    if len == 8 && imp::is_one_move(to, from) {
        // SAFETY: the caller keeps both words mapped; the check is this one's.
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
#[inline(always)]
pub(crate) unsafe fn copy_ordered(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: passed on to the caller.
    if len == WORD_LEN && unsafe { copy_word_ordered(to, from) }.is_some() {
        return;
    }
    // SAFETY: passed on to the caller.
    unsafe { copy_long_ordered(to, from, len) };
}

/// As [`copy_ordered`] of 8 bytes, if that is one move; `None`: nothing was copied.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
pub(crate) unsafe fn copy_word_ordered(to: *mut u8, from: *const u8) -> Option<()> {
    if !imp::is_one_ordered_move(to, from) {
        return None;
    }
    // SAFETY: the caller keeps both words mapped; the check is this one's.
    unsafe { imp::move_8_last(to, from) };
    Some(())
}

/// As [`copy_ordered`], for any length.
///
/// # Safety
/// As [`copy`].
#[inline(never)]
unsafe fn copy_long_ordered(to: *mut u8, from: *const u8, len: usize) {
    let body = body_len(to.addr(), len);
    if body != 0 {
        // SAFETY: passed on to the caller; body <= len.
        unsafe { imp::copy(to, from, body) };
    }
    let (to, from) = (to.wrapping_add(body), from.wrapping_add(body));
    // SAFETY: passed on to the caller, for the rest of the ranges.
    unsafe { imp::copy_tail(to, from, len - body) };
}

/// Copies `len` bytes with stores that go past the caches, the last 8 after all before them.
///
/// # Safety
/// As [`copy`].
pub(crate) unsafe fn copy_streaming(to: *mut u8, from: *const u8, len: usize) {
    let body = body_len(to.addr(), len);
    // SAFETY: passed on to the caller; body <= len.
    unsafe { imp::copy_streaming(to, from, body) };
    crate::barrier::flush_wc();
    let (to, from) = (to.wrapping_add(body), from.wrapping_add(body));
    // SAFETY: passed on to the caller, for the rest of the ranges.
    unsafe { imp::copy_tail(to, from, len - body) };
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

#[cfg(all(test, not(loom)))]
mod tests;
