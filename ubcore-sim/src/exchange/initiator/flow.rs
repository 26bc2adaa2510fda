//! The requests of one sequence, from the mail to their completion: numbers, attempts, going back.
//!
//! *Owns*: TASSNs, which piece is sent next, how many attempts are unanswered. *Takes*: requests, what was pushed,
//! answers, time. *Gives*: what to push, what is completed. *Must not*: move bytes; have two attempts with one number
//! in flight that could both be executed.
//!
//! Every attempt is answered once and in order. So after *not ready* the flow waits until none of its attempts is
//! unanswered, then numbers the rest from the number that the target expects. A hole (a request that was dropped here
//! and never executed there) is closed in the same way.

use std::collections::VecDeque;

use udma_abi::{CqeStatus, Nanos};
use urma_packet::{
    RequestFlags, RequestHeader, RequestOp, ResponseOp,
    packetizer::{Packetizer, Sideband},
};

use crate::carrier::STARVED_NS;
use crate::engine::gather::{EntryWords, Local};
use crate::exchange::initiator::send_queues::TIMEOUT_MIN_NS;
use udma_abi::sqe::{BLOCK_WORDS, SQE_WORDS_MAX};

/// The most retries that a queue can ask for. RDMA devices retry without end then (UMDK release 26.06, `rnr_retry`);
/// here for as long as a receiver on a busy machine may take to post.
const RNR_RETRY_MAX: u8 = 7;

/// Retries after "out of sequence": as many as the most after "not ready".
pub(crate) const SEQUENCE_TRIES: u8 = 7;

/// Dropped attempts that are remembered.
const DROPPED_MAX: usize = 8;

/// Memory of ended requests that is kept for new ones: as many as one queue has outstanding.
const SPARE_MAX: usize = crate::engine::mail::OUTSTANDING_MAX;

/// How often and for how long the receiver of a request was not ready.
#[derive(Clone, Copy, Debug)]
struct NotReady {
    times: u8,
    /// Time since the first such answer, without silent times of the receiver.
    ns: Nanos,
    /// Time of its last such answer.
    at: Nanos,
}

/// A request that was accepted and is not retired.
#[derive(Debug)]
pub(crate) struct Request {
    /// Sequence number in its queue, for its completion.
    pub(crate) seq: u32,
    pub(crate) words: EntryWords,
    pub(crate) local: Local,
    pub(crate) len: u32,
    /// The payload is in the peer's memory already.
    pub(crate) placed: bool,
    pub(crate) header: RequestHeader,
    /// How far this attempt is cut and pushed.
    pub(crate) cut: Packetizer,
    /// Bytes of a read that arrived.
    pub(crate) got: u32,
    /// Status of a failure here while its answer was still arriving.
    pub(crate) failed: Option<CqeStatus>,
    not_ready: Option<NotReady>,
    pub(crate) sequence_used: u8,
    /// It is completed; it stays until all before it are.
    ended: bool,
}

impl Request {
    #[inline(always)]
    pub(crate) fn new(seq: u32, words: &EntryWords, header: RequestHeader, local: Local) -> Self {
        Self {
            seq,
            words: *words,
            local,
            len: header.access.length,
            placed: false,
            header,
            cut: Packetizer::default(),
            got: 0,
            failed: None,
            not_ready: None,
            sequence_used: 0,
            ended: false,
        }
    }

    /// Notes that the receiver is not ready and asks for a wait of `wait`. Returns whether the request may be sent
    /// again: `retries` times, or with the most retries for as long as a peer may be without a processor. A node that
    /// was stopped meanwhile could post no receive: silence longer than the wait explains does not count.
    pub(crate) fn may_retry(&mut self, retries: u8, now: Nanos, wait: Nanos) -> bool {
        let before = self.not_ready.unwrap_or(NotReady { times: 0, ns: 0, at: now });
        let round = now.saturating_sub(before.at).min(wait.saturating_add(TIMEOUT_MIN_NS));
        let ns = before.ns.saturating_add(round);
        self.not_ready = Some(NotReady { times: before.times.saturating_add(1), ns, at: now });
        before.times < retries || retries >= RNR_RETRY_MAX && ns < STARVED_NS
    }

