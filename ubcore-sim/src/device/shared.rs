//! The part of the device that one thread at a time works on, commands and the exchange, behind its `Serial`.
//!
//! *Owns*: both, and the order in which they are stepped; ping-pong mode, which may have taken a peer out of the
//! exchange; the count of visits for idle polls. *Takes*: visits of any thread, time. *Gives*: completions to the send
//! queues. *Must not*: make a poster wait; give the part out while ping-pong mode is on; leave a visit uncounted that may
//! change something ([`urma_mem::idle`]).

use std::sync::Arc;

use udma_abi::{Nanos, PollOfOne, sqe::BLOCK_WORDS};
use urma_mem::idle::{IdleSnapshot, WorkSign};
use urma_mem::{OwnerEntry, RunResult, Serial, ThisThread, VisitEnd, Visited};

use super::running::RunningTime;
use crate::cfg::{DeviceCfg, RcWire};
use crate::command::Commands;
use crate::context::function::DeviceFunction;
use crate::endpoint::Reception;
use crate::engine::core::DeviceCore;
use crate::engine::queue::DeviceSendQueue;
use crate::engine::send::StepOutcome;
use crate::exchange::{AnswerEntry, Exchange, PingPongMode, PlainStep};
use crate::ports::{ArrivedDatagram, Deadline, PacketFormat};

/// Rounds of the exchange in one step; the next step does what is left.
const ROUNDS: usize = 4;

/// Commands, exchange and their clock.
#[derive(Debug)]
pub(super) struct SharedPart {
    pub(super) exchange: Exchange,
    pub(super) commands: Commands,
    /// Clock of all timers below.
    pub(super) time: RunningTime,
    /// The last step did something, so that the next one may find more.
    was_busy: bool,
    /// So did the part of it that plain steps leave out.
    was_full: bool,
}

impl SharedPart {
    pub(super) fn new(cfg: &DeviceCfg, first: Arc<DeviceFunction>) -> Self {
        Self {
            exchange: Exchange::new(cfg),
            commands: Commands::new(first),
            time: RunningTime::default(),
            was_busy: false,
            was_full: false,
        }
    }

    /// Does one bounded step; returns whether there is more to do.
    pub(super) fn step(&mut self, core: &DeviceCore, now: Nanos) -> bool {
        let mut busy = self.commands.execute_posted(&mut self.exchange, core, now);
        while let Some((id, state)) = core.tables.next_stopped() {
            self.exchange.set_recv_state(core, id, state);
            busy = true;
        }
        let is_waiting = self.commands.is_waiting();
        if is_waiting {
            self.commands.step_moderated(&core.tables, now);
        }
        let has_exchanged = self.step_exchange(core, now);
        if is_waiting {
            busy |= self.commands.step_waiting(&mut self.exchange, core, now);
        }
        self.wake(core);
        self.was_full = busy;
        self.was_busy = busy | has_exchanged;
        self.was_busy
    }

    /// Whether a step would find nothing, except what is rung, listed or due by time.
    pub(super) fn is_quiet(&mut self) -> bool {
        !self.was_busy && !self.commands.is_waiting() && self.exchange.is_quiet()
    }

    /// Adds to a poll's idle snapshot the words that change when this part, which has nothing to do, gets something
    /// to do. Returns whether words can show it.
    pub(super) fn note_idle(&self, sign: &WorkSign, idle: &mut IdleSnapshot) -> bool {
        self.exchange.note_idle(sign, idle)
    }

    /// Whether a post or poll has to step only mail and pieces: nothing waits for a time or a turn.
    pub(super) fn is_plain(&self, core: &DeviceCore) -> bool {
        !self.was_full
            && !self.commands.is_waiting()
            && !core.tables.has_stopped()
            && self.exchange.is_plain()
    }

