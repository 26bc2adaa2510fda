//! The usual place of each kind: the one that is known by a comparison.
//!
//! *Owns*: the addresses. *Takes*: headers of slots. *Gives*: whether an address is that of the usual place. *Must not*:
//! read a header.

use urma_mem::sync::{AtomicPtr, Ordering};

use super::{CODE_MAX, Kind, header::Header};

/// Stands for the place of a kind that has none: no object is ever live in it.
static NOWHERE: Header = Header::free();

/// The usual place of each kind.
static USUAL: [AtomicPtr<Header>; CODE_MAX as usize + 1] =
    [const { AtomicPtr::new((&raw const NOWHERE).cast_mut()) }; CODE_MAX as usize + 1];

/// The header of the usual place of a kind, or one of a free slot.
#[inline(always)]
pub(super) fn usual<K: Kind>() -> *const Header {
    USUAL[K::CODE as usize].load(Ordering::Relaxed)
}

/// Whether [`usual`] gave the header of no place.
#[inline(always)]
pub(super) fn is_none(usual: *const Header) -> bool {
    core::ptr::eq(usual, &raw const NOWHERE)
}

/// Makes the place of this header the usual one.
pub(super) fn set<K: Kind>(header: &'static Header) {
    USUAL[K::CODE as usize].store(core::ptr::from_ref(header).cast_mut(), Ordering::SeqCst);
}

/// No place is usual. In a forked child it is called before the child runs a line, and does no more than stores.
pub(crate) fn forget_usual() {
    for usual in &USUAL {
        usual.store((&raw const NOWHERE).cast_mut(), Ordering::SeqCst);
    }
}

/// The place of this header, of an object that ends, is no longer a usual one.
pub(super) fn forget(header: &Header) {
    for usual in &USUAL {
        if core::ptr::eq(usual.load(Ordering::Relaxed), header) {
            usual.store((&raw const NOWHERE).cast_mut(), Ordering::SeqCst);
        }
    }
}
