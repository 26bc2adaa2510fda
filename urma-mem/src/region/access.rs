//! The accessors of a region: every one checks bounds and alignment, none assumes the bytes stable.
//!
//! Owns: the checks.
//! Takes: offsets, words, slices of memory that is the caller's alone.
//! Gives: atomics of 1, 4 and 8 bytes, blocks of words, copies at memcpy speed.
//! Must not: panic on an offset; touch a byte before the whole access is checked.
#![expect(unsafe_code, reason = "atomics and copies on raw addresses")]
#![expect(clippy::disallowed_types, reason = "shared bytes are real atomics also under a model")]

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::Region;
use crate::copy;

/// An access that does not lie within its window, is not aligned to its size, or stores to a read-only
/// window (whose limit for stores is 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("access of {len} bytes at offset {offset} (limit {limit}) is out of bounds or misaligned")]
pub struct OutOfBounds {
    /// First byte of the refused access, from the window's start.
    pub offset: usize,
    /// Length of the refused access in bytes.
    pub len: usize,
    /// Bytes the window allows this kind of access on.
    pub limit: usize,
}

/// An atomic change of one word, as URMA's atomic opcodes name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordAtomic<T> {
    /// Stores `swap` if the word equals `cmp`.
    Cas {
        /// Value the word must have.
        cmp: T,
        /// Value that is stored if the comparison holds.
        swap: T,
    },
    /// Stores the operand, whatever the old value.
    Swap(T),
    /// Adds the operand, wrapping.
    Add(T),
    /// Subtracts the operand, wrapping.
    Sub(T),
    /// Bitwise and with the operand.
    And(T),
    /// Bitwise or with the operand.
    Or(T),
    /// Bitwise exclusive or with the operand.
    Xor(T),
}

/// Word accessors: one macro line per (name, type, ordering).
macro_rules! words {
    (load $( $name:ident $ty:ident $atomic:ident $order:ident $doc:literal; )*) => { $(
        #[doc = $doc]
        ///
        /// # Errors
        /// [`OutOfBounds`] when the word is outside the window or misaligned.
        #[inline]
        pub fn $name(&self, offset: usize) -> Result<$ty, OutOfBounds> {
            let at = self.word(offset, size_of::<$ty>(), self.len)?.cast::<$ty>();
            // SAFETY: word() showed the word inside the mapped window and aligned.
            let word = unsafe { $atomic::from_ptr(at) };
            Ok(word.load(Ordering::$order))
        }
    )* };
    (store $( $name:ident $ty:ident $atomic:ident $order:ident $doc:literal; )*) => { $(
        #[doc = $doc]
        ///
        /// # Errors
        /// [`OutOfBounds`] when the word is outside the writable window or misaligned.
        #[inline]
        pub fn $name(&self, offset: usize, value: $ty) -> Result<(), OutOfBounds> {
            let at = self.word(offset, size_of::<$ty>(), self.len_writable)?.cast::<$ty>();
            // SAFETY: word() showed the word inside the mapped writable window and aligned.
            let word = unsafe { $atomic::from_ptr(at) };
            word.store(value, Ordering::$order);
            Ok(())
        }
    )* };
    (atomic $( $name:ident $ty:ident $atomic:ident; )*) => { $(
        /// Applies `op` to the word as one sequentially consistent step; returns the value before.
        ///
        /// # Errors
        /// [`OutOfBounds`] when the word is outside the writable window or misaligned.
        #[inline(always)]
        pub fn $name(&self, offset: usize, op: WordAtomic<$ty>) -> Result<$ty, OutOfBounds> {
            let at = self.word(offset, size_of::<$ty>(), self.len_writable)?.cast::<$ty>();
            // SAFETY: word() showed the word inside the mapped writable window and aligned.
            let word = unsafe { $atomic::from_ptr(at) };
            let order = Ordering::SeqCst;
            Ok(match op {
                WordAtomic::Cas { cmp, swap } => {
                    word.compare_exchange(cmp, swap, order, order).unwrap_or_else(|old| old)
                }
                WordAtomic::Swap(value) => word.swap(value, order),
                WordAtomic::Add(value) => word.fetch_add(value, order),
                WordAtomic::Sub(value) => word.fetch_sub(value, order),
                WordAtomic::And(value) => word.fetch_and(value, order),
                WordAtomic::Or(value) => word.fetch_or(value, order),
                WordAtomic::Xor(value) => word.fetch_xor(value, order),
            })
        }
    )* };
}

