//! The half of a JFC that the caller polls and arms, and what a poll does in the reader.
//!
//! *Owns*: the idle snapshot of an empty poll. *Takes*: polls of one thread at a time. *Gives*: what the reader
//! takes; nothing, after a cheap check, while the idle snapshot is valid. *Must not*: enter the reader while it is.

use std::sync::Arc;

use udma_abi::{Eqe, PollOfOne, ReceivedMessage, doorbell::CqArm};
use urma_core::{
    Arm, Completion, Status,
    ops::{CompletingQueue, CompletionQueue, DoneLook},
};
use urma_mem::{
    idle::{IdleLook, IdleSnapshot},
    sync::Ordering,
};

use super::{
    JfcCore, POLLS_PER_STATUS, RingReader,
    contention::{self, POLLS_PER_LOOK, PollCost},
    entry::WrittenEntry,
};
use crate::local_completion::{LocalCompletion, LocalCompletionReader};

/// The polling half of a JFC.
#[derive(Debug)]
pub(super) struct PollHalf {
    core: Arc<JfcCore>,
    /// While it is valid, polls that find nothing skip the device.
    idle: IdleSnapshot,
    /// Completions that are not in the ring.
    local_completions: LocalCompletionReader,
    /// Number of empty polls.
    polls: u32,
    /// Empty polls left until the next check of the processor.
    until_look: u32,
}

impl PollHalf {
    pub(super) fn new(core: Arc<JfcCore>) -> Self {
        let (idle, local_completions) = (IdleSnapshot::default(), LocalCompletionReader::default());
        Self { core, idle, local_completions, polls: 0, until_look: POLLS_PER_LOOK }
    }

    /// The oldest local completion, if all before it are taken.
    #[inline(always)]
    fn next_local(&self) -> Option<LocalCompletion> {
        let front = self.local_completions.front(&self.core.local_completions)?;
        front.is_next(self.core.next_index()).then_some(front)
    }

    /// Polls for local completions and the ring; `found` are in `out` already.
    #[inline(never)]
    fn poll_local(&mut self, out: &mut [Completion], mut found: usize) -> Result<usize, Status> {
        while let Some(slot) = out.get_mut(found)
            && let Some(front) = self.next_local()
        {
            if self.local_completions.is_progress_due() {
                self.core.driver.backing.progress();
            }
            self.local_completions.take(&self.core.local_completions, front, slot);
            found += 1;
        }
        if found == 0 {
            return self.poll_reader(out);
        }
        if found < out.len() && !self.core.is_empty() {
            // What was taken belongs to the caller, even if this fails.
            found += self.poll_reader(&mut out[found..]).unwrap_or(0);
        }
        Ok(found)
    }

    /// Polls under the idle snapshot, if it is still valid.
    #[inline(never)]
    fn poll_idle(&mut self, out: &mut [Completion]) -> Result<usize, Status> {
        let look = self.idle.look();
        if look == IdleLook::PeerWrote
            && let Some(found) = self.poll_entry(out)
        {
            return Ok(found);
        }
        if look == IdleLook::Holds && self.core.is_empty() {
            self.count_empty(self.polls.wrapping_add(1), PollCost::Loads);
            if !self.polls.is_multiple_of(POLLS_PER_STATUS) {
                return Ok(0);
            }
            self.core.driver.look_for_failure();
        }
        self.poll_reader(out)
    }

    /// Counts an empty poll, the `polls`th one.
    #[inline(always)]
    fn count_empty(&mut self, polls: u32, cost: PollCost) {
        self.polls = polls;
        self.until_look = self.until_look.wrapping_sub(1);
        if self.until_look == 0 {
            let backing = &self.core.driver.backing;
            let next = contention::look(cost, || backing.now(), |how| backing.give_way(how));
            self.until_look = next;
        }
    }

    /// Checks, when no local completion waits, whether a poll under the idle snapshot would find nothing.
    #[inline(never)]
    fn look_while_idle(&mut self) -> DoneLook {
        let polls = self.polls.wrapping_add(1);
        let is_usual = !polls.is_multiple_of(POLLS_PER_STATUS);
        if !is_usual || !self.idle.holds() || !self.core.is_empty() {
            return DoneLook::UNKNOWN;
        }
        self.count_empty(polls, PollCost::Loads);
        DoneLook::EMPTY
    }

