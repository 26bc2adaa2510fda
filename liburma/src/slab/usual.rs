//! The usual place of each kind, which is recognised by one comparison.
//!
//! *Owns*: the addresses. *Takes*: headers of slots. *Gives*: whether an address is that of the usual place. *Must
//! not*: read a header.

use urma_mem::sync::{AtomicPtr, Ordering};

use super::{CODE_MAX, Kind, header::Header};

/// Stands for a kind without a usual place: no object is ever live in it.
static NOWHERE: Header = Header::free();

/// The usual place of each kind: the end of its header, where the public part begins.
static USUAL: [AtomicPtr<Header>; CODE_MAX as usize + 1] =
    [const { AtomicPtr::new(end_of(&NOWHERE)) }; CODE_MAX as usize + 1];

const fn end_of(header: *const Header) -> *mut Header {
    header.wrapping_add(1).cast_mut()
}

/// End of the header of a kind's usual place; that of [`NOWHERE`] if there is none.
#[inline(always)]
pub(super) fn usual<K: Kind>() -> *const Header {
    USUAL[K::CODE as usize].load(Ordering::Relaxed)
}

/// Whether [`usual`] returned no place.
#[inline(always)]
pub(super) fn is_none(usual: *const Header) -> bool {
    core::ptr::eq(usual, end_of(&NOWHERE))
}

/// Makes the place of this header the usual one.
pub(super) fn set<K: Kind>(header: &'static Header) {
    USUAL[K::CODE as usize].store(end_of(header), Ordering::SeqCst);
}

/// Clears all usual places. A forked child calls it before it runs any other code; it makes only stores.
pub(crate) fn forget_usual() {
    for usual in &USUAL {
        usual.store(end_of(&NOWHERE), Ordering::SeqCst);
    }
}

/// Clears the usual place if it is that of this header, whose object ends.
pub(super) fn forget(header: &Header) {
    for usual in &USUAL {
        if core::ptr::eq(usual.load(Ordering::Relaxed), end_of(header)) {
            usual.store(end_of(&NOWHERE), Ordering::SeqCst);
        }
    }
}
