//! `Serial<T>`: a value that one thread at a time works on and that no thread of the data path waits for.
//!
//! One word has the bits *held* and *marked*. `run` marks, then works unless another thread does; `run_if` looks
//! first; `try_with` does not mark; `with_blocking` waits (control plane). No mark is lost, and a thread works for
//! others a bounded number of rounds.
#![expect(unsafe_code, reason = "the held bit, not the borrow checker, makes access exclusive")]

use core::fmt;

use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering, Watched, spin_hint, yield_now};

mod lease;
pub use lease::{OwnerEntry, SerialOwner, TakenEntry};
pub use lease::{ThisThread, ThreadVisit};

const HELD: u32 = 1;
const MARKED: u32 = 2;
/// Beside HELD: the owner may enter ([`lease`]).
const LEASED: u32 = 4;
/// Beside HELD: the owner holds it when it leaves.
const PASSED: u32 = 8;

/// Terms of one value.
const TERMS: usize = if cfg!(loom) { 4 } else { 16 };

/// Numbers of owners are that far apart, at least: below are the term, and [`TAKEN`].
const TERM_STEP: u64 = 32;
const LOW_BITS: u64 = TERM_STEP - 1;

/// In the number of an owner that is a thread: its lease was taken.
const TAKEN: u64 = 16;

/// The term of owners that claimed the value: one of them follows another one only when that has ended.
const CLAIMED: u8 = 0;

/// The term of an owner.
const fn term_of(owner: u64) -> u8 {
    (owner % TAKEN) as u8
}

/// How often one `run` works again because another thread marked meanwhile, before it hands the
/// rest on.
pub const ROUNDS_MAX: u32 = 16;

/// Checks of a held value after which `with_blocking` yields the processor.
const SPINS_BEFORE_YIELD: u32 = 64;

/// What became of the mark that `Serial::run` made.
#[must_use = "work that is left must be handed to the background thread"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunResult {
    /// This thread did the work; no mark was left when it let go.
    Done,
    /// Another thread holds the value; it will see the mark before or when it lets go.
    HandedOver,
    /// This thread worked `ROUNDS_MAX` rounds and a mark is still set: a thread must run again.
    WorkLeft,
}

/// The result of an exclusive visit that was not a `run`.
#[must_use = "a mark made during the visit is the visitor's to pass on"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visited<R> {
    /// What the closure returned.
    pub value: R,
    /// A mark is set (made before or during the visit): the visitor must `run`, or have another
    /// thread do it.
    pub marked: bool,
}

/// A value worked on by one thread at a time, with hand-over instead of waiting.
///
/// A thread that finds the value held leaves a mark and goes on; the holder checks for marks before
/// it lets go. A mark made while no thread holds the value stays until the next `run`.
///
/// Memory of zero bytes is one that is neither held nor marked and has no owner, if such bytes are a `T`.
#[repr(C)]
pub struct Serial<T> {
    state: AtomicU32,
    /// Of each term: its owner is inside by its lease.
    inside: [AtomicU8; TERMS],
    /// The number of its owner, who may get a lease, with the owner's term in the low bits; 0: none.
    owner: AtomicU64,
    value: Watched<T>,
}

// SAFETY: the value is reached only by the thread that set HELD, and HELD is passed on with
// release/acquire, so sharing a Serial moves the T between threads and never shares it.
unsafe impl<T: Send> Sync for Serial<T> {}
// SAFETY: as above; a Serial owns its T.
unsafe impl<T: Send> Send for Serial<T> {}

