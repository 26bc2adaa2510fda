//! The part of the device that one thread at a time works on: commands and the exchange.
//!
//! *Owns*: both, and the order in which they are stepped. *Takes*: time. *Gives*: completions to the send queues.
//! *Must not*: make a poster wait.

use std::sync::Arc;

use udma_abi::{Nanos, sqe::BLOCK_WORDS};

use urma_mem::idle::{IdleSnapshot, WorkSign};

use super::running::RunningTime;
use crate::cfg::{DeviceCfg, RcWire};
use crate::command::Commands;
use crate::context::function::DeviceFunction;
use crate::endpoint::Reception;
use crate::engine::core::DeviceCore;
use crate::engine::queue::DeviceSendQueue;
use crate::engine::send::StepOutcome;
use crate::exchange::{Exchange, PlainStep};
use crate::ports::{ArrivedDatagram, Deadline, PacketFormat};

/// Rounds of the exchange in one step; the next step does what is left.
const ROUNDS: usize = 4;

/// Everything behind the device's `Serial`.
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
