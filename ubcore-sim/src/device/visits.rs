//! The shared part behind its `Serial`, with a count of visits for polls.
//!
//! *Owns*: both. *Takes*: visits of any thread. *Gives*: the same results as the `Serial`; its place to what may be of a
//! dialogue. *Must not*: let a visit that may change something go uncounted ([`urma_mem::lull`]).

use std::sync::Arc;

use urma_mem::lull::WorkSign;
use urma_mem::{RunResult, Serial, Visited};

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

    /// As [`Serial::run_if`]; a `look` that changes something counts that itself.
    #[inline]
    pub(super) fn run_if(
        &self,
        look: impl FnOnce(&mut SharedPlace) -> bool,
        mut f: impl FnMut(&mut SharedPart),
    ) -> RunResult {
        self.serial.run_if(look, |place| {
            self.sign.count_visit();
            f(place.part());
        })
    }

    /// As [`Serial::try_run`], with each round counted.
    #[inline]
    pub(super) fn try_run<A>(
        &self,
        first: impl FnOnce(&mut SharedPlace) -> A,
        mut rest: impl FnMut(&mut SharedPart),
    ) -> Option<(RunResult, A)> {
        let first = |place: &mut SharedPlace| {
            self.sign.count_visit();
            first(place)
        };
        self.serial.try_run(first, |place| {
            self.sign.count_visit();
            rest(place.part());
        })
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
}
