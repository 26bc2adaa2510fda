//! One rank's side of a communicator: operations become chunks, answers become results.
//!
//! An operation is split into chunks of as many elements as a message holds. Chunk s is sent when the answer of s - W is
//! there; so the switches' slots are free for it ([`crate::slots`]). What is not answered in time is sent again.
//! Operations end in the order of their submission, each once, with its result or with an error.
//!
//! A member lives through several trees ([`crate::control`]). [`GroupMember::prepare`] ends the life of one;
//! [`GroupMember::start`] begins that of the next, in which chunks are sent again whose answer some member has not got.
//! For that it keeps what it contributed to the last 2W chunks, and the answers.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::buffers::Buffers;
use crate::control::{ChunkReport, CurrentOperation, ResumePlan};
use crate::edge::Framing;
use crate::element::{ElementType, Reduction};
use crate::slots::{IncTime, WindowError, check_window};
use crate::wire::{AbortReason, Collective, IncHeader, IncKind, Rank, Seq, TreeEpoch};

/// Longest pause between two repeats of a chunk.
const PAUSE_MAX: IncTime = 100_000_000;

/// So many chunks behind one that has no answer are answered: then it, or its answer, is lost.
const LATER_ANSWERS: u32 = 3;

/// Chunks from the oldest to the newest under way: their numbers compare by the sign of the difference.
const SEQ_DISTANCE_MAX: usize = (1 << 31) - 1;

/// What a member is made with.
#[derive(Debug, Clone, Copy)]
pub struct MemberCfg {
    /// Number of the member.
    pub rank: Rank,
    /// Chunks that may be in flight: that of the switches.
    pub window: u32,
    /// Bytes of data in a message at most.
    pub data_max: usize,
    /// What a message consists of.
    pub framing: Framing,
    /// A chunk without an answer is sent again after this time at the soonest, and after four round trips.
    pub pause_min_ns: IncTime,
    /// A chunk is sent again, once, when later ones have been answered: nothing below repairs what is lost.
    pub repeats_early: bool,
    /// An operation that takes longer ends with an error.
    pub bound_ns: IncTime,
}

/// Number of an operation of a member, in the order of submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u64);

/// Why an operation has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// The communicator is over.
    #[error("the communicator was aborted: {0}")]
    Aborted(AbortReason),
    /// The operation is no one's: its result was given before, or its member has left.
    #[error("the operation is not known: its result was given before, or its member has left")]
    Unknown,
    /// The host has no QPN left for an edge to the next tree.
    #[error("the host has no QPN left")]
    NoQpn,
    /// Some member did not take part, or the tree carries nothing.
    #[error("no answer within {0} ns: a member did not call the operation, or the tree is cut")]
    Timeout(IncTime),
}

/// Why an operation cannot begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Bytes that are no whole elements.
    #[error("{len} bytes are no whole elements of {size} bytes")]
    Elements {
        /// Bytes of the data.
        len: usize,
        /// Bytes of an element.
        size: usize,
    },
    /// Data where the operation has none.
    #[error("a barrier has no data, {0} bytes were given")]
    Data(usize),
    /// An element does not fit a message.
    #[error(
        "an element of {size} bytes is longer than a message of this communicator ({data_max} bytes)"
    )]
    Element {
        /// Bytes of an element.
        size: usize,
        /// Bytes of data in a message.
        data_max: usize,
    },
    /// More chunks than numbers tell apart.
    #[error("{chunks} chunks beside those under way: at most 2^31 - 1 may be")]
    TooLong {
        /// Chunks of the operation.
        chunks: usize,
    },
    /// Messages without a header can be of one reduction alone.
    #[error(
        "the edges of this communicator have plain framing: nothing but an allreduce of {0:?} can be"
    )]
    Framing(Reduction),
    /// The communicator is over.
    #[error(transparent)]
    Over(#[from] OperationError),
}

/// An operation that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Number of the operation.
    pub id: OperationId,
    /// The result: the reduction, the broadcast data, or nothing where this rank gets none. The member may go on to use
    /// it for others, after a change of the tree.
    pub result: Result<Arc<Vec<u8>>, OperationError>,
}

#[derive(Debug)]
struct Operation {
    id: OperationId,
    collective: Collective,
    /// Its first chunk, and how many there are.
    first: Seq,
    chunks: u32,
    answered: u32,
    /// What this rank contributes; shared with the chunks that may have to be sent again.
    input: Arc<Vec<u8>>,
    output: Vec<u8>,
    deadline: IncTime,
}

