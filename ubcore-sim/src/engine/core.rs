//! The core that everything above the engines borrows: tables, send queues, lists of queues to step.
//!
//! *Owns*: queues by number, two work lists. *Takes*: doorbells, completions for send queues. *Gives*: bounded steps
//! of one queue. *Must not*: wait for a queue that another thread steps (that thread sees the mark); know the shared
//! part.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use udma_abi::{counters::Counter, sqe::BLOCK_WORDS};
use urma_mem::sync::Ordering;
use urma_mem::{OwnerEntry, RunResult, SerialOwner, VisitEnd};

use super::fast::EnginePlace;
use super::mail::ShortBody;
use super::queue::DeviceSendQueue;
use super::send::{HandedEnd, SendEngine, ShortSend, StepOutcome, Visit};
use crate::cfg::DeviceCfg;
use crate::context::function::FunctionId;
use crate::context::queue::Queue;
use crate::context::table::IdTable;
use crate::context::tables::{LIST_LEN, Tables};
use crate::ports::Ports;

/// Most urgent priority of a queue (UMDK release 26.06: URMA_MAX_PRIORITY).
const PRIORITY_MAX: u32 = 15;

/// Tables and send queues of one device.
#[derive(Debug)]
pub(crate) struct DeviceCore {
    pub(crate) tables: Tables,
    pub(crate) queues: IdTable<Arc<DeviceSendQueue>>,
    /// Queues that need another step.
    runnable: ArrayQueue<u32>,
    /// Queues with requests for the shared part.
    listed: ArrayQueue<u32>,
}

impl DeviceCore {
    pub(crate) fn new(cfg: DeviceCfg, ports: Ports) -> Self {
        Self {
            tables: Tables::new(cfg, ports),
            queues: IdTable::new(),
            runnable: ArrayQueue::new(LIST_LEN),
            listed: ArrayQueue::new(LIST_LEN),
        }
    }

    /// The value of a counter.
    pub(crate) fn counter(&self, counter: Counter) -> u64 {
        let fast: u64 = self.queues.iter().map(|q| q.fast.value(counter)).sum();
        fast + self.tables.counts.value(counter)
    }

    /// The part of a counter that the send queues of a function counted.
    pub(crate) fn counter_of(&self, owner: FunctionId, counter: Counter) -> u64 {
        let own = self.queues.iter().filter(|queue| queue.is_of(owner));
        own.map(|queue| queue.fast.value(counter)).sum()
    }

    /// Steps a queue's engine, or marks it for the thread that is stepping it; puts the queue on the lists for what
    /// is left. Returns what is left.
    // With several callers `inline` alone leaves a call on the path of an 8-byte WRITE.
    #[inline(always)]
    pub(crate) fn step_queue(
        &self,
        queue: &Arc<DeviceSendQueue>,
        direct: Option<&[u64; BLOCK_WORDS]>,
    ) -> StepOutcome {
        let visit = Visit { tables: &self.tables, queue, direct };
        let (run, left) = queue.send.run_split(
            |place| {
                place
                    .engine()
                    .as_mut()
                    .map_or(StepOutcome::NOTHING, |engine| engine.execute_posted(&visit))
            },
            |place, left| {
                let Some(engine) = place.engine() else { return };
                *left = left.then(engine.execute_posted_again(&Visit { direct: None, ..visit }));
            },
        );
        self.leave(queue, run, left.unwrap_or(StepOutcome::NOTHING))
    }

    /// Calls `execute` for an entry that is not in the ring, on the express lane. `None`: nothing happened.
    #[inline(always)]
    pub(crate) fn execute(
        &self,
        queue: &Arc<DeviceSendQueue>,
        execute: impl FnOnce(&mut SendEngine, (&Tables, &Queue)) -> Option<StepOutcome>,
    ) -> Option<StepOutcome> {
        let at: (&Tables, &Queue) = (&self.tables, queue);
        let (run, left) = queue.send.try_split(
            |place| {
                let executed = place.engine().as_mut().and_then(|engine| execute(engine, at));
                executed.unwrap_or(StepOutcome::NOT_EXECUTED)
            },
            |place, left| {
                let Some(engine) = place.engine() else { return };
                let visit = Visit { tables: &self.tables, queue, direct: None };
                *left = left.then(engine.execute_posted_again(&visit));
            },
        )?;
        if left == StepOutcome::BUSY && run == RunResult::Done {
            return Some(left);
        }
        let is_executed = !left.has(StepOutcome::NOT_EXECUTED);
        is_executed.then_some(self.leave(queue, run, left.without(StepOutcome::NOT_EXECUTED)))
    }

