//! Typed slots in every state of an object's life: under construction, live, idle, dying.
//!
//! Finding, locking, naming and deleting of live objects, by the rules of the slab; and places: slots known by their
//! addresses, whatever their state. Must not touch memory before its kind and state are known, or read more of a
//! place than its header before its lock is held.

use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
    ptr::NonNull,
};

use urma_mem::{
    ends::{EndCount, SeenEnds},
    sync::{AtomicPtr, Ordering},
};

use super::{
    CODE_MAX, Exclusive, Kind, Named,
    cell::{Cell, HEADER_LEN, Header, LeaseEntry, LockVisit, Owner, SlotPtr, SlotState, Word},
    in_slot, space,
};

/// Epoch: bumped when the end of an object begins, before the locks of queues are visited.
static ENDS: EndCount = EndCount::new();

/// The epoch for a request that follows no name, of a queue whose lock is held; see [`Look::seen_ends`].
#[inline(always)]
pub(crate) fn seen_ends<K: Kind>(_: &K::Own) -> SeenEnds {
    const { assert!(K::IS_QUEUE) };
    ENDS.seen_in_order()
}

/// Kind of a pointer from a C program.
pub(crate) enum PointerKind {
    /// A live object of the kind.
    Live,
    /// Null, deleted, another kind, not the start of an object, or misaligned.
    Invalid,
    /// Not in this library's memory, and aligned: maybe an object of another provider.
    Foreign,
}

/// Classifies `public`, without touching the memory that it points to unless that is an object's slot.
#[inline(always)]
pub(crate) fn find<K: Kind>(public: *const K::Public) -> PointerKind {
    if find_live::<K>(public).is_some() {
        return PointerKind::Live;
    }
    let is_foreign = space::is_outside(public.addr().wrapping_sub(HEADER_LEN));
    if is_foreign && public.is_aligned() && !public.is_null() {
        return PointerKind::Foreign;
    }
    PointerKind::Invalid
}

/// The live object at `public`; `None` for anything else, which [`find`] classifies.
#[inline(always)]
pub(crate) fn find_live<K: Kind>(public: *const K::Public) -> Option<Slot<K>> {
    let ptr = slot_at_public::<K>(public, space::is_slot::<K>)?;
    let word = ptr.header().word();
    word.is(SlotState::Live).then_some(Slot { ptr, word })
}

/// Whether there is an object of the kind at `public`, live or being deleted.
pub(crate) fn is_there<K: Kind>(public: *const K::Public) -> bool {
    slot_at_public::<K>(public, space::is_slot::<K>).is_some_and(|ptr| {
        let word = ptr.header().word();
        word.is(SlotState::Live) || word.is(SlotState::Dying)
    })
}

/// The slot whose public part is at `public`, in any state, if it is one of a `K`.
#[inline(always)]
pub(super) fn slot_at_public<K: Kind>(
    public: *const K::Public,
    is_slot: impl FnOnce(usize) -> bool,
) -> Option<SlotPtr<K>> {
    let slot = public.wrapping_byte_sub(HEADER_LEN).cast::<Cell<K>>().cast_mut();
    if !is_slot(slot.addr()) {
        return None;
    }
    // SAFETY: an address in the reservation, which the system does not put at 0.
    unsafe { core::hint::assert_unchecked(!slot.is_null()) };
    NonNull::new(slot).map(SlotPtr::new)
}

/// An object that was live when it was looked up.
pub(crate) struct Slot<K: Kind> {
    ptr: SlotPtr<K>,
    word: Word,
}

copies!(Slot<K: Kind>);

impl<K: Kind> Slot<K> {
    pub(super) fn new(ptr: SlotPtr<K>, word: Word) -> Self {
        Self { ptr, word }
    }

