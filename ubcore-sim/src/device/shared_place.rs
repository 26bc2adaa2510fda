//! The place of the shared part, which a ping-pong may have taken something from.
//!
//! *Owns*: the part, and the ping-pong. *Takes*: visits. *Gives*: messages of the ping-pong; the part, after the end of the
//! ping-pong. *Must not*: give the part to anything while there is a ping-pong.

use std::sync::Arc;

use udma_abi::{Nanos, PollOfOne, sqe::BLOCK_WORDS};
use urma_mem::idle::{IdleSnapshot, WorkSign};

use super::shared::SharedPart;
use crate::engine::core::DeviceCore;
use crate::engine::queue::DeviceSendQueue;
use crate::engine::send::StepOutcome;
use crate::exchange::{AnswerEntry, PingPongMode};

/// See the room card.
#[derive(Debug)]
pub(super) struct SharedPlace {
    part: SharedPart,
    ping_pong: Option<Box<PingPongMode>>,
    /// Leases of a thread to it.
    leases: u32,
}

impl SharedPlace {
    pub(super) fn new(part: SharedPart) -> Self {
        Self { part, ping_pong: None, leases: 0 }
    }

    /// The shared part, for anything else than a message of the ping-pong, which ends.
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

    /// Begins a ping-pong with the direct entry `block` of the queue, if messages were answered for long enough. Whether there is
    /// one.
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

    /// Says the message of a direct entry, if there is a ping-pong of its queue. Returns what is left.
    #[inline(always)]
    pub(super) fn say(
        &mut self,
        core: &DeviceCore,
        now: impl FnOnce() -> Nanos,
        (queue, block): (&Arc<DeviceSendQueue>, &[u64; BLOCK_WORDS]),
    ) -> Option<StepOutcome> {
        let Self { part, ping_pong, .. } = self;
        let ping_pong = ping_pong.as_mut().filter(|ping_pong| ping_pong.queue() == queue.id)?;
        let time = &mut part.time;
        part.exchange.say(core, ping_pong, || time.at(now()), block)
    }

    /// Whether the open message of the ping-pong wants to be looked at before the next step that is due.
    pub(super) fn is_before_due(&self) -> bool {
        let timer = self.ping_pong.as_ref().map_or(Nanos::MAX, |ping_pong| ping_pong.timer());
        self.part.time.is_before_due(timer)
    }

    /// Takes the message that a poll found, if there is nothing else to do. Its completion may be given to `poll`. Whether it
    /// did.
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

    /// An answer acknowledged a request that its queue did not take, because another thread steps it.
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

    /// Whether a step would find nothing, except what is rung, listed or due by its time.
    #[inline(always)]
    pub(super) fn is_quiet(&mut self) -> bool {
        match &self.ping_pong {
            Some(ping_pong) => self.part.exchange.is_quiet_in(ping_pong),
            None => self.part.is_quiet(),
        }
    }

    /// Whether a thread is to lease it, which is counted: the ping-pong is long, for so many leases before.
    #[inline(always)]
    pub(super) fn takes_lease(&mut self) -> bool {
        let ping_pong = self.ping_pong.as_ref();
        let is_to_lease = ping_pong.is_some_and(|ping_pong| ping_pong.wants_lease(self.leases));
        self.leases = self.leases.saturating_add(u32::from(is_to_lease));
        is_to_lease
    }

    /// Notes for a poll what shows that a step finds nothing. Whether it can be shown.
    pub(super) fn note_idle(&self, sign: &WorkSign, idle: &mut IdleSnapshot) -> bool {
        self.part.note_idle(sign, idle)
    }
}
