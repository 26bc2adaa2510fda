//! The lock of a slot.
//!
//! *Owns*: when a thread gets a lease of it. *Takes*: the calling thread. *Gives*: one visit at a time; a thread that
//! uses the slot for some time enters without a locked instruction (`urma_mem::ThisThread`). *Must not*: lease a slot
//! without a live object.
//!
//! Each visit sees what the one before it did. So a deleter stores that an object is dying, and then visits the lock
//! of a queue once: when that visit ends, no earlier visit is in progress, and each later one sees the store. Its
//! visit of the object's own lock takes the lease, and no later visit grants one. So a thread that enters by a lease
//! finds the private part in place, and checks no state.

use urma_mem::{OwnerEntry, Serial, SerialVisit, TakenEntry, ThisThread, ThreadVisit, VisitEnd};

/// See the header of this file; zero memory is a free lock.
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

/// Finishes the end of a visit and returns `value`, so that the caller saves no register for it.
#[cold]
#[inline(never)]
fn finish<R>(end: VisitEnd<'static, LockUse>, value: R) -> R {
    // No thread leaves marks in these locks.
    let _ = end.finish();
    value
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
