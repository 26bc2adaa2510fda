//! The shared part behind its `Serial`, with a count of visits for idle polls.
//!
//! *Owns*: both. *Takes*: visits of any thread. *Gives*: the results of the `Serial`; the [`SharedPlace`] to what
//! ping-pong mode may handle. *Must not*: leave a visit uncounted that may change something ([`urma_mem::idle`]).

use std::sync::Arc;

use urma_mem::idle::WorkSign;
use urma_mem::{OwnerEntry, RunResult, Serial, ThisThread, VisitEnd, Visited};

use super::shared::SharedPart;
use super::shared_place::SharedPlace;

/// The shared part of a device, and its count of visits.
#[derive(Debug)]
pub(super) struct SharedVisits {
    serial: Serial<SharedPlace>,
    sign: Arc<WorkSign>,
}

impl SharedVisits {
    pub(super) fn new(shared: SharedPart, sign: Arc<WorkSign>) -> Self {
        Self { serial: Serial::new(SharedPlace::new(shared)), sign }
    }

    /// Runs `f` by [`Serial::run`], and counts each round as a visit.
    #[inline]
    pub(super) fn run(&self, mut f: impl FnMut(&mut SharedPart)) -> RunResult {
        self.serial.run(|place| {
            self.sign.count_visit();
            f(place.part());
        })
    }

    /// Calls `look`, and `f` only if that returns true; enters by this thread's lease if it has one, else by
    /// [`Serial::run_if`]. Rounds of `f` are counted as visits; a `look` that changes something must count itself.
    #[inline]
    pub(super) fn run_if(
        &self,
        look: impl FnOnce(&mut SharedPlace) -> bool,
        mut f: impl FnMut(&mut SharedPart),
    ) -> RunResult {
        let mut visit = match self.serial.try_leased(ThisThread::now()) {
            OwnerEntry::Visit(visit) => visit,
            OwnerEntry::Taken(entry) => {
                // The run that follows takes care of marks.
                let _ = entry.finish();
                return self.run(f);
            }
            OwnerEntry::Refused => {
                return self.serial.run_if(look, |place| {
                    self.sign.count_visit();
                    f(place.part());
                });
            }
        };
        if visit.with(look) {
            visit.with(|place| {
                self.sign.count_visit();
                f(place.part());
            });
        }
        self.end(visit.end(), f)
    }

    /// Calls `first` if no other thread holds the shared part, then `rest` for marks of others; by this thread's
    /// lease if it has one, else by [`Serial::try_run`]. Counted as visits. `None`: another thread holds it.
    #[inline]
    pub(super) fn try_run<A>(
        &self,
        first: impl FnOnce(&mut SharedPlace) -> A,
        rest: impl FnMut(&mut SharedPart),
    ) -> Option<(RunResult, A)> {
        match self.serial.try_leased(ThisThread::now()) {
            OwnerEntry::Visit(mut visit) => {
                let answer = visit.with(|place| {
                    self.sign.count_visit();
                    first(place)
                });
                Some((self.end(visit.end(), rest), answer))
            }
            OwnerEntry::Refused => self.try_run_unleased(first, rest),
            OwnerEntry::Taken(entry) => {
                // A mark that remains after that is seen by the run that the caller makes.
                entry.finish().then(|| self.run(rest)).and(None)
            }
        }
    }

    /// The part of [`SharedVisits::try_run`] for a thread without a lease, which may get one.
    #[inline(never)]
    fn try_run_unleased<A>(
        &self,
        first: impl FnOnce(&mut SharedPlace) -> A,
        rest: impl FnMut(&mut SharedPart),
    ) -> Option<(RunResult, A)> {
        let mut visit = self.serial.try_visit()?;
        let (answer, takes_lease) = visit.with(|place| {
            self.sign.count_visit();
            (first(place), place.takes_lease())
        });
        let end = if takes_lease { visit.lease_to(ThisThread::now()) } else { visit.end() };
        Some((self.end(end, rest), answer))
    }

    /// After the end of a visit: runs `f` as long as there are marks.
    #[inline(always)]
    fn end(
        &self,
        end: Result<(), VisitEnd<'_, SharedPlace>>,
        f: impl FnMut(&mut SharedPart),
    ) -> RunResult {
        let is_marked = end.is_err_and(VisitEnd::finish);
        if is_marked { self.run(f) } else { RunResult::Done }
    }

    /// Calls `f` by [`Serial::try_with`], and counts the visit.
    #[inline]
    pub(super) fn try_with<R>(&self, f: impl FnOnce(&mut SharedPart) -> R) -> Option<Visited<R>> {
        self.serial.try_with(|place| {
            self.sign.count_visit();
            f(place.part())
        })
    }

    /// Calls `f` by [`Serial::with_blocking`], and counts the visit.
    pub(super) fn with_blocking<R>(&self, f: impl FnOnce(&mut SharedPart) -> R) -> Visited<R> {
        self.serial.with_blocking(|place| {
            self.sign.count_visit();
            f(place.part())
        })
    }

    /// Whether a thread has the shared part leased.
    #[cfg(test)]
    pub(super) fn is_leased(&self) -> bool {
        self.serial.is_leased()
    }
}
