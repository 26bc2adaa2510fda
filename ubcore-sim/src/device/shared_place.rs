//! The shared part behind its `Serial`, together with ping-pong mode, which may have taken a peer out of it.
//!
//! *Owns*: the part, ping-pong mode, the count of visits for idle polls. *Takes*: visits of any thread. *Gives*:
//! messages of ping-pong mode; the part, after leaving that mode. *Must not*: give the part out while ping-pong mode is
//! on; leave a visit uncounted that may change something ([`urma_mem::idle`]).

use std::sync::Arc;

use udma_abi::{Nanos, PollOfOne, sqe::BLOCK_WORDS};
use urma_mem::idle::{IdleSnapshot, WorkSign};
use urma_mem::{OwnerEntry, RunResult, Serial, ThisThread, VisitEnd, Visited};

use super::shared::SharedPart;
use crate::engine::core::DeviceCore;
use crate::engine::queue::DeviceSendQueue;
use crate::engine::send::StepOutcome;
use crate::exchange::{AnswerEntry, PingPongMode};

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

/// The shared part and ping-pong mode, as a visit finds them.
#[derive(Debug)]
pub(super) struct SharedPlace {
    part: SharedPart,
    ping_pong: Option<Box<PingPongMode>>,
    /// Number of leases given to threads.
    leases: u32,
}

impl SharedPlace {
    pub(super) fn new(part: SharedPart) -> Self {
        Self { part, ping_pong: None, leases: 0 }
    }

    /// Returns the shared part, for anything that is not a message of ping-pong mode; leaves that mode.
    #[inline(always)]
    pub(super) fn part(&mut self) -> &mut SharedPart {
        if self.ping_pong.is_some() {
            self.end_ping_pong();
        }
        &mut self.part
    }

    #[cold]
    #[inline(never)]
    fn end_ping_pong(&mut self) {
        if let Some(ping_pong) = self.ping_pong.take() {
            self.part.exchange.end_ping_pong(*ping_pong);
        }
    }

    /// Enters ping-pong mode with the queue's direct entry `block`, if messages have answered each other for long
    /// enough. Returns whether the mode is on.
    #[inline(always)]
    pub(super) fn begin_ping_pong(
        &mut self,
        core: &DeviceCore,
        queue: &Arc<DeviceSendQueue>,
        block: &[u64; BLOCK_WORDS],
    ) -> bool {
        if !self.part.exchange.may_converse() {
            return false;
        }
        self.ping_pong = self.part.exchange.begin_ping_pong(core, queue, block);
        self.ping_pong.is_some()
    }

    /// Sends the message of a direct entry, if its queue is in ping-pong mode. Returns what is left.
    #[inline(always)]
    pub(super) fn send_piggybacked(
        &mut self,
        core: &DeviceCore,
        now: impl FnOnce() -> Nanos,
        (queue, block): (&Arc<DeviceSendQueue>, &[u64; BLOCK_WORDS]),
    ) -> Option<StepOutcome> {
        let Self { part, ping_pong, .. } = self;
        let ping_pong = ping_pong.as_mut().filter(|ping_pong| ping_pong.queue() == queue.id)?;
        let time = &mut part.time;
        part.exchange.send_piggybacked(core, ping_pong, || time.at(now()), block)
    }

    /// Whether the timer of ping-pong mode's open message is due before the current deadline.
    pub(super) fn is_before_due(&self) -> bool {
        let timer = self.ping_pong.as_ref().map_or(Nanos::MAX, |ping_pong| ping_pong.timer());
        self.part.time.is_before_due(timer)
    }

    /// Takes the message that a poll found, if there is nothing else to do. Its completion may be given to `poll`
    /// directly. Returns whether it did.
    #[inline(always)]
    pub(super) fn take_alone(
        &mut self,
        core: &DeviceCore,
        now: Nanos,
        poll: &mut PollOfOne,
    ) -> bool {
        let at = self.part.time.at(now);
        let Self { part, ping_pong, .. } = self;
        if let Some(ping_pong) = ping_pong {
            match part.exchange.take_answer(core, ping_pong, (at, poll)) {
                AnswerEntry::Answer => return true,
                AnswerEntry::AnswerToOther => return self.take_acknowledgement(core, at),
                AnswerEntry::Other => {}
            }
        }
        self.part().take_alone(core, at)
    }

    /// Completes by mail a request that an answer acknowledged while another thread was stepping its queue.
    #[cold]
    #[inline(never)]
    fn take_acknowledgement(&mut self, core: &DeviceCore, at: Nanos) -> bool {
        let answered = self.ping_pong.as_ref().map(|ping_pong| ping_pong.answered());
        let part = self.part();
        if let Some(answered) = answered {
            part.exchange.end_answered(core, at, &answered);
        }
        !part.wake(core)
    }

    /// Whether a step would find nothing, except what is rung, listed or due by time.
    #[inline(always)]
    pub(super) fn is_quiet(&mut self) -> bool {
        match &self.ping_pong {
            Some(ping_pong) => self.part.exchange.is_quiet_in(ping_pong),
            None => self.part.is_quiet(),
        }
    }

    /// Whether the calling thread should lease the shared part: ping-pong mode has lasted long, relative to the
    /// number of leases given before. Counts the lease.
    #[inline(always)]
    pub(super) fn takes_lease(&mut self) -> bool {
        let ping_pong = self.ping_pong.as_ref();
        let is_to_lease = ping_pong.is_some_and(|ping_pong| ping_pong.wants_lease(self.leases));
        self.leases = self.leases.saturating_add(u32::from(is_to_lease));
        is_to_lease
    }

    /// Adds to a poll's idle snapshot the words that show when there is something to do. Returns whether words can
    /// show it.
    pub(super) fn note_idle(&self, sign: &WorkSign, idle: &mut IdleSnapshot) -> bool {
        self.part.note_idle(sign, idle)
    }
}