    /// Takes the entry that a peer wrote; `None`: the device has to make a step. After the entry no step is made,
    /// since it would handle what was left to the program's next call.
    // Out of line, so that an empty poll saves no registers for it.
    #[inline(never)]
    fn poll_entry(&mut self, out: &mut [Completion]) -> Option<usize> {
        let Self { core, local_completions, idle, .. } = self;
        let visit = core.reader.try_with(|reader| {
            let of = reader.stash.is_empty().then_some((core.jfcn, reader.ci));
            let mut poll = PollOfOne { of: of.filter(|_| !out.is_empty()), given: None };
            let is_taken = core.driver.backing.take_entry(&mut poll);
            // It is not in the ring and belongs to the caller, even if a step is due, which follows from the end of
            // the idle snapshot.
            if let (Some(message), Some(out)) = (&poll.given, out.first_mut()) {
                idle.end();
                return Some(core.poll_given(reader, message, out));
            }
            is_taken.then(|| {
                idle.end();
                core.poll_found(reader, out, local_completions)
            })
        })?;
        visit.value
    }

    /// Polls by entering the reader.
    #[inline(never)]
    fn poll_reader(&mut self, out: &mut [Completion]) -> Result<usize, Status> {
        if out.is_empty() {
            return Ok(0);
        }
        let core = &*self.core;
        // A `Result` from the visit would be copied in overlapping parts, and wait for their stores.
        let mut failure = None;
        let (local_completions, idle) = (&self.local_completions, &mut self.idle);
        let visit = core
            .reader
            .try_with(|reader| core.poll(reader, out, (local_completions, idle, &mut failure)));
        if let Some(status) = failure {
            return Err(status);
        }
        let found = visit.map_or(0, |visit| visit.value);
        if found == 0 {
            // The reader is free: another thread may poll while this one yields.
            self.count_empty(self.polls.wrapping_add(1), PollCost::Step);
        }
        Ok(found)
    }
}

impl JfcCore {
    /// Polls; returns the number of completions in `out`.
    #[inline(always)]
    fn poll(
        &self,
        reader: &mut RingReader,
        out: &mut [Completion],
        (local_completions, idle, failure): (
            &LocalCompletionReader,
            &mut IdleSnapshot,
            &mut Option<Status>,
        ),
    ) -> usize {
        if reader.owes_progress {
            self.let_device_work_for(reader);
        }
        let found = self.poll_found(reader, out, local_completions);
        if found == 0 {
            return self.step_and_poll(reader, out, (local_completions, idle)).unwrap_or_else(
                |status| {
                    *failure = Some(status);
                    0
                },
            );
        }
        if !idle.is_on() && reader.owes_progress {
            // Packets do not wait for the next poll: while there are any, no idle snapshot is taken.
            self.let_device_work_for(reader);
        }
        // The consumer index may be behind now.
        idle.end();
        found
    }

    /// Takes from the stash, then from the ring.
    #[cold]
    fn poll_stash(
        &self,
        reader: &mut RingReader,
        out: &mut [Completion],
        local_completions: &LocalCompletionReader,
    ) -> usize {
        let found = reader.unstash(out, |index| self.is_turn_of(local_completions, index));
        self.publish_stash(reader);
        if !reader.stash.is_empty() {
            return found;
        }
        found + self.poll_ring(reader, &mut out[found..], local_completions)
    }

    /// Whether a local completion comes before entry `index`, which was just seen: whatever its queue did before the
    /// entry was written is visible too.
    #[inline(always)]
    fn is_turn_of(&self, local_completions: &LocalCompletionReader, index: u32) -> bool {
        local_completions.front(&self.local_completions).is_some_and(|front| front.is_next(index))
    }

