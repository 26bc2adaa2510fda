//! The memory of one slot: header, public and private part.
//!
//! *Owns*: the offsets of the parts; the state word and the lock. *Takes*: transitions. *Gives*: the addresses of the
//! parts; a header of atomics only, which a stale pointer may read at any time. *Must not*: know which slots there are,
//! or when a part may be reached.

use core::{cell::UnsafeCell, mem::MaybeUninit, ptr::NonNull};

use urma_mem::sync::{AtomicU32, AtomicU64, Ordering};

use super::{Kind, lock::Lock};

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

/// Bytes of a header; the public part starts after them.
pub(super) const HEADER_LEN: usize = 64;

/// The context of an object: 24 bits, the slot number of its context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner(u32);

impl Owner {
    /// Owner of objects that belong to no context.
    pub(crate) const NONE: Self = Self(Self::MAX);
    const MAX: u32 = (1 << 24) - 1;

    /// The owner with this number, of which the low 24 bits count.
    pub(super) const fn new(number: u32) -> Self {
        Self(number & Self::MAX)
    }
}

/// State of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum SlotState {
    Free = 0,
    Building = 1,
    Live = 2,
    Dying = 3,
    /// Allocated by a program, without a private part.
    Idle = 4,
}

/// State, owner and generation in one word, so that one load decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word(u64);

impl Word {
    pub(super) const fn new(generation: u32, owner: Owner, state: SlotState) -> Self {
        Self((generation as u64) << 32 | (owner.0 as u64) << 8 | state as u64)
    }

    /// Whether the slot was never used: its memory is zero.
    pub(super) const fn is_untouched(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn is(self, state: SlotState) -> bool {
        self.0 & 0xff == state as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "24 bits are kept")]
    pub(super) const fn owner(self) -> Owner {
        Owner((self.0 >> 8) as u32 & Owner::MAX)
    }

    /// State and owner, without the generation: equal for all live objects of one owner.
    #[expect(clippy::cast_possible_truncation, reason = "32 bits are meant")]
    pub(super) const fn kinship(self) -> u32 {
        self.0 as u32
    }

    pub(super) const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) const fn with(self, state: SlotState) -> Self {
        Self(self.0 & !0xff | state as u64)
    }
}

/// See the header of this file; zero memory is a valid header of a free slot.
#[repr(C, align(64))]
pub(super) struct Header {
    word: AtomicU64,
    /// Held for one post, one poll or one control call.
    pub(super) lock: Lock,
    /// Number of the next free slot; valid only in a free list.
    pub(super) next: AtomicU32,
}

const _: () = assert!(size_of::<Header>() == HEADER_LEN);

impl Header {
    /// Header of a free slot.
    pub(super) const fn free() -> Self {
        Self { word: AtomicU64::new(0), lock: Lock::free(), next: AtomicU32::new(0) }
    }

    /// Between setting "dying" and locking a queue, at least one side sees the other: the deleter visits the lock
    /// afterwards.
    #[inline]
    pub(super) fn word(&self) -> Word {
        Word(self.word.load(Ordering::SeqCst))
    }

    /// Only for the thread that builds or deletes the object.
    pub(super) fn set_word(&self, word: Word) {
        self.word.store(word.0, Ordering::SeqCst);
    }

    /// Compares and swaps. Returns whether `from` became `to`.
    pub(super) fn swap_word(&self, from: Word, to: Word) -> bool {
        let order = Ordering::SeqCst;
        self.word.compare_exchange(from.0, to.0, order, order).is_ok()
    }
}
