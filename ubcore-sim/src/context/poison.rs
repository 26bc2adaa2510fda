//! Memory faults that a test plants: pages that cannot be read.
//!
//! *Owns*: the marks of a node, and those of one registration. *Takes*: address ranges. *Gives*: whether a read meets
//! one. *Must not*: cost more than one check if nothing is marked.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use urma_mem::Region;

/// Size in bytes of what is marked together.
const PAGE: usize = 4096;

/// Marked memory of a node, in addresses of this process.
#[derive(Debug, Default)]
pub(crate) struct Marks(Mutex<Vec<Range<usize>>>);

/// Marked ranges of one registration, as offsets; usually empty, and then without an allocation.
#[derive(Debug, Default)]
pub(crate) struct Poison(Box<[Range<u64>]>);

impl Marks {
    /// Marks the whole pages that `len` bytes at `addr` touch.
    pub(crate) fn add(&self, addr: usize, len: usize) -> Range<usize> {
        let first = addr - addr % PAGE;
        let end = addr.saturating_add(len).checked_next_multiple_of(PAGE).unwrap_or(usize::MAX);
        let pages = first..end;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(pages.clone());
        pages
    }

    /// The marks within a region.
    pub(crate) fn of(&self, region: &Region) -> Poison {
        let (start, end) = (region.addr(), region.addr() + region.len());
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let clipped = marks.iter().map(|m| m.start.max(start)..m.end.min(end));
        let inside = clipped.filter(|m| m.start < m.end);
        Poison(inside.map(|m| (m.start - start) as u64..(m.end - start) as u64).collect())
    }
}

impl Poison {
    /// Whether no range is marked as poisoned.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any of `len` bytes at `offset` is marked.
    #[cold]
    pub(crate) fn meets(&self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        self.0.iter().any(|mark| mark.start < end && offset < mark.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_marked_as_a_whole_and_clipped_to_the_region() {
        let marks = Marks::default();
        let all = Region::private(4 * PAGE).unwrap();
        assert!(marks.of(&all).is_empty());
        let pages = marks.add(all.addr() + PAGE + 17, 1);
        assert_eq!(pages, all.addr() + PAGE..all.addr() + 2 * PAGE);
        let poison = marks.of(&all);
        let page = PAGE as u64;
        assert!(!poison.meets(0, page), "the page before");
        assert!(poison.meets(0, page + 1));
        assert!(poison.meets(2 * page - 1, 1));
        assert!(!poison.meets(2 * page, page), "the page after");
        assert!(poison.meets(0, u64::MAX));
        let half = all.sub(PAGE + PAGE / 2, PAGE).unwrap();
        let poison = marks.of(&half);
        assert!(poison.meets(page / 2 - 1, 1));
        assert!(!poison.meets(page / 2, page));
        assert!(marks.of(&all.sub(2 * PAGE, PAGE).unwrap()).is_empty());
    }
}
