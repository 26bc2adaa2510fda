//! Idle slots: objects that a program allocated and did not activate, or deactivated.
//!
//! *Owns*: their transitions. An idle slot has a public part and no private one; only
//! `find_idle` finds it, so that every other call refuses the object.

use super::{
    Kind, Slot,
    cell::SlotPtr,
    header::{Owner, SlotState, Word},
    member::in_slot,
    pool,
    slot::slot_at_public,
    space,
};

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
            pool::give_back(self.ptr);
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
