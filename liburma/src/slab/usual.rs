//! The usual place of each kind: the one that is known by a comparison.
//!
//! *Owns*: the addresses. *Takes*: headers of slots. *Gives*: whether an address is that of the usual place. *Must not*:
//! read a header.

use urma_mem::sync::{AtomicPtr, Ordering};

use super::{CODE_MAX, Kind, header::Header};

/// Stands for the place of a kind that has none: no object is ever live in it.
static NOWHERE: Header = Header::free();

/// The usual place of each kind: where its header ends, and so its public part begins.
static USUAL: [AtomicPtr<Header>; CODE_MAX as usize + 1] =
    [const { AtomicPtr::new(end_of(&NOWHERE)) }; CODE_MAX as usize + 1];

const fn end_of(header: *const Header) -> *mut Header {
    header.wrapping_add(1).cast_mut()
}

/// The end of the header of the usual place of a kind, or that of a free slot.
#[inline(always)]
pub(super) fn usual<K: Kind>() -> *const Header {
    USUAL[K::CODE as usize].load(Ordering::Relaxed)
}

/// Whether [`usual`] gave that of no place.
#[inline(always)]
pub(super) fn is_none(usual: *const Header) -> bool {
    core::ptr::eq(usual, end_of(&NOWHERE))
}

/// Makes the place of this header the usual one.
pub(super) fn set<K: Kind>(header: &'static Header) {
    USUAL[K::CODE as usize].store(end_of(header), Ordering::SeqCst);
}

/// No place is usual. In a forked child it is called before the child runs a line, and does no more than stores.
pub(crate) fn forget_usual() {
    for usual in &USUAL {
        usual.store(end_of(&NOWHERE), Ordering::SeqCst);
    }
}

/// The place of this header, of an object that ends, is no longer a usual one.
pub(super) fn forget(header: &Header) {
    for usual in &USUAL {
        if core::ptr::eq(usual.load(Ordering::Relaxed), end_of(header)) {
            usual.store(end_of(&NOWHERE), Ordering::SeqCst);
        }
    }
}
