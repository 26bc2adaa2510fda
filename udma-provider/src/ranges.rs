//! Free ranges of a number line: device addresses, bytes of a chunk.
//!
//! *Owns*: which ranges are free; adjacent ones are joined. *Takes*: lengths and alignments. *Gives*: the lowest free
//! start. *Must not*: know what the numbers mean.

use std::collections::BTreeMap;

/// Free ranges by start; `start -> end` (exclusive).
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    free: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Makes `start..end` free. Joins neighbours.
    pub(crate) fn give(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut start, mut end) = (start, end);
        if let Some((&before, &before_end)) = self.free.range(..=start).next_back()
            && before_end >= start
        {
            start = before;
            end = end.max(before_end);
            self.free.remove(&before);
        }
        while let Some((&after, &after_end)) = self.free.range(start..=end).next() {
            end = end.max(after_end);
            self.free.remove(&after);
        }
        self.free.insert(start, end);
    }

    /// Takes `len` from the lowest start that is `offset` past a multiple of `align` (a power of
    /// two). `None` when no free range is large enough.
    pub(crate) fn take(&mut self, len: u64, align: u64, offset: u64) -> Option<u64> {
        let found = self.free.iter().find_map(|(&start, &end)| {
            let base = start.saturating_sub(offset).checked_next_multiple_of(align)?;
            let at = base.checked_add(offset)?;
            let last = at.checked_add(len)?;
            (last <= end).then_some((start, end, at, last))
        });
        let (start, end, at, last) = found?;
        self.free.remove(&start);
        if start < at {
            self.free.insert(start, at);
        }
        if last < end {
            self.free.insert(last, end);
        }
        Some(at)
    }

    /// Whether exactly `start..end` is free, in one piece.
    #[cfg(test)]
    fn is_whole(&self, start: u64, end: u64) -> bool {
        self.free.len() == 1 && self.free.get(&start) == Some(&end)
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers index a vector")]
mod tests {
    use proptest::prelude::*;

    use super::Ranges;

    #[test]
    fn offset_within_a_page_is_kept() {
        let mut ranges = Ranges::default();
        ranges.give(0x1001, 0x10_000);
        assert_eq!(ranges.take(0x10, 0x1000, 0x123), Some(0x1123));
        assert_eq!(ranges.take(0x10, 0x1000, 0x123), Some(0x2123));
        assert_eq!(ranges.take(0x10_000, 1, 0), None);
    }

    proptest! {
        #[test]
        fn taken_ranges_never_overlap_and_all_come_back(
            ops in prop::collection::vec((1u64..300, 0u32..7, any::<bool>(), any::<prop::sample::Index>()), 1..200),
        ) {
            let mut ranges = Ranges::default();
            ranges.give(100, 4196);
            let mut owner = vec![false; 5000];
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (len, align, is_take, index) in ops {
                if is_take || held.is_empty() {
                    let Some(at) = ranges.take(len, 1 << align, 0) else { continue };
                    prop_assert_eq!(at % (1 << align), 0);
                    prop_assert!(at >= 100 && at + len <= 4196);
                    for n in at..at + len {
                        prop_assert!(!std::mem::replace(&mut owner[n as usize], true));
                    }
                    held.push((at, at + len));
                } else {
                    let (start, end) = held.swap_remove(index.index(held.len()));
                    owner[start as usize..end as usize].fill(false);
                    ranges.give(start, end);
                }
            }
            for (start, end) in held {
                ranges.give(start, end);
            }
            prop_assert!(ranges.is_whole(100, 4196));
        }
    }
}