    /// Puts the queue on the lists for what its steps left, and returns that.
    #[inline(always)]
    fn leave(&self, queue: &Queue, run: RunResult, mut left: StepOutcome) -> StepOutcome {
        left |= StepOutcome::MORE.when(run == RunResult::WorkLeft);
        if left != StepOutcome::BUSY {
            self.list(queue, left);
        }
        left
    }

    /// Sends the message of a direct entry with `push` if it can take the express lane; else steps the queue, with
    /// the results of [`DeviceCore::step_queue`].
    #[inline]
    pub(crate) fn send_short(
        &self,
        queue: &Arc<DeviceSendQueue>,
        block: &[u64; BLOCK_WORDS],
        push: impl FnOnce(&ShortSend<'_>) -> bool,
    ) -> StepOutcome {
        let visit = Visit { tables: &self.tables, queue, direct: Some(block) };
        let (run, left) = queue.send.run_split(
            |place| {
                let Some(engine) = place.engine() else { return StepOutcome::NOTHING };
                engine
                    .send_short(&visit, block, push)
                    .unwrap_or_else(|| engine.execute_posted_again(&visit))
            },
            |place, left| {
                let Some(engine) = place.engine() else { return };
                *left = left.then(engine.execute_posted_again(&Visit { direct: None, ..visit }));
            },
        );
        self.leave(queue, run, left.unwrap_or(StepOutcome::NOTHING))
    }

    /// Puts the queue into ping-pong mode with the direct entry `block`. Returns the sequence number of that request,
    /// by which it is completed; `None`: another thread steps the queue, or the entry takes another path.
    #[cold]
    pub(crate) fn begin_ping_pong(
        &self,
        queue: &Arc<DeviceSendQueue>,
        block: &[u64; BLOCK_WORDS],
    ) -> Option<u32> {
        let visit = Visit { tables: &self.tables, queue, direct: Some(block) };
        let visited = queue.send.try_with(|place| place.begin_ping_pong(&visit, block))?;
        self.leave(queue, RunResult::Done, StepOutcome::MORE.when(visited.marked));
        visited.value
    }

    /// Sends the message of a direct entry with `push` in ping-pong mode, which may hold a lease of the queue. `push`
    /// returns whether it sent. Returns what is left; `None`: the entry takes another path.
    #[inline(always)]
    pub(crate) fn send_piggybacked(
        &self,
        (queue, owner): (&Arc<DeviceSendQueue>, &SerialOwner),
        block: &[u64; BLOCK_WORDS],
        push: impl FnOnce(&ShortBody<'_>) -> bool,
    ) -> Option<StepOutcome> {
        self.visit_as((queue, owner), |place| {
            place.send_piggybacked(queue, block, push).map(|()| StepOutcome::BUSY)
        })
    }

    /// Completes the open message of the queue's ping-pong mode, which was acknowledged. Returns what is left;
    /// `None`: there is none, or another thread steps the queue.
    #[inline(always)]
    pub(crate) fn on_answered(
        &self,
        (queue, owner): (&Arc<DeviceSendQueue>, &SerialOwner),
    ) -> Option<StepOutcome> {
        let answer =
            |place: &mut EnginePlace| place.on_answered(queue).then_some(StepOutcome::BUSY);
        self.visit_as((queue, owner), answer)
    }

    /// Calls `visit` on the queue in ping-pong mode, and takes a lease where `owner` may. Returns what is left;
    /// `None`: another thread has the queue, or `visit` returned `None`.
    #[inline(always)]
    fn visit_as(
        &self,
        (queue, owner): (&Arc<DeviceSendQueue>, &SerialOwner),
        visit: impl FnOnce(&mut EnginePlace) -> Option<StepOutcome>,
    ) -> Option<StepOutcome> {
        let (left, is_marked) = match queue.send.try_visit_as(owner) {
            OwnerEntry::Visit(mut held) => {
                let left = held.with(visit);
                let to_lease = left.is_some() && !held.is_leased() && owner.is_some();
                let end = if to_lease { held.lease(owner) } else { held.end() };
                (left, end.is_err_and(VisitEnd::finish))
            }
            OwnerEntry::Refused => return None,
            OwnerEntry::Taken(entry) => (None, entry.finish()),
        };
        if is_marked {
            self.leave(queue, RunResult::Done, StepOutcome::MORE);
        }
        left
    }

    /// Completes request `seq` of queue `id`, which was handed over and succeeded. If another thread steps the queue,
    /// the completion has to go by mail.
    #[inline]
    pub(crate) fn end_handed(&self, id: u32, seq: u32, bytes: u32) -> HandedEnd {
        let Some(queue) = self.queues.get(id) else { return HandedEnd::ByMail };
        let visit = Visit { tables: &self.tables, queue, direct: None };
        let visited = queue.send.try_with(|place| {
            place.engine().as_mut().map_or(HandedEnd::ByMail, |e| e.end_handed(&visit, seq, bytes))
        });
        match visited {
            None => HandedEnd::ByMail,
            Some(visited) if visited.marked && visited.value == HandedEnd::Done => HandedEnd::Step,
            Some(visited) => visited.value,
        }
    }

    /// Puts the queue on the lists for what a step left.
    #[cold]
    pub(crate) fn list(&self, queue: &Queue, left: StepOutcome) {
        if left.has(StepOutcome::MORE) {
            self.make_runnable(queue);
        }
        if left.has(StepOutcome::FREED) {
            self.restart_later();
        }
        if left.has(StepOutcome::SHARED) || left.has(StepOutcome::GATHERED) {
            self.list_send(queue);
        }
    }

    /// Lets a send queue take the completions in its mail. Does not step the shared part: what the queue hands over
    /// now goes on its list.
    pub(crate) fn wake_send(&self, id: u32) {
        if let Some(queue) = self.queues.get(id) {
            let _ = self.step_queue(queue, None);
        }
    }

    /// Puts the send queue on the list for the shared part.
    fn list_send(&self, queue: &Queue) {
        if queue.mark_listed() {
            // Each number is on the list at most once, so there is room.
            let _ = self.listed.push(queue.id);
            // Polls need no sign: the caller visits the shared part, which is one.
        }
    }

    /// Takes the next send queue from the list for the shared part.
    pub(crate) fn next_listed(&self) -> Option<u32> {
        if !self.has_listed() {
            return None;
        }
        let id = self.listed.pop()?;
        if let Some(queue) = self.queues.get(id) {
            queue.unmark_listed();
        }
        Some(id)
    }

    /// Whether a send queue is on the list for the shared part: cheaper than trying to take one.
    pub(crate) fn has_listed(&self) -> bool {
        !self.listed.is_empty()
    }

    /// Puts a queue on the list for the next step.
    pub(crate) fn make_runnable(&self, queue: &Queue) {
        if queue.mark_runnable() {
            let _ = self.runnable.push(queue.id);
            self.tables.sign.raise();
        }
    }

    pub(crate) fn has_runnable(&self) -> bool {
        !self.runnable.is_empty()
    }

    /// Takes the queues for one step: those that waited longest, ordered by priority. A queue that needs yet another
    /// step gets it in the next round, after the others.
    pub(crate) fn take_runnable<'a, const N: usize>(
        &self,
        turns: &'a mut [(u32, u32); N],
    ) -> &'a [(u32, u32)] {
        if self.tables.step.is_shared() {
            return self.take_of_each(turns);
        }
        let mut count = 0;
        for position in 0..self.runnable.len().min(N) {
            let Some(id) = self.runnable.pop() else { break };
            let priority = self.queues.get(id).map_or(0, |q| q.priority.load(Ordering::Relaxed));
            let waited = u32::try_from(position).unwrap_or(0);
            turns[count] = ((PRIORITY_MAX - priority.min(PRIORITY_MAX)) << 16 | waited, id);
            count += 1;
        }
        turns[..count].sort_unstable();
        &turns[..count]
    }

