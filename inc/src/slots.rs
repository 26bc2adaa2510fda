//! The slots of a switch: contributions of all children become one, whatever is lost, doubled or late.
//!
//! A [`CommunicatorSlots`] is the part of a tree that one switch has: up to 64 children, a parent unless it is the root, and a
//! window of W chunks. It has two banks of W slots each. A host sends chunk s only when it has the answer of chunk s - W.
//! So who sends s proves that all have the answers up to s - 2W: the slot that s takes is free, and a kept answer is there
//! for a child that may still ask. A repeat of a chunk that is done gets the kept answer again; a repeat of one that
//! went to the parent goes there again. The switch has no timers: hosts repeat.

use std::collections::VecDeque;

use crate::element::Reduction;
use crate::reduce::{accumulate, fold};
use crate::wire::{AbortReason, Collective, IncHeader, IncKind, Rank, Seq, TreeEpoch};

/// Children of a switch at most.
pub const CHILDREN_MAX: usize = 64;
/// Chunks of a window at least and at most.
const WINDOW: std::ops::RangeInclusive<u32> = 2..=1024;

/// Time in nanoseconds, from any fixed start.
pub type IncTime = u64;

/// The part of a communicator's tree that one switch has.
#[derive(Debug, Clone)]
pub struct CommunicatorSlotsCfg {
    /// Children, in the order in which floats are added: 1 to 64.
    pub children: Vec<Child>,
    /// Whether there is a switch above.
    pub has_parent: bool,
    /// Chunks that may be in flight: a power of two, 2 to 1024.
    pub window: u32,
    /// Bytes of data in a message at most.
    pub data_max: usize,
    /// Life of the tree.
    pub epoch: TreeEpoch,
    /// First chunk of this life.
    pub first: Seq,
    /// A repeat sooner than this after the chunk went to the parent is not passed on.
    pub forward_pause_ns: IncTime,
    /// Floats are added in the order of the children; if not, as they come.
    pub is_ordered: bool,
}

/// A child of a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Child {
    /// A member of the communicator itself.
    Host(Rank),
    /// A switch, with the members below it.
    Switch(Vec<Rank>),
}

/// Why a communicator cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommunicatorSlotsCfgError {
    /// No child, or more than 64.
    #[error("a switch has 1 to 64 children of a communicator, not {0}")]
    Children(usize),
    /// Not a power of two from 2 to 1024.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// No data fits a message.
    #[error("a message has at least one byte of data")]
    DataMax,
    /// A rank is below two children.
    #[error("rank {} is below children {first} and {second}", rank.0)]
    DoubledRank {
        /// Rank of the member.
        rank: Rank,
        /// First child that has it below.
        first: usize,
        /// Second child that has it below.
        second: usize,
    },
}

/// A number of chunks that is no window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a window is a power of two from 2 to 1024 chunks, not {0}")]
pub struct WindowError(pub u32);

/// Whether a window may have so many chunks.
///
/// # Errors
/// [`WindowError`].
pub fn check_window(chunks: u32) -> Result<(), WindowError> {
    let is_one = chunks.is_power_of_two() && WINDOW.contains(&chunks);
    if is_one { Ok(()) } else { Err(WindowError(chunks)) }
}

/// What happened, since the communicator was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SwitchCounts {
    /// Contributions that were taken.
    pub contributions: u64,
    /// Contributions and results that had been taken before.
    pub duplicates: u64,
    /// Contributions to a chunk that is over.
    pub stale: u64,
    /// Messages that no member sends that keeps to the protocol.
    pub violations: u64,
    /// Messages of another life of the tree.
    pub other_epochs: u64,
    /// Answers and forwarded contributions that were sent again.
    pub repeats: u64,
    /// Aborts that were sent.
    pub aborts: u64,
    /// Bytes of data in the contributions that were taken.
    pub bytes: u64,
    /// Times from a chunk's first contribution to its answer.
    pub chunks: ChunkTimes,
}

/// How long chunks took, in classes: classes of several switches and epochs are added up one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChunkTimes {
    /// Chunks that took at most the time of [`ChunkTimes::BOUNDS_NS`], and more than the one before; then longer ones.
    pub counts: [u64; Self::BOUNDS_NS.len() + 1],
    /// Sum of all times.
    pub sum_ns: u64,
}

impl ChunkTimes {
    /// The longest time of each class but the last: 4 us to 16.8 s, each four times the one before.
    pub const BOUNDS_NS: [IncTime; 12] = {
        let mut bounds = [4000; 12];
        let mut at = 1;
        while at < bounds.len() {
            bounds[at] = 4 * bounds[at - 1];
            at += 1;
        }
        bounds
    };

    fn note(&mut self, time: IncTime) {
        self.counts[Self::BOUNDS_NS.partition_point(|bound| *bound < time)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(time);
    }

    /// Adds what others were noted to take.
    pub fn add(&mut self, more: &Self) {
        for (sum, more) in self.counts.iter_mut().zip(more.counts) {
            *sum = sum.saturating_add(more);
        }
        self.sum_ns = self.sum_ns.saturating_add(more.sum_ns);
    }
}

impl SwitchCounts {
    /// Adds what happened in another life of the communicator.
    pub fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.contributions, more.contributions),
            (&mut self.duplicates, more.duplicates),
            (&mut self.stale, more.stale),
            (&mut self.violations, more.violations),
            (&mut self.other_epochs, more.other_epochs),
            (&mut self.repeats, more.repeats),
            (&mut self.aborts, more.aborts),
            (&mut self.bytes, more.bytes),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.chunks.add(&more.chunks);
    }
}

/// Two contributions to a chunk that cannot both be: of other operations, or of other sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkConflict {
    /// The child that sent the second one.
    pub child: usize,
    /// The first contribution to the chunk.
    pub first: IncHeader,
    /// The one that differs from it.
    pub second: IncHeader,
}

