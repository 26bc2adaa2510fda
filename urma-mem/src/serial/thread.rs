//! Leases of threads: any thread may follow another one as the owner of a value, at any moment.
//!
//! Owns: whose term it is. Takes: the number of the calling thread. Gives: what [`Serial::try_visit`] gives. Must not: let
//! two owners share an announcement; read memory of a thread.
//!
//! A thread that stops between its look at the owner and its announcement may go on when another thread is the owner. So
//! each owner has a term, with an announcement of its own, and looks at the owner again behind it: what a late thread
//! stores is nothing to the owner of a later term. A value has [`TERMS`] terms, the first for claims; the owner of the last
//! one stays the owner.
//!
//! The number of the owner says whether it has a lease, so that it looks at one word. The thread that took the lease, by
//! clearing LEASED as ever, changes that word before its barrier.

use core::marker::PhantomData;

use super::{
    CLAIMED, LOW_BITS, OwnerEntry, Serial, SerialVisit, TAKEN, TERMS, TakenEntry, VisitEnd, term_of,
};
use crate::{asymmetric, sync::Ordering};

/// The calling thread, as one that may have leases.
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
    /// As [`Serial::try_visit`], by the lease of this thread; refused: it has none.
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
    /// As [`SerialVisit::end`], and from now on this thread has a lease, if it can.
    ///
    /// # Errors
    /// As [`SerialVisit::end`].
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
        core::mem::forget(self);
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
