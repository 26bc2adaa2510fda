//! Elements of a window, by sequence.
//!
//! - owns: a ring that doubles as the window in use does: a window may be 65,536 packets on a long path, and most TPs
//!   never use more than a few.
//! - takes: the window's first sequence. gives: the element of each one in it.
//! - must not: know what the elements are.
#![expect(clippy::cast_possible_truncation, reason = "usize has 64 bits on supported targets")]

/// Initial size of a ring.
const FIRST: usize = 256;
/// Most bytes of packets that one direction of a TP holds, whatever its window is in packets.
pub(super) const WINDOW_BYTES: usize = 64 << 20;
/// Most buffers that a window keeps for later packets.
pub(super) const SPARE_MAX: usize = 1024;

/// An element for each sequence of a window.
#[derive(Debug)]
pub(super) struct Ring<T> {
    /// By sequence modulo the size, a power of two.
    places: Vec<T>,
}

impl<T: Default> Ring<T> {
    /// Creates a ring for windows of at most `most` elements.
    pub(super) fn new(most: u32) -> Self {
        let places = (most.max(1) as usize).min(FIRST).next_power_of_two();
        Self { places: std::iter::repeat_with(T::default).take(places).collect() }
    }

    /// Makes room for `seq` in the window that begins with `first`.
    pub(super) fn reserve(&mut self, first: u64, seq: u64) {
        let wanted = seq.saturating_sub(first) as usize + 1;
        if wanted > self.places.len() {
            self.grow(first, wanted.next_power_of_two());
        }
    }

    /// The element of `seq`, which is in the window.
    pub(super) fn at(&self, seq: u64) -> &T {
        &self.places[seq as usize & (self.places.len() - 1)]
    }

    /// The element of `seq`, which is in the window, mutably.
    pub(super) fn at_mut(&mut self, seq: u64) -> &mut T {
        let mask = self.places.len() - 1;
        &mut self.places[seq as usize & mask]
    }

    #[cold]
    fn grow(&mut self, first: u64, wanted: usize) {
        let mut places: Vec<T> = std::iter::repeat_with(T::default).take(wanted).collect();
        for seq in first..first + self.places.len() as u64 {
            places[seq as usize & (wanted - 1)] = std::mem::take(self.at_mut(seq));
        }
        self.places = places;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_a_ring_stays_where_it_is_when_the_ring_grows() {
        for first in [0, 100, 255, 256, 1_000_003] {
            let mut ring = Ring::<u64>::new(1 << 16);
            for seq in first..first + 3000 {
                ring.reserve(first, seq);
                *ring.at_mut(seq) = seq + 1;
            }
            assert!((first..first + 3000).all(|seq| *ring.at(seq) == seq + 1));
            assert_eq!(ring.places.len(), 4096);
        }
    }

    #[test]
    fn a_ring_that_is_emptied_as_it_is_filled_stays_small() {
        let mut ring = Ring::<u64>::new(1 << 16);
        for seq in 0..10_000 {
            ring.reserve(seq, seq + 255);
        }
        assert_eq!(ring.places.len(), FIRST);
        assert_eq!(Ring::<u8>::new(5).places.len(), 8, "no more than the window asks for");
    }
}