/// Where a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// The child with this index.
    Child(usize),
    /// The switch above this one.
    Parent,
}

/// A message to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeMessage<'a> {
    /// Edge on which it is sent.
    pub to: To,
    /// Header of the message.
    pub header: IncHeader,
    /// The data behind the header; valid until the next call.
    pub data: &'a [u8],
}

/// A message that waits to be sent; its data lies in the slot of its chunk.
#[derive(Debug, Clone, Copy)]
struct Queued {
    to: To,
    header: IncHeader,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    Free,
    /// Contributions of some children are missing.
    Aggregating,
    /// All are there, and the sum went to the parent.
    Forwarded {
        at: IncTime,
    },
    /// The answer is kept.
    Done,
}

#[derive(Debug, Clone, Copy)]
struct ChunkSlot {
    state: ChunkState,
    /// Children whose contribution is there, by bits.
    seen: u64,
    /// Header of the first contribution; for a broadcast with the root's count.
    first: IncHeader,
    collective: Collective,
    /// When the first contribution came.
    began: IncTime,
}

/// Slots and counters of one communicator in one switch.
#[derive(Debug, Clone)]
pub struct CommunicatorSlots {
    /// Which children are hosts, with their rank.
    hosts: Vec<Option<Rank>>,
    /// Members below, in the order of their ranks, each with its child.
    below: Vec<(Rank, usize)>,
    has_parent: bool,
    window: u32,
    data_max: usize,
    epoch: TreeEpoch,
    first: Seq,
    forward_pause_ns: IncTime,
    is_ordered: bool,
    /// Two banks of a window each.
    slots: Vec<ChunkSlot>,
    /// Reduced data of each slot.
    data: Vec<u8>,
    /// Contributions that are added in the order of the children, of the chunks of one window: made at the first
    /// reduction that needs it.
    waiting: Vec<u8>,
    transmits: VecDeque<Queued>,
    aborted: Option<AbortReason>,
    contradiction: Option<ChunkConflict>,
    counts: SwitchCounts,
}

const NO_HEADER: IncHeader = IncHeader {
    kind: IncKind::Contribution(Collective::Barrier),
    seq: Seq(0),
    epoch: TreeEpoch(0),
    op_id: 0,
    is_repeat: false,
    is_last: false,
    count: 0,
};

const FREE: ChunkSlot = ChunkSlot {
    state: ChunkState::Free,
    seen: 0,
    first: NO_HEADER,
    collective: Collective::Barrier,
    began: 0,
};

impl CommunicatorSlots {
    /// A communicator whose slots are all free.
    ///
    /// # Errors
    /// [`CommunicatorSlotsCfgError`].
    pub fn new(cfg: &CommunicatorSlotsCfg) -> Result<Self, CommunicatorSlotsCfgError> {
        let count = cfg.children.len();
        if !(1..=CHILDREN_MAX).contains(&count) {
            return Err(CommunicatorSlotsCfgError::Children(count));
        }
        check_window(cfg.window)?;
        if cfg.data_max == 0 {
            return Err(CommunicatorSlotsCfgError::DataMax);
        }
        let mut below = Vec::new();
        for (index, child) in cfg.children.iter().enumerate() {
            match child {
                Child::Host(rank) => below.push((*rank, index)),
                Child::Switch(ranks) => below.extend(ranks.iter().map(|rank| (*rank, index))),
            }
        }
        below.sort_unstable();
        if let Some([(rank, first), (_, second)]) =
            below.array_windows().find(|[(a, _), (b, _)]| a == b)
        {
            let (rank, first, second) = (*rank, *first, *second);
            return Err(CommunicatorSlotsCfgError::DoubledRank { rank, first, second });
        }
        let host = |child: &Child| match child {
            Child::Host(rank) => Some(*rank),
            Child::Switch(_) => None,
        };
        let slots = 2 * cfg.window as usize;
        Ok(Self {
            hosts: cfg.children.iter().map(host).collect(),
            below,
            has_parent: cfg.has_parent,
            window: cfg.window,
            data_max: cfg.data_max,
            epoch: cfg.epoch,
            first: cfg.first,
            forward_pause_ns: cfg.forward_pause_ns,
            is_ordered: cfg.is_ordered,
            slots: vec![FREE; slots],
            data: vec![0; slots * cfg.data_max],
            waiting: Vec::new(),
            transmits: VecDeque::new(),
            aborted: None,
            contradiction: None,
            counts: SwitchCounts::default(),
        })
    }

    /// A contribution, or an abort, of the child with the index `child`.
    pub fn on_child(&mut self, now: IncTime, child: usize, header: &IncHeader, data: &[u8]) {
        if child >= self.hosts.len() {
            self.counts.violations += 1;
            return;
        }
        if header.epoch != self.epoch {
            self.counts.other_epochs += 1;
            return;
        }
        if let Some(reason) = self.aborted {
            // It has not received one yet.
            return self.send_abort(To::Child(child), header.seq, reason);
        }
        match header.kind {
            IncKind::Contribution(collective) => {
                self.on_contribution(now, child, (header, collective), data);
            }
            IncKind::Abort(reason) => self.abort(header.seq, reason),
            IncKind::Result(_) | IncKind::Release(_) => self.counts.violations += 1,
        }
    }

