//! The lock of a slot.
//!
//! *Owns*: when a thread gets a lease of it. *Takes*: the calling thread. *Gives*: one visit at a time, which a thread that
//! uses the slot for some time enters without a locked instruction (`urma_mem::ThisThread`). *Must not*: lease a slot
//! without a live object.
//!
//! Each visit sees what the one before it did. So a deleter that visits the lock of a queue once, after it has stored that
//! an object is dying, returns when no visit from before goes on, and each later one sees what it stored. Its visit of the
//! object's own lock takes the lease, and no later visit grants one: a thread that enters by a lease finds the private
//! part there, and looks at no state.

use urma_mem::{OwnerEntry, Serial, SerialVisit, TakenEntry, ThisThread, ThreadVisit, VisitEnd};

/// See the room card; fresh (zero) memory is a lock that is free.
pub(super) struct Lock(Serial<LockUse>);

/// The newest use of a lock.
pub(super) struct LockUse {
    /// The thread of the newest visit that was under no lease; 0: none.
    last: u64,
    /// Such visits of that thread in a row.
    visits: u32,
    /// Leases that were granted, and so taken by other threads but for the newest.
    leases: u32,
}

/// A visit of a lock: it is held.
pub(super) enum LockVisit {
    /// By the lease of this thread.
    Leased(LeasedVisit),
    /// By a locked instruction.
    Held(SerialVisit<'static, LockUse>),
}

/// A visit of a lock by the lease of this thread.
pub(super) type LeasedVisit = ThreadVisit<'static, LockUse>;

/// Finishes the end of a visit, and gives `value`, so that no register is saved for it.
#[cold]
#[inline(never)]
fn finish<R>(end: VisitEnd<'static, LockUse>, value: R) -> R {
    // No thread leaves a mark in a lock.
    let _ = end.finish();
    value
}

impl Lock {
    pub(super) const fn free() -> Self {
        Self(Serial::new(LockUse { last: 0, visits: 0, leases: 0 }))
    }

    /// By this thread's lease of it; `None`: it has none.
    #[inline(always)]
    pub(super) fn enter(&'static self) -> Option<LeasedVisit> {
        match self.0.try_leased(ThisThread::now()) {
            OwnerEntry::Visit(visit) => Some(visit),
            OwnerEntry::Refused => None,
            OwnerEntry::Taken(entry) => {
                // No thread leaves a mark in a lock.
                let _ = entry.finish();
                None
            }
        }
    }

    /// As [`Lock::enter`], of a lease that may have been taken just now.
    #[inline(always)]
    pub(super) fn begin(&'static self) -> Option<LeaseEntry> {
        match self.0.try_leased(ThisThread::now()) {
            OwnerEntry::Visit(visit) => Some(LeaseEntry(Ok(visit))),
            OwnerEntry::Taken(entry) => Some(LeaseEntry(Err(entry))),
            OwnerEntry::Refused => None,
        }
    }

    /// If no thread holds it, or has a lease of it.
    #[inline(always)]
    pub(super) fn try_acquire(&'static self) -> Option<LockVisit> {
        self.0.try_visit().map(LockVisit::Held)
    }

    /// Waits until no other thread holds it.
    #[inline]
    pub(super) fn acquire(&'static self) -> LockVisit {
        self.enter().map_or_else(|| LockVisit::Held(self.0.visit_blocking()), LockVisit::Leased)
    }

    /// Waits until the thread that holds it has let it go, and takes the lease, also that of this thread. What is stored
    /// before is seen by each later visit.
    pub(super) fn end_lease(&'static self) {
        let mut visit = self.0.visit_blocking();
        // The next object in the slot starts afresh.
        visit.with(|of| (of.visits, of.leases) = (0, 0));
        let _ = visit.leave();
    }

    /// As [`Lock::end_lease`], but the lease of this thread stays.
    pub(super) fn wait_for_holder(&'static self) {
        drop(self.acquire());
    }
}

/// The entry of a thread that had a lease.
pub(super) struct LeaseEntry(Result<LeasedVisit, TakenEntry<'static, LockUse>>);

impl LeaseEntry {
    /// Works, if the lease was not taken, and ends the visit. What `work` gives, or `taken`.
    #[inline(always)]
    pub(super) fn work<R>(self, taken: R, work: impl FnOnce() -> R) -> R {
        let (value, end) = match self.0 {
            Ok(visit) => (work(), visit.end()),
            Err(entry) => (taken, Err(entry.end())),
        };
        // What is rare is called in one place, so that the address of the lock is made there.
        match end {
            Ok(()) => value,
            Err(end) => finish(end, value),
        }
    }
}

impl LockVisit {
    /// Ends a visit of a live object. After many in a row of one thread, that gets a lease.
    #[inline(always)]
    pub(super) fn leave(self) {
        let mut visit = match self {
            Self::Leased(visit) => return drop(visit),
            Self::Held(visit) => visit,
        };
        let thread = ThisThread::now();
        let is_due = visit.with(|of| of.count(thread));
        // No thread leaves a mark in a lock.
        let end = if is_due { visit.lease_to(thread) } else { visit.end() };
        if let Err(end) = end {
            let _ = end.finish();
        }
    }
}

impl LockUse {
    /// Counts a visit of this thread under no lease; whether it shall have one.
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

/// Visits of one thread in a row after which it gets its first lease: a lease that another thread takes costs a system
/// call, up to 7 us, and saves 6 ns a visit.
const LEASE_AFTER: u32 = 128;
/// Each lease that was taken doubles them, that often at most.
const LEASE_DOUBLINGS: u32 = 5;