/// A chunk of the last two windows.
#[derive(Debug, Clone)]
struct SentChunk {
    /// Its first header, without the epoch.
    header: IncHeader,
    collective: Collective,
    input: Arc<Vec<u8>>,
    /// The result of its operation, once that is over.
    output: Option<Arc<Vec<u8>>>,
    /// Its bytes in the input and in the output.
    data: Range<usize>,
    /// Its operation has the answer.
    is_delivered: bool,
    /// It was answered in this life of the tree.
    is_answered: bool,
    /// The collective that is sent for it in this life.
    sent_as: Collective,
    sent_at: IncTime,
    /// It was sent once only, so its answer shows the round trip.
    is_first_try: bool,
    pause: IncTime,
}

impl SentChunk {
    /// When it is sent again at the soonest.
    fn due(&self) -> IncTime {
        self.sent_at.saturating_add(self.pause)
    }
}

/// One rank of a communicator.
#[derive(Debug)]
pub struct GroupMember {
    cfg: MemberCfg,
    /// Life of the tree; `None`: there is none yet, or its successor is awaited.
    epoch: Option<TreeEpoch>,
    has_started: bool,
    plan: ResumePlan,
    /// Chunk that is sent next.
    next: Seq,
    /// First chunk that no life has sent.
    made: Seq,
    /// First chunk of the next operation.
    end: Seq,
    /// Oldest chunk without an answer in this life.
    oldest: Seq,
    /// Oldest chunk that its operation has no answer of.
    undelivered: Seq,
    /// Two windows of chunks, by their number.
    chunks: Vec<Option<SentChunk>>,
    operations: VecDeque<Operation>,
    buffers: Buffers,
    operation_next: u64,
    finished: VecDeque<Finished>,
    repeats: VecDeque<Seq>,
    /// Chunks that are sent again at one time.
    repeats_max: usize,
    srtt: Option<IncTime>,
    over: Option<OperationError>,
    is_abort_owed: bool,
    /// Chunks that were sent again.
    repeated: u64,
}

impl GroupMember {
    /// A member without a tree: operations may be submitted, and wait for it.
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn new(cfg: MemberCfg) -> Result<Self, WindowError> {
        check_window(cfg.window)?;
        Ok(Self {
            epoch: None,
            has_started: false,
            plan: ResumePlan { first: Seq(0), owners: Vec::new() },
            next: Seq(0),
            made: Seq(0),
            end: Seq(0),
            oldest: Seq(0),
            undelivered: Seq(0),
            chunks: vec![None; 2 * cfg.window as usize],
            operations: VecDeque::new(),
            buffers: Buffers::default(),
            operation_next: 0,
            finished: VecDeque::new(),
            repeats: VecDeque::new(),
            repeats_max: 1,
            srtt: None,
            over: None,
            is_abort_owed: false,
            repeated: 0,
            cfg,
        })
    }