    /// Whether an attempt was begun, maybe over a carrier that is gone: the target may have executed it under its
    /// number.
    fn was_begun(&self) -> bool {
        self.cut.has_begun() || self.header.flags.contains(RequestFlags::RETRY)
    }

    /// The piece that tells the target that the rest of the message will not come.
    fn last_word(&self) -> RequestHeader {
        let mut header = self.header;
        header.flags.remove(RequestFlags::ONLY);
        header.access.address = header.access.address.wrapping_add(u64::from(self.cut.done()));
        header
    }

    fn restart(&mut self) {
        self.cut = Packetizer::default();
        self.got = 0;
        self.failed = None;
        self.header.flags.insert(RequestFlags::RETRY);
    }
}

/// A one-block request whose only piece was pushed before the request was recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BegunRequest<'a> {
    /// Sequence number in its queue, for its completion.
    pub(crate) seq: u32,
    pub(crate) block: &'a [u64; BLOCK_WORDS],
    pub(crate) local: Local,
    /// Length of the payload in bytes.
    pub(crate) len: u32,
    /// Header of another request of the same form.
    pub(crate) header: &'a RequestHeader,
    /// Immediate of a SEND_IMM.
    pub(crate) op: RequestOp,
}

impl BegunRequest<'_> {
    /// Allocates memory for it.
    #[cold]
    fn place(&self) -> Box<Request> {
        Box::new(Request::new(self.seq, &[0; SQE_WORDS_MAX], *self.header, self.local))
    }

    /// Records it in `place`, which may have been another request's: of the words only its block matters.
    #[inline]
    fn fill(&self, place: &mut Request, tassn: u16) {
        let (blocks, _) = place.words.as_chunks_mut::<BLOCK_WORDS>();
        blocks[0] = *self.block;
        place.seq = self.seq;
        place.local = self.local;
        place.len = self.len;
        place.placed = false;
        place.header = *self.header;
        place.header.tassn = tassn;
        place.header.access.length = self.len;
        place.header.op = self.op;
        place.cut = Packetizer::at(1, self.len);
        place.got = 0;
        place.failed = None;
        place.not_ready = None;
        place.sequence_used = 0;
        place.ended = false;
    }
}

/// A flow that went back and waits.
#[derive(Clone, Copy, Debug)]
struct HeldFlow {
    /// It waits until this time at least.
    until: Nanos,
    /// Number that the target expects.
    expected: u16,
}

/// One sequence at its initiator.
#[derive(Debug)]
pub(crate) struct Flow {
    /// In order of TASSN, without gaps.
    requests: VecDeque<Box<Request>>,
    /// Memory of ended requests, for new ones.
    #[expect(
        clippy::vec_box,
        reason = "a place moves between the lists, and its request does not"
    )]
    spare: Vec<Box<Request>>,
    /// TASSN of the front, or of the next request if there is none.
    first: u16,
    /// Index of the request whose piece is next.
    next: usize,
    /// Attempts begun and not answered.
    unanswered: u32,
    hold: Option<HeldFlow>,
    /// Numbers of attempts that were begun and dropped: their answers are ignored.
    dropped: Vec<u16>,
    /// A message was broken off on the current carrier: the piece that says so has to be sent before any other.
    broken_off: Option<Box<RequestHeader>>,
    /// Priority of its queue, 0 to 15.
    pub(crate) priority: u8,
    /// It is in the schedule of flows with something to push.
    pub(crate) listed: bool,
    /// Error timeout of its queue: how long it waits for progress, from `since` on.
    timeout: Nanos,
    since: Nanos,
}

impl Flow {
    pub(crate) fn new() -> Self {
        Self {
            requests: VecDeque::new(),
            spare: Vec::new(),
            first: 0,
            next: 0,
            unanswered: 0,
            hold: None,
            dropped: Vec::new(),
            broken_off: None,
            priority: 0,
            listed: false,
            timeout: 0,
            since: Nanos::MAX,
        }
    }

    /// Starts the error timeout `timeout` of the queue at `since`.
    pub(crate) fn wait_from(&mut self, since: Nanos, timeout: Nanos) {
        (self.since, self.timeout) = (since, timeout);
    }

    /// Time of the last progress.
    pub(crate) fn since(&self) -> Nanos {
        self.since
    }

    /// Restarts the timeout at `now`.
    pub(crate) fn wait_anew(&mut self, now: Nanos) {
        self.since = now;
    }