    /// When there is no entry: steps the device, then reads once more.
    #[inline(never)]
    fn step_and_poll(
        &self,
        reader: &mut RingReader,
        out: &mut [Completion],
        (local_completions, idle): (&LocalCompletionReader, &mut IdleSnapshot),
    ) -> Result<usize, Status> {
        let bad_before = reader.bad;
        self.ring(reader);
        self.driver.backing.progress_to_idle(idle);
        if self.written(reader.ci).is_some() {
            let found = self.poll_stepped(reader, out, local_completions);
            if found > 0 {
                idle.end();
                return Ok(found);
            }
        }
        reader.polls = reader.polls.wrapping_add(1);
        if reader.polls.is_multiple_of(POLLS_PER_STATUS) {
            self.driver.look_for_failure();
        }
        if self.driver.failed.load(Ordering::Relaxed) {
            self.sweep_into_stash(reader);
            let found = reader.unstash(out, |index| self.is_turn_of(local_completions, index));
            self.publish_stash(reader);
            return if found > 0 { Ok(found) } else { Err(Status::NoDevice) };
        }
        if reader.bad != bad_before { Err(Status::Fail) } else { Ok(0) }
    }

    /// Takes from the ring what a step brought.
    #[inline(never)]
    fn poll_stepped(
        &self,
        reader: &mut RingReader,
        out: &mut [Completion],
        local_completions: &LocalCompletionReader,
    ) -> usize {
        self.poll_ring(reader, out, local_completions)
    }

    /// Takes what the device has written. The first entry, the only one that most polls find or ask for, is taken
    /// without a loop.
    #[inline(always)]
    fn poll_ring(
        &self,
        reader: &mut RingReader,
        out: &mut [Completion],
        local_completions: &LocalCompletionReader,
    ) -> usize {
        let Some(entry) = self.next_entry(reader, local_completions) else { return 0 };
        let Some(first) = out.first_mut() else { return 0 };
        let is_fit = self.take(reader, entry, first);
        reader.ci = reader.ci.wrapping_add(1);
        let found = if is_fit && (out.len() == 1 || self.written(reader.ci).is_none()) {
            1
        } else {
            self.poll_on(reader, out, (local_completions, usize::from(is_fit)))
        };
        self.publish(reader);
        // The stash is empty: it is taken first.
        self.next.store(reader.ci, Ordering::Release);
        // A deep ring's index may lag: the device still sees most of the ring free, and the next empty poll, arm or
        // full lag writes it.
        if reader.is_awaited || reader.ci.wrapping_sub(reader.rung) >= self.lag_max {
            self.ring(reader);
        }
        found
    }

    /// The next entry, if the device has written it and no local completion comes before it.
    #[inline(always)]
    fn next_entry(
        &self,
        reader: &RingReader,
        local_completions: &LocalCompletionReader,
    ) -> Option<WrittenEntry<'_>> {
        let entry = self.written(reader.ci)?;
        (!self.is_turn_of(local_completions, reader.ci)).then_some(entry)
    }

    /// After the first entry: continues until `out`, of which `found` are filled, is full, or nothing is left.
    #[inline(never)]
    fn poll_on(
        &self,
        reader: &mut RingReader,
        out: &mut [Completion],
        (local_completions, mut found): (&LocalCompletionReader, usize),
    ) -> usize {
        let start = reader.ci;
        while let Some(slot) = out.get_mut(found)
            && let Some(entry) = self.next_entry(reader, local_completions)
        {
            self.ask_ahead(reader);
            let is_fit = self.take(reader, entry, slot);
            reader.ci = reader.ci.wrapping_add(1);
            found += usize::from(is_fit);
            // Entries that match nothing: at most a ring's worth at a time.
            if !is_fit && reader.ci.wrapping_sub(start) >> self.log2 != 0 {
                break;
            }
        }
        found
    }

    /// Prefetches what is needed once a later completion is taken, if it is of another queue than the one before: a
    /// program posts next to a queue that has room again.
    #[inline(always)]
    fn ask_ahead(&self, reader: &mut RingReader) {
        let Some(later) = self.written(reader.ci.wrapping_add(AHEAD)) else { return };
        let slot = crate::table::slot_of(later.cookie());
        if slot != reader.asked {
            reader.asked = slot;
            if let Some(Some(link)) = reader.cache.get(slot) {
                link.lines.ask();
            }
        }
    }

    /// Whether a poll has nothing to take and nothing to publish, checked without the reader.
    #[inline(always)]
    fn is_empty(&self) -> bool {
        let ci = self.ci.load(Ordering::Acquire);
        self.written(ci).is_none()
            && !self.has_stash.load(Ordering::Relaxed)
            && !self.driver.failed.load(Ordering::Relaxed)
    }

    /// Polls without stepping the device first.
    #[inline(always)]
    fn poll_found(
        &self,
        reader: &mut RingReader,
        out: &mut [Completion],
        local_completions: &LocalCompletionReader,
    ) -> usize {
        let found = if reader.stash.is_empty() {
            self.poll_ring(reader, out, local_completions)
        } else {
            self.poll_stash(reader, out, local_completions)
        };
        if found != 0 {
            reader.on_found();
        }
        found
    }

    /// Takes the one message that the device passed directly.
    #[inline(always)]
    fn poll_given(
        &self,
        reader: &mut RingReader,
        message: &ReceivedMessage,
        out: &mut Completion,
    ) -> usize {
        let is_fit = self.take_message(reader, message, out);
        reader.on_found();
        usize::from(is_fit)
    }

    /// Lets the device work, before a poll of a program whose last polls each found something.
    #[cold]
    #[inline(never)]
    fn let_device_work_for(&self, reader: &mut RingReader) {
        reader.owes_progress = false;
        self.driver.backing.progress();
    }
}

