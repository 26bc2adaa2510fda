//! Leases: one thread enters a value by plain loads and stores until another thread wants it.
//!
//! The owner announces itself and then reads the lease once more before it enters. No thread waits for an owner that
//! is inside.
//!
//! A leased value is held all the time, so that other threads leave marks. The first of them takes the lease
//! ([`Serial::take_lease`]): it clears LEASED, and holds the value once a barrier has shown that the owner is not
//! inside. If it is, HELD is passed on: the owner has it when it leaves, with all marks. An owner that leaves at that
//! very time and the taker both find the value passed on and not entered: who clears PASSED has it.
//!
//! An owner that may stop at any point of its entry while another one follows ([`super::thread`]) has a term of its own, with
//! its own announcement.

use core::cell::Cell;
use core::mem;

use super::{
    CLAIMED, HELD, LEASED, PASSED, Serial, SerialVisit, TERM_STEP, TERMS, VisitEnd, term_of,
};
use crate::asymmetric;
use crate::sync::{AtomicU8, Ordering, fence};

/// The owner that may get a lease of a [`Serial`]; used by one thread at a time.
#[derive(Debug)]
pub struct SerialOwner {
    id: Cell<u64>,
    /// Leases that it got. Not shared between threads.
    leases: Cell<u32>,
}

/// Result of an owner's attempt to enter.
#[derive(Debug)]
pub enum OwnerEntry<'s, T, V = SerialVisit<'s, T>> {
    /// The owner works on the value now.
    Visit(V),
    /// Another thread has the value, or a mark is set, or the owner is inside already; nothing happened.
    Refused,
    /// The lease was taken meanwhile.
    Taken(TakenEntry<'s, T>),
}

/// The entry of an owner that lost its lease meanwhile.
#[must_use = "the value may be held until it is finished"]
#[derive(Debug)]
pub struct TakenEntry<'s, T> {
    pub(super) serial: &'s Serial<T>,
    pub(super) term: u8,
}

impl<'s, T> TakenEntry<'s, T> {
    /// Gives the entry up. Returns whether a mark is set, which is the caller's to pass on.
    #[cold]
    #[inline(never)]
    pub fn finish(self) -> bool {
        self.end().finish()
    }

    /// The end of the entry as that of a visit.
    #[inline(always)]
    pub fn end(self) -> VisitEnd<'s, T> {
        let Self { serial, term } = self;
        serial.inside_of(term).store(0, Ordering::Release);
        // The thread that took the lease may have passed the value on.
        VisitEnd { serial, is_leased: true }
    }
}

impl SerialOwner {
    /// One that owns nothing, and enters as all others do.
    #[must_use]
    pub const fn none() -> Self {
        Self { id: Cell::new(NO_OWNER), leases: Cell::new(0) }
    }

    /// Whether it may get a lease.
    #[inline]
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.id.get() != NO_OWNER
    }

    /// Leases that it got, all but the newest of which were taken by others, or was refused.
    #[inline]
    #[must_use]
    pub fn leases(&self) -> u32 {
        self.leases.get()
    }
}

impl<T> Serial<T> {
    /// Makes the caller the owner, who may get leases; `None`: there is one, or the kernel has no barrier for it.
    #[must_use]
    pub fn claim(&self) -> Option<SerialOwner> {
        let owner = SerialOwner::none();
        self.claim_for(&owner).then_some(owner)
    }

    /// Makes `owner` the owner, if it owns nothing so far. Whether it is: see [`Serial::claim`].
    #[cold]
    pub fn claim_for(&self, owner: &SerialOwner) -> bool {
        if owner.is_some() {
            return self.is_of(owner);
        }
        // The look is cheaper than to find out by an exchange.
        if self.owner.load(Ordering::Relaxed) != 0 || !asymmetric::is_available() {
            return false;
        }
        let (id, order) = (next_id(), (Ordering::AcqRel, Ordering::Relaxed));
        let is_claimed = self.owner.compare_exchange(0, id, order.0, order.1).is_ok();
        if is_claimed {
            owner.id.set(id);
        }
        is_claimed
    }

