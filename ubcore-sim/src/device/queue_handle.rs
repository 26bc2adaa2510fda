//! Handles of queues and JFCs: doorbells without the lookup that register writes need.
//!
//! *Owns*: the number's permanent place, and the life that was found there. *Takes*: doorbells. *Gives*: steps of the
//! queue. *Must not*: reach a later queue or JFC with the same number.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use udma_abi::{CompletionBy, MessageEntry, MovedWord, Nanos, counters::Counter, sqe::BLOCK_WORDS};
use urma_mem::{
    OwnerEntry, SerialOwner, SerialVisit, TakenEntry, VisitEnd, asymmetric, lines::UsedLines,
    sync::Ordering,
};

use super::SoftwareDevice;
use crate::context::jfc::{DeviceJfc, Rung};
use crate::context::queue::Queue;
use crate::context::tables::Tables;
use crate::engine::{
    fast::{
        EnginePlace, Leases,
        known::{AtomicBlocks, MovedEntry, WORD_LEN},
    },
    queue::DeviceSendQueue,
    send::{SendEngine, StepOutcome},
};

/// Handle of a send queue, valid for one life of it. One thread at a time uses it.
#[derive(Debug)]
pub struct QueueHandle {
    queue: Arc<DeviceSendQueue>,
    life: u64,
    /// Identity under which the queue is leased.
    owner: SerialOwner,
    leases: Leases,
}

/// Handle of a JFC, valid for one life of it.
#[derive(Debug)]
pub struct FoundJfc {
    jfc: Arc<DeviceJfc>,
    life: u64,
}

/// A visit of a queue by its handle.
#[derive(Debug)]
pub struct QueueVisit<'q>(SerialVisit<'q, EnginePlace>);

/// Result of [`QueueHandle::move_word`], and what the caller has to do next.
#[derive(Debug)]
pub enum WordMove<'q> {
    /// The word was moved. The index of the JFC's next entry.
    Done(u32),
    /// The word was moved, but another thread marked the queue or took its lease: call [`QueueEnd::finish`].
    Ending(u32, QueueEnd<'q>),
    /// The word was moved, and the queue is to be leased: call [`SoftwareDevice::lease`].
    ToLease(u32, QueueVisit<'q>),
    /// The memory is of a peer, or there is no grant: call [`SoftwareDevice::repeat_in_visit`].
    Elsewhere(QueueVisit<'q>),
    /// Another thread has the queue.
    Held,
    /// Another thread took the lease under which this one entered: call [`QueueEntry::finish`].
    Taken(QueueEntry<'q>),
    /// The queue is gone: its number may be that of another one.
    Ended,
}

/// Result of executing a request that is not in the ring, by its handle. If it is unfinished, call
/// [`SoftwareDevice::finish`]: other queues may wait for that.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Executed {
    /// Index of the JFC's next entry; `None`: nothing happened.
    pub index: Option<u32>,
    left: StepOutcome,
    is_marked: bool,
}

impl Executed {
    /// Nothing happened, and nothing is left to do but what another thread marked.
    const fn refused(is_marked: bool) -> Self {
        Self { index: None, left: StepOutcome::NOTHING, is_marked }
    }

    /// Whether [`SoftwareDevice::finish`] has something to do.
    #[inline(always)]
    #[must_use]
    pub fn is_unfinished(self) -> bool {
        self.is_marked || self.left != StepOutcome::NOTHING
    }
}

/// End of a visit that another thread interrupted.
#[derive(Debug)]
pub struct QueueEnd<'q>(VisitEnd<'q, EnginePlace>);

impl QueueEnd<'_> {
    /// Finishes the visit. Returns whether the queue is to be stepped.
    pub fn finish(self) -> bool {
        self.0.finish()
    }
}

/// Entry into a queue whose lease was taken meanwhile.
#[derive(Debug)]
pub struct QueueEntry<'q>(TakenEntry<'q, EnginePlace>);

impl QueueEntry<'_> {
    /// Gives the entry up. Returns whether the queue is to be stepped.
    pub fn finish(self) -> bool {
        self.0.finish()
    }
}

impl QueueHandle {
    /// Notes what requests like the newest one touch, as values number 1 and following. Returns whether the queue is
    /// to be stepped.
    pub fn note_lines(&self, lines: &UsedLines) -> bool {
        lines.note(1, self, size_of::<Self>());
        lines.note(2, &*self.queue, size_of::<DeviceSendQueue>());
        let mut visit = match self.queue.send.try_visit_as(&self.owner) {
            OwnerEntry::Visit(visit) => visit,
            OwnerEntry::Refused => return false,
            OwnerEntry::Taken(entry) => return entry.finish(),
        };
        visit.with(|place| place.engine().as_mut().map(|engine| engine.note_lines(lines, 3)));
        visit.leave()
    }

