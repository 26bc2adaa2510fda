//! The memory of one slot: header with state word and lock, public part, private part.
//!
//! The header has atomics only, which a stale pointer may read at any time. Must not know which slots there are, or
//! when a part may be reached.

use core::{cell::UnsafeCell, hint::black_box, mem::MaybeUninit, ptr::NonNull};

use urma_mem::{
    OwnerEntry, Serial, SerialVisit, TakenEntry, ThisThread, ThreadVisit, VisitEnd,
    sync::{AtomicU32, AtomicU64, Ordering},
};

use super::Kind;

/// Size in bytes of a chunk: adjacent slots of one kind.
pub(super) const CHUNK_LEN: usize = 1 << CHUNK_SHIFT;
pub(super) const CHUNK_SHIFT: u32 = 16;

/// A slot in memory.
#[repr(C)]
pub(super) struct Cell<K: Kind> {
    header: Header,
    public: UnsafeCell<MaybeUninit<K::Public>>,
    own: UnsafeCell<MaybeUninit<K::Own>>,
}

/// Distance in bytes from slot to slot.
pub(super) const fn stride<K: Kind>() -> usize {
    let stride = size_of::<Cell<K>>().next_power_of_two();
    assert!(stride <= CHUNK_LEN && align_of::<Cell<K>>() == HEADER_LEN);
    stride
}

/// Address of a slot, in a chunk of its kind.
pub(super) struct SlotPtr<K: Kind>(NonNull<Cell<K>>);

// SAFETY: an address only; what is behind it is reached as the rules of the slab say, and the private
// part is `Send` (and `Sync` where several threads read it).
unsafe impl<K: Kind> Send for SlotPtr<K> {}
// SAFETY: an address only, as for `Send`: several threads reach what the slab lets them.
unsafe impl<K: Kind> Sync for SlotPtr<K> {}

copies!(SlotPtr<K: Kind>);

impl<K: Kind> SlotPtr<K> {
    pub(super) fn new(cell: NonNull<Cell<K>>) -> Self {
        Self(cell)
    }

    #[inline]
    fn cell(&self) -> &'static Cell<K> {
        // SAFETY: slots stay mapped for ever, the header is atomics, and the parts are cells of
        // memory without a value until a thread may reach them.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    pub(super) fn header(&self) -> &'static Header {
        // SAFETY: a slot starts with its header, which stays mapped for ever and is atomics.
        unsafe { self.0.cast().as_ref() }
    }

    pub(super) fn public(&self) -> *mut K::Public {
        self.cell().public.get().cast()
    }

    pub(super) fn own(&self) -> *mut K::Own {
        self.cell().own.get().cast()
    }

    pub(super) fn addr(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// # Safety
    /// The caller builds in the slot.
    pub(super) unsafe fn fill_public(&self, public: K::Public) {
        // SAFETY: the caller's promise; the place is inside the slot and aligned.
        unsafe { self.public().write(public) };
    }

    /// # Safety
    /// The caller builds in the slot, or emptied it.
    pub(super) unsafe fn fill_own(&self, own: K::Own) {
        // SAFETY: the caller's promise; the place is inside the slot and aligned.
        unsafe { self.own().write(own) };
    }
}

/// Bytes of a header; the public part starts after them.
pub(super) const HEADER_LEN: usize = 64;

/// The context of an object: 24 bits, the slot number of its context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner(u32);

impl Owner {
    /// Owner of objects that belong to no context.
    pub(crate) const NONE: Self = Self(Self::MAX);
    const MAX: u32 = (1 << 24) - 1;

    /// The owner with this number, of which the low 24 bits count.
    pub(super) const fn new(number: u32) -> Self {
        Self(number & Self::MAX)
    }
}

/// State of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum SlotState {
    Free = 0,
    Building = 1,
    Live = 2,
    Dying = 3,
    /// Allocated by a program, without a private part.
    Idle = 4,
}

/// State, owner and generation in one word, so that one load decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word(u64);

impl Word {
    pub(super) const fn new(generation: u32, owner: Owner, state: SlotState) -> Self {
        Self((generation as u64) << 32 | (owner.0 as u64) << 8 | state as u64)
    }