    /// Without progress until then, the peer is asked whether it is there.
    pub(crate) fn doubt_at(&self) -> Nanos {
        self.since.saturating_add(self.timeout)
    }

    /// Without progress until then, all requests end. A connected peer gets at least [`STARVED_NS`].
    pub(crate) fn deadline(&self, is_connected: bool) -> Nanos {
        let least = if is_connected { STARVED_NS } else { 0 };
        self.since.saturating_add(self.timeout.max(least))
    }

    /// When to check again, after a check at `now`.
    pub(crate) fn look_at(&self, now: Nanos, deadline: Nanos) -> Nanos {
        let next =
            if now < self.doubt_at() { self.doubt_at() } else { now.saturating_add(self.timeout) };
        next.min(deadline)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Number of attempts begun and not answered.
    pub(crate) fn unanswered(&self) -> u32 {
        self.unanswered
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, request: Request) {
        let tassn = self.next_number();
        let mut place = match self.spare.pop() {
            Some(mut place) => {
                *place = request;
                place
            }
            None => Box::new(request),
        };
        place.header.tassn = tassn;
        self.requests.push_back(place);
    }

    /// Number that the next request gets.
    #[inline]
    pub(crate) fn next_number(&self) -> u16 {
        self.number(self.requests.len())
    }

    /// Whether the next request can be sent at once: nothing waits before it.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.hold.is_none() && self.next == self.requests.len()
    }

    /// Whether no request of it is outstanding, and none was dropped.
    pub(crate) fn is_finished(&self) -> bool {
        let is_whole = self.dropped.is_empty() && self.broken_off.is_none();
        self.is_empty() && self.is_open() && self.unanswered == 0 && is_whole
    }

    /// Advances a finished flow by `ended` requests that were handled elsewhere.
    #[expect(clippy::cast_possible_truncation, reason = "numbers are modulo 2^16")]
    pub(crate) fn pass(&mut self, ended: u32) {
        self.first = self.first.wrapping_add(ended as u16);
    }

    /// Records a one-piece request that was pushed with [`Flow::next_number`].
    #[inline]
    pub(crate) fn push_begun(&mut self, short: &BegunRequest<'_>) {
        let tassn = self.next_number();
        let mut place = self.spare.pop().unwrap_or_else(|| short.place());
        short.fill(&mut place, tassn);
        self.requests.push_back(place);
        self.next += 1;
        self.unanswered += 1;
    }

    /// Handles the plain acknowledgement of request `tassn` if that is the oldest one, all are pushed, and nothing
    /// was sent again or dropped. Returns its sequence number in its queue, and its length.
    #[inline]
    pub(crate) fn end_front(&mut self, tassn: u16, now: Nanos) -> Option<(u32, u32)> {
        let is_usual = self.is_open() && self.dropped.is_empty() && self.first == tassn;
        let request = self.requests.front().filter(|_| is_usual)?;
        let is_acked = request.header.op.answered_by() == ResponseOp::TaAck;
        if !is_acked || !request.cut.has_begun() || request.ended || request.failed.is_some() {
            return None;
        }
        let end = (request.seq, request.len);
        self.since = now;
        self.unanswered = self.unanswered.saturating_sub(1);
        self.drop_front();
        // Later requests than one that is sent again may be completed already.
        if self.requests.front().is_some_and(|request| request.ended) {
            self.drop_ended();
        }
        Some(end)
    }

    /// Notes that the payload of the newest request is in the peer's memory already.
    pub(crate) fn mark_placed(&mut self) {
        if let Some(request) = self.requests.back_mut() {
            request.placed = true;
        }
    }

    /// When a flow that went back may continue; `None` if it did not go back.
    pub(crate) fn held_until(&self) -> Option<Nanos> {
        self.hold.map(|hold| hold.until)
    }

    /// The request whose piece is next, if one may be sent now.
    pub(crate) fn current(&mut self, now: Nanos) -> Option<&mut Request> {
        if let Some(hold) = self.hold {
            if self.unanswered != 0 || now < hold.until {
                return None;
            }
            self.hold = None;
            self.renumber(hold.expected);
        }
        // Later requests than one that is sent again may be completed already.
        while self.requests.get(self.next).is_some_and(|request| request.ended) {
            self.next += 1;
        }
        self.requests.get_mut(self.next).map(Box::as_mut)
    }