impl<T> Serial<T> {
    /// A value that is neither held nor marked.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        let (state, inside) = (AtomicU32::new(0), [const { AtomicU8::new(0) }; TERMS]);
        Self { state, inside, owner: AtomicU64::new(0), value: Watched::new(value) }
    }

    /// A value that is neither held nor marked.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        let (state, inside) = (AtomicU32::new(0), [(); TERMS].map(|()| AtomicU8::new(0)));
        Self { state, inside, owner: AtomicU64::new(0), value: Watched::new(value) }
    }

    /// Marks, then works until no mark is left, for at most `ROUNDS_MAX` rounds; if another thread
    /// holds the value, that thread gets the mark instead and this one returns at once.
    ///
    /// `f` is called at least once for every mark, after the mark was made. It must not call `run`
    /// on the same value expecting the work to be done on return (it would be handed over to
    /// itself).
    #[inline]
    pub fn run(&self, mut f: impl FnMut(&mut T)) -> RunResult {
        if !self.enter_marked() {
            return RunResult::HandedOver;
        }
        let release = ReleaseOnDrop(&self.state);
        self.visit(&mut f);
        core::mem::forget(release);
        if self.let_go() { RunResult::Done } else { self.work_on(f) }
    }

    /// As [`Serial::run`] of `first` for the first round and `rest` for those after it, which few runs
    /// have: `first` may be inlined into the caller, and what it returns is changed by `rest`. `None`:
    /// the work was handed over.
    #[inline(always)]
    pub fn run_split<A>(
        &self,
        first: impl FnOnce(&mut T) -> A,
        mut rest: impl FnMut(&mut T, &mut A),
    ) -> (RunResult, Option<A>) {
        if !self.enter_marked() {
            return (RunResult::HandedOver, None);
        }
        let (run, answer) = self.split(first, &mut rest);
        (run, Some(answer))
    }

    /// As [`Serial::run_split`], if no thread holds the value and no mark is set; `None`: nothing happened, and
    /// no mark was left.
    #[inline(always)]
    pub fn try_split<A>(
        &self,
        first: impl FnOnce(&mut T) -> A,
        mut rest: impl FnMut(&mut T, &mut A),
    ) -> Option<(RunResult, A)> {
        let is_free = self.state.compare_exchange(0, HELD, Ordering::AcqRel, Ordering::Relaxed);
        is_free.ok().map(|_| self.split(first, &mut rest))
    }

    /// The rounds of [`Serial::run_split`]; the caller has set HELD.
    #[inline(always)]
    fn split<A>(
        &self,
        first: impl FnOnce(&mut T) -> A,
        rest: &mut impl FnMut(&mut T, &mut A),
    ) -> (RunResult, A) {
        let release = ReleaseOnDrop(&self.state);
        let mut answer = self.visit(first);
        core::mem::forget(release);
        if self.let_go() {
            return (RunResult::Done, answer);
        }
        let run = self.work_on(|value| rest(value, &mut answer));
        (run, answer)
    }

    /// Enters the value if no thread holds it and no mark is set; `None`: nothing happened. A mark that is made meanwhile
    /// stays: see [`Visited::marked`].
    #[inline(always)]
    pub fn try_visit(&self) -> Option<SerialVisit<'_, T>> {
        let is_free = self.state.compare_exchange(0, HELD, Ordering::AcqRel, Ordering::Relaxed);
        is_free.ok().map(|_| SerialVisit { serial: self, is_leased: false })
    }

    /// Clears HELD after [`Serial::let_go`] found a mark; returns whether it is still set.
    #[cold]
    #[inline(never)]
    fn let_go_marked(&self) -> bool {
        ReleaseOnDrop(&self.state).finish()
    }

    /// Sets HELD, or a mark for the thread that has set it. Returns whether it set HELD; what was marked
    /// before is the caller's to do.
    #[inline]
    fn enter_marked(&self) -> bool {
        let is_free = self.state.compare_exchange(0, HELD, Ordering::AcqRel, Ordering::Relaxed);
        is_free.is_ok() || self.mark_or_enter()
    }

    /// Another thread holds the value or left a mark: marks and tries to become the holder in one step.
    #[cold]
    #[inline(never)]
    fn mark_or_enter(&self) -> bool {
        let before = self.state.fetch_or(HELD | MARKED, Ordering::AcqRel);
        if before & HELD != 0 && !self.takes_lease(before) {
            return false;
        }
        self.state.fetch_and(!MARKED, Ordering::AcqRel);
        true
    }

    /// Whether this thread, which found `state`, has taken a lease by which the value was held.
    #[inline]
    fn takes_lease(&self, state: u32) -> bool {
        state & LEASED != 0 && self.take_lease()
    }

    /// As [`Serial::run`], but a value that is neither held nor marked is worked on only if `look` asks
    /// for it: look and work are one visit.
    #[inline]
    pub fn run_if(
        &self,
        look: impl FnOnce(&mut T) -> bool,
        mut f: impl FnMut(&mut T),
    ) -> RunResult {
        if self.state.compare_exchange(0, HELD, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return self.run(f);
        }
        let release = ReleaseOnDrop(&self.state);
        let is_wanted = self.visit(look);
        let is_done = !is_wanted && self.let_go();
        core::mem::forget(release);
        if is_done {
            return RunResult::Done;
        }
        if !is_wanted {
            return self.work_on(f);
        }
        let release = ReleaseOnDrop(&self.state);
        self.visit(&mut f);
        core::mem::forget(release);
        if self.let_go() { RunResult::Done } else { self.work_on(f) }
    }

    /// Works if the value is neither held nor marked: `first`, then `rest` as long as marks are left. `None`:
    /// nothing was done, and no mark was left.
    #[inline]
    pub fn try_run<A>(
        &self,
        first: impl FnOnce(&mut T) -> A,
        rest: impl FnMut(&mut T),
    ) -> Option<(RunResult, A)> {
        self.state.compare_exchange(0, HELD, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        let release = ReleaseOnDrop(&self.state);
        let answer = self.visit(first);
        core::mem::forget(release);
        let run = if self.let_go() { RunResult::Done } else { self.work_on(rest) };
        Some((run, answer))
    }

    /// The rounds after the first one, which left a mark; the caller has set HELD.
    #[cold]
    #[inline(never)]
    fn work_on(&self, mut f: impl FnMut(&mut T)) -> RunResult {
        let release = ReleaseOnDrop(&self.state);
        for _ in 2..ROUNDS_MAX {
            self.state.fetch_and(!MARKED, Ordering::AcqRel);
            self.visit(&mut f);
            if self.let_go() {
                core::mem::forget(release);
                return RunResult::Done;
            }
        }
        self.state.fetch_and(!MARKED, Ordering::AcqRel);
        self.visit(&mut f);
        if release.finish() { RunResult::WorkLeft } else { RunResult::Done }
    }

    /// Leaves a mark without working. Returns whether a thread holds the value and will see it.
    #[inline]
    pub fn mark(&self) -> bool {
        let before = self.state.fetch_or(MARKED, Ordering::AcqRel);
        if self.takes_lease(before) {
            drop(ReleaseOnDrop(&self.state));
            return false;
        }
        before & HELD != 0
    }

    /// Whether its owner may enter by a lease at this moment.
    #[must_use]
    pub fn is_leased(&self) -> bool {
        self.state.load(Ordering::Acquire) & LEASED != 0
    }

    /// Whether a mark is set at this moment (a hint: it may be gone or new on return).
    #[inline]
    pub fn is_marked(&self) -> bool {
        self.state.load(Ordering::Acquire) & MARKED != 0
    }

    /// Visits the value if no thread holds it. Marks are neither consumed nor lost: see
    /// [`Visited::marked`].
    #[inline]
    pub fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<Visited<R>> {
        let before = self.state.fetch_or(HELD, Ordering::AcqRel);
        if before & HELD != 0 && !self.takes_lease(before) {
            return None;
        }
        let release = ReleaseOnDrop(&self.state);
        let value = self.visit(f);
        Some(Visited { value, marked: release.finish() })
    }

    /// Visits the value, waiting for the present holder. Control plane only: the wait is bounded by
    /// the holder's rounds, not by a number of its own.
    pub fn with_blocking<R>(&self, f: impl FnOnce(&mut T) -> R) -> Visited<R> {
        self.hold_blocking();
        let release = ReleaseOnDrop(&self.state);
        let value = self.visit(f);
        Visited { value, marked: release.finish() }
    }

    /// Enters the value, waiting as [`Serial::with_blocking`] does. A lease is taken, also that of this thread.
    #[inline]
    pub fn visit_blocking(&self) -> SerialVisit<'_, T> {
        if let Some(visit) = self.try_visit() {
            return visit;
        }
        self.hold_blocking();
        SerialVisit { serial: self, is_leased: false }
    }

    /// Sets HELD, once no other thread has it.
    #[cold]
    #[inline(never)]
    fn hold_blocking(&self) {
        let mut looks = 0;
        loop {
            let before = self.state.fetch_or(HELD, Ordering::AcqRel);
            if before & HELD == 0 || self.takes_lease(before) {
                return;
            }
            looks += 1;
            if looks % SPINS_BEFORE_YIELD == 0 { yield_now() } else { spin_hint() }
        }
    }

    /// The value, when no other thread can see it any more.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// One exclusive visit; the caller has set HELD and has not yet cleared it.
    #[inline]
    fn visit<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.value.with_mut(|value| {
            // SAFETY: only the thread that changed HELD from 0 to 1 gets here (run, run_if, try_with and
            // with_blocking keep that), so no other reference to the value exists until HELD is
            // cleared.
            let value = unsafe { &mut *value };
            f(value)
        })
    }

    /// Clears HELD unless a mark is set; returns whether it did.
    #[inline]
    fn let_go(&self) -> bool {
        self.state.compare_exchange(HELD, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// An exclusive visit of a [`Serial`], which this value ends: other code may go on with it, by a jump. Dropping it
/// leaves a mark that was made meanwhile to others.
///
/// What is rare is left to the caller, as a value to go on with, so that no call is in the way of the usual visit.
#[must_use = "a mark made during the visit is the visitor's to pass on"]
#[derive(Debug)]
pub struct SerialVisit<'s, T> {
    serial: &'s Serial<T>,
    is_leased: bool,
}

impl<'s, T> SerialVisit<'s, T> {
    /// Works on the value.
    #[inline(always)]
    pub fn with<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        self.serial.visit(f)
    }

    /// Ends the visit, but for what is rare.
    ///
    /// # Errors
    /// The end, which is to be finished: a mark is set, or the lease was taken.
    #[inline(always)]
    pub fn end(self) -> Result<(), VisitEnd<'s, T>> {
        let Self { serial, is_leased } = self;
        core::mem::forget(self);
        let is_over = if is_leased { serial.leave_leased() } else { serial.let_go() };
        if is_over { Ok(()) } else { Err(VisitEnd { serial, is_leased }) }
    }

    /// Ends the visit. Returns whether a mark is set: see [`Visited::marked`].
    #[inline]
    pub fn leave(self) -> bool {
        self.end().is_err_and(VisitEnd::finish)
    }
}

