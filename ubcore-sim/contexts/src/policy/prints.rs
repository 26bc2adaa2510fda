//! Fingerprints of the handles that left lately, 16 bits each, in buckets of one cache line: both FIFOs' at one place.
//!
//! - owns: buckets of a fixed size. takes: handles that leave and that return. gives: whether and how one left.
//! - must not: grow.

use super::duel::VictimRule;

/// Number of fingerprints of either FIFO that a bucket holds.
const WAYS: usize = 16;
/// Bits of a fingerprint of the main FIFO that say how its handle left.
const HIT: u16 = 1;
const OLDEST: u16 = 2;
const MARKS: u16 = HIT | OLDEST;

/// How a handle left the main FIFO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MainLeave {
    /// The rule that chose it.
    pub(super) rule: VictimRule,
    /// Whether it was hit between its insertion and its end.
    pub(super) was_hit: bool,
}

/// What is known of a handle that missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LeftLately {
    /// Whether it left the small FIFO lately.
    pub(super) small: bool,
    /// How it left the main FIFO, if it did lately.
    pub(super) main: Option<MainLeave>,
}

/// 0: an empty place; newest first.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct PrintBucket {
    small: [u16; WAYS],
    main: [u16; WAYS],
}

/// About as many fingerprints of either FIFO as the cache has slots. Of handles that never left, one of some 4,000 is taken
/// for one that left the small FIFO, and one of some 1,000 for one that left the main FIFO.
#[derive(Clone, Debug)]
pub(super) struct Prints {
    buckets: Vec<PrintBucket>,
    small: u32,
    main: u32,
}

impl Prints {
    pub(super) fn new(capacity: u32) -> Self {
        let empty = PrintBucket { small: [0; WAYS], main: [0; WAYS] };
        Self { buckets: vec![empty; (capacity as usize).div_ceil(WAYS)], small: 0, main: 0 }
    }

    /// Bucket of a spread handle, its fingerprint, and that with room for marks.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a remainder of the number of buckets, 16 bits"
    )]
    #[inline]
    fn place(&self, spread: u64) -> (usize, u16, u16) {
        let bucket = ((spread >> 32) * self.buckets.len() as u64) >> 32;
        let print = spread as u16;
        (bucket as usize, print.max(1), (print & !MARKS).max(MARKS + 1))
    }

    /// Whether and how a handle left lately.
    #[inline]
    pub(super) fn find(&self, spread: u64) -> LeftLately {
        let (bucket, small, main) = self.place(spread);
        let bucket = &self.buckets[bucket];
        let left = position(&bucket.main, main, !MARKS).map(|at| {
            let marks = bucket.main[at];
            let rule =
                if marks & OLDEST == 0 { VictimRule::LeastUsed } else { VictimRule::Oldest };
            MainLeave { rule, was_hit: marks & HIT != 0 }
        });
        LeftLately { small: position(&bucket.small, small, u16::MAX).is_some(), main: left }
    }

    /// Takes a handle out of both.
    pub(super) fn take(&mut self, spread: u64) {
        let (bucket, small, main) = self.place(spread);
        let bucket = &mut self.buckets[bucket];
        self.small -= u32::from(take(&mut bucket.small, small, u16::MAX));
        self.main -= u32::from(take(&mut bucket.main, main, !MARKS));
    }

    /// Puts a handle that leaves the small FIFO.
    #[inline]
    pub(super) fn put_small(&mut self, spread: u64) {
        let (bucket, print, _) = self.place(spread);
        self.small += u32::from(put(&mut self.buckets[bucket].small, print));
    }

    /// Puts a handle that leaves the main FIFO.
    #[inline]
    pub(super) fn put_main(&mut self, spread: u64, leave: MainLeave) {
        let (bucket, _, print) = self.place(spread);
        let oldest = if leave.rule == VictimRule::Oldest { OLDEST } else { 0 };
        let marks = oldest | if leave.was_hit { HIT } else { 0 };
        self.main += u32::from(put(&mut self.buckets[bucket].main, print | marks));
    }

    /// Number of fingerprints of the small FIFO.
    pub(super) const fn small_len(&self) -> u32 {
        self.small
    }

    /// Number of fingerprints of the main FIFO.
    pub(super) const fn main_len(&self) -> u32 {
        self.main
    }
}

/// Place of a fingerprint.
#[inline]
fn position(prints: &[u16; WAYS], print: u16, mask: u16) -> Option<usize> {
    // Without a branch per place: the compiler compares all of them at once.
    let same = prints.map(|other| u16::from(other & mask == print));
    let found = (0..WAYS).fold(0_u32, |found, at| found | u32::from(same[at]) << at);
    (found != 0).then_some(found.trailing_zeros() as usize)
}

/// Takes a fingerprint out; whether it was there.
fn take(prints: &mut [u16; WAYS], print: u16, mask: u16) -> bool {
    let Some(at) = position(prints, print, mask) else { return false };
    prints.copy_within(at + 1.., at);
    prints[WAYS - 1] = 0;
    true
}

/// Puts a fingerprint as the newest; whether there is one more than before.
#[inline]
fn put(prints: &mut [u16; WAYS], print: u16) -> bool {
    let is_more = prints[WAYS - 1] == 0;
    prints.copy_within(..WAYS - 1, 1);
    prints[0] = print;
    is_more
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::spread;

    #[test]
    fn what_left_lately_is_there_once_and_what_left_long_ago_is_not() {
        let mut prints = Prints::new(1000);
        (0..100_000).for_each(|handle| prints.put_small(spread(handle)));
        assert!(prints.small_len() <= 1008 && prints.main_len() == 0, "{}", prints.small_len());
        let is_there = |handle: &u32| prints.find(spread(*handle)).small;
        let lately = (99_900..100_000).filter(is_there).count();
        let long_ago = (0..50_000).filter(is_there).count();
        assert_eq!(lately, 100);
        assert!(long_ago < 50, "{long_ago}");
        let len = prints.small_len();
        prints.take(spread(99_999));
        assert!(!prints.find(spread(99_999)).small && prints.small_len() == len - 1);
    }

    #[test]
    fn how_a_handle_left_is_found_again() {
        let mut prints = Prints::new(1000);
        let leave = |handle: u32| MainLeave {
            rule: if handle.is_multiple_of(2) { VictimRule::LeastUsed } else { VictimRule::Oldest },
            was_hit: handle.is_multiple_of(3),
        };
        (0..200).for_each(|handle| prints.put_main(spread(handle), leave(handle)));
        let found = |handle: &u32| prints.find(spread(*handle)).main == Some(leave(*handle));
        assert!((0..200).filter(found).count() >= 199);
        assert_eq!(prints.main_len(), 200);
        (0..200).for_each(|handle| prints.take(spread(handle)));
        assert_eq!(prints.main_len(), 0);
    }
}