    /// Ends what [`Serial::claim`] began: another owner may follow. A lease stays until another thread takes it.
    pub fn disown(&self, owner: &SerialOwner) {
        let _ = self.owner.compare_exchange(owner.id.get(), 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// As [`Serial::try_visit`] of the owner, by its lease if it has one.
    #[inline(always)]
    pub fn try_visit_as(&self, owner: &SerialOwner) -> OwnerEntry<'_, T> {
        if self.state.load(Ordering::Relaxed) != HELD | LEASED {
            return self.try_visit().map_or(OwnerEntry::Refused, OwnerEntry::Visit);
        }
        // A visit within a visit of the same owner is none. A visit may have ended in another thread: what that did is seen.
        let inside = self.inside_of(CLAIMED);
        if !self.is_of(owner) || inside.load(Ordering::Acquire) != 0 {
            return OwnerEntry::Refused;
        }
        inside.store(1, Ordering::Relaxed);
        asymmetric::light();
        if self.state.load(Ordering::Acquire) & LEASED == 0 {
            return OwnerEntry::Taken(TakenEntry { serial: self, term: CLAIMED });
        }
        OwnerEntry::Visit(SerialVisit { serial: self, is_leased: true })
    }

    /// The announcement of the owner of this term.
    #[inline(always)]
    pub(super) fn inside_of(&self, term: u8) -> &AtomicU8 {
        &self.inside[usize::from(term) % TERMS]
    }

    #[inline(always)]
    fn is_of(&self, owner: &SerialOwner) -> bool {
        self.owner.load(Ordering::Relaxed) == owner.id.get()
    }

    /// Ends a visit under a lease; `false`: the lease was taken meanwhile, and [`Serial::takes_over`] is to be asked.
    #[inline(always)]
    pub(super) fn leave_leased(&self) -> bool {
        self.inside_of(CLAIMED).store(0, Ordering::Release);
        asymmetric::light();
        // Who marks a leased value takes the lease as well, and does what is marked, or passes it on.
        self.state.load(Ordering::Acquire) & LEASED != 0
    }

    /// Whether the owner, which is not inside any more and has lost its lease, holds the value: it was passed on. What was
    /// passed on to the owner of a later term meanwhile is passed on to it again.
    #[cold]
    #[inline(never)]
    pub(super) fn takes_over(&self) -> bool {
        // Behind the store that shows that it is not inside: a taker that passes the value on after this look
        // sees that store.
        fence(Ordering::SeqCst);
        self.state.load(Ordering::Acquire) & PASSED != 0
            && self.clears_passed()
            && self.holds_or_passes()
    }

    /// Whether it was this thread that cleared PASSED: it holds the value.
    pub(super) fn clears_passed(&self) -> bool {
        self.state.fetch_and(!PASSED, Ordering::AcqRel) & PASSED != 0
    }

    /// Ends a lease, of a thread that found the value leased and marked it, or wants to visit it. Whether the thread
    /// holds the value now; if not, another one does, and sees each mark.
    #[cold]
    #[inline(never)]
    pub(super) fn take_lease(&self) -> bool {
        if self.state.fetch_and(!LEASED, Ordering::AcqRel) & LEASED == 0 {
            return false;
        }
        self.show_taken();
        asymmetric::heavy();
        self.holds_or_passes()
    }

    /// Whether the thread, which has taken the value from an owner, holds it; if not, it was passed on to that owner.
    pub(super) fn holds_or_passes(&self) -> bool {
        while self.is_inside() {
            self.state.fetch_or(PASSED, Ordering::AcqRel);
            fence(Ordering::SeqCst);
            if self.is_inside() || !self.clears_passed() {
                return false;
            }
            // Once more: while this thread looked, the owner may have got another lease, and another thread may have
            // passed the value on once more.
        }
        true
    }

    /// Whether the owner is inside. While the value is not this thread's, the owner may change.
    pub(super) fn is_inside(&self) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        self.inside_of(term_of(owner)).load(Ordering::Acquire) != 0
    }
}

