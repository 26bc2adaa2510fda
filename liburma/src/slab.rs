//! Slab: type-stable memory for the objects whose addresses C programs hold.
//!
//! *Owns*: one reservation of address space, its chunks (each of one kind for ever), the free slots,
//! and the rule by which an object's private part may be reached. *Takes*: kinds of objects.
//! *Gives*: slots with a public C part and a private Rust part; `find`, which distinguishes a live object
//! from a deleted one, from another kind and from any other number, without touching memory that a
//! bad pointer names. *Must not*: know what the kinds are; wait for anything but the short locks
//! of its own slots.
//!
//! A slot: header (64 bytes: generation, owner, state; lock; link), public part, private part.
//! Slots stay mapped while the library is loaded, so a stale pointer always leads to a header.
//!
//! How a private part is reached:
//! - of an [`Exclusive`] kind under the slot's lock ([`Slot::lock`]), or, for several objects at once and reading
//!   only, under all their locks, acquired in order of address ([`Held`]);
//! - of a [`Named`] kind, whose private part never changes while it is live, through the lock of a queue of the same
//!   owner ([`Look::named`]). Such a slot is emptied only after a grace period: its state is "dying", and every queue
//!   lock that was held at that moment has been released.
//!
//! A thread that uses a slot for some time gets a lease of its lock, and enters it by plain loads and stores
//! ([`lock`]).
#![expect(unsafe_code, reason = "object memory shared with C")]

mod cell;
mod fresh;
mod lock;
mod member;
mod slot;
mod space;

pub(crate) use cell::Owner;
pub(crate) use fresh::{Fresh, Idle, find_idle};
pub(crate) use member::{InSlot, Member, member};
pub(crate) use slot::{
    Emptied, Guard, Held, LastNamed, Look, PointerKind, Slot, SlotPlace, find, find_live,
    forget_usual, is_there, place, seen_ends,
};

/// A kind of object.
///
/// # Safety
/// `Public` is plain C memory: every bit pattern may be read as bytes, and it needs no drop.
pub(crate) unsafe trait Kind: Sized + 'static {
    /// Its number, 1 to [`CODE_MAX`], unique among the kinds.
    const CODE: u8;
    /// Whether posts run under its lock, so that grace periods wait for it.
    const IS_QUEUE: bool = false;
    /// The struct that C programs see.
    type Public: 'static;
    /// What only this library sees.
    type Own: Send + 'static;
}

/// A kind whose private part is accessed under the lock of its slot.
pub(crate) trait Exclusive: Kind {}

/// A kind that requests name. Its private part does not change while the object is live, and many threads read it.
pub(crate) trait Named: Kind<Own: Sync> {}

/// The largest number of a kind.
pub(crate) const CODE_MAX: u8 = 31;

/// Abandons every object made so far, in a child after `fork`. Nothing is dropped: threads and descriptors are the
/// parent's.
///
/// Only for a process with one thread.
pub(crate) fn abandon_all() {
    space::abandon_all();
    space::empty_pools();
}

#[cfg(test)]
mod tests;
