//! Members of public parts, for code that is the same for several kinds.
//!
//! *Owns*: the offset and the type of a member. *Takes*: a public part: a value, or memory of a slot, which stays
//! mapped while the library is loaded. *Gives*: copies of members; writes.

use core::marker::PhantomData;

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
