//! One rank's side of a communicator: operations become chunks, answers become results.
//!
//! An operation is split into chunks of as many elements as a message holds. SentChunk s is sent when the answer of s - W is there;
//! so the switches' slots are free for it ([`crate::slots`]). What is not answered in time is sent again. Operations
//! end in the order of their submission, each once, with its result or with an error.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::slots::{IncTime, WindowError, check_window};
use crate::wire::{AbortReason, Collective, IncHeader, IncKind, Rank, Seq, TreeEpoch};

/// Longest pause between two repeats of a chunk.
const PAUSE_MAX: IncTime = 100_000_000;

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
    /// Life of the tree.
    pub epoch: TreeEpoch,
    /// First chunk of this life.
    pub first: Seq,
    /// A chunk without an answer is sent again after this time at the soonest, and after four round trips.
    pub pause_min_ns: IncTime,
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
    /// The communicator is over.
    #[error(transparent)]
    Over(#[from] OperationError),
}

/// An operation that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Number of the operation.
    pub id: OperationId,
    /// The result: the reduction, the broadcast data, or nothing where this rank gets none.
    pub result: Result<Vec<u8>, OperationError>,
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
    input: Arc<[u8]>,
    output: Vec<u8>,
    deadline: IncTime,
}

/// A chunk of the last two windows.
#[derive(Debug, Clone)]
struct SentChunk {
    header: IncHeader,
    input: Arc<[u8]>,
    data: Range<usize>,
    is_answered: bool,
    sent_at: IncTime,
    /// It was sent once only, so its answer shows the round trip.
    is_first_try: bool,
    pause: IncTime,
}

/// One rank of a communicator.
#[derive(Debug)]
pub struct GroupMember {
    cfg: MemberCfg,
    /// SentChunk that is sent next.
    next: Seq,
    /// First chunk of the next operation.
    end: Seq,
    /// Oldest chunk without an answer.
    oldest: Seq,
    /// Two windows of chunks, by their number.
    chunks: Vec<Option<SentChunk>>,
    operations: VecDeque<Operation>,
    operation_next: u64,
    finished: VecDeque<Finished>,
    repeats: VecDeque<Seq>,
    srtt: Option<IncTime>,
    over: Option<OperationError>,
    is_abort_owed: bool,
    /// Chunks that were sent again.
    repeated: u64,
}

impl GroupMember {
    /// A member that has done nothing yet.
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn new(cfg: MemberCfg) -> Result<Self, WindowError> {
        check_window(cfg.window)?;
        Ok(Self {
            next: cfg.first,
            end: cfg.first,
            oldest: cfg.first,
            chunks: vec![None; 2 * cfg.window as usize],
            operations: VecDeque::new(),
            operation_next: 0,
            finished: VecDeque::new(),
            repeats: VecDeque::new(),
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
        input: Arc<[u8]>,
    ) -> Result<OperationId, SubmitError> {
        if let Some(error) = self.over {
            return Err(error.into());
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
        let under_way = self.end.since(self.oldest) as usize;
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
            output: if gets_data { vec![0; len] } else { Vec::new() },
            input,
            deadline: now.saturating_add(self.cfg.bound_ns),
        };
        self.end = self.end.plus(chunks);
        self.operations.push_back(operation);
        Ok(id)
    }

    /// A message of the switch.
    pub fn on_message(&mut self, now: IncTime, header: &IncHeader, data: &[u8]) {
        if header.epoch != self.cfg.epoch || self.over.is_some() {
            return;
        }
        let (collective, data) = match header.kind {
            IncKind::Result(collective) => (collective, data),
            IncKind::Release(collective) => (collective, &[][..]),
            IncKind::Abort(reason) => return self.end_all(OperationError::Aborted(reason)),
            IncKind::Contribution(_) => return,
        };
        let index = self.index_of(header.seq);
        let Some(chunk) = &mut self.chunks[index] else { return };
        let is_meant = chunk.header.seq == header.seq
            && chunk.header.kind == IncKind::Contribution(collective)
            && chunk.header.op_id == header.op_id;
        if !is_meant || chunk.is_answered {
            return;
        }
        let gets_data = gets_data(collective, self.cfg.rank);
        let wanted = if gets_data { chunk.data.len() } else { 0 };
        let is_result = matches!(header.kind, IncKind::Result(_));
        if data.len() != wanted || is_result != (gets_data || collective == Collective::Barrier) {
            return;
        }
        let operation = self
            .operations
            .iter_mut()
            .find(|operation| header.seq.since(operation.first) < operation.chunks);
        let Some(operation) = operation else { return };
        chunk.is_answered = true;
        if chunk.is_first_try {
            let sample = now.saturating_sub(chunk.sent_at);
            self.srtt = Some(self.srtt.map_or(sample, |srtt| srtt - srtt / 8 + sample / 8));
        }
        let place = chunk.data.clone();
        if gets_data {
            operation.output[place].copy_from_slice(data);
        }
        operation.answered += 1;
        self.advance();
    }

    /// The next message to be sent: its header and its data.
    pub fn poll_transmit(&mut self, now: IncTime) -> Option<(IncHeader, &[u8])> {
        if std::mem::take(&mut self.is_abort_owed) {
            let kind = IncKind::Abort(AbortReason::EdgeDead);
            return Some((self.header(kind, self.oldest, 0, 0, false), &[]));
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
                return self.sent(now, index, true);
            }
        }
        let may_send = self.next.since(self.oldest) < self.cfg.window;
        if self.next == self.end || !may_send {
            return None;
        }
        let seq = self.next;
        let index = self.index_of(seq);
        self.chunks[index] = Some(self.chunk(seq)?);
        self.next = self.next.plus(1);
        self.sent(now, index, false)
    }

    /// When [`GroupMember::on_time`] is due; `None`: no answer is waited for.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<IncTime> {
        if self.over.is_some() {
            return None;
        }
        let repeats = self.in_flight().map(|chunk| chunk.sent_at.saturating_add(chunk.pause));
        let bound = self.operations.front().map(|operation| operation.deadline);
        repeats.chain(bound).min()
    }