impl Region {
    words! { load
        load_u8 u8 AtomicU8 Relaxed "Loads a byte, unordered.";
        load_u8_acquire u8 AtomicU8 Acquire "Loads a byte; later accesses stay behind it.";
        load_u32 u32 AtomicU32 Relaxed "Loads 4 bytes, unordered.";
        load_u32_acquire u32 AtomicU32 Acquire "Loads 4 bytes; later accesses stay behind it.";
        load_u64 u64 AtomicU64 Relaxed "Loads 8 bytes, unordered.";
        load_u64_acquire u64 AtomicU64 Acquire "Loads 8 bytes; later accesses stay behind it.";
        load_u64_seqcst u64 AtomicU64 SeqCst "Loads 8 bytes in the one order of all such accesses.";
    }

    words! { store
        store_u8 u8 AtomicU8 Relaxed "Stores a byte, unordered.";
        store_u8_release u8 AtomicU8 Release "Stores a byte; earlier accesses stay before it.";
        store_u32 u32 AtomicU32 Relaxed "Stores 4 bytes, unordered.";
        store_u32_release u32 AtomicU32 Release "Stores 4 bytes; earlier accesses stay before it.";
        store_u64 u64 AtomicU64 Relaxed "Stores 8 bytes, unordered.";
        store_u64_release u64 AtomicU64 Release "Stores 8 bytes; earlier accesses stay before it.";
    }

    words! { atomic
        atomic_u32 u32 AtomicU32;
        atomic_u64 u64 AtomicU64;
    }

    /// Stores `value` and returns the word before, as one sequentially consistent step. On x86-64 this
    /// also orders it before every later load (the announcement of a hazard slot rests on that).
    ///
    /// # Errors
    /// [`OutOfBounds`] when the word is outside the writable window or misaligned.
    #[inline(always)]
    pub fn swap_u64(&self, offset: usize, value: u64) -> Result<u64, OutOfBounds> {
        self.atomic_u64(offset, WordAtomic::Swap(value))
    }

    /// Stores `swap` if the word equals `cmp`; the outer result is the bounds check, the inner one as in
    /// the standard library: `Ok(old)` when stored, `Err(old)` when not.
    ///
    /// # Errors
    /// [`OutOfBounds`] when the word is outside the writable window or misaligned.
    #[inline]
    pub fn compare_exchange(
        &self,
        offset: usize,
        cmp: u64,
        swap: u64,
    ) -> Result<Result<u64, u64>, OutOfBounds> {
        let old = self.atomic_u64(offset, WordAtomic::Cas { cmp, swap })?;
        Ok(if old == cmp { Ok(old) } else { Err(old) })
    }

    /// Loads `N` words, each of them whole, unordered among each other. A caller that needs the
    /// entry as one loads its owner or generation word with acquire first.
    ///
    /// # Errors
    /// [`OutOfBounds`] when the block is outside the window or not 8-byte aligned.
    #[inline]
    pub fn load_block<const N: usize>(&self, offset: usize) -> Result<[u64; N], OutOfBounds> {
        let at = self.block(offset, N, self.len)?;
        Ok(core::array::from_fn(|index| {
            // SAFETY: block() showed all N words inside the mapped window and aligned; index < N.
            unsafe { word_at(at, index) }.load(Ordering::Relaxed)
        }))
    }

    /// Stores `N` words, each of them whole, unordered among each other.
    ///
    /// # Errors
    /// [`OutOfBounds`] when the block is outside the writable window or not 8-byte aligned.
    #[inline]
    pub fn store_block<const N: usize>(
        &self,
        offset: usize,
        words: &[u64; N],
    ) -> Result<(), OutOfBounds> {
        let at = self.block(offset, N, self.len_writable)?;
        for (index, word) in words.iter().enumerate() {
            // SAFETY: block() showed all N words inside the writable window and aligned; index < N.
            unsafe { word_at(at, index) }.store(*word, Ordering::Relaxed);
        }
        Ok(())
    }

