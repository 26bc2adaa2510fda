//! Leases: a thread enters a value by plain loads and stores until another thread wants it.
//!
//! The owner announces itself and then reads the lease once more before it enters. No thread waits for an owner that
//! is inside, two owners never share an announcement, and memory of a thread is not read.

use core::{cell::Cell, marker::PhantomData, mem};

use super::{
    CLAIMED, HELD, LEASED, LOW_BITS, PASSED, Serial, SerialVisit, TAKEN, TERM_STEP, TERMS,
    VisitEnd, term_of,
};
use crate::{
    asymmetric,
    sync::{AtomicU8, Ordering, fence},
};

/// The owner that may get a lease of a [`Serial`]; used by one thread at a time.
///
/// A leased value is held all the time, so that other threads leave marks. The first of them takes the lease
/// (`Serial::take_lease`): it clears LEASED, and holds the value once a barrier has shown that the owner is not
/// inside. If it is, HELD is passed on: the owner has it when it leaves, with all marks. An owner that leaves at that
/// very time and the taker both find the value passed on and not entered: who clears PASSED has it.
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

/// The calling thread, as one that may have leases.
///
/// Any thread may follow another one as the owner of a value, at any moment. A thread that stops between its look at
/// the owner and its announcement may go on when another thread is the owner. So each owner has a term, with an
/// announcement of its own, and looks at the owner again behind it: what a late thread stores is nothing to the owner
/// of a later term. A value has `TERMS` terms, the first for claims; the owner of the last one stays the owner.
///
/// The number of the owner says whether it has a lease, so that it looks at one word. The thread that took the lease,
/// by clearing LEASED as ever, changes that word before its barrier.
#[derive(Debug, Clone, Copy)]
pub struct ThisThread {
    /// No other thread of the process has it while this one lives.
    number: u64,
    /// It is of this thread alone.
    _here: PhantomData<*mut ()>,
}

impl ThisThread {
    /// The thread that calls.
    #[cfg(not(loom))]
    #[inline(always)]
    #[must_use]
    pub fn now() -> Self {
        Self::of_number(pointer())
    }

    /// Its number, which is not 0.
    #[inline(always)]
    #[must_use]
    pub const fn number(self) -> u64 {
        self.number
    }

    #[cfg(any(not(loom), test))]
    #[inline(always)]
    pub(super) const fn of_number(number: u64) -> Self {
        Self { number, _here: PhantomData }
    }
}

impl<T> Serial<T> {
    /// Visits the value by the lease of this thread, if nobody else does; refused: it has no lease.
    #[inline(always)]
    pub fn try_leased(&self, thread: ThisThread) -> OwnerEntry<'_, T, ThreadVisit<'_, T>> {
        let owner = self.owner.load(Ordering::Relaxed);
        let Some(term) = leased_term(owner, thread) else { return OwnerEntry::Refused };
        let inside = self.inside_of(term);
        // A visit may have ended in another thread: what that did is seen.
        if inside.load(Ordering::Acquire) != 0 {
            return OwnerEntry::Refused;
        }
        inside.store(1, Ordering::Relaxed);
        asymmetric::light();
        if self.owner.load(Ordering::Acquire) != owner {
            return OwnerEntry::Taken(TakenEntry { serial: self, term });
        }
        OwnerEntry::Visit(ThreadVisit { serial: self, term })
    }

    /// Ends a visit by the lease of a thread; `false`: the lease was taken meanwhile, and [`Serial::takes_over`] is to be asked.
    #[inline(always)]
    fn leave_term(&self, term: u8) -> bool {
        self.inside_of(term).store(0, Ordering::Release);
        asymmetric::light();
        self.owner.load(Ordering::Acquire) & TAKEN == 0
    }