    pub(super) fn header(self) -> &'static Header {
        self.ptr.header()
    }

    /// Its public part: memory that C programs read and write as they like.
    #[inline]
    pub(crate) fn public(self) -> *mut K::Public {
        self.ptr.public()
    }

    /// Its public part, read-only.
    pub(crate) fn shown(&self) -> &K::Public {
        // SAFETY: the slot was published with a value and stays mapped while the library is loaded, and
        // C programs do not write to an object that another thread works on.
        unsafe { &*self.public() }
    }

    /// The context that it belongs to.
    #[inline]
    pub(crate) fn owner(self) -> Owner {
        self.word.owner()
    }

    /// Whether it is still the same object, and live.
    #[inline]
    pub(crate) fn is_live(self) -> bool {
        self.ptr.header().word() == self.word
    }

    /// Whether both are the same object.
    #[cfg(test)]
    pub(crate) fn is(self, other: Self) -> bool {
        self.ptr.addr() == other.ptr.addr() && self.word == other.word
    }

    /// Begins the object's end. Only one of several callers succeeds, the others get `None`. After the return no
    /// thread accesses the private part any more.
    pub(crate) fn retire(self) -> Option<Dying<K>> {
        let header = self.ptr.header();
        if !header.swap_word(self.word, self.word.with(SlotState::Dying)) {
            return None;
        }
        ENDS.count();
        forget_usual_at(header);
        header.lock.end_lease();
        // Posts of the same owner may have found it just before.
        space::for_each_queue(|queue| {
            if queue.word().owner() == self.word.owner() {
                queue.lock.wait_for_holder();
            }
        });
        Some(Dying(self))
    }

    /// Ends the object and drops its private part, unless another thread does so.
    pub(crate) fn end(self) {
        if let Some(dying) = self.retire() {
            drop(dying.take());
        }
    }
}

in_slot!(Slot: ptr, Emptied: 0);

impl<K: Exclusive> Slot<K> {
    /// Locks the private part for this thread alone; `None`: the object is gone.
    #[inline]
    pub(crate) fn lock(self) -> Option<Guard<K>> {
        let visit = self.ptr.header().lock.acquire();
        // Otherwise the visit ends here, and grants no lease.
        self.is_live().then(|| Guard::of_live(self.ptr, visit))
    }
}

/// The lock of a slot, and thereby its private part.
pub(crate) struct Guard<K: Kind> {
    ptr: SlotPtr<K>,
    visit: ManuallyDrop<LockVisit>,
    /// A lock belongs to its thread.
    _here: PhantomData<*mut K::Own>,
}

impl<K: Kind> Guard<K> {
    /// For a slot whose lock `visit` has held since before its object became live, at the latest.
    #[inline(always)]
    pub(super) fn of_live(ptr: SlotPtr<K>, visit: LockVisit) -> Self {
        Self { ptr, visit: ManuallyDrop::new(visit), _here: PhantomData }
    }

    /// The private part, and access to what requests of this queue name.
    #[inline]
    pub(crate) fn split(&mut self) -> (&mut K::Own, Look<'_>) {
        const { assert!(K::IS_QUEUE) };
        let look = Look { kinship: self.ptr.header().word().kinship(), _guard: PhantomData };
        (&mut *self, look)
    }
}

impl<K: Kind> Deref for Guard<K> {
    type Target = K::Own;

    #[inline]
    fn deref(&self) -> &K::Own {
        // SAFETY: the slot is live, so its private part has a value; the lock is held, and the
        // deleter waits for it.
        unsafe { &*self.ptr.own() }
    }
}

impl<K: Kind> DerefMut for Guard<K> {
    #[inline]
    fn deref_mut(&mut self) -> &mut K::Own {
        // SAFETY: as in `deref`; one guard exists, and it is borrowed mutably.
        unsafe { &mut *self.ptr.own() }
    }
}

impl<K: Kind> Drop for Guard<K> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard is dropped once, and the visit is used no more.
        let visit = unsafe { ManuallyDrop::take(&mut self.visit) };
        visit.leave();
    }
}