    /// Does one step of mail and pieces, in a part that has nothing else to do. Returns whether a request's timer is
    /// due before the deadline that was set.
    pub(super) fn step_plain(&mut self, core: &DeviceCore, now: Nanos, by: PlainStep) -> bool {
        let mut timer = Nanos::MAX;
        self.exchange.on_return(now);
        for _ in 0..ROUNDS {
            let round = self.exchange.plain_round(core, now, by);
            timer = timer.min(round.timer);
            self.was_full |= round.has_cut_off;
            if !self.wake(core) || !core.has_listed() {
                break;
            }
        }
        self.was_busy = self.was_full;
        self.time.is_before_due(timer)
    }

    /// Steps only mail and pieces, in a part that may have more to do.
    pub(super) fn step_prompt(&mut self, core: &DeviceCore, now: Nanos) {
        for _ in 0..ROUNDS {
            let is_busy = self.exchange.prompt_round(core, now);
            let has_more = core.has_listed() || self.exchange.endpoint.has_pieces();
            if !(self.wake(core) | is_busy) || !has_more {
                break;
            }
        }
    }

    /// Takes the message that a poll found, in a part that has nothing else to do. Returns whether it did.
    #[inline]
    pub(super) fn take_alone(&mut self, core: &DeviceCore, now: Nanos) -> bool {
        self.exchange.on_return(now);
        self.exchange.take_alone(core, now) && !self.wake(core)
    }

    /// Sends the message of a direct entry, or steps its queue. Returns what is left, and when the timer of its
    /// path's requests is due.
    #[inline]
    pub(super) fn send_short(
        &mut self,
        core: &DeviceCore,
        now: impl Fn() -> Nanos,
        (queue, block): (&Arc<DeviceSendQueue>, &[u64; BLOCK_WORDS]),
    ) -> (StepOutcome, Nanos) {
        let Self { exchange, time, .. } = self;
        let mut timer = Nanos::MAX;
        let left = core.send_short(queue, block, |short| {
            let sent = exchange.send_short(core, || time.at(now()), short);
            timer = sent.unwrap_or(timer);
            sent.is_some()
        });
        (left, timer)
    }

    /// Takes a datagram. Returns whether a step is due: it was more than counted and answered.
    pub(super) fn on_datagram(
        &mut self,
        core: &DeviceCore,
        mut by: Reception<'_>,
        datagram: &ArrivedDatagram<'_>,
    ) -> bool {
        let ArrivedDatagram { source_port, format, bytes, .. } = *datagram;
        if core.tables.cfg.rc == RcWire::Roce && format == PacketFormat::Standard {
            return self.exchange.on_standard(core, by, (source_port, bytes));
        }
        let event = self.exchange.endpoint.on_datagram(&mut by, bytes);
        self.exchange.on_arrival(core, by, event)
    }

    fn step_exchange(&mut self, core: &DeviceCore, now: Nanos) -> bool {
        let mut busy = self.exchange.begin_step(core, now);
        for _ in 0..ROUNDS {
            let round = self.exchange.full_round(core, now);
            let round = self.wake(core) | round;
            busy |= round;
            let has_more = core.has_listed() || self.exchange.has_pieces();
            if !round || !has_more {
                break;
            }
        }
        busy
    }

    /// Lets send queues take the completions that the exchange left in their mail. Returns whether there were any.
    pub(super) fn wake(&mut self, core: &DeviceCore) -> bool {
        let mut any = false;
        for id in self.exchange.drain_ended() {
            core.wake_send(id);
            any = true;
        }
        any
    }

    /// Destroys all objects of a function. If it is the only one, the exchange starts anew, except for its sequences
    /// with other nodes.
    pub(super) fn clear(&mut self, core: &DeviceCore, now: Nanos, function: &Arc<DeviceFunction>) {
        self.commands.clear((&mut self.exchange, core), now, function);
        if !self.commands.is_shared() {
            self.exchange.reset(core);
        }
    }

    pub(super) fn poll_deadline(&self) -> Deadline {
        let exchange = self.exchange.poll_deadline();
        match self.commands.poll_deadline() {
            None => exchange,
            Some(at) => Some(exchange.map_or(at, |other| other.min(at))),
        }
    }
}

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
