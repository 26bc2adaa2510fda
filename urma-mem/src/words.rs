//! The words that a protocol between two sides needs, from a region or from a model.
//!
//! Owns: the list of accesses the protocols (ring, sleep flag, hazard slot) are written in.
//! Takes: offsets in bytes.
//! Gives: `Words`, implemented by `Region`, and under loom by `ModelWords`.
//! Must not: grow an access that only one protocol's convenience asks for.

use crate::region::{OutOfBounds, Region, RegionWord};

/// Shared 8-byte words and bytes, as the protocols between processes use them.
pub trait Words: Clone {
    /// Returns the length in bytes; offsets at and above it are out of bounds.
    fn len_bytes(&self) -> usize;
    /// Loads a word, unordered.
    ///
    /// # Errors
    /// [`OutOfBounds`], here and below, when the access is outside or misaligned.
    fn load(&self, offset: usize) -> Result<u64, OutOfBounds>;
    /// Loads a word; later accesses stay behind it.
    ///
    /// # Errors
    /// As [`Words::load`].
    fn load_acquire(&self, offset: usize) -> Result<u64, OutOfBounds>;
    /// Asks for the cache line of a word that will be loaded soon; nothing waits for it. Does nothing
    /// outside of the window.
    fn prefetch(&self, offset: usize);

