//! Fingerprints of handles that left lately: 2 bytes each, in buckets that forget their oldest.
//!
//! - owns: buckets. takes: handles that leave and that return. gives: whether one is there. must not: grow.

use crate::hash::spread;

/// Number of fingerprints that a bucket holds.
const WAYS: usize = 16;

/// About as many fingerprints as the cache has slots. One of some 8,000 handles that never left is taken for one that did.
#[derive(Clone, Debug)]
pub(super) struct Prints {
    /// 0: an empty place; newest first.
    buckets: Vec<[u16; WAYS]>,
    len: u32,
}

impl Prints {
    pub(super) fn new(capacity: u32) -> Self {
        Self { buckets: vec![[0; WAYS]; (capacity as usize).div_ceil(WAYS)], len: 0 }
    }

    /// Bucket and fingerprint of a handle.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a remainder of the number of buckets, 16 bits"
    )]
    #[inline]
    fn place(&self, handle: u32) -> (usize, u16) {
        let mixed = spread(handle);
        let bucket = ((mixed >> 32) * self.buckets.len() as u64) >> 32;
        (bucket as usize, (mixed as u16).max(1))
    }

    #[inline]
    fn find(&self, handle: u32) -> Option<(usize, usize)> {
        let (bucket, print) = self.place(handle);
        // Without a branch per place: the compiler compares all of them at once.
        let same = self.buckets[bucket].map(|other| u16::from(other == print));
        let found = (0..WAYS).fold(0_u32, |found, at| found | u32::from(same[at]) << at);
        (found != 0).then_some((bucket, found.trailing_zeros() as usize))
    }

    /// Whether a handle left lately.
    #[inline]
    pub(super) fn has(&self, handle: u32) -> bool {
        self.find(handle).is_some()
    }

    /// Takes a handle out; whether it was there.
    pub(super) fn take(&mut self, handle: u32) -> bool {
        let Some((bucket, at)) = self.find(handle) else { return false };
        let prints = &mut self.buckets[bucket];
        prints.copy_within(at + 1.., at);
        prints[WAYS - 1] = 0;
        self.len -= 1;
        true
    }

    /// Puts a handle that leaves.
    pub(super) fn put(&mut self, handle: u32) {
        let (bucket, print) = self.place(handle);
        let prints = &mut self.buckets[bucket];
        self.len += u32::from(prints[WAYS - 1] == 0);
        prints.copy_within(..WAYS - 1, 1);
        prints[0] = print;
    }

    /// Number of fingerprints that are kept.
    pub(super) const fn len(&self) -> u32 {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_left_lately_is_there_once_and_what_left_long_ago_is_not() {
        let mut prints = Prints::new(1000);
        (0..100_000).for_each(|handle| prints.put(handle));
        assert!(prints.len() <= 1008, "{}", prints.len());
        let lately = (99_900..100_000).filter(|handle| prints.has(*handle)).count();
        let long_ago = (0..50_000).filter(|handle| prints.has(*handle)).count();
        assert_eq!(lately, 100);
        assert!(long_ago < 50, "{long_ago}");
        assert!(prints.take(99_999) && !prints.has(99_999) && !prints.take(99_999));
    }
}