    /// The time has come that [`GroupMember::poll_deadline`] gave.
    pub fn on_time(&mut self, now: IncTime) {
        if self.operations.front().is_some_and(|operation| operation.deadline <= now) {
            self.is_abort_owed = true;
            return self.end_all(OperationError::Timeout(self.cfg.bound_ns));
        }
        let is_due = |chunk: &&SentChunk| chunk.sent_at.saturating_add(chunk.pause) <= now;
        let due: Vec<_> = self.in_flight().filter(is_due).map(|chunk| chunk.header.seq).collect();
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

    /// Chunks that were sent and have no answer.
    fn in_flight(&self) -> impl Iterator<Item = &SentChunk> {
        let count = self.next.since(self.oldest);
        (0..count)
            .filter_map(|at| self.chunks[self.index_of(self.oldest.plus(at))].as_ref())
            .filter(|chunk| !chunk.is_answered)
    }

    /// Marks a chunk as sent, and gives its message.
    fn sent(&mut self, now: IncTime, index: usize, is_repeat: bool) -> Option<(IncHeader, &[u8])> {
        let first_pause = self.srtt.map_or(0, |srtt| 4 * srtt).max(self.cfg.pause_min_ns);
        let chunk = self.chunks[index].as_mut()?;
        chunk.sent_at = now;
        chunk.is_first_try &= !is_repeat;
        chunk.pause = if is_repeat { 2 * chunk.pause } else { first_pause }.min(PAUSE_MAX);
        chunk.header.is_repeat = is_repeat;
        let data = if chunk.header.count == 0 { 0..0 } else { chunk.data.clone() };
        Some((chunk.header, &chunk.input[data]))
    }

    /// A chunk of an operation that is under way.
    fn chunk(&self, seq: Seq) -> Option<SentChunk> {
        let is_its = |operation: &&Operation| seq.since(operation.first) < operation.chunks;
        let operation = self.operations.iter().find(is_its)?;
        let (collective, nth) = (operation.collective, seq.since(operation.first));
        let len = self.chunk_len(collective);
        let start = nth as usize * len;
        let data = start..operation.input.len().min(start + len);
        // Data of a broadcast is the root's alone.
        let is_silent =
            matches!(collective, Collective::Broadcast(_, root) if root != self.cfg.rank);
        let count = data.len().checked_div(collective.element_size()).filter(|_| !is_silent);
        let count = u16::try_from(count.unwrap_or(0)).ok()?;
        let op_id = u16::try_from(operation.id.0 & 0xffff).ok()?;
        let is_last = nth + 1 == operation.chunks;
        let kind = IncKind::Contribution(collective);
        Some(SentChunk {
            header: self.header(kind, seq, op_id, count, is_last),
            input: Arc::clone(&operation.input),
            data,
            is_answered: false,
            sent_at: 0,
            is_first_try: true,
            pause: 0,
        })
    }

    fn header(&self, kind: IncKind, seq: Seq, op_id: u16, count: u16, is_last: bool) -> IncHeader {
        IncHeader { kind, seq, epoch: self.cfg.epoch, op_id, is_repeat: false, is_last, count }
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
        while self.oldest != self.next {
            let chunk = &self.chunks[self.index_of(self.oldest)];
            if !chunk.as_ref().is_some_and(|chunk| chunk.is_answered) {
                break;
            }
            self.oldest = self.oldest.plus(1);
        }
        while let Some(first) = self.operations.front()
            && first.answered == first.chunks
        {
            let Some(operation) = self.operations.pop_front() else { return };
            let result = Ok(operation.output);
            self.finished.push_back(Finished { id: operation.id, result });
        }
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
    use crate::slots::{Child, Communicator, CommunicatorCfg, To};

    const MS: IncTime = 1_000_000;

    fn cfg(rank: u16) -> MemberCfg {
        MemberCfg {
            rank: Rank(rank),
            window: 4,
            data_max: 16,
            epoch: TreeEpoch(1),
            first: Seq(u32::MAX),
            pause_min_ns: MS,
            bound_ns: 1000 * MS,
        }
    }

    fn sum() -> Collective {
        Collective::Allreduce(Reduction::new(Operator::Sum, ElementType::I32).unwrap())
    }

    fn bytes(values: &[i32]) -> Arc<[u8]> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    /// A switch with two members.
    fn pair() -> (Communicator, [GroupMember; 2]) {
        let of = cfg(0);
        let switch = CommunicatorCfg {
            children: vec![Child::Host(Rank(0)), Child::Host(Rank(1))],
            has_parent: false,
            window: of.window,
            data_max: of.data_max,
            epoch: of.epoch,
            first: of.first,
            forward_pause_ns: 0,
        };
        (
            Communicator::new(&switch).unwrap(),
            [0, 1].map(|rank| GroupMember::new(cfg(rank)).unwrap()),
        )
    }

    /// Carries messages until there are none.
    fn carry(switch: &mut Communicator, members: &mut [GroupMember; 2], now: IncTime) {
        loop {
            let mut is_over = true;
            for (child, member) in members.iter_mut().enumerate() {
                while let Some((header, data)) = member.poll_transmit(now) {
                    is_over = false;
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
                member.submit(0, sum(), bytes(values)).unwrap();
            }
            member.submit(0, Collective::Barrier, bytes(&[])).unwrap();
        }
        carry(&mut switch, &mut members, 0);
        for member in &mut members {
            let doubled: Vec<_> = long.iter().map(|value| 2 * value).collect();
            for (id, wanted) in [&doubled[..], &[14], &[], &[]].into_iter().enumerate() {
                let finished = member.poll_finished().unwrap();
                assert_eq!(finished.id, OperationId(id as u64));
                assert_eq!(finished.result.unwrap(), *bytes(wanted));
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
            members[0].submit(0, sum(), bytes(first)).unwrap();
            members[1].submit(0, sum(), bytes(second)).unwrap();
            carry(&mut switch, &mut members, 0);
            let error = OperationError::Aborted(AbortReason::Contradiction);
            for member in &mut members {
                assert_eq!(member.poll_finished().unwrap().result, Err(error));
                let refused = member.submit(0, sum(), bytes(&[1])).unwrap_err();
                assert_eq!(refused, SubmitError::Over(error));
                assert!(refused.to_string().contains("different sizes"));
            }
        }
    }

    #[test]
    fn an_operation_that_a_member_does_not_call_ends_at_the_bound() {
        let (mut switch, [mut member, _]) = pair();
        member.submit(0, sum(), bytes(&[1])).unwrap();
        member.submit(5 * MS, sum(), bytes(&[2])).unwrap();
        let (mut now, mut at) = (0, Vec::new());
        loop {
            while let Some((header, data)) = member.poll_transmit(now) {
                if header.seq == Seq(u32::MAX) && !matches!(header.kind, IncKind::Abort(_)) {
                    assert_eq!(header.is_repeat, !at.is_empty());
                    at.push(now / MS);
                }
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
        let mut member = GroupMember::new(cfg(0)).unwrap();
        member.submit(0, sum(), bytes(&[1])).unwrap();
        let (header, _) = member.poll_transmit(0).unwrap();
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
        assert_eq!(member.poll_finished().unwrap().result.unwrap(), [9, 0, 0, 0]);
        assert_eq!(member.poll_finished(), None);
    }

    #[test]
    fn what_is_no_operation_is_refused_with_the_reason() {
        let mut member = GroupMember::new(cfg(0)).unwrap();
        let mut refusal = |collective, len: usize| {
            member.submit(0, collective, vec![0; len].into()).unwrap_err().to_string()
        };
        assert!(refusal(sum(), 7).contains("7 bytes are no whole elements of 4 bytes"));
        assert!(refusal(Collective::Barrier, 1).contains("a barrier has no data"));
        for window in [0, 3, 2048] {
            let error = GroupMember::new(MemberCfg { window, ..cfg(0) }).unwrap_err();
            assert!(error.to_string().contains(&format!("not {window}")));
        }
        let small = MemberCfg { data_max: 3, ..cfg(0) };
        let refused = GroupMember::new(small).unwrap().submit(0, sum(), bytes(&[1])).unwrap_err();
        assert_eq!(refused, SubmitError::Element { size: 4, data_max: 3 });
    }
}