    /// Whether the slot was never used: its memory is zero.
    pub(super) const fn is_untouched(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn is(self, state: SlotState) -> bool {
        self.0 & 0xff == state as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "24 bits are kept")]
    pub(super) const fn owner(self) -> Owner {
        Owner((self.0 >> 8) as u32 & Owner::MAX)
    }

    /// State and owner, without the generation: equal for all live objects of one owner.
    #[expect(clippy::cast_possible_truncation, reason = "32 bits are meant")]
    pub(super) const fn kinship(self) -> u32 {
        self.0 as u32
    }

    pub(super) const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) const fn with(self, state: SlotState) -> Self {
        Self(self.0 & !0xff | state as u64)
    }
}

/// The state word, the lock and the link of a slot; zero memory is a valid header of a free slot.
#[repr(C, align(64))]
pub(super) struct Header {
    word: AtomicU64,
    /// Held for one post, one poll or one control call.
    pub(super) lock: Lock,
    /// Number of the next free slot; valid only in a free list.
    pub(super) next: AtomicU32,
}

const _: () = assert!(size_of::<Header>() == HEADER_LEN);

impl Header {
    /// Header of a free slot.
    pub(super) const fn free() -> Self {
        Self { word: AtomicU64::new(0), lock: Lock::free(), next: AtomicU32::new(0) }
    }

    /// Between setting "dying" and locking a queue, at least one side sees the other: the deleter visits the lock
    /// afterwards.
    #[inline]
    pub(super) fn word(&self) -> Word {
        Word(self.word.load(Ordering::SeqCst))
    }

    /// Only for the thread that builds or deletes the object.
    pub(super) fn set_word(&self, word: Word) {
        self.word.store(word.0, Ordering::SeqCst);
    }

    /// Compares and swaps. Returns whether `from` became `to`.
    pub(super) fn swap_word(&self, from: Word, to: Word) -> bool {
        let order = Ordering::SeqCst;
        self.word.compare_exchange(from.0, to.0, order, order).is_ok()
    }
}

/// The lock of a slot: one visit at a time. A thread that uses the slot for some time gets a lease, and then enters
/// without a locked instruction (`urma_mem::ThisThread`). A slot without a live object must not be leased. Zero
/// memory is a free lock.
///
/// Each visit sees what the one before it did. So a deleter stores that an object is dying, and then visits the lock
/// of a queue once: when that visit ends, no earlier visit is in progress, and each later one sees the store. Its
/// visit of the object's own lock takes the lease, and no later visit grants one. So a thread that enters by a lease
/// finds the private part in place, and checks no state.
pub(super) struct Lock(Serial<LockUse>);

/// Recent use of a lock.
pub(super) struct LockUse {
    /// The thread of the last visit without a lease; 0: none.
    last: u64,
    /// Number of such visits by that thread in a row.
    visits: u32,
    /// Number of leases granted; all but the newest were taken back by other threads.
    leases: u32,
}

/// A visit of a lock, which is held meanwhile.
pub(super) enum LockVisit {
    /// Entered by this thread's lease.
    Leased(LeasedVisit),
    /// Entered by a locked instruction.
    Held(SerialVisit<'static, LockUse>),
}

/// A visit of a lock by this thread's lease.
pub(super) type LeasedVisit = ThreadVisit<'static, LockUse>;

/// Finishes the end of a visit and returns `value`, so that the caller saves no register for it. That is what it is for,
/// and a compiler that sees both undoes it (a poll takes four instructions more): it may not know that this is the value.
#[cold]
#[inline(never)]
fn finish<R>(end: VisitEnd<'static, LockUse>, value: R) -> R {
    // No thread leaves marks in these locks.
    let _ = end.finish();
    black_box(value)
}

impl Lock {
    pub(super) const fn free() -> Self {
        Self(Serial::new(LockUse { last: 0, visits: 0, leases: 0 }))
    }

