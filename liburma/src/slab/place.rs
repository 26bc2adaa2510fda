//! Places: slots known by their addresses, whatever their state.
//!
//! *Takes*: pointers of C programs. *Gives*: the lock of the live object in a place. *Must not*: read more of a slot
//! than its header before its lock is held.
//!
//! A slot keeps its kind while the library is loaded, so the usual place is found again by one comparison. There is
//! none while calls have to check more than their object ([`super::forget_usual`]): then no place is found at all.

use core::ptr::NonNull;

use super::{
    Exclusive, Kind,
    cell::SlotPtr,
    header::{HEADER_LEN, SlotState},
    lock::LeaseEntry,
    slot::{Guard, Slot, slot_at_public},
    space, usual,
};

/// A slot of a `K`, in any state.
pub(crate) struct SlotPlace<K: Kind>(SlotPtr<K>);

copies!(SlotPlace<K: Kind>);

/// The place at `public`; `None`: no slot of a `K` has its public part there, or there is no usual place.
#[inline(always)]
pub(crate) fn place<K: Kind>(public: *const K::Public) -> Option<SlotPlace<K>> {
    let usual = usual::usual::<K>();
    if usual.addr() != public.addr() {
        let find = || slot_at_public(public, space::is_slot::<K>).map(SlotPlace);
        return if usual::is_none(usual) { None } else { find() };
    }
    let slot = public.wrapping_byte_sub(HEADER_LEN).cast_mut();
    // SAFETY: `usual` is the end of a header, whose address is not null.
    unsafe { core::hint::assert_unchecked(!slot.is_null()) };
    NonNull::new(slot).map(|slot| SlotPlace(SlotPtr::new(slot.cast())))
}

impl<K: Kind> Slot<K> {
    /// Makes this the usual place of its kind, if there is none and `is_plain` says that calls need to check only
    /// their object.
    #[inline]
    pub(crate) fn make_usual(self, is_plain: impl Fn() -> bool) {
        if !usual::is_none(usual::usual::<K>()) {
            return;
        }
        usual::set::<K>(self.header());
        // After the store: whatever ends plain calls is stored before `forget_usual` is called.
        if !is_plain() {
            usual::forget_usual();
        }
    }
}

impl<K: Exclusive> SlotPlace<K> {
    /// The address of the struct that C programs see.
    pub(crate) fn public(self) -> *mut K::Public {
        self.0.public()
    }

    /// Enters by this thread's lease, which may have been taken just now; `None`: it has none. A lease ends before
    /// its object does.
    #[inline(always)]
    pub(crate) fn begin(self) -> Option<PlaceEntry<K>> {
        self.0.header().lock.begin().map(|entry| PlaceEntry { ptr: self.0, entry })
    }

    /// Locks the object for this thread alone; `None`: no object is live, or another thread has the lock.
    #[inline(always)]
    pub(crate) fn try_lock(self) -> Option<Guard<K>> {
        let header = self.0.header();
        let visit = header.lock.try_acquire()?;
        // Otherwise the visit ends here, and grants no lease.
        header.word().is(SlotState::Live).then(|| Guard::of_live(self.0, visit))
    }
}

/// The entry of a thread that had a lease of a slot.
pub(crate) struct PlaceEntry<K: Kind> {
    ptr: SlotPtr<K>,
    entry: LeaseEntry,
}

impl<K: Exclusive> PlaceEntry<K> {
    /// Calls `work` with the object's private part if the lease was not taken, and releases the lock. Returns the
    /// result of `work`, or `taken`.
    #[inline(always)]
    pub(crate) fn work<R>(self, taken: R, work: impl FnOnce(&mut K::Own) -> R) -> R {
        let Self { ptr, entry } = self;
        entry.work(taken, || {
            // SAFETY: a slot is leased while its private part has a value only, and its deleter takes the lease, and so
            // waits for this visit; one visit goes on at a time, and has one reference.
            work(unsafe { &mut *ptr.own() })
        })
    }
}
