//! The memory of one slot.
//!
//! *Owns*: the offsets of header, public and private part. *Gives*: their addresses. *Must not*: know which
//! slots there are, or when a part may be reached.

use core::{cell::UnsafeCell, mem::MaybeUninit, ptr::NonNull};

use super::{
    Kind,
    header::{HEADER_LEN, Header},
};

/// Size in bytes of a chunk: adjacent slots of one kind.
pub(super) const CHUNK_LEN: usize = 1 << CHUNK_SHIFT;
pub(super) const CHUNK_SHIFT: u32 = 16;

/// A slot in memory.
#[repr(C)]
pub(super) struct Cell<K: Kind> {
    header: Header,
    public: UnsafeCell<MaybeUninit<K::Public>>,
    own: UnsafeCell<MaybeUninit<K::Own>>,
}

/// Distance in bytes from slot to slot.
pub(super) const fn stride<K: Kind>() -> usize {
    let stride = size_of::<Cell<K>>().next_power_of_two();
    assert!(stride <= CHUNK_LEN && align_of::<Cell<K>>() == HEADER_LEN);
    stride
}

/// Address of a slot, in a chunk of its kind.
pub(super) struct SlotPtr<K: Kind>(NonNull<Cell<K>>);

// SAFETY: an address only; what is behind it is reached as the rules of the slab say, and the private
// part is `Send` (and `Sync` where several threads read it).
unsafe impl<K: Kind> Send for SlotPtr<K> {}
// SAFETY: an address only, as for `Send`: several threads reach what the slab lets them.
unsafe impl<K: Kind> Sync for SlotPtr<K> {}

copies!(SlotPtr<K: Kind>);

impl<K: Kind> SlotPtr<K> {
    pub(super) fn new(cell: NonNull<Cell<K>>) -> Self {
        Self(cell)
    }

    #[inline]
    fn cell(&self) -> &'static Cell<K> {
        // SAFETY: slots stay mapped for ever, the header is atomics, and the parts are cells of
        // memory without a value until a thread may reach them.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    pub(super) fn header(&self) -> &'static Header {
        // SAFETY: a slot starts with its header, which stays mapped for ever and is atomics.
        unsafe { self.0.cast().as_ref() }
    }

    pub(super) fn public(&self) -> *mut K::Public {
        self.cell().public.get().cast()
    }

    pub(super) fn own(&self) -> *mut K::Own {
        self.cell().own.get().cast()
    }

    pub(super) fn addr(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// # Safety
    /// The caller builds in the slot.
    pub(super) unsafe fn fill_public(&self, public: K::Public) {
        // SAFETY: the caller's promise; the place is inside the slot and aligned.
        unsafe { self.public().write(public) };
    }

    /// # Safety
    /// The caller builds in the slot, or emptied it.
    pub(super) unsafe fn fill_own(&self, own: K::Own) {
        // SAFETY: the caller's promise; the place is inside the slot and aligned.
        unsafe { self.own().write(own) };
    }
}