    /// Begins an operation. All members submit the same ones in the same order, each with as many elements: of a broadcast
    /// the bytes of all but the root do not matter, only how many there are.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub fn submit(
        &mut self,
        now: IncTime,
        collective: Collective,
        input: &[u8],
    ) -> Result<OperationId, SubmitError> {
        if let Some(error) = self.over {
            return Err(error.into());
        }
        if let Framing::Plain(reduction) = self.cfg.framing
            && collective != Collective::Allreduce(reduction)
        {
            return Err(SubmitError::Framing(reduction));
        }
        let (len, size) = (input.len(), collective.element_size());
        if size == 0 && len != 0 {
            return Err(SubmitError::Data(len));
        }
        if size > self.cfg.data_max {
            return Err(SubmitError::Element { size, data_max: self.cfg.data_max });
        }
        if size != 0 && !len.is_multiple_of(size) {
            return Err(SubmitError::Elements { len, size });
        }
        let most = self.chunk_len(collective);
        let chunks = if most == 0 { 1 } else { len.div_ceil(most).max(1) };
        let under_way = self.end.since(self.undelivered.min_of(self.oldest)) as usize;
        let too_long = SubmitError::TooLong { chunks };
        if under_way.saturating_add(chunks) > SEQ_DISTANCE_MAX {
            return Err(too_long);
        }
        let chunks = u32::try_from(chunks).map_err(|_| too_long)?;
        let id = OperationId(self.operation_next);
        self.operation_next += 1;
        let gets_data = gets_data(collective, self.cfg.rank);
        let operation = Operation {
            id,
            collective,
            first: self.end,
            chunks,
            answered: 0,
            output: if gets_data { self.buffers.take(len) } else { Vec::new() },
            input: self.buffers.copy(input),
            deadline: now.saturating_add(self.cfg.bound_ns),
        };
        self.end = self.end.plus(chunks);
        self.operations.push_back(operation);
        Ok(id)
    }

    /// A life of the tree begins. Chunks of an earlier one are sent again from `plan.first` on.
    pub fn start(&mut self, epoch: TreeEpoch, plan: ResumePlan) {
        if self.over.is_some() || self.epoch.is_some() {
            return;
        }
        if !std::mem::replace(&mut self.has_started, true) {
            // What was submitted so far was numbered from 0 on.
            for operation in &mut self.operations {
                operation.first = operation.first.plus(plan.first.0);
            }
            self.end = self.end.plus(plan.first.0);
            (self.made, self.undelivered) = (plan.first, plan.first);
        }
        // By the plan's rule it begins at or before what this member waits for, and within what it keeps.
        let again = self.made.since(plan.first);
        let is_mine = |at: &u32| plan.owners[*at as usize] == Some(self.cfg.rank);
        let mut mine = (0..).take(plan.owners.len()).filter(is_mine).map(|at| plan.first.plus(at));
        if mine.any(|seq| !self.has_result(seq))
            || self.undelivered.is_before(plan.first)
            || again > 2 * self.cfg.window
        {
            return self.end_all(OperationError::Aborted(AbortReason::Protocol));
        }
        for chunk in self.chunks.iter_mut().flatten() {
            (chunk.is_answered, chunk.is_first_try) = (false, false);
        }
        self.epoch = Some(epoch);
        (self.next, self.oldest) = (plan.first, plan.first);
        self.plan = plan;
    }

    /// The life of the tree is over: messages of it are refused from now on, and nothing is sent until the next one
    /// starts. What this member has of its chunks.
    pub fn prepare(&mut self) -> ChunkReport {
        self.epoch = None;
        self.repeats.clear();
        let oldest = self.undelivered;
        let start = oldest.back(self.cfg.window);
        let has_result = |at| self.has_result(start.plus(at));
        ChunkReport { oldest, has_result: (0..2 * self.cfg.window).map(has_result).collect() }
    }

    /// The communicator is over.
    pub fn end(&mut self, error: OperationError) {
        if self.over.is_none() {
            self.end_all(error);
        }
    }

    /// Why the communicator is over, if it is.
    #[must_use]
    pub fn over(&self) -> Option<OperationError> {
        self.over
    }

    /// The operation whose answer is waited for.
    #[must_use]
    pub fn current(&self) -> Option<CurrentOperation> {
        let operation = self.operations.front()?;
        let (collective, len) = (operation.collective, operation.input.len());
        let elements = len.checked_div(collective.element_size()).unwrap_or(0) as u64;
        Some(CurrentOperation { op_id: op_id(operation.id), collective, elements })
    }

    /// Whether an operation waits for its result.
    #[must_use]
    pub fn is_under_way(&self, id: OperationId) -> bool {
        self.operations.iter().any(|operation| operation.id == id)
    }

    /// A message of the switch.
    pub fn on_message(&mut self, now: IncTime, header: &IncHeader, data: &[u8]) {
        if Some(header.epoch) != self.epoch || self.over.is_some() {
            return;
        }
        let (collective, data) = match header.kind {
            IncKind::Result(collective) => (collective, data),
            IncKind::Release(collective) => (collective, &[][..]),
            IncKind::Abort(reason) => return self.end_all(OperationError::Aborted(reason)),
            IncKind::Contribution(_) => return,
        };
        let (rank, index) = (self.cfg.rank, self.index_of(header.seq));
        let Some(chunk) = &mut self.chunks[index] else { return };
        let is_meant = chunk.header.seq == header.seq
            && chunk.sent_as == collective
            && chunk.header.op_id == header.op_id;
        if !is_meant || chunk.is_answered || !header.seq.is_before(self.next) {
            return;
        }
        // Whether this answer has data, and whether the operation wants it.
        let (brings_data, wants_data) =
            (gets_data(collective, rank), gets_data(chunk.collective, rank));
        let is_result = matches!(header.kind, IncKind::Result(_));
        // A root that another rank's broadcast of its own data reaches needs none of it.
        let fits = match (brings_data, wants_data) {
            (true, false) => true,
            (true, true) => data.len() == chunk.data.len(),
            (false, _) => data.is_empty(),
        };
        if !fits || is_result != (brings_data || collective == Collective::Barrier) {
            return;
        }
        if chunk.is_first_try {
            let sample = now.saturating_sub(chunk.sent_at);
            self.srtt = Some(self.srtt.map_or(sample, |srtt| srtt - srtt / 8 + sample / 8));
            self.repeats_max = 1;
        } else {
            self.repeats_max = (2 * self.repeats_max).min(self.cfg.window as usize);
        }
        chunk.is_answered = true;
        if !std::mem::replace(&mut chunk.is_delivered, true) {
            let operation = self
                .operations
                .iter_mut()
                .find(|operation| header.seq.since(operation.first) < operation.chunks);
            let Some(operation) = operation else { return };
            if wants_data && brings_data {
                operation.output[chunk.data.clone()].copy_from_slice(data);
            }
            operation.answered += 1;
        }
        self.advance();
        if self.cfg.repeats_early {
            self.repeat_before(header.seq);
        }
    }

    /// Sends those again whose answers should have come before that of a chunk.
    fn repeat_before(&mut self, seq: Seq) {
        let end = seq.back(LATER_ANSWERS - 1);
        let late = if end.is_before(self.oldest) { 0 } else { end.since(self.oldest) };
        for at in 0..late {
            let seq = self.oldest.plus(at);
            let index = self.index_of(seq);
            let chunk = self.chunks[index].as_ref();
            let is_late = chunk.is_some_and(|chunk| {
                chunk.header.seq == seq && !chunk.is_answered && chunk.is_first_try
            });
            if is_late && !self.repeats.contains(&seq) {
                self.repeats.push_back(seq);
            }
        }
    }

    /// The header of the next message to be sent; its data is that of [`GroupMember::data_of`].
    pub fn poll_transmit(&mut self, now: IncTime) -> Option<IncHeader> {
        let epoch = self.epoch?;
        if std::mem::take(&mut self.is_abort_owed) {
            let kind = IncKind::Abort(AbortReason::EdgeDead);
            return Some(IncHeader { epoch, ..header_of(kind, self.oldest) });
        }
        if self.over.is_some() {
            return None;
        }
        while let Some(seq) = self.repeats.pop_front() {
            let index = self.index_of(seq);
            let is_due = self.chunks[index]
                .as_ref()
                .is_some_and(|chunk| chunk.header.seq == seq && !chunk.is_answered);
            if is_due {
                self.repeated += 1;
                return self.sent(now, epoch, index, true);
            }
        }
        let may_send = self.next.since(self.oldest) < self.cfg.window;
        if self.next == self.end || !may_send {
            return None;
        }
        let seq = self.next;
        let index = self.index_of(seq);
        if seq == self.made {
            self.chunks[index] = Some(self.chunk(seq)?);
            self.made = seq.plus(1);
        }
        self.next = seq.plus(1);
        self.sent(now, epoch, index, false)
    }

    /// The data of a chunk's message that was sent in this life, for as long as it may have to be sent again.
    #[must_use]
    pub fn data_of(&self, seq: Seq) -> &[u8] {
        let Some(chunk) = &self.chunks[self.index_of(seq)] else { return &[] };
        if chunk.header.seq != seq {
            return &[];
        }
        let gives_result =
            self.owner_of(seq) == Some(self.cfg.rank) && gets_data(chunk.collective, self.cfg.rank);
        let all = match &chunk.output {
            _ if !gives_result => Some(&chunk.input[..]),
            Some(output) => Some(&output[..]),
            None => self.operation_of(seq).map(|operation| &operation.output[..]),
        };
        all.and_then(|all| all.get(chunk.data.clone())).unwrap_or_default()
    }

    /// When [`GroupMember::on_time`] is due; `None`: no answer is waited for.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<IncTime> {
        if self.over.is_some() {
            return None;
        }
        let repeat = self.in_flight().next().map(SentChunk::due);
        let bound = self.operations.front().map(|operation| operation.deadline);
        repeat.into_iter().chain(bound).min()
    }

    /// The time has come that [`GroupMember::poll_deadline`] gave.
    pub fn on_time(&mut self, now: IncTime) {
        if self.operations.front().is_some_and(|operation| operation.deadline <= now) {
            self.is_abort_owed = true;
            return self.end_all(OperationError::Timeout(self.cfg.bound_ns));
        }
        // The oldest one holds the others up. Where its answer comes, more may be asked for.
        let due = self.in_flight().take(self.repeats_max).filter(|chunk| chunk.due() <= now);
        let due: Vec<_> = due.map(|chunk| chunk.header.seq).collect();
        for seq in due {
            if !self.repeats.contains(&seq) {
                self.repeats.push_back(seq);
            }
        }
    }

    /// The next operation that is over, in the order of submission.
    pub fn poll_finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    /// Chunks that were sent again so far.
    #[must_use]
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Chunks that were sent in this life and have no answer.
    fn in_flight(&self) -> impl Iterator<Item = &SentChunk> {
        // Of messages without a header a repeat would count as the next chunk: their edge alone repeats.
        let may_repeat = self.epoch.is_some() && self.cfg.framing == Framing::Inc;
        let count = if may_repeat { self.next.since(self.oldest) } else { 0 };
        (0..count)
            .filter_map(|at| self.chunks[self.index_of(self.oldest.plus(at))].as_ref())
            .filter(|chunk| !chunk.is_answered)
    }

    /// Marks a chunk as sent, and gives its header.
    fn sent(
        &mut self,
        now: IncTime,
        epoch: TreeEpoch,
        index: usize,
        is_repeat: bool,
    ) -> Option<IncHeader> {
        let first_pause = self.srtt.map_or(0, |srtt| 4 * srtt).max(self.cfg.pause_min_ns);
        let seq = self.chunks[index].as_ref()?.header.seq;
        let (owner, rank) = (self.owner_of(seq), self.cfg.rank);
        let chunk = self.chunks[index].as_mut()?;
        chunk.sent_at = now;
        chunk.is_first_try &= !is_repeat;
        chunk.pause = if is_repeat { 2 * chunk.pause } else { first_pause }.min(PAUSE_MAX);
        let mut count = chunk.header.count;
        chunk.sent_as = chunk.collective;
        if let Some(owner) = owner {
            let (element, has_readers) = broadcast_of(chunk.collective);
            chunk.sent_as = Collective::Broadcast(element, owner);
            let elements = chunk.data.len().checked_div(element.size()).unwrap_or(0);
            count =
                u16::try_from(elements).ok().filter(|_| owner == rank && has_readers).unwrap_or(0);
        }
        let kind = IncKind::Contribution(chunk.sent_as);
        Some(IncHeader { kind, epoch, is_repeat, count, ..chunk.header })
    }

    /// The rank that gives the result of a chunk of an earlier life to all.
    fn owner_of(&self, seq: Seq) -> Option<Rank> {
        let at = seq.since(self.plan.first) as usize;
        self.plan.owners.get(at).copied().flatten()
    }

    fn operation_of(&self, seq: Seq) -> Option<&Operation> {
        self.operations.iter().find(|operation| seq.since(operation.first) < operation.chunks)
    }

    /// Whether this member can give the result of a chunk to those that have none.
    fn has_result(&self, seq: Seq) -> bool {
        let Some(chunk) = &self.chunks[self.index_of(seq)] else { return false };
        let gives = match chunk.collective {
            Collective::Allreduce(_) => chunk.is_delivered,
            Collective::Reduce(_, root) => chunk.is_delivered && root == self.cfg.rank,
            Collective::Broadcast(_, root) => chunk.is_delivered || root == self.cfg.rank,
            Collective::Barrier => false,
        };
        gives && chunk.header.seq == seq
    }

    /// A chunk of an operation that is under way.
    fn chunk(&self, seq: Seq) -> Option<SentChunk> {
        let operation = self.operation_of(seq)?;
        let (collective, nth) = (operation.collective, seq.since(operation.first));
        let len = self.chunk_len(collective);
        let start = nth as usize * len;
        let data = start..operation.input.len().min(start + len);
        // Data of a broadcast is the root's alone.
        let is_silent =
            matches!(collective, Collective::Broadcast(_, root) if root != self.cfg.rank);
        let count = data.len().checked_div(collective.element_size()).filter(|_| !is_silent);
        let count = u16::try_from(count.unwrap_or(0)).ok()?;
        // What the other end cannot see in messages without a header stays zero.
        let is_plain = self.cfg.framing != Framing::Inc;
        let op_id = if is_plain { 0 } else { op_id(operation.id) };
        let is_last = !is_plain && nth + 1 == operation.chunks;
        let kind = IncKind::Contribution(collective);
        Some(SentChunk {
            header: IncHeader { op_id, is_last, count, ..header_of(kind, seq) },
            collective,
            input: Arc::clone(&operation.input),
            output: None,
            data,
            is_delivered: false,
            is_answered: false,
            sent_as: collective,
            sent_at: 0,
            is_first_try: true,
            pause: 0,
        })
    }

    /// Bytes of the data of a chunk; 0: there is none.
    fn chunk_len(&self, collective: Collective) -> usize {
        let size = collective.element_size();
        // A count has 16 bits.
        let most = self.cfg.data_max.checked_div(size).unwrap_or(0).min(usize::from(u16::MAX));
        most * size
    }

    /// Moves on over what is answered, and ends operations whose chunks all are.
    fn advance(&mut self) {
        while self.oldest != self.next && self.is_chunk(self.oldest, |chunk| chunk.is_answered) {
            self.oldest = self.oldest.plus(1);
        }
        while self.undelivered != self.made
            && self.is_chunk(self.undelivered, |chunk| chunk.is_delivered)
        {
            self.undelivered = self.undelivered.plus(1);
        }
        while let Some(operation) =
            self.operations.pop_front_if(|first| first.answered == first.chunks)
        {
            let output = self.buffers.share(operation.output);
            let kept = operation.chunks.min(2 * self.cfg.window);
            for back in 1..=kept {
                let seq = operation.first.plus(operation.chunks - back);
                let index = self.index_of(seq);
                let chunk = self.chunks[index].as_mut().filter(|chunk| chunk.header.seq == seq);
                if let Some(chunk) = chunk {
                    chunk.output = Some(Arc::clone(&output));
                }
            }
            self.finished.push_back(Finished { id: operation.id, result: Ok(output) });
        }
    }

    fn is_chunk(&self, seq: Seq, what: impl FnOnce(&SentChunk) -> bool) -> bool {
        self.chunks[self.index_of(seq)].as_ref().is_some_and(what)
    }

    fn end_all(&mut self, error: OperationError) {
        self.over = Some(error);
        self.repeats.clear();
        let ended = self.operations.drain(..);
        self.finished
            .extend(ended.map(|operation| Finished { id: operation.id, result: Err(error) }));
    }

    fn index_of(&self, seq: Seq) -> usize {
        (seq.0 & (2 * self.cfg.window - 1)) as usize
    }
}

