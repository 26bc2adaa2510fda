//! The word-atomic copy: what the language can express.
//!
//! Owns: nothing.
//! Takes: raw ranges, as `copy`.
//! Gives: the same functions as the x86-64 file, for other processors and for checkers.
//! Must not: be used where the assembly is (3-5 times slower on 4 KiB: 4.7-7.8 against 14-27 GB/s).
#![expect(unsafe_code, reason = "raw copies are this file's purpose")]
#![expect(clippy::disallowed_types, reason = "shared bytes are real atomics also under a model")]

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Moves `size` bytes at an offset as one load and one store.
macro_rules! step {
    ($atomic:ident, $to:expr, $from:expr, $at:expr, $order:expr) => {{
        let (to, from) = ($to.wrapping_add($at).cast(), $from.wrapping_add($at).cast_mut().cast());
        // SAFETY: the caller of the copy keeps both ranges mapped, and $at is below their length; the
        // loop chose a size to which both addresses are aligned.
        let to = unsafe { $atomic::from_ptr(to) };
        // SAFETY: as above; only a load is made through it.
        let from = unsafe { $atomic::from_ptr(from) };
        to.store(from.load(Ordering::Relaxed), $order);
    }};
}

/// Whether [`move_8`] may be called: both words are aligned.
#[inline]
pub(super) fn is_one_move(to: *mut u8, from: *const u8) -> bool {
    (to.addr() | from.addr()) & 7 == 0
}

/// Whether [`move_8_last`] may be called: both words are aligned.
#[inline]
pub(super) fn is_one_ordered_move(to: *mut u8, from: *const u8) -> bool {
    is_one_move(to, from)
}

/// Moves one aligned word.
///
/// # Safety
/// Both words are mapped and 8-byte aligned.
#[inline]
pub(super) unsafe fn move_8(to: *mut u8, from: *const u8) {
    step!(AtomicU64, to, from, 0, Ordering::Relaxed);
}

/// Moves one aligned word after everything that was stored before.
///
/// # Safety
/// Both words are mapped and 8-byte aligned.
#[inline]
pub(super) unsafe fn move_8_last(to: *mut u8, from: *const u8) {
    step!(AtomicU64, to, from, 0, Ordering::Release);
}

/// Copies in ascending order, whole aligned words.
///
/// # Safety
/// As `copy::copy`.
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: passed on to the caller.
    unsafe { steps(to, from, len, Ordering::Relaxed) };
}

/// Copies in ascending order, each store ordered after all before it.
///
/// # Safety
/// As `copy::copy`.
pub(super) unsafe fn copy_tail(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: passed on to the caller.
    unsafe { steps(to, from, len, Ordering::Release) };
}

/// There is no portable streaming store.
///
/// # Safety
/// As `copy::copy`.
pub(super) unsafe fn copy_streaming(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: passed on to the caller.
    unsafe { copy(to, from, len) };
}

/// # Safety
/// As `copy::copy`.
#[inline]
unsafe fn steps(to: *mut u8, from: *const u8, len: usize, order: Ordering) {
    let mut at = 0;
    while at < len {
        let aligned = (to.addr() + at) | (from.addr() + at);
        let left = len - at;
        if aligned & 7 == 0 && left >= 8 {
            step!(AtomicU64, to, from, at, order);
            at += 8;
        } else if aligned & 3 == 0 && left >= 4 {
            step!(AtomicU32, to, from, at, order);
            at += 4;
        } else if aligned & 1 == 0 && left >= 2 {
            step!(AtomicU16, to, from, at, order);
            at += 2;
        } else {
            step!(AtomicU8, to, from, at, order);
            at += 1;
        }
    }
}