/// Proof that the lock of a queue is held: what it names exists as long as this.
#[derive(Clone, Copy)]
pub(crate) struct Look<'g> {
    /// State and owner of the queue, which is live, and thereby of every live object of its owner.
    kinship: u32,
    _guard: PhantomData<&'g ()>,
}

impl<'g> Look<'g> {
    /// The epoch: as long as it does not move, and the lock of a queue is held, what that queue found by its names
    /// still exists.
    #[inline(always)]
    pub(crate) fn seen_ends(self) -> SeenEnds {
        ENDS.seen_in_order()
    }

    /// The private part of the object at `public`; `None` unless that is a live `K` of the queue's owner.
    #[inline(always)]
    pub(crate) fn named<K: Named>(self, public: *const K::Public) -> Option<&'g K::Own> {
        let ptr = slot_at_public::<K>(public, space::is_slot_of_known::<K>)?;
        if ptr.header().word().kinship() != self.kinship {
            return None;
        }
        // SAFETY: the word said "live" and "of this owner" while a queue of that owner was locked,
        // and its deleter waits for that lock before it empties the slot; until then the value is
        // only read.
        Some(unsafe { &*ptr.own() })
    }

    /// The private part of the object at `public`, if this queue found it last: compares its address and one word.
    #[inline(always)]
    pub(crate) fn named_again<K: Named>(
        self,
        public: *const K::Public,
        last: &LastNamed<K>,
    ) -> Option<&'g K::Own> {
        let ptr = last.ptr?;
        if !core::ptr::eq(ptr.public(), public) {
            return None;
        }
        // The word of another object in the same slot has another generation.
        if ptr.header().word() != last.word || last.word.kinship() != self.kinship {
            return None;
        }
        // SAFETY: as in `named`: the word says "live" and "of this owner" while a queue of that owner is locked.
        Some(unsafe { &*ptr.own() })
    }

    /// Does what [`Look::named`] does, and remembers the result in `last`, for [`Look::named_again`].
    #[inline]
    pub(crate) fn named_new<K: Named>(
        self,
        public: *const K::Public,
        last: &mut LastNamed<K>,
    ) -> Option<&'g K::Own> {
        let found = self.named::<K>(public)?;
        let ptr = slot_at_public::<K>(public, space::is_slot_of_known::<K>)?;
        *last = LastNamed { ptr: Some(ptr), word: ptr.header().word() };
        Some(found)
    }
}

/// The object of a kind that a queue found last: its address, and its word when it was live.
pub(crate) struct LastNamed<K: Named> {
    ptr: Option<SlotPtr<K>>,
    word: Word,
}

impl<K: Named> LastNamed<K> {
    /// No object, which is never found again.
    pub(crate) const NONE: Self =
        Self { ptr: None, word: Word::new(0, Owner::NONE, SlotState::Free) };
}

/// The locks of several objects, to read their private parts at once.
pub(crate) struct Held<const N: usize> {
    /// In order of address, without duplicates.
    headers: [Option<&'static Header>; N],
    /// The visit of each, in the same order. No lease is granted.
    _visits: [Option<LockVisit>; N],
    _here: PhantomData<*mut ()>,
}

/// A slot of any kind, for [`Held::take`].
#[derive(Clone, Copy)]
pub(crate) struct AnySlot {
    header: &'static Header,
    word: Word,
}

impl<K: Exclusive> From<Slot<K>> for AnySlot {
    fn from(slot: Slot<K>) -> Self {
        Self { header: slot.ptr.header(), word: slot.word }
    }
}

impl<const N: usize> Held<N> {
    /// Locks all of them; `None` if one is gone.
    pub(crate) fn take(slots: [Option<AnySlot>; N]) -> Option<Self> {
        let mut headers = slots.map(|slot| slot.map(|slot| slot.header));
        let addr = |header: &Option<&'static Header>| header.map(|h| core::ptr::from_ref(h).addr());
        headers.sort_unstable_by_key(addr);
        for index in 1..N {
            if addr(&headers[index]) == addr(&headers[index - 1]) {
                headers[index - 1] = None;
            }
        }
        let _visits = headers.map(|header| header.map(|header| header.lock.acquire()));
        let held = Self { headers, _visits, _here: PhantomData };
        let all_live = slots.iter().flatten().all(|slot| slot.header.word() == slot.word);
        all_live.then_some(held)
    }

