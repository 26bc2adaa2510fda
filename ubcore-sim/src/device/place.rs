//! The place of the shared part, which a dialogue may have taken something from.
//!
//! *Owns*: the part, and the dialogue. *Takes*: visits. *Gives*: messages of the dialogue; the part, after the end of the
//! dialogue. *Must not*: give the part to anything while there is a dialogue.

use std::sync::Arc;

use udma_abi::{Nanos, PollOfOne, sqe::BLOCK_WORDS};
use urma_mem::lull::{Lull, WorkSign};

use super::shared::SharedPart;
use crate::engine::base::Base;
use crate::engine::queue::DeviceSendQueue;
use crate::engine::send::Left;
use crate::exchange::{AnswerEntry, Dialogue};

/// See the room card.
#[derive(Debug)]
pub(super) struct SharedPlace {
    part: SharedPart,
    dialogue: Option<Box<Dialogue>>,
    /// Leases of a thread to it.
    leases: u32,
}

impl SharedPlace {
    pub(super) fn new(part: SharedPart) -> Self {
        Self { part, dialogue: None, leases: 0 }
    }

    /// The shared part, for anything else than a message of the dialogue, which ends.
    #[inline(always)]
    pub(super) fn part(&mut self) -> &mut SharedPart {
        if self.dialogue.is_some() {
            self.end_dialogue();
        }
        &mut self.part
    }

    #[cold]
    #[inline(never)]
    fn end_dialogue(&mut self) {
        if let Some(dialogue) = self.dialogue.take() {
            self.part.exchange.end_dialogue(*dialogue);
        }
    }

    /// Begins a dialogue with the direct entry `block` of the queue, if messages were answered for long enough. Whether there is
    /// one.
    #[inline(always)]
    pub(super) fn begin_dialogue(
        &mut self,
        base: &Base,
        queue: &Arc<DeviceSendQueue>,
        block: &[u64; BLOCK_WORDS],
    ) -> bool {
        if !self.part.exchange.may_converse() {
            return false;
        }
        self.dialogue = self.part.exchange.begin_dialogue(base, queue, block);
        self.dialogue.is_some()
    }

    /// Says the message of a direct entry, if there is a dialogue of its queue. Returns what is left.
    #[inline(always)]
    pub(super) fn say(
        &mut self,
        base: &Base,
        now: impl FnOnce() -> Nanos,
        (queue, block): (&Arc<DeviceSendQueue>, &[u64; BLOCK_WORDS]),
    ) -> Option<Left> {
        let Self { part, dialogue, .. } = self;
        let dialogue = dialogue.as_mut().filter(|dialogue| dialogue.queue() == queue.id)?;
        let time = &mut part.time;
        part.exchange.say(base, dialogue, || time.at(now()), block)
    }

    /// Whether the open message of the dialogue wants to be looked at before the next step that is due.
    pub(super) fn is_before_due(&self) -> bool {
        let timer = self.dialogue.as_ref().map_or(Nanos::MAX, |dialogue| dialogue.timer());
        self.part.time.is_before_due(timer)
    }

    /// Takes the message that a poll found, if there is nothing else to do. Its completion may be given to `poll`. Whether it
    /// did.
    #[inline(always)]
    pub(super) fn take_alone(&mut self, base: &Base, now: Nanos, poll: &mut PollOfOne) -> bool {
        let at = self.part.time.at(now);
        let Self { part, dialogue, .. } = self;
        if let Some(dialogue) = dialogue {
            match part.exchange.take_answer(base, dialogue, (at, poll)) {
                AnswerEntry::Answer => return true,
                AnswerEntry::AnswerToOther => return self.take_acknowledgement(base, at),
                AnswerEntry::Other => {}
            }
        }
        self.part().take_alone(base, at)
    }

    /// An answer acknowledged a request that its queue did not take, because another thread steps it.
    #[cold]
    #[inline(never)]
    fn take_acknowledgement(&mut self, base: &Base, at: Nanos) -> bool {
        let answered = self.dialogue.as_ref().map(|dialogue| dialogue.answered());
        let part = self.part();
        if let Some(answered) = answered {
            part.exchange.end_answered(base, at, &answered);
        }
        !part.wake(base)
    }

    /// Whether a step would find nothing, except what is rung, listed or due by its time.
    #[inline(always)]
    pub(super) fn is_quiet(&mut self) -> bool {
        match &self.dialogue {
            Some(dialogue) => self.part.exchange.is_quiet_in(dialogue),
            None => self.part.is_quiet(),
        }
    }

    /// Whether a thread is to lease it, which is counted: the dialogue is long, for so many leases before.
    #[inline(always)]
    pub(super) fn takes_lease(&mut self) -> bool {
        let dialogue = self.dialogue.as_ref();
        let is_to_lease = dialogue.is_some_and(|dialogue| dialogue.wants_lease(self.leases));
        self.leases = self.leases.saturating_add(u32::from(is_to_lease));
        is_to_lease
    }

    /// Notes for a poll what shows that a step finds nothing. Whether it can be shown.
    pub(super) fn note_lull(&self, sign: &WorkSign, lull: &mut Lull) -> bool {
        self.part.note_lull(sign, lull)
    }
}