    /// Notes that this packet of the current request was pushed.
    pub(crate) fn on_pushed(&mut self, packet: &Sideband) {
        if let Some(request) = self.requests.get_mut(self.next) {
            request.cut.take(packet);
        }
        self.unanswered += u32::from(packet.first);
        self.next += usize::from(packet.last);
    }

    /// Drops the current request, which failed here (or was a datagram): it gets no further piece. Those behind it
    /// move up, unless it had begun: then its number is used.
    pub(crate) fn drop_current(&mut self) {
        let index = self.next;
        if self.requests.get(index).is_some_and(|request| request.was_begun()) {
            self.break_off();
            self.on_ended(index);
            return;
        }
        let _ = self.requests.remove(index);
        for index in index..self.requests.len() {
            self.requests[index].header.tassn = self.number(index);
        }
    }

    /// Breaks off a partly pushed attempt, if there is one.
    fn break_off(&mut self) {
        let half = self
            .requests
            .get(self.next)
            .filter(|request| request.cut.has_begun() && !request.ended);
        let Some(request) = half else { return };
        self.broken_off = Some(Box::new(request.last_word()));
        if self.dropped.len() == DROPPED_MAX {
            self.dropped.remove(0);
        }
        self.dropped.push(self.number(self.next));
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// The piece to send before any other: that a message was broken off.
    pub(crate) fn broken_off(&self) -> Option<&RequestHeader> {
        self.broken_off.as_deref()
    }

    /// Notes that the target was sent what [`Flow::broken_off`] gives.
    pub(crate) fn on_announced(&mut self) {
        self.broken_off = None;
    }

    /// Index of an unanswered request.
    pub(crate) fn find(&self, tassn: u16) -> Option<usize> {
        let index = usize::from(tassn.wrapping_sub(self.first));
        let request = self.requests.get(index)?;
        (!request.ended && request.cut.has_begun() && index <= self.next).then_some(index)
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Request> {
        self.requests.get_mut(index).map(Box::as_mut)
    }

    /// Notes that the answer to an attempt is complete.
    pub(crate) fn on_answered(&mut self, tassn: u16) {
        match self.dropped.iter().position(|&dropped| dropped == tassn) {
            Some(at) => {
                self.dropped.swap_remove(at);
            }
            None => self.unanswered = self.unanswered.saturating_sub(1),
        }
    }

    /// Whether it went back already: later refusals of the same round mean nothing.
    pub(crate) fn is_held(&self) -> bool {
        self.hold.is_some()
    }

    /// Completes a request. The rest of a partly pushed message is not sent.
    pub(crate) fn on_ended(&mut self, index: usize) {
        if let Some(request) = self.requests.get_mut(index) {
            request.ended = true;
        }
        if index == self.next {
            self.next += 1;
        }
        self.drop_ended();
    }

    fn drop_ended(&mut self) {
        while self.requests.front().is_some_and(|r| r.ended) {
            self.drop_front();
        }
    }

    /// Removes the oldest request, which is completed, and keeps its memory for another one.
    #[inline]
    fn drop_front(&mut self) {
        if let Some(place) = self.requests.pop_front()
            && self.spare.len() < SPARE_MAX
        {
            self.spare.push(place);
        }
        self.first = self.first.wrapping_add(1);
        self.next = self.next.saturating_sub(1);
    }

    /// Goes back: sends again from number `expected` on, at `until` at the earliest. `false`: nothing with that
    /// number was sent.
    pub(crate) fn go_back(&mut self, expected: u16, until: Nanos) -> bool {
        let behind = expected.wrapping_sub(self.first).cast_signed();
        // Older than the front: the request with that number was dropped here.
        let index = usize::try_from(behind).unwrap_or(0);
        if index > self.next {
            return false;
        }
        self.next = index;
        self.hold = Some(HeldFlow { until, expected });
        for request in self.requests.iter_mut().skip(index) {
            if request.cut.has_begun() {
                request.restart();
            }
        }
        true
    }

    /// Sends everything unanswered again: it is lost with its carrier.
    pub(crate) fn on_carrier_lost(&mut self) {
        self.unanswered = 0;
        self.dropped.clear();
        self.broken_off = None;
        self.hold = None;
        self.next = 0;
        for request in self.requests.iter_mut().filter(|r| r.cut.has_begun() && !r.ended) {
            request.restart();
        }
    }

    /// Starts the sequence anew at 0: the target does not know it.
    pub(crate) fn begin_anew(&mut self) {
        self.on_carrier_lost();
        self.requests.retain(|r| !r.ended);
        (self.first, self.next) = (0, 0);
        for index in 0..self.requests.len() {
            self.requests[index].header.tassn = self.number(index);
        }
    }

    /// Removes all requests. Those that never began keep no number.
    pub(crate) fn clear(&mut self, mut on_dropped: impl FnMut(&Request)) {
        self.break_off();
        let begun = self.requests.iter().rposition(|request| request.was_begun());
        let used = begun.map_or(0, |last| last + 1);
        self.first = self.number(used.max(self.next.min(self.requests.len())));
        for request in self.requests.iter().filter(|r| !r.ended) {
            on_dropped(request);
        }
        self.requests.clear();
        self.next = 0;
    }

    /// Renumbers what is left from the number that the target expects; nothing is in flight.
    fn renumber(&mut self, expected: u16) {
        self.dropped.clear();
        let open = self.requests.iter().take(self.next).filter(|r| !r.ended).count();
        if open == 0 {
            self.requests.retain(|r| !r.ended);
            self.next = 0;
            self.first = expected;
        }
        for index in self.next..self.requests.len() {
            self.requests[index].header.tassn = self.number(index);
        }
    }

    fn number(&self, index: usize) -> u16 {
        #[expect(clippy::cast_possible_truncation, reason = "sequence numbers wrap at 16 bits")]
        self.first.wrapping_add(index as u16)
    }
}

#[cfg(test)]
mod tests {
    use udma_abi::{Opcode, Sqe, cmd::Mode, sqe::SQE_WORDS_MAX};

    use super::*;
    use crate::exchange::{initiator::next_piece, pair};

    fn write(seq: u32) -> Request {
        let sqe = Sqe::new(Opcode::Write);
        let header = next_piece::header(&sqe, pair::initiator(1500, true), Mode::Rm, 8);
        Request::new(seq, &[0; SQE_WORDS_MAX], header.expect("a write"), Local::of(&sqe))
    }

    /// Pushes the current request, which is one packet.
    fn push_next(flow: &mut Flow) {
        let request = flow.current(0).expect("a request");
        let packet = request.cut.next_packet((request.seq, request.len), 4096);
        flow.on_pushed(&packet);
    }

    #[test]
    fn a_request_that_ended_behind_waiting_ones_is_not_sent_again() {
        let mut flow = Flow::new();
        for seq in 0..3 {
            flow.push(write(seq));
            assert_eq!(flow.current(0).map(|request| request.seq), Some(seq));
            push_next(&mut flow);
        }
        flow.on_answered(1);
        flow.on_ended(1);
        flow.on_carrier_lost();
        for seq in [0, 2] {
            assert_eq!(flow.current(0).map(|request| request.seq), Some(seq));
            push_next(&mut flow);
        }
        assert!(flow.current(0).is_none());
    }

    #[test]
    fn requests_behind_an_acknowledged_one_that_ended_go_with_it() {
        let mut flow = Flow::new();
        for seq in 0..3 {
            flow.push(write(seq));
            assert!(flow.current(0).is_some());
            push_next(&mut flow);
        }
        flow.on_answered(1);
        flow.on_ended(1);
        assert_eq!(flow.end_front(0, 0), Some((0, 8)));
        assert_eq!(flow.end_front(2, 0), Some((2, 8)));
    }

    #[test]
    fn a_number_that_an_earlier_carrier_brought_is_not_given_again() {
        let begin = |flow: &mut Flow| {
            flow.push(write(0));
            assert!(flow.current(0).is_some());
            push_next(flow);
        };
        // The queue is destroyed, or the request fails here, before it goes again.
        let endings: [fn(&mut Flow); 2] = [|flow| flow.clear(|_| {}), Flow::drop_current];
        for end in endings {
            let mut flow = Flow::new();
            begin(&mut flow);
            flow.on_carrier_lost();
            end(&mut flow);
            flow.push(write(1));
            assert_eq!(flow.current(0).map(|request| request.header.tassn), Some(1));
        }
    }
}