    /// The private part of one of them; `None` if the object is not locked.
    pub(crate) fn own<K: Exclusive>(&self, slot: Slot<K>) -> Option<&K::Own> {
        let wanted = slot.ptr.header();
        let is_held = self.headers.iter().flatten().any(|header| core::ptr::eq(*header, wanted));
        if !is_held || !slot.is_live() {
            return None;
        }
        // SAFETY: its lock is held and it is live, so the value is there and its deleter waits;
        // this type hands out shared references only.
        Some(unsafe { &*slot.ptr.own() })
    }
}

/// An object that ends: no other thread accesses its private part. Dropping it makes the object live again.
pub(crate) struct Dying<K: Kind>(Slot<K>);

impl<K: Kind> Dying<K> {
    /// Takes the private part out of the slot.
    pub(crate) fn take(self) -> (K::Own, Emptied<K>) {
        let slot = self.0;
        core::mem::forget(self);
        // SAFETY: `retire` made this the only access to the value, and the slot counts as empty now.
        let own = unsafe { slot.ptr.own().read() };
        (own, Emptied(slot))
    }
}

impl<K: Kind> Drop for Dying<K> {
    fn drop(&mut self) {
        self.0.ptr.header().set_word(self.0.word);
    }
}

/// A slot whose private part was taken out. Dropping it frees the slot.
pub(crate) struct Emptied<K: Kind>(Slot<K>);

impl<K: Kind> Emptied<K> {
    /// Keeps the slot as an idle object.
    pub(crate) fn rest(self) {
        let slot = self.0;
        core::mem::forget(self);
        slot.ptr.header().set_word(slot.word.with(SlotState::Idle));
    }

