//! Places: slots that are known by their addresses, whatever their state.
//!
//! *Owns*: one usual place of each kind. *Takes*: pointers of C programs. *Gives*: the lock of the live object in a place.
//! *Must not*: read more of a slot than its header before its lock is held.
//!
//! A slot stays one of its kind while the library is loaded, so the usual place is found again by a comparison. There is
//! none while calls are to look at more than their object ([`forget_usual`]): then no place is found at all.

use core::ptr::NonNull;

use urma_mem::sync::{AtomicPtr, Ordering};

use super::{
    CODE_MAX, Exclusive, Kind,
    cell::SlotPtr,
    header::{HEADER_LEN, Header, SlotState},
    slot::{Guard, Slot, slot_at_public},
    space,
};

/// Stands for the place of a kind that has none: no object is ever live in it.
static NOWHERE: Header = Header::free();

/// The usual place of each kind.
static USUAL: [AtomicPtr<Header>; CODE_MAX as usize + 1] =
    [const { AtomicPtr::new((&raw const NOWHERE).cast_mut()) }; CODE_MAX as usize + 1];

/// A slot of a `K`, in any state.
pub(crate) struct Place<K: Kind>(SlotPtr<K>);

/// The place at `public`; `None`: no slot of a `K` has its public part there, or no place is usual.
#[inline(always)]
pub(crate) fn place<K: Kind>(public: *const K::Public) -> Option<Place<K>> {
    let slot = public.wrapping_byte_sub(HEADER_LEN).cast_mut();
    let usual = USUAL[K::CODE as usize].load(Ordering::Relaxed);
    if usual.addr() != slot.addr() {
        let is_none = core::ptr::eq(usual, &raw const NOWHERE);
        return if is_none { None } else { slot_at_public(public, space::is_slot::<K>).map(Place) };
    }
    // SAFETY: `slot` is the address of a header, which `USUAL` has.
    unsafe { core::hint::assert_unchecked(!slot.is_null()) };
    NonNull::new(slot).map(|slot| Place(SlotPtr::new(slot.cast())))
}

impl<K: Kind> Slot<K> {
    /// Makes its place the usual one of its kind, if none is and calls need not look at more than their object, which
    /// `is_plain` says.
    #[inline]
    pub(crate) fn make_usual(self, is_plain: impl Fn() -> bool) {
        let usual = &USUAL[K::CODE as usize];
        if !core::ptr::eq(usual.load(Ordering::Relaxed), &raw const NOWHERE) {
            return;
        }
        usual.store(core::ptr::from_ref(self.header()).cast_mut(), Ordering::SeqCst);
        // After the store: what ends plain calls is stored before `forget_usual` is called.
        if !is_plain() {
            forget_usual();
        }
    }
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

impl<K: Exclusive> Place<K> {
    /// The private part of the object, for this thread alone; `None`: none is live, or another thread has the lock.
    #[inline(always)]
    pub(crate) fn try_lock(self) -> Option<Guard<K>> {
        let header = self.0.header();
        if !header.try_acquire() {
            return None;
        }
        // From here on `guard` lets go of the lock.
        let guard = Guard::of_held(self.0);
        header.word().is(SlotState::Live).then_some(guard)
    }
}