impl RingReader {
    /// Moves stashed completions to `out`, up to the first entry at which `is_other_turn`.
    fn unstash(&mut self, out: &mut [Completion], is_other_turn: impl Fn(u32) -> bool) -> usize {
        let mut count = 0;
        while let (Some(slot), Some(&(index, completion))) =
            (out.get_mut(count), self.stash.front())
            && !is_other_turn(index)
        {
            *slot = completion;
            self.stash.pop_front();
            count += 1;
        }
        count
    }

    /// Notes that a poll found something.
    #[inline(always)]
    fn on_found(&mut self) {
        self.polls = self.polls.wrapping_add(1);
        // Not now: the program may post an answer, which can carry an acknowledgement.
        self.owes_progress |= self.polls.is_multiple_of(POLLS_PER_PROGRESS);
    }
}

impl CompletionQueue for PollHalf {
    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Status> {
        let core = &*self.core;
        // Each out of line, so that neither saves registers for the other.
        let Some(front) = self.local_completions.front(&core.local_completions) else {
            return if self.idle.is_on() { self.poll_idle(out) } else { self.poll_reader(out) };
        };
        let Some(one) = out.first_mut() else { return Ok(0) };
        if !(front.is_next(core.next_index())
            && self.local_completions.is_usual(&core.local_completions))
        {
            return self.poll_local(out, 0);
        }
        self.local_completions.take_usual(&core.local_completions, front, one);
        if out.len() == 1 { Ok(1) } else { self.poll_local(out, 1) }
    }

    #[inline]
    fn take_done(&mut self, sender: &mut CompletingQueue) -> DoneLook {
        let core = &*self.core;
        // Out of line, so that nothing is saved for it.
        let Some(front) = self.local_completions.front(&core.local_completions) else {
            return self.look_while_idle();
        };
        if !front.is_next(core.next_index()) {
            return DoneLook::UNKNOWN;
        }
        self.local_completions.take_done(&core.local_completions, front, sender)
    }

    fn arm(&mut self, what: Arm) -> Result<(), Status> {
        let core = &*self.core;
        let channel = core.channel.as_ref().ok_or_else(|| {
            Status::Invalid
                .why(format_args!("JFC {} has no JFCE, so no event can be asked for", core.jfcn))
        })?;
        core.driver.check()?;
        contention::on_arm();
        let visit = core.reader.with_blocking(|reader| {
            if !reader.stash.is_empty() {
                // The device counts stashed completions as consumed, so the driver raises the event. The arm number
                // stays: the device ignores an arm that repeats the last number it saw.
                core.ring(reader);
                channel.raise(Eqe::Completion { jfcn: core.jfcn });
                return;
            }
            reader.arm_sn = (reader.arm_sn + 1) & 3;
            core.note_rung(reader);
            let arm = match what {
                Arm::Any => CqArm::Any,
                Arm::SolicitedOnly => CqArm::Solicited,
            };
            core.doorbell.arm(reader.ci, arm, reader.arm_sn);
        });
        let () = visit.value;
        Ok(())
    }
}
/// Polls with a result after which the next one lets the device work first.
const POLLS_PER_PROGRESS: u32 = 16;
/// Entries between one that is taken and one whose queue is asked for.
const AHEAD: u32 = 3;