impl<'s, T> SerialVisit<'s, T> {
    /// Whether it is one under a lease.
    #[inline(always)]
    #[must_use]
    pub fn is_leased(&self) -> bool {
        self.is_leased
    }

    /// As [`SerialVisit::end`], and from now on `owner`, which claims the value if it has not, has a lease; where it cannot
    /// claim it, the visit ends.
    ///
    /// # Errors
    /// As [`SerialVisit::end`].
    #[cold]
    #[inline(never)]
    pub fn lease(self, owner: &SerialOwner) -> Result<(), VisitEnd<'s, T>> {
        if self.is_leased {
            return self.end();
        }
        if !self.serial.claim_for(owner) {
            // It asks less often for what it cannot have now.
            owner.leases.set(owner.leases.get().saturating_add(1));
            return self.end();
        }
        self.grant()?;
        owner.leases.set(owner.leases.get().saturating_add(1));
        Ok(())
    }

    /// Ends the visit, which is under no lease, and gives the owner one.
    pub(super) fn grant(self) -> Result<(), VisitEnd<'s, T>> {
        let serial = self.serial;
        mem::forget(self);
        let (held, leased) = (HELD, HELD | LEASED);
        let order = (Ordering::AcqRel, Ordering::Acquire);
        match serial.state.compare_exchange(held, leased, order.0, order.1) {
            Ok(_) => Ok(()),
            Err(_) => Err(VisitEnd { serial, is_leased: false }),
        }
    }
}

#[cfg(all(test, loom))]
impl<T> Serial<T> {
    /// [`Serial::take_lease`] with a planted fault: nothing orders its look behind what it took.
    pub(super) fn take_lease_without_barrier(&self) -> bool {
        self.state.fetch_and(!LEASED, Ordering::AcqRel) & LEASED != 0 && !self.is_inside()
    }

    /// [`Serial::take_lease`] with a planted fault: it passes the value on to an owner that may have left.
    pub(super) fn take_lease_without_last_look(&self) -> bool {
        if self.state.fetch_and(!LEASED, Ordering::AcqRel) & LEASED == 0 {
            return false;
        }
        asymmetric::heavy();
        if self.is_inside() {
            self.state.fetch_or(PASSED, Ordering::AcqRel);
            return false;
        }
        true
    }

    /// [`Serial::try_visit_as`] with a planted fault: no look at the lease behind the announcement.
    pub(super) fn try_visit_without_look(&self) -> OwnerEntry<'_, T> {
        if self.state.load(Ordering::Relaxed) != HELD | LEASED {
            return self.try_visit().map_or(OwnerEntry::Refused, OwnerEntry::Visit);
        }
        self.inside_of(CLAIMED).store(1, Ordering::Relaxed);
        asymmetric::light();
        OwnerEntry::Visit(SerialVisit { serial: self, is_leased: true })
    }

    /// The end of a visit with a planted fault: an owner that lost its lease looks for nothing.
    pub(super) fn leave_without_taking_over(&self, visit: SerialVisit<'_, T>) {
        assert!(visit.is_leased);
        mem::forget(visit);
        let _ = self.leave_leased();
    }
}

/// Stands for no owner.
const NO_OWNER: u64 = u64::MAX;

/// A number that no owner had before, of the term [`CLAIMED`].
#[cfg(not(loom))]
fn next_id() -> u64 {
    use crate::sync::AtomicU64;
    static NEXT: AtomicU64 = AtomicU64::new(TERM_STEP);
    NEXT.fetch_add(TERM_STEP, Ordering::Relaxed)
}

/// In a model there is one owner.
#[cfg(loom)]
fn next_id() -> u64 {
    TERM_STEP
}
