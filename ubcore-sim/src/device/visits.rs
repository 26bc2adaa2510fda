//! The shared part behind its `Serial`, with a count of visits for polls.
//!
//! *Owns*: both. *Takes*: visits of any thread. *Gives*: the same results as the `Serial`; its place to what may be of a
//! ping-pong. *Must not*: let a visit that may change something go uncounted ([`urma_mem::idle`]).

use std::sync::Arc;

use urma_mem::idle::WorkSign;
use urma_mem::{OwnerEntry, RunResult, Serial, ThisThread, VisitEnd, Visited};

use super::shared::SharedPart;
use super::shared_place::SharedPlace;

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
        let mut visit = match self.serial.try_leased(ThisThread::now()) {
            OwnerEntry::Visit(visit) => visit,
            OwnerEntry::Taken(entry) => {
                // Marks are for the run that follows.
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

    /// As [`Serial::try_run`], by the lease of this thread if it has one, with each round counted.
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
                // A mark that is left after that is seen by the run that the caller goes on to.
                entry.finish().then(|| self.run(rest)).and(None)
            }
        }
    }

    /// As [`SharedVisits::try_run`], of a thread that has no lease, and may get one.
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