    /// A result, a release or an abort of the switch above.
    pub fn on_parent(&mut self, now: IncTime, header: &IncHeader, data: &[u8]) {
        if header.epoch != self.epoch {
            self.counts.other_epochs += 1;
            return;
        }
        if self.aborted.is_some() {
            return;
        }
        let (collective, has_data) = match header.kind {
            IncKind::Result(collective) => (collective, true),
            IncKind::Release(collective) => (collective, false),
            IncKind::Abort(reason) => return self.abort(header.seq, reason),
            IncKind::Contribution(_) => {
                self.counts.violations += 1;
                return;
            }
        };
        let index = self.index_of(header.seq);
        let slot = self.slots[index];
        let is_forwarded = matches!(slot.state, ChunkState::Forwarded { .. });
        if !is_forwarded || slot.first.seq != header.seq {
            self.counts.duplicates += 1;
            return;
        }
        // A broadcast's count is the root's, which may lie elsewhere.
        let fits = data.len() == header.data_len()
            && data.len() <= self.data_max
            && (!has_data || self.is_broadcast(collective) || header.count == slot.first.count);
        let is_meant = slot.collective == collective && slot.first.op_id == header.op_id;
        if !fits || !is_meant || has_data != self.wants_data(collective) {
            self.counts.violations += 1;
            return;
        }
        if has_data {
            let at = index * self.data_max;
            self.data[at..at + data.len()].copy_from_slice(data);
            self.slots[index].first.count = header.count;
        }
        self.finish(now, index);
    }

