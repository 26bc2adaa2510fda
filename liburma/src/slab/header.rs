//! The header of a slot, readable for any slot at any time.
//!
//! *Owns*: the state word and the lock. *Takes*: transitions. *Gives*: atomics only, so that a stale pointer may read
//! them while anything happens. *Must not*: know what follows it.

use urma_mem::sync::{AtomicU32, AtomicU64, Ordering};

use super::lock::Lock;

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