    /// Whether a visit for a request under a grant should end in a lease: many in a row were not interrupted by
    /// another visit.
    #[inline(always)]
    fn wants_lease(&self, visit: &mut SerialVisit<'_, EnginePlace>) -> bool {
        !visit.is_leased()
            && self.leases != Leases::Never
            && visit.with(|place| place.wants_lease(self.leases, self.owner.leases()))
    }

    /// Ends a visit for such a request, in a lease if one is due. Returns whether the queue is to be stepped.
    #[inline(always)]
    fn end(&self, mut visit: SerialVisit<'_, EnginePlace>) -> bool {
        let is_to_lease = self.wants_lease(&mut visit);
        let end = if is_to_lease { visit.lease(&self.owner) } else { visit.end() };
        end.is_err_and(VisitEnd::finish)
    }

    /// Moves 8 bytes between segments of this node, as one move under a grant; the driver makes the CQE. All of it
    /// can be inlined into the caller.
    #[inline(always)]
    pub fn move_word(&self, (pi, remote_va, local_va): (u32, u64, u64)) -> WordMove<'_> {
        let queue = &*self.queue;
        if !queue.sends.is_still(self.life) {
            return WordMove::Ended;
        }
        let mut visit = match queue.send.try_visit_as(&self.owner) {
            OwnerEntry::Visit(visit) => visit,
            OwnerEntry::Refused => return WordMove::Held,
            OwnerEntry::Taken(entry) => return WordMove::Taken(QueueEntry(entry)),
        };
        let moved = (pi, remote_va, local_va);
        match visit.with(|place| place.move_word(queue, moved)) {
            None => WordMove::Elsewhere(QueueVisit(visit)),
            Some(index) if self.wants_lease(&mut visit) => {
                WordMove::ToLease(index, QueueVisit(visit))
            }
            Some(index) => match visit.end() {
                Ok(()) => WordMove::Done(index),
                Err(end) => WordMove::Ending(index, QueueEnd(end)),
            },
        }
    }
}

#[cfg(test)]
impl QueueHandle {
    /// Whether the queue is leased to a thread.
    pub(crate) fn is_leased(&self) -> bool {
        self.queue.send.is_leased()
    }
}

impl Drop for QueueHandle {
    fn drop(&mut self) {
        self.queue.send.disown(&self.owner);
    }
}

impl SoftwareDevice {
    /// Looks up the send queue that has this number now; `leases` says when it is leased, unless another handle
    /// leases it.
    #[must_use]
    pub fn find_queue(&self, id: u32, leases: Leases) -> Option<QueueHandle> {
        let queue = self.core.queues.get(id)?;
        let life = queue.sends.seen()?;
        let (queue, owner) = (Arc::clone(queue), SerialOwner::none());
        let leases = if asymmetric::is_available() { leases } else { Leases::Never };
        Some(QueueHandle { queue, life, owner, leases })
    }

    /// Looks up the JFC that has this number now.
    #[must_use]
    pub fn find_jfc(&self, jfcn: u32) -> Option<FoundJfc> {
        let jfc = self.core.tables.jfcs.get(jfcn)?;
        jfc.lives.seen().map(|life| FoundJfc { jfc: Arc::clone(jfc), life })
    }

    /// Posts a direct entry, like a write of `words` to the queue's doorbell page ([`SoftwareDevice::write_block`]).
    /// Returns whether anything may be left to do.
    #[inline]
    pub fn ring_direct(
        &self,
        found: &QueueHandle,
        now: impl FnOnce() -> Nanos,
        words: &[u64; BLOCK_WORDS],
    ) -> bool {
        if !found.queue.sends.is_still(found.life) {
            self.count(Counter::BadDoorbell);
            return false;
        }
        self.post_direct(now, &found.queue, words)
    }

    /// Executes an entry that is not in the ring. Returns whether anything may be left to do; `None`: nothing happened,
    /// the entry has to be posted in the ring.
    #[inline(always)]
    pub fn execute(
        &self,
        found: &QueueHandle,
        now: impl FnOnce() -> Nanos,
        words: &[u64; BLOCK_WORDS],
    ) -> Option<bool> {
        self.execute_by(found, now, |engine, at| engine.execute_block(at, words))
    }

