//! The shared part together with ping-pong mode, which may have taken a peer out of it.
//!
//! *Owns*: the part, and ping-pong mode. *Takes*: visits. *Gives*: messages of ping-pong mode; the part, after
//! leaving that mode. *Must not*: give the part out while ping-pong mode is on.

use std::sync::Arc;

use udma_abi::{Nanos, PollOfOne, sqe::BLOCK_WORDS};
use urma_mem::idle::{IdleSnapshot, WorkSign};

use super::shared::SharedPart;
use crate::engine::core::DeviceCore;
use crate::engine::queue::DeviceSendQueue;
use crate::engine::send::StepOutcome;
use crate::exchange::{AnswerEntry, PingPongMode};

/// See the header of this file.
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
