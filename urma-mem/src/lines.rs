//! Asking for the cache lines of values before they are needed.
//!
//! Owns: the addresses of values that are used together. Takes: the values, which may end at any time. Gives: hints to the
//! processor. Must not: read or write what lies at an address.
#![expect(unsafe_code, reason = "a hint to the processor takes an address")]

use crate::region::Region;
use crate::sync::{AtomicUsize, Ordering};

/// Bytes of a cache line.
const LINE_LEN: usize = 64;

/// Values that are noted at most.
pub const VALUES_MAX: usize = 5;

/// Where the cache lines of some values lie, or lay: each address, which is a multiple of the line, plus the number of
/// lines.
#[derive(Debug, Default)]
pub struct UsedLines([AtomicUsize; VALUES_MAX]);

impl UsedLines {
    /// Notes the first `len` bytes of `value` as value number `at`.
    pub fn note<T>(&self, at: usize, value: &T, len: usize) {
        self.note_place(at, core::ptr::from_ref(value).addr(), len);
    }

    /// As [`UsedLines::note`], of the word of a region.
    pub fn note_word(&self, at: usize, word: &Region) {
        self.note_place(at, word.addr(), 1);
    }

    fn note_place(&self, at: usize, first: usize, len: usize) {
        let from = first / LINE_LEN * LINE_LEN;
        let count = (first + len).div_ceil(LINE_LEN) - from / LINE_LEN;
        if let Some(place) = self.0.get(at) {
            place.store(from | count.min(LINE_LEN - 1), Ordering::Relaxed);
        }
    }

    /// Asks for all lines, which are used soon. Does nothing on processors other than x86-64.
    #[inline]
    pub fn ask(&self) {
        for place in &self.0 {
            let place = place.load(Ordering::Relaxed);
            let (from, count) = (place & !(LINE_LEN - 1), place % LINE_LEN);
            (0..count).for_each(|line| ask_for(from + line * LINE_LEN));
        }
    }
}

/// Asks for the line at an address, at which there may be nothing.
#[inline(always)]
fn ask_for(at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        let at = core::ptr::without_provenance::<i8>(at);
        // SAFETY: a hint reads nothing that the program can see, and faults at no address.
        unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Values that begin with a line.
    #[repr(align(64))]
    struct Aligned([[u64; 8]; 130]);

    #[test]
    fn the_lines_of_a_value_are_those_that_it_touches() {
        let lines = UsedLines::default();
        let Aligned(values) = &Aligned([[0; 8]; 130]);
        let first = core::ptr::from_ref(values).addr();
        let noted = |at: usize| lines.0[at].load(Ordering::Relaxed);
        lines.note(0, values, 0);
        lines.note(1, &values[1], 65);
        lines.note(2, &values[1][4], 32);
        lines.note(3, &values[1][4], 33);
        lines.note(4, values, 130 * 64);
        lines.note(VALUES_MAX, values, 64);
        let counts = [0, 1, 2, 3, 4].map(|at| noted(at) - first);
        let line = LINE_LEN;
        assert_eq!(counts, [0, line + 2, line + 1, line + 2, LINE_LEN - 1]);
        // Nothing needs to be there.
        lines.0[3].store(LINE_LEN | 3, Ordering::Relaxed);
        lines.ask();
    }
}