    /// Executes an atomic that is not in the ring. Results as in [`SoftwareDevice::execute`].
    #[inline(always)]
    pub fn execute_atomic(
        &self,
        found: &QueueHandle,
        now: impl FnOnce() -> Nanos,
        blocks: &AtomicBlocks,
    ) -> Option<bool> {
        self.execute_by(found, now, |engine, at| engine.execute_atomic(at, blocks))
    }

    /// Calls `execute` for an entry that is not in the ring.
    #[inline(always)]
    fn execute_by(
        &self,
        found: &QueueHandle,
        now: impl FnOnce() -> Nanos,
        execute: impl FnOnce(&mut SendEngine, (&Tables, &Queue)) -> Option<StepOutcome>,
    ) -> Option<bool> {
        if !self.is_still(found) {
            return None;
        }
        let left = self.core.execute(&found.queue, execute)?;
        let is_left = self.is_left(left);
        if is_left {
            self.step_after_post(now());
        }
        Some(is_left || left != StepOutcome::BUSY)
    }

    /// Whether the handle's queue still has its number; if not, counts a bad doorbell.
    #[inline(always)]
    fn is_still(&self, found: &QueueHandle) -> bool {
        let is_still = found.queue.sends.is_still(found.life);
        if !is_still {
            self.count(Counter::BadDoorbell);
        }
        is_still
    }

    /// Executes an entry like the newest one of [`SoftwareDevice::execute`], from the fields that differ.
    #[inline(always)]
    pub fn repeat(&self, found: &QueueHandle, moved: &MovedEntry) -> Executed {
        self.execute_in_visit(found, |place, queue| place.repeat(queue, moved))
    }

    /// [`SoftwareDevice::repeat`] of 8 bytes without a completion, with the checks of other forms folded away: a
    /// closure of its own is compiled into its only caller.
    #[inline(always)]
    pub fn repeat_silent_word(
        &self,
        found: &QueueHandle,
        (pi, remote_va, local_va): (u32, u64, u64),
    ) -> Executed {
        let moved = MovedEntry { pi, by: CompletionBy::Nobody, remote_va, local_va, len: WORD_LEN };
        self.execute_in_visit(found, |place, queue| place.repeat(queue, &moved))
    }

    /// Executes the word that [`QueueHandle::move_word`] could not move, in the visit that it returned.
    #[inline(always)]
    pub fn repeat_in_visit(
        &self,
        found: &QueueHandle,
        mut visit: QueueVisit<'_>,
        moved: &MovedEntry,
    ) -> Executed {
        let repeated = visit.0.with(|place| place.repeat(&found.queue, moved));
        self.executed(repeated, found.end(visit.0))
    }

    /// Executes a whole entry like any that [`SoftwareDevice::execute`] executed, and makes it the newest; the driver
    /// makes its CQE.
    #[inline(always)]
    pub fn execute_known(&self, found: &QueueHandle, words: &[u64; BLOCK_WORDS]) -> Executed {
        self.execute_in_visit(found, |place, queue| {
            let index = place.engine().as_mut()?.execute_known(queue, words)?;
            Some((index, StepOutcome::NOTHING))
        })
    }

    /// Executes an atomic like the newest one of [`SoftwareDevice::execute_atomic`]; the driver makes its CQE. If refused,
    /// it has to be posted at that position.
    #[inline(always)]
    pub fn repeat_atomic(&self, found: &QueueHandle, moved: &MovedWord) -> Executed {
        self.execute_in_visit(found, |place, queue| {
            Some((place.repeat_atomic(queue, moved)?, StepOutcome::NOTHING))
        })
    }

    /// Calls `execute` for an entry that is not in the ring, in a visit of the queue.
    #[inline(always)]
    fn execute_in_visit(
        &self,
        found: &QueueHandle,
        execute: impl FnOnce(&mut EnginePlace, &Queue) -> Option<(u32, StepOutcome)>,
    ) -> Executed {
        let queue = &found.queue;
        if !self.is_still(found) {
            return Executed::refused(false);
        }
        let mut visit = match queue.send.try_visit_as(&found.owner) {
            OwnerEntry::Visit(visit) => visit,
            OwnerEntry::Refused => return Executed::refused(false),
            OwnerEntry::Taken(entry) => return Executed::refused(entry.finish()),
        };
        let executed = visit.with(|place| execute(place, queue));
        self.executed(executed, found.end(visit))
    }

