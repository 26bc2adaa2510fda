//! Slots without a private part: under construction, and idle.
//!
//! *Owns*: a slot from its allocation until it is published, and the transitions of idle ones: objects that a program
//! allocated and did not activate, or deactivated. *Takes*: both parts of an object. *Gives*: a live object, or an idle
//! one, which only `find_idle` finds, so that every other call refuses it.

use super::{
    Kind,
    cell::{Owner, SlotPtr, SlotState, Word},
    member::in_slot,
    slot::{Slot, slot_at_public},
    space,
};

/// A slot under construction. Dropping it frees the slot.
pub(crate) struct Fresh<K: Kind> {
    ptr: SlotPtr<K>,
    number: u32,
    generation: u32,
}

impl<K: Kind> Fresh<K> {
    /// Allocates a slot; `None`: there is no memory.
    pub(crate) fn take() -> Option<Self> {
        let (number, ptr) = space::take_slot::<K>()?;
        let generation = ptr.header().word().generation().wrapping_add(1);
        ptr.header().set_word(Word::new(generation, Owner::NONE, SlotState::Building));
        Some(Self { ptr, number, generation })
    }

    /// Where the public part will be.
    pub(crate) fn public(&self) -> *mut K::Public {
        self.ptr.public()
    }

    /// The owner number for objects of this one, if this is a context.
    pub(crate) fn as_owner(&self) -> Owner {
        Owner::new(self.number)
    }

    /// The slot, and its word for when it is live.
    fn into_parts(self, owner: Owner) -> (SlotPtr<K>, Word) {
        let parts = (self.ptr, Word::new(self.generation, owner, SlotState::Live));
        core::mem::forget(self);
        parts
    }

    /// Fills the slot and makes it live; from now on it is found.
    pub(crate) fn publish(self, owner: Owner, public: K::Public, own: K::Own) -> Slot<K> {
        let (ptr, word) = self.into_parts(owner);
        // SAFETY: the state says "building", so that no other thread reaches either part.
        unsafe { ptr.fill_public(public) };
        // SAFETY: the state says "building", so that no other thread reaches the private part.
        unsafe { ptr.fill_own(own) };
        ptr.header().set_word(word);
        Slot::new(ptr, word)
    }

    /// Fills the public part and makes the slot idle.
    pub(crate) fn publish_idle(self, owner: Owner, public: K::Public) -> *mut K::Public {
        let (ptr, word) = self.into_parts(owner);
        // SAFETY: the state says "building", so that no other thread reaches it.
        unsafe { ptr.fill_public(public) };
        ptr.header().set_word(word.with(SlotState::Idle));
        ptr.public()
    }
}

impl<K: Kind> Drop for Fresh<K> {
    fn drop(&mut self) {
        space::give_back_slot(self.ptr);
    }
}

/// An object that was idle when it was looked up.
pub(crate) struct Idle<K: Kind> {
    ptr: SlotPtr<K>,
    word: Word,
}

/// Looks up the idle object at `public`; `None` for anything else.
pub(crate) fn find_idle<K: Kind>(public: *const K::Public) -> Option<Idle<K>> {
    let ptr = slot_at_public::<K>(public, space::is_slot::<K>)?;
    let word = ptr.header().word();
    word.is(SlotState::Idle).then_some(Idle { ptr, word })
}

in_slot!(Idle: ptr, Waking: 0);

impl<K: Kind> Idle<K> {
    /// The context that it belongs to.
    pub(crate) fn owner(&self) -> Owner {
        self.word.owner()
    }

    /// Starts to make it live. Only one of several callers succeeds.
    pub(crate) fn wake(self) -> Option<Waking<K>> {
        let building = self.word.with(SlotState::Building);
        self.ptr.header().swap_word(self.word, building).then_some(Waking(self))
    }

    /// Frees the slot. Only one of several callers succeeds.
    pub(crate) fn free(self) -> bool {
        let is_mine = self.ptr.header().swap_word(self.word, self.word.with(SlotState::Dying));
        if is_mine {
            space::give_back_slot(self.ptr);
        }
        is_mine
    }
}

/// An idle object that one thread is making live. Dropping it makes it idle again.
pub(crate) struct Waking<K: Kind>(Idle<K>);

impl<K: Kind> Waking<K> {
    pub(crate) fn owner(&self) -> Owner {
        self.0.owner()
    }

    /// Fills the private part and makes the slot live; from now on it is found.
    pub(crate) fn publish(self, own: K::Own) -> Slot<K> {
        let (ptr, word) = (self.0.ptr, self.0.word.with(SlotState::Live));
        core::mem::forget(self);
        // SAFETY: the state says "building": the slot is this thread's, and it has no private part.
        unsafe { ptr.fill_own(own) };
        ptr.header().set_word(word);
        Slot::new(ptr, word)
    }
}

impl<K: Kind> Drop for Waking<K> {
    fn drop(&mut self) {
        self.0.ptr.header().set_word(self.0.word);
    }
}
