//! Slab: type-stable memory for the objects whose addresses C programs hold.
//!
//! A slot has a header (64 bytes: generation, owner, state; lock; link), a public C part and a private Rust part.
//! Slots stay mapped while the library is loaded and keep their kind, so a stale pointer always leads to a header,
//! and `find` tells a live object from anything else without touching memory that a bad pointer names. Must not know
//! what the kinds are, or wait for anything but the short locks of its own slots.
#![expect(unsafe_code, reason = "object memory shared with C")]

mod cell;
mod slot;
mod space;

use core::marker::PhantomData;

pub(crate) use cell::Owner;
pub(crate) use slot::{
    Emptied, Guard, Held, LastNamed, Look, PointerKind, Slot, SlotPlace, find, find_live,
    forget_usual, is_there, place, seen_ends,
};
pub(crate) use slot::{Fresh, Idle, find_idle};

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
///
/// The lock is [`Slot::lock`]; or, for several objects at once and reading only, all their locks, acquired in order
/// of address ([`Held`]). A thread that uses a slot for some time gets a lease of its lock, and enters it by plain
/// loads and stores ([`cell`]).
pub(crate) trait Exclusive: Kind {}

/// A kind that requests name. Its private part does not change while the object is live, and many threads read it.
///
/// It is reached through the lock of a queue of the same owner ([`Look::named`]). A slot is emptied only after a
/// grace period: its state is "dying", and every queue lock that was held at that moment has been released.
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

/// A member of type `T` of the C struct `P`.
pub(crate) struct Member<P, T> {
    /// Offset in bytes from the start of the struct.
    offset: usize,
    _of: PhantomData<fn(P) -> T>,
}

copies!(Member<P, T>);

impl<P, T: Copy> Member<P, T> {
    /// The member at `offset`, which `_read` reads: [`member`] derives both from one name.
    pub(crate) const fn new(offset: usize, _read: fn(&P) -> &T) -> Self {
        Self { offset, _of: PhantomData }
    }

    /// Its address in the struct at `of`.
    pub(crate) fn of(self, of: *mut P) -> *mut T {
        of.wrapping_byte_add(self.offset).cast()
    }

    /// Reference to it in a value.
    pub(crate) fn place(self, of: &mut P) -> &mut T {
        // SAFETY: `member` took offset and type from the struct, and the value is borrowed mutably.
        unsafe { &mut *self.of(of) }
    }
}

/// A reference to an object in a slot.
///
/// # Safety
/// `public` gives the public part of a slot, whatever the state of the slot is.
pub(crate) unsafe trait InSlot {
    /// The struct that C programs see.
    type Public;

    /// The address of the struct that C programs see.
    fn public(&self) -> *mut Self::Public;

    /// Copies a member out of the public part.
    fn get<T: Copy>(&self, member: Member<Self::Public, T>) -> T {
        // SAFETY: slots stay mapped while the library is loaded, any bytes are a value of a C member,
        // and C programs do not write to an object that another thread works on.
        unsafe { member.of(self.public()).read() }
    }

    /// Writes a member; programs may read it at any time.
    fn set<T: Copy>(&self, member: Member<Self::Public, T>, value: T) {
        // SAFETY: as in `get`; the public part of a slot is memory that may be written.
        unsafe { member.of(self.public()).write(value) };
    }
}

/// Implements this for references to objects, given the member that holds the slot.
macro_rules! in_slot {
    ($($name:ident: $slot:tt),*) => {$(
        // SAFETY: each of these types is made of a slot that was published, whose public part has a value.
        unsafe impl<K: Kind> $crate::slab::InSlot for $name<K> {
            type Public = K::Public;

            fn public(&self) -> *mut K::Public {
                self.$slot.public()
            }
        }
    )*};
}
pub(super) use in_slot;

/// The member with this name or path.
macro_rules! member {
    ($of:ty, $($name:ident).+) => {
        $crate::slab::Member::new(core::mem::offset_of!($of, $($name).+), |of: &$of| &of.$($name).+)
    };
}
pub(crate) use member;

#[cfg(test)]
mod tests;