    /// Makes the thread, which holds the value without a lease, the owner; `false`: it cannot be.
    fn owns(&self, thread: ThisThread) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        let (last, is_last) = (term_of(owner), owner & !LOW_BITS == thread.number);
        let term = if is_last { last } else { last + 1 };
        let is_claimed = owner != 0 && last == CLAIMED;
        let is_over = usize::from(term) == TERMS || thread.number & LOW_BITS != 0;
        if is_claimed || is_over || !asymmetric::is_available() {
            return false;
        }
        self.owner.store(thread.number | u64::from(term), Ordering::Relaxed);
        true
    }

    /// Shows the owner that its lease is taken, if it is a thread: by the thread that took it, before its barrier.
    pub(super) fn show_taken(&self) {
        let owner = self.owner.load(Ordering::Relaxed);
        if term_of(owner) != CLAIMED {
            self.owner.store(owner | TAKEN, Ordering::Release);
        }
    }
}

/// The term in which `owner` is this thread, which has a lease.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "below 16")]
const fn leased_term(owner: u64, thread: ThisThread) -> Option<u8> {
    let term = owner.wrapping_sub(thread.number);
    if term < TAKEN { Some(term as u8) } else { None }
}

impl<'s, T> SerialVisit<'s, T> {
    /// Ends the visit, but for what is rare; from now on this thread has a lease, if it can.
    ///
    /// # Errors
    /// The end, which is to be finished: a mark is set, or the lease was taken.
    #[cold]
    #[inline(never)]
    pub fn lease_to(self, thread: ThisThread) -> Result<(), VisitEnd<'s, T>> {
        let serial = self.serial;
        if self.is_leased() || !serial.owns(thread) {
            return self.end();
        }
        // Before the value is let go: otherwise the owner of a later term could be shown it.
        self.grant().inspect_err(|_| serial.show_taken())
    }
}

/// An exclusive visit of a [`Serial`] by the lease of a thread, which this value ends.
#[must_use = "a mark made during the visit is the visitor's to pass on"]
#[derive(Debug)]
pub struct ThreadVisit<'s, T> {
    serial: &'s Serial<T>,
    term: u8,
}

impl<'s, T> ThreadVisit<'s, T> {
    /// Works on the value.
    #[inline(always)]
    pub fn with<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        self.serial.visit(f)
    }

    /// Ends the visit, but for what is rare.
    ///
    /// # Errors
    /// The end, which is to be finished: the lease was taken.
    #[inline(always)]
    pub fn end(self) -> Result<(), VisitEnd<'s, T>> {
        let Self { serial, term } = self;
        mem::forget(self);
        if serial.leave_term(term) { Ok(()) } else { Err(VisitEnd { serial, is_leased: true }) }
    }
}

impl<T> Drop for ThreadVisit<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        let Self { serial, term } = *self;
        if !serial.leave_term(term) {
            let _ = VisitEnd { serial, is_leased: true }.finish();
        }
    }
}

/// The address of what the system keeps of this thread, which is aligned for all types and stays until the thread ends.
#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
#[inline(always)]
fn pointer() -> u64 {
    let pointer;
    // SAFETY: the ABI of thread-local storage has the thread pointer at this address; the read changes nothing.
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(pure, readonly, nostack, preserves_flags));
    }
    pointer
}

/// The thread pointer, as on x86-64.
#[cfg(all(target_arch = "aarch64", not(any(loom, miri))))]
#[inline(always)]
fn pointer() -> u64 {
    let pointer;
    // SAFETY: reads a register that holds the thread pointer, and nothing else.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(pure, nomem, nostack, preserves_flags));
    }
    pointer
}

/// The address of a value of this thread.
#[cfg(all(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))), not(loom)))]
fn pointer() -> u64 {
    #[repr(align(16))]
    struct Aligned(#[expect(dead_code, reason = "its address counts")] u8);
    thread_local!(static HERE: Aligned = const { Aligned(0) });
    HERE.with(|here| core::ptr::from_ref(here).addr() as u64)
}

#[cfg(test)]
mod tests;