impl<T> Drop for SerialVisit<'_, T> {
    fn drop(&mut self) {
        let Self { serial, is_leased } = *self;
        if is_leased && serial.leave_leased() {
            return;
        }
        let _ = VisitEnd { serial, is_leased }.finish();
    }
}

/// The end of a visit that is not over.
#[must_use = "the value is held until it is finished"]
#[derive(Debug)]
pub struct VisitEnd<'s, T> {
    serial: &'s Serial<T>,
    is_leased: bool,
}

impl<T> VisitEnd<'_, T> {
    /// Finishes it. Returns whether a mark is set: see [`Visited::marked`].
    #[cold]
    #[inline(never)]
    pub fn finish(self) -> bool {
        let Self { serial, is_leased } = self;
        if is_leased && !serial.takes_over() {
            return false;
        }
        serial.let_go_marked()
    }
}

#[cfg(all(test, loom))]
impl<T> Serial<T> {
    /// `run` with a planted fault: the holder lets go without looking for a mark.
    pub(crate) fn run_without_last_look(&self, mut f: impl FnMut(&mut T)) -> RunResult {
        if self.state.fetch_or(HELD | MARKED, Ordering::AcqRel) & HELD != 0 {
            return RunResult::HandedOver;
        }
        self.state.fetch_and(!MARKED, Ordering::AcqRel);
        self.visit(&mut f);
        self.state.store(0, Ordering::Release);
        RunResult::Done
    }
}

impl<T> fmt::Debug for Serial<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.load(Ordering::Relaxed);
        f.debug_struct("Serial")
            .field("held", &(state & HELD != 0))
            .field("marked", &(state & MARKED != 0))
            .finish_non_exhaustive()
    }
}

/// Clears HELD also when a visit panics, so that one bad visit does not end the others' progress.
struct ReleaseOnDrop<'a>(&'a AtomicU32);

impl ReleaseOnDrop<'_> {
    /// Clears HELD and returns whether a mark is set.
    #[inline]
    fn finish(self) -> bool {
        let before = self.0.fetch_and(!HELD, Ordering::AcqRel);
        core::mem::forget(self);
        before & MARKED != 0
    }
}

impl Drop for ReleaseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_and(!HELD, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
