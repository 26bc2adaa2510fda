//! An allocator that counts: for tests that hold a path to a number of allocations.
//!
//! Owns: the count of this process. Takes: what the system's allocator takes.
//! Gives: memory of the system's allocator; `allocations`.
//! Must not: allocate, lock or print itself: it runs inside every allocation.
#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::Ordering;

/// Allocations and moves so far. Relaxed: a reader that waited for the counted work sees it all.
static ALLOCATIONS: AllocCounter = AllocCounter::new(0);

/// Outside of the models' reach: an allocator is not part of any model.
#[expect(clippy::disallowed_types, reason = "statics need constant constructors")]
type AllocCounter = std::sync::atomic::AtomicU64;

/// The system's allocator, counted. Name it as `#[global_allocator]` of a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

/// How often this process has asked [`Counting`] for memory: new, zeroed, or resized. Zero for ever
/// in a program with another allocator.
#[must_use]
pub fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

fn note() {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
}

// SAFETY: every method hands its arguments to `System` unchanged and returns what `System` returned,
// so `System` keeps the trait's contract; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract of `alloc`, which is the same for `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller got `ptr` with `layout` from this allocator, hence from `System`.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same for `System`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller got `ptr` with `layout` from this allocator, hence from `System`, and
        // keeps the rules for `new_size`, which are the same.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_zeroed_and_resized_memory_count_freed_does_not() {
        let layout = Layout::array::<u64>(4).expect("32 bytes are a layout");
        let before = allocations();
        // SAFETY: the layout is not of size zero.
        let first = unsafe { Counting.alloc(layout) };
        assert!(!first.is_null());
        // SAFETY: `first` came from this allocator with this layout; 64 is neither zero nor too large.
        let grown = unsafe { Counting.realloc(first, layout, 64) };
        assert!(!grown.is_null());
        let layout = Layout::array::<u64>(8).expect("64 bytes are a layout");
        // SAFETY: `grown` came from this allocator and now has this layout.
        unsafe { Counting.dealloc(grown, layout) };
        // SAFETY: the layout is not of size zero.
        let zeroed = unsafe { Counting.alloc_zeroed(layout) };
        assert!(!zeroed.is_null());
        // SAFETY: `zeroed` came from this allocator with this layout.
        unsafe { Counting.dealloc(zeroed, layout) };
        // The test program has the usual allocator: nothing else counts.
        assert_eq!(allocations() - before, 3);
    }
}