    /// As [`Region::store_block`], but word `last` is stored after all others, with release: it is the
    /// word that makes the entry valid.
    ///
    /// # Errors
    /// [`OutOfBounds`] when the block is outside the writable window or not 8-byte aligned, or `last` is
    /// not one of its words.
    #[inline]
    pub fn store_block_last<const N: usize>(
        &self,
        offset: usize,
        words: &[u64; N],
        last: usize,
    ) -> Result<(), OutOfBounds> {
        let at = self.block(offset, N, self.len_writable)?;
        let Some(final_word) = words.get(last) else {
            return Err(OutOfBounds { offset: last, len: 8, limit: N });
        };
        for (index, word) in words.iter().enumerate() {
            if index != last {
                // SAFETY: block() showed all N words inside the writable window, aligned; index < N.
                unsafe { word_at(at, index) }.store(*word, Ordering::Relaxed);
            }
        }
        // SAFETY: as above; words.get(last) showed last < N.
        unsafe { word_at(at, last) }.store(*final_word, Ordering::Release);
        Ok(())
    }

    /// Copies bytes out of the window.
    ///
    /// # Errors
    /// [`OutOfBounds`] when the range is outside the window; nothing was copied then.
    #[inline]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        let from = self.range(offset, bytes.len(), self.len)?;
        // SAFETY: range() showed the source mapped; the destination is the caller's exclusive slice.
        unsafe { copy::copy(bytes.as_mut_ptr(), from, bytes.len()) };
        Ok(())
    }

    /// Copies bytes into the window, in any order; aligned words of up to 8 bytes are never torn.
    ///
    /// # Errors
    /// [`OutOfBounds`] when the range is outside the writable window; nothing was copied then.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let to = self.range(offset, bytes.len(), self.len_writable)?;
        // SAFETY: range() showed the destination mapped and writable; the source is the caller's slice.
        unsafe { copy::copy(to, bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies bytes into the window, the last 8 of them after all others (see [`copy`]).
    ///
    /// # Errors
    /// [`OutOfBounds`] when the range is outside the writable window; nothing was copied then.
    #[inline]
    pub fn write_ordered(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let to = self.range(offset, bytes.len(), self.len_writable)?;
        // SAFETY: range() showed the destination mapped and writable; the source is the caller's slice.
        unsafe { copy::copy_ordered(to, bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies `len` bytes from here to another window, in any order.
    ///
    /// # Errors
    /// [`OutOfBounds`] when either range is outside its window; nothing was copied then.
    #[inline]
    pub fn copy_to(
        &self,
        offset: usize,
        target: &Self,
        target_offset: usize,
        len: usize,
    ) -> Result<(), OutOfBounds> {
        let from = self.range(offset, len, self.len)?;
        let to = target.range(target_offset, len, target.len_writable)?;
        // SAFETY: range() showed both ranges mapped and the destination writable.
        unsafe { copy::copy(to, from, len) };
        Ok(())
    }

    /// Copies `len` bytes from here to another window, the last 8 of them after all others.
    ///
    /// # Errors
    /// [`OutOfBounds`] when either range is outside its window; nothing was copied then.
    #[inline(always)]
    pub fn copy_to_ordered(
        &self,
        offset: usize,
        target: &Self,
        target_offset: usize,
        len: usize,
    ) -> Result<(), OutOfBounds> {
        let from = self.range(offset, len, self.len)?;
        let to = target.range(target_offset, len, target.len_writable)?;
        // SAFETY: range() showed both ranges mapped and the destination writable.
        unsafe { copy::copy_ordered(to, from, len) };
        Ok(())
    }

    /// As [`Region::copy_to_ordered`] of 8 bytes, if that is one move here; `None`: nothing was copied.
    #[inline(always)]
    #[must_use]
    pub fn copy_word_ordered(
        &self,
        offset: usize,
        target: &Self,
        target_offset: usize,
    ) -> Option<()> {
        let from = self.range(offset, copy::WORD_LEN, self.len).ok()?;
        let to = target.range(target_offset, copy::WORD_LEN, target.len_writable).ok()?;
        // SAFETY: range() showed both ranges mapped and the destination writable.
        unsafe { copy::copy_word_ordered(to, from) }
    }

    /// As [`Region::copy_to`], past the caches: for destinations of 1 MiB and more that are not in a
    /// cache (2-3.5 times faster there, slower when the reader follows at once; see [`copy`]). All
    /// stores are ordered before everything after the call.
    ///
    /// # Errors
    /// [`OutOfBounds`] when either range is outside its window; nothing was copied then.
    pub fn copy_to_streaming(
        &self,
        offset: usize,
        target: &Self,
        target_offset: usize,
        len: usize,
    ) -> Result<(), OutOfBounds> {
        let from = self.range(offset, len, self.len)?;
        let to = target.range(target_offset, len, target.len_writable)?;
        // SAFETY: range() showed both ranges mapped and the destination writable.
        unsafe { copy::copy_streaming(to, from, len) };
        Ok(())
    }

    /// Sets `len` bytes to zero.
    ///
    /// # Errors
    /// [`OutOfBounds`] when the range is outside the writable window.
    pub fn zero(&self, offset: usize, len: usize) -> Result<(), OutOfBounds> {
        const ZEROS: [u8; 4096] = [0; 4096];
        self.range(offset, len, self.len_writable)?;
        let mut done = 0;
        while done < len {
            let step = (len - done).min(ZEROS.len());
            self.write(offset + done, &ZEROS[..step])?;
            done += step;
        }
        Ok(())
    }

    /// Asks for the cache line at `offset`, which will be loaded soon. Does nothing outside of the window,
    /// and on processors other than x86-64.
    #[inline]
    pub(crate) fn prefetch_line(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        if let Ok(at) = self.range(offset, 1, self.len) {
            // SAFETY: a hint reads nothing that the program can see; the baseline of x86-64 has it.
            unsafe {
                core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast())
            };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    /// Asks for the cache line at `offset`, which will be stored to soon. Does nothing outside of what may be stored to,
    /// and on processors other than x86-64.
    #[inline]
    pub fn prefetch_line_to_store(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        if let Ok(at) = self.range(offset, 1, self.len_writable) {
            // SAFETY: a hint changes nothing that the program can see; processors without it ignore it.
            unsafe {
                core::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags));
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    /// Whether `len` bytes at `offset` lie within the window.
    #[inline]
    pub(super) fn check(&self, offset: usize, len: usize) -> Result<(), OutOfBounds> {
        self.range(offset, len, self.len).map(|_| ())
    }

    /// Address of `len` bytes at `offset` below `limit` (the window's length for loads or for stores).
    #[inline]
    fn range(&self, offset: usize, len: usize, limit: usize) -> Result<*mut u8, OutOfBounds> {
        if offset.checked_add(len).is_none_or(|end| end > limit) {
            return Err(OutOfBounds { offset, len, limit });
        }
        // SAFETY: offset <= limit <= self.len, and the window is one mapped range.
        Ok(unsafe { self.base.as_ptr().add(offset) })
    }

    /// As `range`, for a word that must be aligned to its size.
    #[inline]
    fn word(&self, offset: usize, size: usize, limit: usize) -> Result<*mut u8, OutOfBounds> {
        let at = self.range(offset, size, limit)?;
        if at.addr() & (size - 1) != 0 {
            return Err(OutOfBounds { offset, len: size, limit });
        }
        Ok(at)
    }

    /// As `range`, for `count` words of 8 bytes.
    #[inline]
    fn block(&self, offset: usize, count: usize, limit: usize) -> Result<*mut u64, OutOfBounds> {
        let at = self.range(offset, count * 8, limit)?;
        if at.addr() & 7 != 0 {
            return Err(OutOfBounds { offset, len: count * 8, limit });
        }
        Ok(at.cast())
    }
}

/// The word `index` of an aligned block.
///
/// # Safety
/// The word lies in a mapped range that outlives the result.
#[inline]
pub(super) unsafe fn word_at<'a>(block: *mut u64, index: usize) -> &'a AtomicU64 {
    // SAFETY: the caller keeps the whole block, and so the word, inside one mapped range.
    let at = unsafe { block.add(index) };
    // SAFETY: the caller keeps it mapped and 8-byte aligned.
    unsafe { AtomicU64::from_ptr(at) }
}