    /// As [`Words::prefetch`], for a line that will be stored to.
    fn prefetch_to_store(&self, offset: usize);
    /// Stores a word; earlier accesses stay before it.
    ///
    /// # Errors
    /// As [`Words::load`]; also for a read-only side.
    fn store_release(&self, offset: usize, value: u64) -> Result<(), OutOfBounds>;
    /// One of the words, checked once.
    type One: OneWord;
    /// The word at an offset.
    ///
    /// # Errors
    /// As [`Words::load`].
    fn one(&self, offset: usize) -> Result<Self::One, OutOfBounds>;
    /// Earlier stores are visible before later loads are made.
    fn fence(&self);
    /// Copies bytes out.
    ///
    /// # Errors
    /// As [`Words::load`].
    fn read_bytes(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfBounds>;
    /// Copies bytes in.
    ///
    /// # Errors
    /// As [`Words::store_release`].
    fn write_bytes(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds>;
}

/// A shared 8-byte word. The accesses are those of [`Words`].
pub trait OneWord: Clone + core::fmt::Debug {
    /// Loads the word, unordered.
    fn load(&self) -> u64;
    /// Loads it; later accesses stay behind it.
    fn load_acquire(&self) -> u64;
    /// Stores it; earlier accesses stay before it.
    ///
    /// # Errors
    /// [`OutOfBounds`], here and below, on a read-only side.
    fn store_release(&self, value: u64) -> Result<(), OutOfBounds>;
    /// Stores it so that it is visible before any later load is made; returns the word before.
    ///
    /// # Errors
    /// As [`OneWord::store_release`].
    fn swap_fence(&self, value: u64) -> Result<u64, OutOfBounds>;
    /// Sets bits, of a word that several threads write, as [`OneWord::swap_fence`] stores.
    ///
    /// # Errors
    /// As [`OneWord::store_release`].
    fn or_fence(&self, bits: u64) -> Result<u64, OutOfBounds>;
}

impl OneWord for RegionWord {
    #[inline(always)]
    fn load(&self) -> u64 {
        self.load()
    }

    #[inline(always)]
    fn load_acquire(&self) -> u64 {
        self.load_acquire()
    }

    #[inline(always)]
    fn store_release(&self, value: u64) -> Result<(), OutOfBounds> {
        self.store_release(value)
    }

    #[inline(always)]
    fn swap_fence(&self, value: u64) -> Result<u64, OutOfBounds> {
        self.swap_fence(value)
    }

    #[inline(always)]
    fn or_fence(&self, bits: u64) -> Result<u64, OutOfBounds> {
        self.or_fence(bits)
    }
}

impl Words for Region {
    type One = RegionWord;

    fn one(&self, offset: usize) -> Result<RegionWord, OutOfBounds> {
        RegionWord::new(self, offset)
    }

    #[inline]
    fn len_bytes(&self) -> usize {
        self.len()
    }

    #[inline]
    fn load(&self, offset: usize) -> Result<u64, OutOfBounds> {
        self.load_u64(offset)
    }

    #[inline]
    fn load_acquire(&self, offset: usize) -> Result<u64, OutOfBounds> {
        self.load_u64_acquire(offset)
    }

    #[inline]
    fn prefetch(&self, offset: usize) {
        self.prefetch_line(offset);
    }

    #[inline]
    fn prefetch_to_store(&self, offset: usize) {
        self.prefetch_line_to_store(offset);
    }

    #[inline]
    fn store_release(&self, offset: usize, value: u64) -> Result<(), OutOfBounds> {
        self.store_u64_release(offset, value)
    }

    #[inline]
    fn fence(&self) {
        crate::barrier::store_before_load();
    }

    #[inline]
    fn read_bytes(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        self.read(offset, bytes)
    }

    #[inline]
    fn write_bytes(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        self.write(offset, bytes)
    }
}

#[cfg(all(test, loom))]
pub(crate) mod model {
    //! Words that loom watches, with the faults that the models must catch.

    use super::{OneWord, Words};
    use crate::region::OutOfBounds;
    use crate::sync::{Arc, AtomicU64, Ordering, fence};

    /// A mistake planted into the words, to show that a model can fail.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Fault {
        None,
        /// Release stores are relaxed.
        StoreNotReleased,
        /// The exchange orders nothing.
        SwapNotFenced,
        /// The fence between a store and a load is missing.
        FenceMissing,
    }

    #[derive(Debug, Clone)]
    pub(crate) struct ModelWords {
        words: Arc<Vec<AtomicU64>>,
        fault: Fault,
    }

    impl ModelWords {
        pub(crate) fn new(count: usize, fault: Fault) -> Self {
            Self { words: Arc::new((0..count).map(|_| AtomicU64::new(0)).collect()), fault }
        }

        fn at(&self, offset: usize) -> Result<&AtomicU64, OutOfBounds> {
            let limit = self.words.len() * 8;
            let word = self.words.get(offset / 8).filter(|_| offset.is_multiple_of(8));
            word.ok_or(OutOfBounds { offset, len: 8, limit })
        }
    }

    /// One of the words of a model.
    #[derive(Debug, Clone)]
    pub(crate) struct ModelWord(ModelWords, usize);

    impl OneWord for ModelWord {
        fn load(&self) -> u64 {
            self.0.load(self.1).unwrap()
        }

        fn load_acquire(&self) -> u64 {
            self.0.load_acquire(self.1).unwrap()
        }

        fn store_release(&self, value: u64) -> Result<(), OutOfBounds> {
            self.0.store_release(self.1, value)
        }

        fn swap_fence(&self, value: u64) -> Result<u64, OutOfBounds> {
            let word = self.0.at(self.1)?;
            if self.0.fault == Fault::SwapNotFenced {
                return Ok(word.swap(value, Ordering::Relaxed));
            }
            let before = word.swap(value, Ordering::AcqRel);
            fence(Ordering::SeqCst);
            Ok(before)
        }

        fn or_fence(&self, bits: u64) -> Result<u64, OutOfBounds> {
            let word = self.0.at(self.1)?;
            if self.0.fault == Fault::SwapNotFenced {
                return Ok(word.fetch_or(bits, Ordering::Relaxed));
            }
            let before = word.fetch_or(bits, Ordering::AcqRel);
            fence(Ordering::SeqCst);
            Ok(before)
        }
    }

    impl Words for ModelWords {
        type One = ModelWord;

        fn one(&self, offset: usize) -> Result<ModelWord, OutOfBounds> {
            self.at(offset)?;
            Ok(ModelWord(self.clone(), offset))
        }

        fn len_bytes(&self) -> usize {
            self.words.len() * 8
        }

        fn load(&self, offset: usize) -> Result<u64, OutOfBounds> {
            Ok(self.at(offset)?.load(Ordering::Relaxed))
        }

        fn load_acquire(&self, offset: usize) -> Result<u64, OutOfBounds> {
            Ok(self.at(offset)?.load(Ordering::Acquire))
        }

        fn prefetch(&self, _offset: usize) {}

        fn prefetch_to_store(&self, _offset: usize) {}

        fn store_release(&self, offset: usize, value: u64) -> Result<(), OutOfBounds> {
            let released = self.fault != Fault::StoreNotReleased;
            let order = if released { Ordering::Release } else { Ordering::Relaxed };
            self.at(offset)?.store(value, order);
            Ok(())
        }

        fn fence(&self) {
            if self.fault != Fault::FenceMissing {
                fence(Ordering::SeqCst);
            }
        }

        fn read_bytes(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
            for (index, chunk) in bytes.chunks_mut(8).enumerate() {
                let word = self.load(offset + index * 8)?.to_le_bytes();
                chunk.copy_from_slice(&word[..chunk.len()]);
            }
            Ok(())
        }

        fn write_bytes(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
            for (index, chunk) in bytes.chunks(8).enumerate() {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                let value = u64::from_le_bytes(word);
                self.at(offset + index * 8)?.store(value, Ordering::Relaxed);
            }
            Ok(())
        }
    }
}
