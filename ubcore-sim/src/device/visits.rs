//! The shared part behind its `Serial`, with a count of visits for polls.
//!
//! *Owns*: both. *Takes*: visits of any thread. *Gives*: the same results as the `Serial`; its place to what may be of a
//! dialogue. *Must not*: let a visit that may change something go uncounted ([`urma_mem::lull`]).

use std::sync::Arc;

use urma_mem::lull::WorkSign;
use urma_mem::{OwnerEntry, RunResult, Serial, SerialVisit, VisitEnd, Visited};

use super::place::SharedPlace;
use super::shared::SharedPart;

/// The shared part of a device.
#[derive(Debug)]
pub(super) struct SharedVisits {
    serial: Serial<SharedPlace>,
    sign: Arc<WorkSign>,
}

impl SharedVisits {
    pub(super) fn new(shared: SharedPart, sign: Arc<WorkSign>) -> Self {
        Self { serial: Serial::new(SharedPlace::new(shared)), sign }
    }

    /// As [`Serial::run`], with each round counted.
    #[inline]
    pub(super) fn run(&self, mut f: impl FnMut(&mut SharedPart)) -> RunResult {
        self.serial.run(|place| {
            self.sign.count_visit();
            f(place.part());
        })
    }

    /// As [`Serial::run_if`], by the lease of this thread if it has one; a `look` that changes something counts that itself.
    #[inline]
    pub(super) fn run_if(
        &self,
        look: impl FnOnce(&mut SharedPlace) -> bool,
        mut f: impl FnMut(&mut SharedPart),
    ) -> RunResult {
        let OwnerEntry::Visit(mut visit) = self.enter() else { return self.run(f) };
        let is_wanted = visit.with(look);
        if is_wanted {
            visit.with(|place| {
                self.sign.count_visit();
                f(place.part());
            });
        }
        self.end(visit.end(), f)
    }

    /// As [`Serial::try_run`], by the lease of this thread if it has one, or wants one then, with each round counted.
    #[inline]
    pub(super) fn try_run<A>(
        &self,
        first: impl FnOnce(&mut SharedPlace) -> A,
        rest: impl FnMut(&mut SharedPart),
    ) -> Option<(RunResult, A)> {
        let mut visit = match self.enter() {
            OwnerEntry::Visit(visit) => visit,
            OwnerEntry::Refused => return None,
            OwnerEntry::Taken(entry) => {
                // A mark that is left after that is seen by the run that the caller goes on to.
                return entry.finish().then(|| self.run(rest)).and(None);
            }
        };
        let answer = visit.with(|place| {
            self.sign.count_visit();
            first(place)
        });
        let is_to_lease = !visit.is_leased() && visit.with(SharedPlace::takes_lease);
        let end = if is_to_lease { self.lease(visit) } else { visit.end() };
        Some((self.end(end, rest), answer))
    }

    #[inline(always)]
    fn enter(&self) -> OwnerEntry<'_, SharedPlace> {
        self.serial.try_visit_in_thread()
    }

    /// After the end of a visit: works as long as marks are left.
    #[inline(always)]
    fn end(
        &self,
        end: Result<(), VisitEnd<'_, SharedPlace>>,
        f: impl FnMut(&mut SharedPart),
    ) -> RunResult {
        let is_marked = end.is_err_and(VisitEnd::finish);
        if is_marked { self.run(f) } else { RunResult::Done }
    }

    #[cold]
    fn lease<'v>(
        &'v self,
        visit: SerialVisit<'v, SharedPlace>,
    ) -> Result<(), VisitEnd<'v, SharedPlace>> {
        if self.serial.claim_in_thread() { visit.lease_in_thread() } else { visit.end() }
    }

    /// As [`Serial::try_with`], and counts the visit.
    #[inline]
    pub(super) fn try_with<R>(&self, f: impl FnOnce(&mut SharedPart) -> R) -> Option<Visited<R>> {
        self.serial.try_with(|place| {
            self.sign.count_visit();
            f(place.part())
        })
    }

    /// As [`Serial::with_blocking`], as a visit that is counted.
    pub(super) fn with_blocking<R>(&self, f: impl FnOnce(&mut SharedPart) -> R) -> Visited<R> {
        self.serial.with_blocking(|place| {
            self.sign.count_visit();
            f(place.part())
        })
    }

    /// Whether a thread has a lease of it.
    #[cfg(test)]
    pub(super) fn is_leased(&self) -> bool {
        self.serial.is_leased()
    }
}