    /// Enters by this thread's lease; `None`: it has none.
    #[inline(always)]
    pub(super) fn enter(&'static self) -> Option<LeasedVisit> {
        match self.0.try_leased(ThisThread::now()) {
            OwnerEntry::Visit(visit) => Some(visit),
            OwnerEntry::Refused => None,
            OwnerEntry::Taken(entry) => {
                // No thread leaves marks in these locks.
                let _ = entry.finish();
                None
            }
        }
    }

    /// Enters by this thread's lease, which may have been taken just now; [`LeaseEntry::work`] finds out. `None`: it
    /// has none.
    #[inline(always)]
    pub(super) fn begin(&'static self) -> Option<LeaseEntry> {
        match self.0.try_leased(ThisThread::now()) {
            OwnerEntry::Visit(visit) => Some(LeaseEntry(Ok(visit))),
            OwnerEntry::Taken(entry) => Some(LeaseEntry(Err(entry))),
            OwnerEntry::Refused => None,
        }
    }

    /// Enters if no thread holds the lock or has a lease of it.
    #[inline(always)]
    pub(super) fn try_acquire(&'static self) -> Option<LockVisit> {
        self.0.try_visit().map(LockVisit::Held)
    }

    /// Waits until no other thread holds the lock, and enters.
    #[inline]
    pub(super) fn acquire(&'static self) -> LockVisit {
        self.enter().map_or_else(|| LockVisit::Held(self.0.visit_blocking()), LockVisit::Leased)
    }

    /// Waits until the thread that holds the lock has released it, and takes the lease, even this thread's own. Each
    /// later visit sees what was stored before.
    pub(super) fn end_lease(&'static self) {
        let mut visit = self.0.visit_blocking();
        // The next object in the slot starts afresh.
        visit.with(|of| (of.visits, of.leases) = (0, 0));
        let _ = visit.leave();
    }

    /// Waits like [`Lock::end_lease`], but leaves this thread its lease.
    pub(super) fn wait_for_holder(&'static self) {
        drop(self.acquire());
    }
}

/// The entry of a thread that had a lease.
pub(super) struct LeaseEntry(Result<LeasedVisit, TakenEntry<'static, LockUse>>);

impl LeaseEntry {
    /// Calls `work` if the lease was not taken, and ends the visit. Returns the result of `work`, or `taken`.
    #[inline(always)]
    pub(super) fn work<R>(self, taken: R, work: impl FnOnce() -> R) -> R {
        let (value, end) = match self.0 {
            Ok(visit) => (work(), visit.end()),
            Err(entry) => (taken, Err(entry.end())),
        };
        // The rare cases are called in one place, so that the address of the lock is computed there.
        match end {
            Ok(()) => value,
            Err(end) => finish(end, value),
        }
    }
}

impl LockVisit {
    /// Ends a visit of a live object. After many in a row, the thread gets a lease.
    #[inline(always)]
    pub(super) fn leave(self) {
        let mut visit = match self {
            Self::Leased(visit) => return drop(visit),
            Self::Held(visit) => visit,
        };
        let thread = ThisThread::now();
        let is_due = visit.with(|of| of.count(thread));
        // No thread leaves marks in these locks.
        let end = if is_due { visit.lease_to(thread) } else { visit.end() };
        if let Err(end) = end {
            let _ = end.finish();
        }
    }
}

impl LockUse {
    /// Counts a visit of this thread without a lease. Returns whether it should get one.
    #[inline]
    fn count(&mut self, thread: ThisThread) -> bool {
        if self.last != thread.number() {
            (self.last, self.visits) = (thread.number(), 0);
            return false;
        }
        self.visits += 1;
        let is_due = self.visits >= LEASE_AFTER << self.leases.min(LEASE_DOUBLINGS);
        if is_due {
            (self.visits, self.leases) = (0, self.leases.saturating_add(1));
        }
        is_due
    }
}

/// Visits of one thread in a row before its first lease: a lease that another thread takes costs a system call, up to
/// 7 us, and saves 6 ns per visit.
const LEASE_AFTER: u32 = 128;
/// Each lease that was taken doubles that, at most so often.
const LEASE_DOUBLINGS: u32 = 5;