    /// Takes the longest waiting queue of each function, for a device that several share: more queues or doorbells
    /// give a function no more steps.
    #[cold]
    fn take_of_each<'a, const N: usize>(
        &self,
        chosen: &'a mut [(u32, u32); N],
    ) -> &'a [(u32, u32)] {
        let (mut count, mut is_put_back) = (0, false);
        for _ in 0..self.runnable.len() {
            let Some(id) = self.runnable.pop() else { break };
            let owner = self.queues.get(id).map_or(0, |queue| queue.owner());
            if count == N || chosen[..count].iter().any(|(of, _)| *of == owner) {
                // It stays marked, and goes before those of this step that need another one.
                let _ = self.runnable.push(id);
                is_put_back = true;
                continue;
            }
            chosen[count] = (owner, id);
            count += 1;
        }
        if is_put_back {
            // Another thread may have found the list empty meanwhile.
            self.tables.sign.raise();
        }
        &chosen[..count]
    }

    /// Restarts the queues that stopped for want of a completion slot, in the next step. For callers inside a step of
    /// a queue or of the shared part.
    #[cold]
    pub(crate) fn restart_later(&self) {
        for queue in self.queues.iter().filter(|q| q.stopped.load(Ordering::SeqCst)) {
            queue.stopped.store(false, Ordering::SeqCst);
            self.make_runnable(queue);
        }
    }
}