/// The operation's number as messages carry it.
const fn op_id(id: OperationId) -> u16 {
    (id.0 & 0xffff) as u16
}

/// A header without data, of no operation and no life.
const fn header_of(kind: IncKind, seq: Seq) -> IncHeader {
    let epoch = TreeEpoch(0);
    IncHeader { kind, seq, epoch, op_id: 0, is_repeat: false, is_last: false, count: 0 }
}

/// Elements of the broadcast by which the result of a chunk goes to those that have none, and whether any rank but the
/// one that has it gets data.
const fn broadcast_of(collective: Collective) -> (ElementType, bool) {
    match collective {
        Collective::Allreduce(reduction) => (reduction.element(), true),
        Collective::Broadcast(element, _) => (element, true),
        Collective::Reduce(reduction, _) => (reduction.element(), false),
        Collective::Barrier => (ElementType::U8, false),
    }
}

/// Whether answers to a rank have data.
fn gets_data(collective: Collective, rank: Rank) -> bool {
    match collective {
        Collective::Allreduce(_) => true,
        Collective::Reduce(_, root) => root == rank,
        Collective::Broadcast(_, root) => root != rank,
        Collective::Barrier => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{ElementType, Operator, Reduction};
    use crate::slots::{Child, CommunicatorSlots, CommunicatorSlotsCfg, To};

    const MS: IncTime = 1_000_000;
    const EPOCH: TreeEpoch = TreeEpoch(1);
    const FIRST: Seq = Seq(u32::MAX);

    fn cfg(rank: u16) -> MemberCfg {
        MemberCfg {
            rank: Rank(rank),
            window: 4,
            data_max: 16,
            framing: Framing::Inc,
            pause_min_ns: MS,
            repeats_early: true,
            bound_ns: 1000 * MS,
        }
    }

    fn member(rank: u16) -> GroupMember {
        let mut member = GroupMember::new(cfg(rank)).unwrap();
        member.start(EPOCH, ResumePlan { first: FIRST, owners: Vec::new() });
        member
    }

    fn sum() -> Collective {
        Collective::Allreduce(Reduction::new(Operator::Sum, ElementType::I32).unwrap())
    }

    fn bytes(values: &[i32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    /// A switch with two members.
    fn pair() -> (CommunicatorSlots, [GroupMember; 2]) {
        let of = cfg(0);
        let switch = CommunicatorSlotsCfg {
            children: vec![Child::Host(Rank(0)), Child::Host(Rank(1))],
            has_parent: false,
            window: of.window,
            data_max: of.data_max,
            epoch: EPOCH,
            first: FIRST,
            forward_pause_ns: 0,
            is_ordered: true,
        };
        (CommunicatorSlots::new(&switch).unwrap(), [0, 1].map(member))
    }

    /// Carries messages until there are none.
    fn carry(switch: &mut CommunicatorSlots, members: &mut [GroupMember; 2], now: IncTime) {
        loop {
            let mut is_over = true;
            for (child, member) in members.iter_mut().enumerate() {
                while let Some(header) = member.poll_transmit(now) {
                    is_over = false;
                    let data = &member.data_of(header.seq)[..header.data_len()];
                    switch.on_child(now, child, &header, data);
                }
            }
            while let Some(message) = switch.poll_transmit() {
                is_over = false;
                let To::Child(child) = message.to else { panic!("{message:?}") };
                members[child].on_message(now, &message.header, message.data);
            }
            if is_over {
                return;
            }
        }
    }

    #[test]
    fn operations_of_many_chunks_end_in_order_with_their_results() {
        let (mut switch, mut members) = pair();
        let long: Vec<_> = (0..41).collect();
        for member in &mut members {
            for values in [&long[..], &[7], &[]] {
                member.submit(0, sum(), &bytes(values)).unwrap();
            }
            member.submit(0, Collective::Barrier, &bytes(&[])).unwrap();
        }
        carry(&mut switch, &mut members, 0);
        for member in &mut members {
            let doubled: Vec<_> = long.iter().map(|value| 2 * value).collect();
            for (id, wanted) in [&doubled[..], &[14], &[], &[]].into_iter().enumerate() {
                let finished = member.poll_finished().unwrap();
                assert_eq!(finished.id, OperationId(id as u64));
                assert_eq!(finished.result.unwrap()[..], *bytes(wanted));
            }
            assert_eq!((member.poll_finished(), member.poll_deadline()), (None, None));
        }
    }

    #[test]
    fn members_whose_sizes_differ_all_learn_it_at_once() {
        let long: Vec<_> = (0..9).collect();
        // In one chunk, and by whole chunks.
        for (first, second) in [(&long[..2], &long[..3]), (&long[..4], &long[..8])] {
            let (mut switch, mut members) = pair();
            members[0].submit(0, sum(), &bytes(first)).unwrap();
            members[1].submit(0, sum(), &bytes(second)).unwrap();
            carry(&mut switch, &mut members, 0);
            let error = OperationError::Aborted(AbortReason::Contradiction);
            for member in &mut members {
                assert_eq!(member.poll_finished().unwrap().result, Err(error));
                let refused = member.submit(0, sum(), &bytes(&[1])).unwrap_err();
                assert_eq!(refused, SubmitError::Over(error));
                assert!(refused.to_string().contains("different sizes"));
            }
        }
    }

    #[test]
    fn an_operation_that_a_member_does_not_call_ends_at_the_bound() {
        let (mut switch, [mut member, _]) = pair();
        member.submit(0, sum(), &bytes(&[1])).unwrap();
        member.submit(5 * MS, sum(), &bytes(&[2])).unwrap();
        let (mut now, mut at) = (0, Vec::new());
        loop {
            while let Some(header) = member.poll_transmit(now) {
                if header.seq == Seq(u32::MAX) && !matches!(header.kind, IncKind::Abort(_)) {
                    assert_eq!(header.is_repeat, !at.is_empty());
                    at.push(now / MS);
                }
                let data = &member.data_of(header.seq)[..header.data_len()];
                switch.on_child(now, 0, &header, data);
            }
            let Some(next) = member.poll_deadline() else { break };
            now = next;
            member.on_time(now);
        }
        // Pauses double, up to 100 ms.
        assert_eq!(at[..9], [0, 1, 3, 7, 15, 31, 63, 127, 227]);
        assert_eq!(now, 1000 * MS);
        for id in [0, 1] {
            let finished = member.poll_finished().unwrap();
            let error = OperationError::Timeout(1000 * MS);
            assert_eq!((finished.id, finished.result), (OperationId(id), Err(error)));
        }
        // The others learn it, too.
        assert_eq!(switch.aborted(), Some(AbortReason::EdgeDead));
    }

    #[test]
    fn messages_that_answer_nothing_change_nothing() {
        let mut member = member(0);
        member.submit(0, sum(), &bytes(&[1])).unwrap();
        let header = member.poll_transmit(0).unwrap();
        let result = IncHeader { kind: IncKind::Result(sum()), ..header };
        let product = Reduction::new(Operator::Prod, ElementType::I32).unwrap();
        for (other, data) in [
            (header, &[0; 4][..]),
            (IncHeader { epoch: TreeEpoch(0), ..result }, &[0; 4]),
            (IncHeader { op_id: 9, ..result }, &[0; 4]),
            (IncHeader { seq: Seq(0), ..result }, &[0; 4]),
            (
                IncHeader { kind: IncKind::Result(Collective::Allreduce(product)), ..result },
                &[0; 4],
            ),
            (IncHeader { kind: IncKind::Release(sum()), count: 0, ..result }, &[]),
            (IncHeader { count: 2, ..result }, &[0; 8]),
        ] {
            member.on_message(0, &other, data);
            assert_eq!(member.poll_finished(), None, "{other:?}");
        }
        member.on_message(0, &result, &[9, 0, 0, 0]);
        member.on_message(0, &result, &[8, 0, 0, 0]);
        assert_eq!(*member.poll_finished().unwrap().result.unwrap(), [9, 0, 0, 0]);
        assert_eq!(member.poll_finished(), None);
    }

    #[test]
    fn a_plan_that_no_reports_can_make_ends_the_communicator() {
        let owner = |rank| vec![Some(Rank(rank))];
        for (first, owners) in [
            // It waits for this chunk itself, cannot give its result, and cannot go back so far.
            (FIRST.plus(1), Vec::new()),
            (FIRST, owner(0)),
            (FIRST.back(9), Vec::new()),
        ] {
            let mut member = member(0);
            member.submit(0, sum(), &bytes(&[1])).unwrap();
            assert!(member.poll_transmit(0).is_some());
            let report = member.prepare();
            assert_eq!((report.oldest, report.has_result), (FIRST, vec![false; 8]));
            member.start(TreeEpoch(2), ResumePlan { first, owners });
            let error = OperationError::Aborted(AbortReason::Protocol);
            assert_eq!(member.poll_finished().unwrap().result, Err(error));
        }
    }

    #[test]
    fn what_is_no_operation_is_refused_with_the_reason() {
        let mut member = member(0);
        let mut refusal = |collective, len: usize| {
            member.submit(0, collective, &vec![0; len]).unwrap_err().to_string()
        };
        assert!(refusal(sum(), 7).contains("7 bytes are no whole elements of 4 bytes"));
        assert!(refusal(Collective::Barrier, 1).contains("a barrier has no data"));
        for window in [0, 3, 2048] {
            let error = GroupMember::new(MemberCfg { window, ..cfg(0) }).unwrap_err();
            assert!(error.to_string().contains(&format!("not {window}")));
        }
        let small = MemberCfg { data_max: 3, ..cfg(0) };
        let refused = GroupMember::new(small).unwrap().submit(0, sum(), &bytes(&[1])).unwrap_err();
        assert_eq!(refused, SubmitError::Element { size: 4, data_max: 3 });
    }

    #[test]
    fn a_chunk_is_sent_again_when_three_later_ones_are_answered() {
        for repeats_early in [true, false] {
            let mut member = GroupMember::new(MemberCfg { repeats_early, ..cfg(0) }).unwrap();
            member.start(EPOCH, ResumePlan { first: FIRST, owners: Vec::new() });
            member.submit(0, sum(), &bytes(&[1; 16])).unwrap();
            let sent: Vec<_> = std::iter::from_fn(|| member.poll_transmit(0)).collect();
            assert_eq!(sent.len(), 4);
            let mut answer = |at: usize| {
                let kind = IncKind::Result(sum());
                member.on_message(1, &IncHeader { kind, ..sent[at] }, &bytes(&[2; 4]));
                member.poll_transmit(1).map(|header| (header.seq, header.is_repeat))
            };
            assert_eq!([answer(1), answer(2)], [None, None]);
            let again = repeats_early.then_some((FIRST, true));
            assert_eq!(answer(3), again, "the numbers wrap");
            // Once only; its timer does the rest.
            assert_eq!(answer(3), None);
            assert_eq!(member.repeated(), u64::from(repeats_early));
        }
    }

    #[test]
    fn the_oldest_chunk_is_sent_again_alone_until_its_answer_shows_that_more_arrive() {
        let mut member = GroupMember::new(MemberCfg { repeats_early: false, ..cfg(0) }).unwrap();
        member.start(EPOCH, ResumePlan { first: FIRST, owners: Vec::new() });
        member.submit(0, sum(), &bytes(&[1; 16])).unwrap();
        let sent: Vec<_> = std::iter::from_fn(|| member.poll_transmit(0)).collect();
        let again = |member: &mut GroupMember, now| -> Vec<u32> {
            assert!(member.poll_deadline().is_some_and(|at| at <= now));
            member.on_time(now);
            let again = std::iter::from_fn(|| member.poll_transmit(now));
            again.map(|header| header.seq.since(FIRST)).collect()
        };
        assert_eq!(again(&mut member, MS), [0]);
        assert!(member.poll_deadline().is_some_and(|at| at > MS), "nothing else is due");
        assert_eq!(again(&mut member, 3 * MS), [0]);
        let kind = IncKind::Result(sum());
        member.on_message(3 * MS, &IncHeader { kind, ..sent[0] }, &bytes(&[2; 4]));
        assert_eq!(again(&mut member, 3 * MS), [1, 2]);
        member.on_message(3 * MS, &IncHeader { kind, ..sent[1] }, &bytes(&[2; 4]));
        member.on_message(3 * MS, &IncHeader { kind, ..sent[2] }, &bytes(&[2; 4]));
        assert_eq!(again(&mut member, 3 * MS), [3]);
    }
}
