//! What every room above the engines borrows: the tables, the send queues, the lists of those to run.
//!
//! *Owns*: queues by number, two work lists. *Takes*: doorbells passed on, completions for send queues.
//! *Gives*: bounded steps of one queue. *Must not*: wait for a queue that another thread steps (that
//! thread sees the mark); know the shared part.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use udma_abi::{counters::Counter, sqe::BLOCK_WORDS};
use urma_mem::sync::Ordering;
use urma_mem::{OwnerEntry, RunResult, SerialOwner, VisitEnd};

use super::fast_queue::EnginePlace;
use super::queue::DeviceSendQueue;
use super::send::{HandedEnd, SendEngine, ShortSend, StepOutcome, Visit};
use super::short::ShortBody;
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
    /// Queues that want another step.
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
        let contexts = self.tables.contexts.as_ref();
        let modelled = contexts.map_or(0, |contexts| contexts.value(counter.name()));
        fast + self.tables.counts.value(counter) + modelled
    }

    /// The part of a counter that the send queues of a function counted.
    pub(crate) fn counter_of(&self, owner: FunctionId, counter: Counter) -> u64 {
        let own = self.queues.iter().filter(|queue| queue.is_of(owner));
        own.map(|queue| queue.fast.value(counter)).sum()
    }

    /// Steps a queue's engine, in this thread or in the one that steps it already, and lists what it
    /// leaves. Returns what is left.
    // With several callers `inline` alone leaves a call in the path of an 8-byte WRITE.
    #[inline(always)]
    pub(crate) fn step_queue(
        &self,
        queue: &Arc<DeviceSendQueue>,
        direct: Option<&[u64; BLOCK_WORDS]>,
    ) -> StepOutcome {
        let visit = Visit { tables: &self.tables, queue, direct };
        let (run, left) = queue.send.run_split(
            |place| {
                place.engine().as_mut().map_or(StepOutcome::NOTHING, |engine| engine.step(&visit))
            },
            |place, left| {
                let Some(engine) = place.engine() else { return };
                *left = left.then(engine.step_again(&Visit { direct: None, ..visit }));
            },
        );
        self.leave(queue, run, left.unwrap_or(StepOutcome::NOTHING))
    }

    /// Lets `carry` carry out an entry that is in no ring, on the express lane; `None`: nothing happened.
    #[inline(always)]
    pub(crate) fn carry(
        &self,
        queue: &Arc<DeviceSendQueue>,
        carry: impl FnOnce(&mut SendEngine, (&Tables, &Queue)) -> Option<StepOutcome>,
    ) -> Option<StepOutcome> {
        let at: (&Tables, &Queue) = (&self.tables, queue);
        let (run, left) = queue.send.try_split(
            |place| {
                let carried = place.engine().as_mut().and_then(|engine| carry(engine, at));
                carried.unwrap_or(StepOutcome::NOT_CARRIED)
            },
            |place, left| {
                let Some(engine) = place.engine() else { return };
                let visit = Visit { tables: &self.tables, queue, direct: None };
                *left = left.then(engine.step_again(&visit));
            },
        )?;
        if left == StepOutcome::BUSY && run == RunResult::Done {
            return Some(left);
        }
        let is_carried = !left.has(StepOutcome::NOT_CARRIED);
        is_carried.then_some(self.leave(queue, run, left.without(StepOutcome::NOT_CARRIED)))
    }

    /// Lists the queue for what its steps left, and returns that.
    #[inline(always)]
    fn leave(&self, queue: &Queue, run: RunResult, mut left: StepOutcome) -> StepOutcome {
        left |= StepOutcome::MORE.when(run == RunResult::WorkLeft);
        if left != StepOutcome::BUSY {
            self.list(queue, left);
        }
        left
    }

    /// Sends the message of a direct entry by `push` if it can take the lane, else steps the queue as
    /// [`DeviceCore::step_queue`].
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
                engine.send_short(&visit, block, push).unwrap_or_else(|| engine.step_again(&visit))
            },
            |place, left| {
                let Some(engine) = place.engine() else { return };
                *left = left.then(engine.step_again(&Visit { direct: None, ..visit }));
            },
        );
        self.leave(queue, run, left.unwrap_or(StepOutcome::NOTHING))
    }

    /// Begins a ping-pong of the queue with the direct entry `block`, unless another thread steps it. Returns the number of
    /// that request, which pairs it with its end.
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

    /// Says the message of a direct entry in the ping-pong of its queue, which may own that, by `push`, which returns whether
    /// it went. Returns what is left; `None`: the entry takes another path.
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

    /// The open message of the queue's ping-pong was acknowledged. Returns what is left; `None`: there is none, or another
    /// thread steps the queue.
    #[inline(always)]
    pub(crate) fn on_answered(
        &self,
        (queue, owner): (&Arc<DeviceSendQueue>, &SerialOwner),
    ) -> Option<StepOutcome> {
        let answer =
            |place: &mut EnginePlace| place.on_answered(queue).then_some(StepOutcome::BUSY);
        self.visit_as((queue, owner), answer)
    }

    /// Visits a queue for its ping-pong. Returns what is left; `None`: another thread has it, or `visit` returned that.
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

    /// Ends request `seq` of queue `id`, which was handed over and succeeded, unless another thread steps
    /// the queue.
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

    /// Lists the queue for what a step left.
    #[cold]
    pub(crate) fn list(&self, queue: &Queue, left: StepOutcome) {
        if left.has(StepOutcome::MORE) {
            self.make_runnable(queue);
        }
        if left.has(StepOutcome::FREED) {
            self.restart_later();
        }
        if left.has(StepOutcome::SHARED) {
            self.list_send(queue);
        }
    }

    /// Lets a send queue take the completions in its mail. The shared part is not stepped from here:
    /// what the queue hands over now is listed.
    pub(crate) fn wake_send(&self, id: u32) {
        if let Some(queue) = self.queues.get(id) {
            let _ = self.step_queue(queue, None);
        }
    }

    /// A send queue has something for the shared part.
    fn list_send(&self, queue: &Queue) {
        if queue.mark_listed() {
            // The list holds every number at most once, so there is room.
            let _ = self.listed.push(queue.id);
            // Polls are not given a sign: the shared part is visited for it, which is one.
        }
    }

    /// The next send queue with something for the shared part.
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

    /// Whether some send queue has something for the shared part: cheaper than to find out by taking.
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

    /// Queues for one step, the longest waiting ones, by priority. A queue that wants yet another step
    /// gets it in the next one, so the others come before it.
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

    /// As [`DeviceCore::take_runnable`], the longest waiting queue of each function: how many queues a function has, and how often it rings, gives
    /// it no more steps.
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
                // It stays marked. In front of those of this step that want another one.
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

    /// Completion slots are free again: queues that stopped for want of one go on in the next step.
    /// For callers inside a step of a queue or of the shared part.
    #[cold]
    pub(crate) fn restart_later(&self) {
        for queue in self.queues.iter().filter(|q| q.stopped.load(Ordering::SeqCst)) {
            queue.stopped.store(false, Ordering::SeqCst);
            self.make_runnable(queue);
        }
    }
}
