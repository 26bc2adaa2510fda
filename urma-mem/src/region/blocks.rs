//! A ring of 64-byte blocks in a region: bounds and alignment are checked once, for all indices.
//!
//! Owns: the check that the whole ring is in the region.
//! Takes: indices that count on for ever.
//! Gives: words and blocks, each word whole.
//! Must not: reach a byte outside of the ring, whatever the index is.
#![expect(unsafe_code, reason = "atomics on raw addresses")]

use core::{marker::PhantomData, sync::atomic::Ordering};

use super::Region;
use super::access::{OutOfBounds, word_at};

/// Words of a block.
const BLOCK_WORDS: usize = 8;
/// Bytes of a block.
const BLOCK_LEN: usize = BLOCK_WORDS * 8;

/// `1 << log2` blocks at the start of a region; an index counts modulo their number.
#[derive(Debug, Clone)]
pub struct Blocks {
    /// Its first `mask + 1` blocks are inside of it, and 8-byte aligned.
    region: Region,
    mask: u32,
}

/// A block of a ring.
#[derive(Debug, Clone, Copy)]
pub struct RingBlock<'a> {
    /// A block of the mapped ring, aligned.
    at: *mut u64,
    _of: PhantomData<&'a Region>,
}

impl RingBlock<'_> {
    /// Loads its first word; later accesses stay behind it.
    #[inline(always)]
    pub fn load_first_acquire(self) -> u64 {
        // SAFETY: a block of the mapped ring, aligned, for as long as the region is borrowed.
        unsafe { word_at(self.at, 0) }.load(Ordering::Acquire)
    }

    /// Loads its first `N` words, each of them whole, unordered among each other.
    #[inline(always)]
    pub fn load<const N: usize>(self) -> [u64; N] {
        const { assert!(N <= BLOCK_WORDS, "a block has eight words") };
        core::array::from_fn(|word| {
            // SAFETY: word < N <= BLOCK_WORDS, in a block of the mapped ring, aligned.
            unsafe { word_at(self.at, word) }.load(Ordering::Relaxed)
        })
    }
}

impl Blocks {
    /// The ring in `region`.
    ///
    /// # Errors
    /// [`OutOfBounds`] when the region is shorter or not 8-byte aligned, or for 2^32 blocks and more.
    pub fn new(region: Region, log2: u32) -> Result<Self, OutOfBounds> {
        let refused = |len| OutOfBounds { offset: 0, len, limit: region.len() };
        let too_many = || refused(usize::MAX);
        let count = 1u32.checked_shl(log2).ok_or_else(too_many)?;
        let len = (count as usize).checked_mul(BLOCK_LEN).ok_or_else(too_many)?;
        if len > region.len() || region.addr() & 7 != 0 {
            return Err(refused(len));
        }
        Ok(Self { region, mask: count - 1 })
    }

    /// Number of blocks, less one.
    #[inline]
    pub fn mask(&self) -> u32 {
        self.mask
    }

    /// One block, to load several times.
    #[inline(always)]
    pub fn block(&self, index: u32) -> RingBlock<'_> {
        RingBlock { at: self.at(index), _of: PhantomData }
    }

    /// Loads the first word of a block; later accesses stay behind it.
    #[inline]
    pub fn load_first_acquire(&self, index: u32) -> u64 {
        self.block(index).load_first_acquire()
    }

    /// Loads the first `N` words of a block, each of them whole, unordered among each other.
    #[inline]
    pub fn load<const N: usize>(&self, index: u32) -> [u64; N] {
        self.block(index).load()
    }

    /// Stores a block, each word whole, unordered among each other.
    ///
    /// # Errors
    /// [`OutOfBounds`] when the region is read-only.
    #[inline]
    pub fn store(&self, index: u32, words: &[u64; BLOCK_WORDS]) -> Result<(), OutOfBounds> {
        let at = self.at_writable(index)?;
        for (word, value) in words.iter().enumerate() {
            // SAFETY: word < BLOCK_WORDS, and `at` is a block of the writable ring, aligned.
            unsafe { word_at(at, word) }.store(*value, Ordering::Relaxed);
        }
        Ok(())
    }

    /// As [`Blocks::store`], but the first word is stored after all others, with release: it makes the
    /// block valid.
    ///
    /// # Errors
    /// [`OutOfBounds`] when the region is read-only.
    #[inline]
    pub fn store_first_last(
        &self,
        index: u32,
        words: &[u64; BLOCK_WORDS],
    ) -> Result<(), OutOfBounds> {
        let at = self.at_writable(index)?;
        for (word, value) in words.iter().enumerate().skip(1) {
            // SAFETY: word < BLOCK_WORDS, and `at` is a block of the writable ring, aligned.
            unsafe { word_at(at, word) }.store(*value, Ordering::Relaxed);
        }
        // SAFETY: the first word of the same block.
        unsafe { word_at(at, 0) }.store(words[0], Ordering::Release);
        Ok(())
    }

    /// The block of an index.
    #[inline]
    fn at(&self, index: u32) -> *mut u64 {
        let offset = (index & self.mask) as usize * BLOCK_LEN;
        // SAFETY: the index is at most `mask`, and new() showed mask + 1 blocks inside the region.
        unsafe { self.region.base.as_ptr().add(offset) }.cast()
    }

    #[inline]
    fn at_writable(&self, index: u32) -> Result<*mut u64, OutOfBounds> {
        if self.region.len_writable == 0 {
            return Err(OutOfBounds { offset: 0, len: BLOCK_LEN, limit: 0 });
        }
        Ok(self.at(index))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_index_counts_modulo_the_ring() {
        let region = Region::private(4096).unwrap();
        let ring = Blocks::new(region.clone(), 6).unwrap();
        let words = [1, 2, 3, 4, 5, 6, 7, 8];
        for (index, slot) in [(0, 0), (63, 63), (64, 0), (u32::MAX, 63), (1 << 31, 0)] {
            region.zero(0, 4096).unwrap();
            ring.store(index, &words).unwrap();
            assert_eq!(region.load_block::<8>(slot * 64).unwrap(), words, "index {index}");
            assert_eq!(ring.load::<8>(index), words);
            ring.store_first_last(index, &words.map(|word| word + 1)).unwrap();
            assert_eq!(ring.load::<3>(index), [2, 3, 4]);
            assert_eq!(ring.load_first_acquire(index), 2);
        }
    }

    #[test]
    fn what_is_too_short_or_askew_is_no_ring() {
        let region = Region::private(4096).unwrap();
        assert!(Blocks::new(region.clone(), 7).is_err());
        assert!(Blocks::new(region.sub(0, 4095).unwrap(), 6).is_err());
        assert!(Blocks::new(region.sub(4, 64).unwrap(), 0).is_err());
        assert!(Blocks::new(region.sub(8, 64).unwrap(), 0).is_ok());
        assert!(Blocks::new(region.clone(), 31).is_err());
        assert!(Blocks::new(region, 32).is_err());
    }

    #[test]
    fn a_ring_that_is_only_read_takes_no_store() {
        let region = Region::private(4096).unwrap();
        let ring = Blocks::new(region.read_only(), 6).unwrap();
        assert!(ring.store(0, &[1; 8]).is_err());
        assert!(ring.store_first_last(0, &[1; 8]).is_err());
        assert_eq!(ring.load::<8>(0), [0; 8]);
    }
}