    /// The next message to be sent. All are to be taken before the next message comes in: its data lies in a slot.
    pub fn poll_transmit(&mut self) -> Option<TreeMessage<'_>> {
        let Queued { to, header } = self.transmits.pop_front()?;
        let at = self.index_of(header.seq) * self.data_max;
        let data = self.data.get(at..at + header.data_len()).unwrap_or_default();
        Some(TreeMessage { to, header, data })
    }

    /// Ends this life of the communicator: tells all children and the parent, once, and each that goes on again.
    pub fn abort(&mut self, seq: Seq, reason: AbortReason) {
        if self.aborted.is_some() {
            return;
        }
        self.aborted = Some(reason);
        self.transmits.clear();
        self.slots.fill(FREE);
        for child in 0..self.hosts.len() {
            self.send_abort(To::Child(child), seq, reason);
        }
        if self.has_parent {
            self.send_abort(To::Parent, seq, reason);
        }
    }

    /// Why this life of the communicator is over; `None`: it is not.
    #[must_use]
    pub fn aborted(&self) -> Option<AbortReason> {
        self.aborted
    }

    /// A new life, from the chunk `first` on. Whatever was in the slots is forgotten.
    pub fn restart(&mut self, epoch: TreeEpoch, first: Seq) {
        (self.epoch, self.first, self.aborted) = (epoch, first, None);
        self.slots.fill(FREE);
        self.transmits.clear();
    }

    /// The two contributions for which the communicator was aborted, once.
    pub fn take_contradiction(&mut self) -> Option<ChunkConflict> {
        self.contradiction.take()
    }

    /// The data of a message that was sent to a child or to the parent: it stays until they have it.
    #[must_use]
    pub fn data_of(&self, seq: Seq) -> &[u8] {
        let index = self.index_of(seq);
        let (slot, at) = (&self.slots[index], index * self.data_max);
        let is_its = slot.state != ChunkState::Free && slot.first.seq == seq;
        if is_its { &self.data[at..at + slot.first.data_len()] } else { &[] }
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> SwitchCounts {
        self.counts
    }

    /// Slots that hold a chunk which is not done.
    #[must_use]
    pub fn slots_in_use(&self) -> usize {
        let is_used =
            |slot: &&ChunkSlot| !matches!(slot.state, ChunkState::Free | ChunkState::Done);
        self.slots.iter().filter(is_used).count()
    }

    /// Bytes of all slots and of contributions that wait for others.
    #[must_use]
    pub fn memory_len(&self) -> usize {
        self.slots.len() * size_of::<ChunkSlot>() + self.data.len() + self.waiting.len()
    }

    fn on_contribution(
        &mut self,
        now: IncTime,
        child: usize,
        (header, collective): (&IncHeader, Collective),
        data: &[u8],
    ) {
        let seq = header.seq;
        if data.len() != header.data_len() || data.len() > self.data_max {
            self.counts.violations += 1;
            return;
        }
        let index = self.index_of(seq);
        let slot = self.slots[index];
        let is_free = slot.state == ChunkState::Free;
        if is_free || slot.first.seq.is_before(seq) {
            let may_take = match slot.state {
                ChunkState::Free => seq.since(self.first) < 2 * self.window,
                ChunkState::Done => seq == slot.first.seq.plus(2 * self.window),
                ChunkState::Aggregating | ChunkState::Forwarded { .. } => false,
            };
            if !may_take || !self.is_known(collective) {
                self.counts.violations += 1;
                return;
            }
            let first = IncHeader { is_repeat: false, ..*header };
            self.slots[index] = ChunkSlot {
                state: ChunkState::Aggregating,
                seen: 0,
                first,
                collective,
                began: now,
            };
        } else if slot.first.seq != seq {
            self.counts.stale += 1;
            return;
        }
        let bit = 1 << child;
        let slot = &mut self.slots[index];
        if slot.collective != collective
            || slot.first.op_id != header.op_id
            || slot.first.is_last != header.is_last
            || !self.has_its_count(index, child, header)
        {
            let first = self.slots[index].first;
            self.contradiction = Some(ChunkConflict { child, first, second: *header });
            return self.abort(seq, AbortReason::Contradiction);
        }
        let slot = &mut self.slots[index];
        if slot.seen & bit != 0 {
            self.counts.duplicates += 1;
            return self.on_repeat(now, child, index);
        }
        self.counts.contributions += 1;
        self.counts.bytes += data.len() as u64;
        slot.seen |= bit;
        let is_first = slot.seen == bit;
        self.add((index, child), collective, (header, data), is_first);
        let all = u64::MAX >> (CHILDREN_MAX - self.hosts.len());
        if self.slots[index].seen != all {
            return;
        }
        self.add_waiting(index, collective);
        if self.has_parent {
            self.slots[index].state = ChunkState::Forwarded { at: now };
            self.forward(index, false);
        } else {
            self.finish(now, index);
        }
    }

    /// A contribution that is there already: its child lacks the answer.
    fn on_repeat(&mut self, now: IncTime, child: usize, index: usize) {
        match self.slots[index].state {
            ChunkState::Free | ChunkState::Aggregating => {}
            ChunkState::Forwarded { at } => {
                if now.saturating_sub(at) >= self.forward_pause_ns {
                    self.slots[index].state = ChunkState::Forwarded { at: now };
                    self.counts.repeats += 1;
                    self.forward(index, true);
                }
            }
            ChunkState::Done => {
                self.counts.repeats += 1;
                self.answer(index, child, true);
            }
        }
    }

    /// Whether the count is that of the chunk: of a broadcast, 0 but from the root's child.
    fn has_its_count(&self, index: usize, child: usize, header: &IncHeader) -> bool {
        let slot = &self.slots[index];
        match slot.collective {
            Collective::Broadcast(_, root) => {
                let is_root = self.child_of(root) == Some(child);
                header.count == 0 || is_root
            }
            Collective::Allreduce(_) | Collective::Reduce(..) | Collective::Barrier => {
                header.count == slot.first.count
            }
        }
    }

    /// Adds one contribution to its slot, or keeps it until all are there.
    fn add(
        &mut self,
        (index, child): (usize, usize),
        collective: Collective,
        (header, data): (&IncHeader, &[u8]),
        is_first: bool,
    ) {
        let at = index * self.data_max;
        match collective {
            Collective::Allreduce(reduction) | Collective::Reduce(reduction, _) => {
                if self.is_in_order(reduction) {
                    return self.keep(index, child, data);
                }
                let acc = &mut self.data[at..at + data.len()];
                if is_first {
                    acc.copy_from_slice(data);
                } else {
                    accumulate(reduction, acc, data);
                }
            }
            Collective::Broadcast(_, root) => {
                if self.child_of(root) == Some(child) {
                    self.data[at..at + data.len()].copy_from_slice(data);
                    self.slots[index].first.count = header.count;
                } else if is_first {
                    self.slots[index].first.count = 0;
                }
            }
            Collective::Barrier => {}
        }
    }

    /// Keeps a contribution whose place in the sum is that of its child.
    fn keep(&mut self, index: usize, child: usize, data: &[u8]) {
        let at = self.waiting_at(index, child);
        if self.waiting.is_empty() {
            let slots = self.window as usize * self.hosts.len();
            self.waiting = vec![0; slots * self.data_max];
        }
        self.waiting[at..at + data.len()].copy_from_slice(data);
    }

    /// Place of a contribution among those that wait: at most a window of chunks is not done.
    fn waiting_at(&self, index: usize, child: usize) -> usize {
        let slot = index % self.window as usize;
        (slot * self.hosts.len() + child) * self.data_max
    }

    /// Adds up what waited, from the first child to the last.
    fn add_waiting(&mut self, index: usize, collective: Collective) {
        let Some(reduction) = collective.reduction().filter(|r| self.is_in_order(*r)) else {
            return;
        };
        let len = usize::from(self.slots[index].first.count) * collective.element_size();
        let (start, at) = (self.waiting_at(index, 0), index * self.data_max);
        let children = self.waiting[start..].chunks(self.data_max).take(self.hosts.len());
        fold(reduction, children.map(|kept| &kept[..len]), &mut self.data[at..at + len]);
    }

    /// Whether the contributions are added in the order of the children.
    fn is_in_order(&self, reduction: Reduction) -> bool {
        self.is_ordered && reduction.is_ordered()
    }

    fn finish(&mut self, now: IncTime, index: usize) {
        let slot = &mut self.slots[index];
        slot.state = ChunkState::Done;
        self.counts.chunks.note(now.saturating_sub(slot.began));
        for child in 0..self.hosts.len() {
            self.answer(index, child, false);
        }
    }

    fn forward(&mut self, index: usize, is_repeat: bool) {
        let slot = &self.slots[index];
        let kind = IncKind::Contribution(slot.collective);
        let header = IncHeader { kind, is_repeat, ..slot.first };
        self.transmits.push_back(Queued { to: To::Parent, header });
    }

    fn answer(&mut self, index: usize, child: usize, is_repeat: bool) {
        let slot = &self.slots[index];
        let collective = slot.collective;
        let gets_data = match collective {
            Collective::Reduce(_, root) => self.child_of(root) == Some(child),
            Collective::Broadcast(_, root) => self.hosts[child] != Some(root),
            Collective::Allreduce(_) | Collective::Barrier => true,
        };
        let first = IncHeader { is_repeat, ..slot.first };
        let header = if gets_data {
            IncHeader { kind: IncKind::Result(collective), ..first }
        } else {
            IncHeader { kind: IncKind::Release(collective), count: 0, ..first }
        };
        self.transmits.push_back(Queued { to: To::Child(child), header });
    }

    fn send_abort(&mut self, to: To, seq: Seq, reason: AbortReason) {
        self.counts.aborts += 1;
        let header =
            IncHeader { kind: IncKind::Abort(reason), seq, epoch: self.epoch, ..NO_HEADER };
        self.transmits.push_back(Queued { to, header });
    }

    fn index_of(&self, seq: Seq) -> usize {
        (seq.0 & (2 * self.window - 1)) as usize
    }

    /// The child below which a member is.
    fn child_of(&self, rank: Rank) -> Option<usize> {
        let at = self.below.binary_search_by_key(&rank, |(rank, _)| *rank).ok()?;
        Some(self.below[at].1)
    }

    /// Whether its root can be a member: the root switch has all of them below.
    fn is_known(&self, collective: Collective) -> bool {
        let is_member = |root: Rank| self.has_parent || self.child_of(root).is_some();
        collective.root().is_none_or(is_member)
    }

    /// Whether the parent sends data down to this switch.
    fn wants_data(&self, collective: Collective) -> bool {
        match collective {
            Collective::Reduce(_, root) => self.child_of(root).is_some(),
            Collective::Allreduce(_) | Collective::Broadcast(..) | Collective::Barrier => true,
        }
    }

    fn is_broadcast(&self, collective: Collective) -> bool {
        matches!(collective, Collective::Broadcast(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{ElementType, Operator};

    const EPOCH: TreeEpoch = TreeEpoch(7);
    const WINDOW: u32 = 4;

    fn cfg(children: Vec<Child>, has_parent: bool) -> CommunicatorSlotsCfg {
        CommunicatorSlotsCfg {
            children,
            has_parent,
            window: WINDOW,
            data_max: 64,
            epoch: EPOCH,
            first: Seq(0),
            forward_pause_ns: 100,
            is_ordered: true,
        }
    }

    /// Hosts 0, 1, ... below one switch.
    fn hosts(count: u16, has_parent: bool) -> CommunicatorSlots {
        let children = (0..count).map(|rank| Child::Host(Rank(rank))).collect();
        CommunicatorSlots::new(&cfg(children, has_parent)).unwrap()
    }

    fn sum() -> Reduction {
        Reduction::new(Operator::Sum, ElementType::I32).unwrap()
    }

    fn contribution(seq: u32, collective: Collective, count: u16) -> IncHeader {
        let kind = IncKind::Contribution(collective);
        IncHeader { kind, seq: Seq(seq), epoch: EPOCH, count, ..NO_HEADER }
    }

    /// What is to be sent: where, what, and the data.
    fn sent(switch: &mut CommunicatorSlots) -> Vec<(To, IncHeader, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(TreeMessage { to, header, data }) = switch.poll_transmit() {
            all.push((to, header, data.to_vec()));
        }
        all
    }

    fn one(value: i32) -> [u8; 4] {
        value.to_le_bytes()
    }

    #[test]
    fn contributions_become_one_result_and_repeats_get_it_again() {
        let mut switch = hosts(2, false);
        let header = contribution(0, Collective::Allreduce(sum()), 1);
        switch.on_child(0, 0, &header, &one(40));
        switch.on_child(0, 0, &header, &one(40));
        assert!(sent(&mut switch).is_empty(), "the other one is missing");
        assert_eq!(switch.slots_in_use(), 1);
        switch.on_child(0, 1, &header, &one(2));
        let result = IncHeader { kind: IncKind::Result(Collective::Allreduce(sum())), ..header };
        let wanted = [0, 1].map(|child| (To::Child(child), result, one(42).to_vec()));
        assert_eq!(sent(&mut switch), wanted);
        let repeat = IncHeader { is_repeat: true, ..header };
        switch.on_child(0, 1, &repeat, &one(2));
        let again = IncHeader { is_repeat: true, ..result };
        assert_eq!(sent(&mut switch), [(To::Child(1), again, one(42).to_vec())]);
        let counts = switch.counts();
        assert_eq!((counts.contributions, counts.duplicates, counts.repeats), (2, 2, 1));
        assert_eq!((switch.slots_in_use(), counts.violations), (0, 0));
    }

    #[test]
    fn a_slot_is_taken_by_the_chunk_two_windows_later_when_it_is_done() {
        let mut switch = hosts(1, false);
        let of = |seq| contribution(seq, Collective::Allreduce(sum()), 1);
        // Beyond the two windows from the first chunk on.
        switch.on_child(0, 0, &of(2 * WINDOW), &one(1));
        switch.on_child(0, 0, &of(u32::MAX), &one(1));
        assert_eq!((switch.counts().violations, switch.counts().contributions), (2, 0));
        switch.on_child(0, 0, &of(0), &one(1));
        assert_eq!(sent(&mut switch).len(), 1);
        switch.on_child(0, 0, &of(4 * WINDOW), &one(1));
        assert_eq!(switch.counts().violations, 3, "a place, but four windows later");
        switch.on_child(0, 0, &of(2 * WINDOW), &one(5));
        assert_eq!(sent(&mut switch)[0].2, one(5));
        switch.on_child(0, 0, &of(0), &one(1));
        assert_eq!(switch.counts().stale, 1);
        // Of a chunk that is not done no host can be two windows ahead.
        let mut switch = hosts(2, false);
        switch.on_child(0, 0, &of(0), &one(1));
        switch.on_child(0, 0, &of(2 * WINDOW), &one(1));
        assert_eq!((switch.counts().violations, switch.slots_in_use()), (1, 1));
    }

    #[test]
    fn a_chunk_goes_to_the_parent_again_after_a_pause_only() {
        let mut switch = hosts(1, true);
        let header = contribution(3, Collective::Allreduce(sum()), 1);
        switch.on_child(1000, 0, &header, &one(9));
        assert_eq!(sent(&mut switch), [(To::Parent, header, one(9).to_vec())]);
        switch.on_child(1099, 0, &header, &one(9));
        assert!(sent(&mut switch).is_empty());
        switch.on_child(1100, 0, &header, &one(9));
        let repeat = IncHeader { is_repeat: true, ..header };
        assert_eq!(sent(&mut switch), [(To::Parent, repeat, one(9).to_vec())]);
        let result = IncHeader { kind: IncKind::Result(Collective::Allreduce(sum())), ..header };
        let other = IncHeader { op_id: 1, ..result };
        switch.on_parent(0, &other, &one(1));
        let longer = IncHeader { count: 2, ..result };
        switch.on_parent(0, &longer, &[0; 8]);
        assert_eq!(switch.counts().violations, 2);
        switch.on_parent(0, &result, &one(77));
        switch.on_parent(0, &result, &one(78));
        assert_eq!(sent(&mut switch), [(To::Child(0), result, one(77).to_vec())]);
        assert_eq!(switch.counts().duplicates, 3, "two contributions, one result");
    }

    #[test]
    fn only_the_root_of_a_reduction_gets_data() {
        let children = vec![Child::Host(Rank(0)), Child::Switch(vec![Rank(1), Rank(2)])];
        let mut switch = CommunicatorSlots::new(&cfg(children, true)).unwrap();
        let reduce = |root| Collective::Reduce(sum(), Rank(root));
        for (seq, root) in [(0, 2), (1, 9)] {
            let header = contribution(seq, reduce(root), 1);
            switch.on_child(0, 0, &header, &one(1));
            switch.on_child(0, 1, &header, &one(2));
        }
        assert_eq!(sent(&mut switch).len(), 2);
        // The root is below: data comes; else none does.
        let [below, elsewhere] =
            [(0, 2), (1, 9)].map(|(seq, root)| contribution(seq, reduce(root), 1));
        let release =
            |h: IncHeader, root| IncHeader { kind: IncKind::Release(reduce(root)), count: 0, ..h };
        let result = |h: IncHeader, root| IncHeader { kind: IncKind::Result(reduce(root)), ..h };
        switch.on_parent(0, &release(below, 2), &[]);
        switch.on_parent(0, &result(elsewhere, 9), &one(3));
        assert_eq!((switch.counts().violations, sent(&mut switch).len()), (2, 0));
        switch.on_parent(0, &result(below, 2), &one(3));
        switch.on_parent(0, &release(elsewhere, 9), &[]);
        let wanted = [
            (To::Child(0), release(below, 2), vec![]),
            (To::Child(1), result(below, 2), one(3).to_vec()),
            (To::Child(0), release(elsewhere, 9), vec![]),
            (To::Child(1), release(elsewhere, 9), vec![]),
        ];
        assert_eq!(sent(&mut switch), wanted);
    }

    #[test]
    fn a_broadcast_has_the_data_of_its_root_and_no_other() {
        let mut switch = hosts(2, false);
        let cast = Collective::Broadcast(ElementType::U8, Rank(1));
        switch.on_child(0, 0, &contribution(0, cast, 0), &[]);
        switch.on_child(0, 1, &contribution(0, cast, 5), b"hello");
        let all = sent(&mut switch);
        assert_eq!((all[0].0, all[0].1.count, &all[0].2[..]), (To::Child(0), 5, &b"hello"[..]));
        assert!(matches!(all[1].1.kind, IncKind::Release(_)) && all[1].1.count == 0);
        switch.on_child(0, 0, &contribution(1, cast, 5), b"wrong");
        assert_eq!(switch.aborted(), Some(AbortReason::Contradiction));
        // No member has this rank.
        let mut switch = hosts(2, false);
        let unknown = Collective::Broadcast(ElementType::U8, Rank(2));
        switch.on_child(0, 0, &contribution(0, unknown, 0), &[]);
        assert_eq!((switch.counts().violations, switch.slots_in_use()), (1, 0));
    }

    #[test]
    fn who_contradicts_the_others_ends_the_epoch_for_all() {
        let allreduce = Collective::Allreduce(sum());
        let product = Reduction::new(Operator::Prod, ElementType::I32).unwrap();
        let first = contribution(0, allreduce, 1);
        for other in [
            contribution(0, Collective::Allreduce(product), 1),
            contribution(0, Collective::Reduce(sum(), Rank(0)), 1),
            IncHeader { op_id: 9, ..first },
            // Of an operation that is longer than the others'.
            IncHeader { is_last: true, ..first },
            contribution(0, allreduce, 2),
        ] {
            let mut switch = hosts(3, true);
            switch.on_child(0, 0, &first, &one(1));
            switch.on_child(0, 1, &other, &vec![0; other.data_len()]);
            assert_eq!(switch.aborted(), Some(AbortReason::Contradiction), "{other:?}");
            let receivers: Vec<_> = sent(&mut switch).into_iter().map(|(to, ..)| to).collect();
            assert_eq!(receivers, [To::Child(0), To::Child(1), To::Child(2), To::Parent]);
            // A child that goes on gets it again; nothing is added.
            switch.on_child(0, 2, &first, &one(1));
            let [(To::Child(2), header, _)] = &sent(&mut switch)[..] else { panic!() };
            assert_eq!(header.kind, IncKind::Abort(AbortReason::Contradiction));
            assert_eq!(switch.slots_in_use(), 0);
            switch.restart(EPOCH.next(), Seq(5));
            switch.on_child(0, 0, &first, &one(1));
            assert_eq!(switch.counts().other_epochs, 1);
            let next = IncHeader { epoch: EPOCH.next(), seq: Seq(5), ..first };
            switch.on_child(0, 0, &next, &one(1));
            assert_eq!((switch.aborted(), switch.slots_in_use()), (None, 1));
        }
    }

    #[test]
    fn messages_that_no_member_sends_change_nothing() {
        let mut switch = hosts(2, true);
        let header = contribution(0, Collective::Allreduce(sum()), 1);
        let result = IncHeader { kind: IncKind::Result(Collective::Allreduce(sum())), ..header };
        switch.on_child(0, 2, &header, &one(1));
        switch.on_child(0, 0, &result, &one(1));
        switch.on_child(0, 0, &header, &[0; 3]);
        let long = contribution(0, Collective::Allreduce(sum()), 17);
        switch.on_child(0, 0, &long, &[0; 68]);
        switch.on_parent(0, &header, &one(1));
        assert_eq!(switch.counts().violations, 5);
        let old = IncHeader { epoch: TreeEpoch(6), ..header };
        switch.on_child(0, 0, &old, &one(1));
        switch.on_parent(0, &IncHeader { epoch: TreeEpoch(8), ..result }, &one(1));
        assert_eq!((switch.counts().other_epochs, switch.slots_in_use()), (2, 0));
        assert!(sent(&mut switch).is_empty());
        // The parent's abort reaches all.
        let abort = IncHeader { kind: IncKind::Abort(AbortReason::EdgeDead), ..NO_HEADER };
        switch.on_parent(0, &IncHeader { epoch: EPOCH, ..abort }, &[]);
        assert_eq!((switch.aborted(), sent(&mut switch).len()), (Some(AbortReason::EdgeDead), 3));
    }

    #[test]
    fn floats_are_added_in_the_order_of_the_children() {
        let mut switch = hosts(3, false);
        let sum = Reduction::new(Operator::Sum, ElementType::F32).unwrap();
        let header = contribution(0, Collective::Allreduce(sum), 1);
        // (2^24 + 1) + 1 is 2^24, 2^24 + (1 + 1) is not.
        for (child, value) in [(2, 1.0_f32), (1, 1.0), (0, 16_777_216.0)] {
            switch.on_child(0, child, &header, &value.to_le_bytes());
        }
        assert_eq!(sent(&mut switch)[0].2, 16_777_216.0_f32.to_le_bytes());
    }

    #[test]
    fn floats_that_need_no_order_are_added_as_they_come() {
        let children = (0..3).map(|rank| Child::Host(Rank(rank))).collect();
        let cfg = CommunicatorSlotsCfg { is_ordered: false, ..cfg(children, false) };
        let mut switch = CommunicatorSlots::new(&cfg).unwrap();
        let sum = Reduction::new(Operator::Sum, ElementType::F32).unwrap();
        let header = contribution(0, Collective::Allreduce(sum), 1);
        // From left to right it is 0: the 1 is lost in 1e8.
        for (child, value) in [(2, -1e8_f32), (0, 1e8), (1, 1.0)] {
            switch.on_child(0, child, &header, &value.to_le_bytes());
        }
        assert_eq!(sent(&mut switch)[0].2, 1_f32.to_le_bytes());
        assert!(switch.waiting.is_empty(), "nothing waits");
    }

    #[test]
    fn memory_is_two_windows_of_slots_and_one_of_waiting_floats() {
        let children: Vec<_> = (0..8).map(|rank| Child::Host(Rank(rank))).collect();
        let large =
            CommunicatorSlotsCfg { window: 64, data_max: 4096 - 16, ..cfg(children, false) };
        let mut switch = CommunicatorSlots::new(&large).unwrap();
        assert!(switch.memory_len() <= 2 * 64 * (4096 + 64), "{}", switch.memory_len());
        let before = switch.memory_len();
        let sum = Reduction::new(Operator::Sum, ElementType::F64).unwrap();
        let header = contribution(0, Collective::Allreduce(sum), 1);
        switch.on_child(0, 0, &header, &[0; 8]);
        assert!(switch.memory_len() - before <= 64 * 8 * 4096);
    }

    #[test]
    fn what_cannot_be_a_communicator_is_refused() {
        let host = |rank| Child::Host(Rank(rank));
        let fails =
            |cfg: &CommunicatorSlotsCfg| CommunicatorSlots::new(cfg).unwrap_err().to_string();
        assert!(fails(&cfg(vec![], true)).contains("not 0"));
        assert!(fails(&cfg((0..65).map(host).collect(), true)).contains("not 65"));
        assert!(CommunicatorSlots::new(&cfg((0..64).map(host).collect(), true)).is_ok());
        for window in [0, 1, 3, 2048] {
            let wrong = CommunicatorSlotsCfg { window, ..cfg(vec![host(0)], true) };
            assert!(fails(&wrong).contains(&format!("not {window}")));
        }
        assert!(
            fails(&CommunicatorSlotsCfg { data_max: 0, ..cfg(vec![host(0)], true) })
                .contains("byte")
        );
        let doubled = cfg(vec![host(4), Child::Switch(vec![Rank(3), Rank(4)])], true);
        assert!(fails(&doubled).contains("rank 4 is below children 0 and 1"));
    }

    /// Two hosts, a window of two, six chunks: every order in which messages can arrive, each lost, or any number of times.
    mod exhaustive {
        use std::collections::{HashSet, VecDeque};

        use super::*;

        const CHUNKS: usize = 6;
        const WINDOW: usize = 2;

        #[derive(Clone)]
        struct State {
            switch: CommunicatorSlots,
            /// Answers that the switch has sent, and those that came, by host and chunk.
            sent: [[bool; CHUNKS]; 2],
            answered: [[bool; CHUNKS]; 2],
            /// Chunks that went to the parent.
            forwarded: [bool; CHUNKS],
        }

        #[derive(Clone, Copy, Debug)]
        enum Arrival {
            AtSwitch(usize, usize),
            FromParent(usize),
            AtHost(usize, usize),
        }

        /// What a host has in a chunk.
        fn input(host: usize, chunk: usize) -> i32 {
            i32::try_from(10 * chunk + host).unwrap() + 1
        }

        fn total(chunk: usize) -> i32 {
            input(0, chunk) + input(1, chunk)
        }

        fn header(chunk: usize) -> IncHeader {
            let seq = u32::try_from(chunk).unwrap();
            contribution(seq, Collective::Allreduce(sum()), 1)
        }

        impl State {
            fn new(has_parent: bool) -> Self {
                let children = vec![Child::Host(Rank(0)), Child::Host(Rank(1))];
                let cfg = CommunicatorSlotsCfg { window: 2, ..cfg(children, has_parent) };
                let switch = CommunicatorSlots::new(&cfg).unwrap();
                let none = [[false; CHUNKS]; 2];
                Self { switch, sent: none, answered: none, forwarded: [false; CHUNKS] }
            }

            /// Everything that may arrive next. A message that was sent once may arrive at any time, any number of times.
            fn arrivals(&self) -> Vec<Arrival> {
                let pairs = || (0..2).flat_map(|host| (0..CHUNKS).map(move |chunk| (host, chunk)));
                let was_sent = |&(host, chunk): &(usize, usize)| {
                    chunk < WINDOW || self.answered[host][chunk - WINDOW]
                };
                let up = pairs().filter(was_sent).map(|(h, c)| Arrival::AtSwitch(h, c));
                let down = pairs().filter(|(h, c)| self.sent[*h][*c]);
                let down = down.map(|(h, c)| Arrival::AtHost(h, c));
                let above = (0..CHUNKS).filter(|c| self.forwarded[*c]).map(Arrival::FromParent);
                up.chain(down).chain(above).collect()
            }

            fn arrive(&mut self, arrival: Arrival) {
                match arrival {
                    Arrival::AtHost(host, chunk) => self.answered[host][chunk] = true,
                    Arrival::AtSwitch(host, chunk) => {
                        let data = input(host, chunk).to_le_bytes();
                        // Always long after the last one: each repeat goes up again.
                        let now = self.switch.counts.duplicates * 1000;
                        self.switch.on_child(now, host, &header(chunk), &data);
                    }
                    Arrival::FromParent(chunk) => {
                        let kind = IncKind::Result(Collective::Allreduce(sum()));
                        let result = IncHeader { kind, ..header(chunk) };
                        self.switch.on_parent(0, &result, &total(chunk).to_le_bytes());
                    }
                }
                while let Some(TreeMessage { to, header, data }) = self.switch.poll_transmit() {
                    let chunk = header.seq.0 as usize;
                    assert_eq!(data, total(chunk).to_le_bytes(), "chunk {chunk} after {arrival:?}");
                    match to {
                        To::Child(child) => self.sent[child][chunk] = true,
                        To::Parent => self.forwarded[chunk] = true,
                    }
                }
            }

            fn is_done(&self) -> bool {
                self.answered == [[true; CHUNKS]; 2]
            }

            /// Whether it comes to its end when nothing is lost any more.
            fn ends(mut self) -> bool {
                for _ in 0..4 * CHUNKS {
                    for arrival in self.arrivals() {
                        self.arrive(arrival);
                    }
                }
                self.is_done()
            }

            fn key(&self) -> impl Eq + std::hash::Hash + use<> {
                let slot = |slot: &ChunkSlot| {
                    let state = match slot.state {
                        ChunkState::Free => 0,
                        ChunkState::Aggregating => 1,
                        ChunkState::Forwarded { .. } => 2,
                        ChunkState::Done => 3,
                    };
                    (state, slot.seen, slot.first.seq)
                };
                let slots: Vec<_> = self.switch.slots.iter().map(slot).collect();
                (slots, self.sent, self.answered, self.forwarded)
            }
        }

        fn explore(has_parent: bool) -> usize {
            let first = State::new(has_parent);
            let mut known = HashSet::from([first.key()]);
            let mut open = VecDeque::from([first]);
            let mut done = 0;
            while let Some(state) = open.pop_front() {
                assert_eq!((state.switch.counts.violations, state.switch.aborted), (0, None));
                done += usize::from(state.is_done());
                assert!(state.clone().ends(), "stuck");
                for arrival in state.arrivals() {
                    let mut next = state.clone();
                    next.arrive(arrival);
                    if known.insert(next.key()) {
                        open.push_back(next);
                    }
                }
            }
            assert!(done > 0);
            known.len()
        }

        #[test]
        fn every_order_of_arrival_ends_with_the_sum() {
            let (root, leaf) = (explore(false), explore(true));
            // All states there are: fewer would mean that something was not tried.
            assert_eq!((root, leaf), (529, 676));
        }
    }

    /// Contributions a second, in memory: `cargo test --release -p inc measure -- --ignored --nocapture`.
    #[test]
    #[ignore = "measures; run with --release --ignored --nocapture"]
    #[expect(clippy::disallowed_methods, reason = "it measures")]
    fn measure() {
        for (data_max, element) in
            [(48, ElementType::I32), (4080, ElementType::I32), (4080, ElementType::F32)]
        {
            let children = (0..4).map(|rank| Child::Host(Rank(rank))).collect();
            let cfg = CommunicatorSlotsCfg { window: 64, data_max, ..cfg(children, false) };
            let mut switch = CommunicatorSlots::new(&cfg).unwrap();
            let sum = Reduction::new(Operator::Sum, element).unwrap();
            let count = u16::try_from(data_max / 4).unwrap();
            let data = vec![1; data_max];
            let (chunks, start) = (200_000, std::time::Instant::now());
            for seq in 0..chunks {
                let header = contribution(seq, Collective::Allreduce(sum), count);
                for child in 0..4 {
                    switch.on_child(0, child, &header, &data);
                }
                while let Some(transmit) = switch.poll_transmit() {
                    std::hint::black_box(transmit.data);
                }
            }
            let ns = start.elapsed().as_nanos() / u128::from(chunks * 4);
            println!("{element:?}, {data_max} bytes: {ns} ns a contribution");
            assert_eq!(switch.counts().contributions, u64::from(chunks) * 4);
        }
    }
}