    /// The result for the caller: a CQE alone leaves nothing to do, unless events are moderated.
    #[inline(always)]
    fn executed(&self, executed: Option<(u32, StepOutcome)>, is_marked: bool) -> Executed {
        let Some((index, left)) = executed else { return Executed::refused(is_marked) };
        let is_done = left == StepOutcome::BUSY && !self.is_left(left);
        let left = if is_done { StepOutcome::NOTHING } else { left };
        Executed { index: Some(index), left, is_marked }
    }

    /// Does what an executed request left to do, and steps the queue if another thread marked it meanwhile.
    #[cold]
    pub fn finish(&self, found: &QueueHandle, now: impl FnOnce() -> Nanos, executed: Executed) {
        let Executed { mut left, is_marked, .. } = executed;
        if left != StepOutcome::NOTHING && left != StepOutcome::BUSY {
            self.core.list(&found.queue, left);
        }
        if is_marked {
            left = left.then(self.core.step_queue(&found.queue, None));
        }
        if self.is_left(left) {
            self.step_after_post(now());
        }
    }

    /// Ends a visit in a lease. Returns whether the queue is to be stepped.
    pub fn lease(&self, found: &QueueHandle, visit: QueueVisit<'_>) -> bool {
        visit.0.lease(&found.owner).is_err_and(VisitEnd::finish)
    }

    /// Steps a queue that another thread marked during a visit.
    #[cold]
    pub fn step_marked(&self, found: &QueueHandle, now: impl FnOnce() -> Nanos) {
        self.finish(found, now, Executed::refused(true));
    }

    /// Rings the queue's doorbell: posts everything before block `pi`.
    #[inline]
    pub fn ring_queue(&self, found: &QueueHandle, now: impl FnOnce() -> Nanos, pi: u32) {
        if !found.queue.sends.is_still(found.life) {
            return self.count(Counter::BadDoorbell);
        }
        self.post(now, &found.queue, pi);
    }

    /// Moves the JFC's consumer index, like a JFC doorbell that arms nothing. Returns whether anything may be left to
    /// do.
    #[inline]
    pub fn consume(&self, found: &FoundJfc, now: impl FnOnce() -> Nanos, ci: u32) -> bool {
        let is_same = found.jfc.lives.is_still(found.life);
        let rung = if is_same { found.jfc.on_consumed(ci) } else { Rung::Bad };
        match rung {
            Rung::Quiet => return false,
            Rung::Restart => self.restart_stopped(now()),
            Rung::Bad => self.count(Counter::BadDoorbell),
        }
        true
    }

    /// Posts a direct entry. Returns whether anything may be left to do.
    #[inline]
    pub(super) fn post_direct(
        &self,
        now: impl FnOnce() -> Nanos,
        queue: &Arc<DeviceSendQueue>,
        words: &[u64; BLOCK_WORDS],
    ) -> bool {
        let pi = queue.pi.load(Ordering::Relaxed);
        // The entry names its position: it must be the next one posted.
        if (words[0] ^ u64::from(pi)) & 0xffff & queue.index_mask() != 0 {
            self.count(Counter::BadDoorbell);
            return false;
        }
        queue.pi.store(pi.wrapping_add(1), Ordering::Release);
        if MessageEntry::is_it(words) && self.core.tables.has_message_lane() {
            return self.post_message(now, queue, words);
        }
        let left = self.core.step_queue(queue, Some(words));
        let is_left = self.is_left(left);
        if is_left {
            self.step_after_post(now());
        }
        is_left || left != StepOutcome::BUSY
    }

    /// Posts the direct entry of a message, in one visit of queue and shared part.
    #[inline(never)]
    fn post_message(
        &self,
        now: impl FnOnce() -> Nanos,
        queue: &Arc<DeviceSendQueue>,
        words: &[u64; BLOCK_WORDS],
    ) -> bool {
        // Read at most once, and not before the message is sent.
        let (clock, now) = (OnceCell::new(), Cell::new(Some(now)));
        let read = || *clock.get_or_init(|| now.take().map_or(0, |now| now()));
        if self.send_short(read, queue, words).is_none() {
            // Another thread holds the shared part.
            let left = self.core.step_queue(queue, Some(words));
            if self.is_left(left) {
                self.step_after_post(read());
            }
        }
        true
    }

    /// Posts everything before block `pi`, and steps the queue.
    #[inline]
    pub(super) fn post(&self, now: impl FnOnce() -> Nanos, queue: &Arc<DeviceSendQueue>, pi: u32) {
        queue.pi.store(pi, Ordering::Release);
        if self.is_left(self.core.step_queue(queue, None)) {
            self.step_after_post(now());
        }
    }
}
