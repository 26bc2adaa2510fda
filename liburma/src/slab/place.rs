//! Places: slots that are known by their addresses, whatever their state.
//!
//! *Owns*: one usual place of each kind. *Takes*: pointers of C programs. *Gives*: the lock of the live object in a place.
//! *Must not*: read more of a slot than its header before its lock is held.
//!
//! A slot stays one of its kind while the library is loaded, so the usual place is found again by a comparison. There is
//! none while calls are to look at more than that: whether they are, is asked where no place is usual.

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

/// The place at `public`, if no call is to look at more than that, as `is_plain` says; `None` also where no slot of a `K`
/// has its public part there.
#[inline(always)]
pub(crate) fn place<K: Kind>(
    public: *const K::Public,
    is_plain: impl Fn() -> bool,
) -> Option<Place<K>> {
    let slot = public.wrapping_byte_sub(HEADER_LEN).cast_mut();
    let usual = USUAL[K::CODE as usize].load(Ordering::Relaxed);
    if usual.addr() != slot.addr() {
        return other_place(public, usual, is_plain);
    }
    // SAFETY: `slot` is the address of a header, which `USUAL` has.
    unsafe { core::hint::assert_unchecked(!slot.is_null()) };
    NonNull::new(slot).map(|slot| Place(SlotPtr::new(slot.cast())))
}

/// As [`place`], of one that is not the usual one; `None` also where none is, so that a call that looks at everything
/// makes its own the usual one ([`Slot::make_usual`]).
#[inline(always)]
fn other_place<K: Kind>(
    public: *const K::Public,
    usual: *const Header,
    is_plain: impl Fn() -> bool,
) -> Option<Place<K>> {
    if core::ptr::eq(usual, &raw const NOWHERE) || !is_plain() {
        return None;
    }
    slot_at_public::<K>(public, space::is_slot::<K>).map(Place)
}

impl<K: Kind> Slot<K> {
    /// Makes its place the usual one of its kind, if none is and calls are plain.
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
