//! Slots under construction.
//!
//! *Owns*: a slot from its allocation until it is published. *Takes*: both parts of an object. *Gives*: a live
//! object, or an idle one.

use super::{
    Kind,
    cell::SlotPtr,
    header::{Owner, SlotState, Word},
    pool,
    slot::Slot,
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
        let (number, ptr) = pool::take::<K>()?;
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
        pool::give_back(self.ptr);
    }
}