    /// Puts a private part back: the object is live again.
    pub(crate) fn refill(self, own: K::Own) {
        let slot = self.0;
        core::mem::forget(self);
        // SAFETY: the slot is empty and this thread's.
        unsafe { slot.ptr.fill_own(own) };
        slot.ptr.header().set_word(slot.word);
    }
}

impl<K: Kind> Drop for Emptied<K> {
    fn drop(&mut self) {
        space::give_back_slot(self.0.ptr);
    }
}

/// Stands for a kind without a usual place: no object is ever live in it.
static NOWHERE: Header = Header::free();

/// The usual place of each kind: the end of its header, where the public part begins.
static USUAL: [AtomicPtr<Header>; CODE_MAX as usize + 1] =
    [const { AtomicPtr::new(end_of(&NOWHERE)) }; CODE_MAX as usize + 1];

const fn end_of(header: *const Header) -> *mut Header {
    header.wrapping_add(1).cast_mut()
}

/// End of the header of a kind's usual place; that of [`NOWHERE`] if there is none.
///
/// A slot keeps its kind while the library is loaded, so the usual place is found again by one comparison. There is
/// none while calls have to check more than their object ([`forget_usual`]): then no place is found at all.
#[inline(always)]
pub(super) fn usual_of<K: Kind>() -> *const Header {
    USUAL[K::CODE as usize].load(Ordering::Relaxed)
}

/// Whether [`usual_of`] returned no place.
#[inline(always)]
pub(super) fn is_nowhere(usual: *const Header) -> bool {
    core::ptr::eq(usual, end_of(&NOWHERE))
}

/// Makes the place of this header the usual one.
pub(super) fn set_usual<K: Kind>(header: &'static Header) {
    USUAL[K::CODE as usize].store(end_of(header), Ordering::SeqCst);
}

/// Clears all usual places. A forked child calls it before it runs any other code; it makes only stores.
pub(crate) fn forget_usual() {
    for usual in &USUAL {
        usual.store(end_of(&NOWHERE), Ordering::SeqCst);
    }
}

/// Clears the usual place if it is that of this header, whose object ends.
pub(super) fn forget_usual_at(header: &Header) {
    for usual in &USUAL {
        if core::ptr::eq(usual.load(Ordering::Relaxed), end_of(header)) {
            usual.store(end_of(&NOWHERE), Ordering::SeqCst);
        }
    }
}

/// A slot of a `K`, in any state.
pub(crate) struct SlotPlace<K: Kind>(SlotPtr<K>);

copies!(SlotPlace<K: Kind>);

/// The place at `public`; `None`: no slot of a `K` has its public part there, or there is no usual place.
#[inline(always)]
pub(crate) fn place<K: Kind>(public: *const K::Public) -> Option<SlotPlace<K>> {
    let usual = usual_of::<K>();
    if usual.addr() != public.addr() {
        let find = || slot_at_public(public, space::is_slot::<K>).map(SlotPlace);
        return if is_nowhere(usual) { None } else { find() };
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
        if !is_nowhere(usual_of::<K>()) {
            return;
        }
        set_usual::<K>(self.header());
        // After the store: whatever ends plain calls is stored before `forget_usual` is called.
        if !is_plain() {
            forget_usual();
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

/// A slot under construction. Dropping it frees the slot.
pub(crate) struct Fresh<K: Kind> {
    ptr: SlotPtr<K>,
    number: u32,
    generation: u32,
}

impl<K: Kind> Fresh<K> {
    /// Allocates a slot; `None`: there is no memory.
    pub(crate) fn take() -> Option<Self> {
        let (number, ptr) = space::take_slot::<K>()?;
        let generation = ptr.header().word().generation().wrapping_add(1);
        ptr.header().set_word(Word::new(generation, Owner::NONE, SlotState::Building));
        Some(Self { ptr, number, generation })
    }

    /// Where the public part will be.
    pub(crate) fn public(&self) -> *mut K::Public {
        self.ptr.public()
    }

    /// The owner number for objects of this one, if this is a context.
    pub(crate) fn as_owner(&self) -> Owner {
        Owner::new(self.number)
    }

    /// The slot, and its word for when it is live.
    fn into_parts(self, owner: Owner) -> (SlotPtr<K>, Word) {
        let parts = (self.ptr, Word::new(self.generation, owner, SlotState::Live));
        core::mem::forget(self);
        parts
    }

    /// Fills the slot and makes it live; from now on it is found.
    pub(crate) fn publish(self, owner: Owner, public: K::Public, own: K::Own) -> Slot<K> {
        let (ptr, word) = self.into_parts(owner);
        // SAFETY: the state says "building", so that no other thread reaches either part.
        unsafe { ptr.fill_public(public) };
        // SAFETY: the state says "building", so that no other thread reaches the private part.
        unsafe { ptr.fill_own(own) };
        ptr.header().set_word(word);
        Slot::new(ptr, word)
    }

    /// Fills the public part and makes the slot idle.
    pub(crate) fn publish_idle(self, owner: Owner, public: K::Public) -> *mut K::Public {
        let (ptr, word) = self.into_parts(owner);
        // SAFETY: the state says "building", so that no other thread reaches it.
        unsafe { ptr.fill_public(public) };
        ptr.header().set_word(word.with(SlotState::Idle));
        ptr.public()
    }
}

impl<K: Kind> Drop for Fresh<K> {
    fn drop(&mut self) {
        space::give_back_slot(self.ptr);
    }
}

/// An object that was idle when it was looked up.
///
/// A program allocated it and did not activate it, or deactivated it. Only [`find_idle`] finds it, so that every
/// other call refuses it.
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
            space::give_back_slot(self.ptr);
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
