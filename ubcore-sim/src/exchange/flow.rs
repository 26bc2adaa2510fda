//! The requests of one sequence, from the mail to their ends: numbers, attempts, going back.
//!
//! *Owns*: TASSNs, which piece goes next, how many attempts are unanswered. *Takes*: requests, what
//! was pushed, answers, time. *Gives*: what to push, what ended. *Must not*: move bytes; have two
//! attempts with one number in flight that could both be executed.
//!
//! Every attempt is answered once and in order, so after *not ready* the flow waits until nothing of
//! it is unanswered, then numbers what is left from the one that the target waits for. A hole (a
//! request that was dropped here and never executed there) closes the same way.

use std::collections::VecDeque;

use udma_abi::{CqeStatus, Nanos};
use urma_packet::RequestHeader;

use crate::carrier::STARVED_NS;
use crate::engine::gather::{EntryWords, Local};

/// The most retries that a queue can ask for. They mean "without end" for RDMA devices (UMDK release
/// 26.06, `rnr_retry`); here they last as long as a receiver on a busy machine may take to post.
const RNR_RETRY_MAX: u8 = 7;

/// Tries after "out of sequence", as many as after "not ready" at most.
pub(super) const SEQUENCE_TRIES: u8 = 7;

/// Dropped attempts that are remembered.
const DROPPED_MAX: usize = 8;

/// A request that was accepted and is not retired.
#[derive(Debug)]
pub(super) struct Request {
    /// Pairs it with its end.
    pub(super) seq: u32,
    pub(super) words: EntryWords,
    pub(super) local: Local,
    pub(super) len: u32,
    /// The payload is in the peer's memory already.
    pub(super) placed: bool,
    pub(super) header: RequestHeader,
    /// Payload bytes of this attempt that were pushed.
    pub(super) pushed: u32,
    /// This attempt has begun.
    pub(super) begun: bool,
    /// Bytes of a read that came.
    pub(super) got: u32,
    /// It failed here while its answer was still coming.
    pub(super) failed: Option<CqeStatus>,
    /// Times that the receiver was not ready, and when it first was not.
    not_ready: Option<(u8, Nanos)>,
    pub(super) sequence_used: u8,
    /// Ended; stays until all before it have.
    ended: bool,
}

impl Request {
    #[inline(always)]
    pub(super) fn new(seq: u32, words: &EntryWords, header: RequestHeader, local: Local) -> Self {
        Self {
            seq,
            words: *words,
            local,
            len: header.access.length,
            placed: false,
            header,
            pushed: 0,
            begun: false,
            got: 0,
            failed: None,
            not_ready: None,
            sequence_used: 0,
            ended: false,
        }
    }

    /// Takes note that the receiver is not ready, and whether the request may go again: `retries`
    /// times, and with the most retries for as long as a peer may be without a processor.
    pub(super) fn may_retry(&mut self, retries: u8, now: Nanos) -> bool {
        let (used, since) = self.not_ready.unwrap_or((0, now));
        let starved = retries >= RNR_RETRY_MAX && now.saturating_sub(since) < STARVED_NS;
        self.not_ready = Some((used.saturating_add(1), since));
        used < retries || starved
    }

    /// Whether an attempt of it was begun, maybe over a carrier that is gone: the target may have
    /// executed it under its number.
    fn was_begun(&self) -> bool {
        self.begun || self.header.flags.contains(urma_packet::RequestFlags::RETRY)
    }

    fn restart(&mut self) {
        self.pushed = 0;
        self.begun = false;
        self.got = 0;
        self.failed = None;
        self.header.flags.insert(urma_packet::RequestFlags::RETRY);
    }
}

/// A flow that went back.
#[derive(Clone, Copy, Debug)]
struct HeldFlow {
    /// Not before this time.
    until: Nanos,
    /// Number that the target waits for.
    expected: u16,
}

/// One sequence at its initiator.
#[derive(Debug)]
pub(super) struct Flow {
    /// In order of TASSN, without gaps.
    requests: VecDeque<Request>,
    /// TASSN of the front (of the next one when there is none).
    first: u16,
    /// Index of the request whose piece is next.
    next: usize,
    /// Attempts begun and not answered.
    unanswered: u32,
    hold: Option<HeldFlow>,
    /// Numbers of attempts that were begun and dropped: an answer to one counts for nothing.
    dropped: Vec<u16>,
    /// Of its queue, 0 to 15.
    pub(super) priority: u8,
    /// In the list of flows with something to push.
    pub(super) listed: bool,
    /// Of its queue: how long it waits for progress from `since` on.
    timeout: Nanos,
    since: Nanos,
}

impl Flow {
    pub(super) fn new() -> Self {
        Self {
            requests: VecDeque::new(),
            first: 0,
            next: 0,
            unanswered: 0,
            hold: None,
            dropped: Vec::new(),
            priority: 0,
            listed: false,
            timeout: 0,
            since: Nanos::MAX,
        }
    }

    /// The error timeout of the queue, `timeout`, counts from `since` on.
    pub(super) fn wait_from(&mut self, since: Nanos, timeout: Nanos) {
        (self.since, self.timeout) = (since, timeout);
    }

    /// When the last progress was.
    pub(super) fn since(&self) -> Nanos {
        self.since
    }

    /// The time counts from `now` on.
    pub(super) fn wait_anew(&mut self, now: Nanos) {
        self.since = now;
    }

    /// Without progress until then, the peer is asked whether it is there.
    pub(super) fn doubt_at(&self) -> Nanos {
        self.since.saturating_add(self.timeout)
    }

    /// Without progress until then, everything ends. A peer that is connected has at least
    /// [`STARVED_NS`].
    pub(super) fn deadline(&self, is_connected: bool) -> Nanos {
        let least = if is_connected { STARVED_NS } else { 0 };
        self.since.saturating_add(self.timeout.max(least))
    }

    /// When to look again, after a look at `now`.
    pub(super) fn look_at(&self, now: Nanos, deadline: Nanos) -> Nanos {
        let next =
            if now < self.doubt_at() { self.doubt_at() } else { now.saturating_add(self.timeout) };
        next.min(deadline)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Attempts begun and not answered.
    pub(super) fn unanswered(&self) -> u32 {
        self.unanswered
    }

    #[inline(always)]
    pub(super) fn push(&mut self, request: Request) {
        let tassn = self.number(self.requests.len());
        self.requests.push_back(request);
        if let Some(request) = self.requests.back_mut() {
            request.header.tassn = tassn;
        }
    }

    /// The payload of the newest request is in the peer's memory already.
    pub(super) fn mark_placed(&mut self) {
        if let Some(request) = self.requests.back_mut() {
            request.placed = true;
        }
    }

    /// When a flow that went back may go on; `None` when it did not.
    pub(super) fn held_until(&self) -> Option<Nanos> {
        self.hold.map(|hold| hold.until)
    }

    /// The request whose piece is next, when one may go now.
    pub(super) fn current(&mut self, now: Nanos) -> Option<&mut Request> {
        if let Some(hold) = self.hold {
            if self.unanswered != 0 || now < hold.until {
                return None;
            }
            self.hold = None;
            self.renumber(hold.expected);
        }
        // Requests that are sent again may have later ones behind them that ended.
        while self.requests.get(self.next).is_some_and(|request| request.ended) {
            self.next += 1;
        }
        self.requests.get_mut(self.next)
    }

    /// The first piece of the current request was pushed.
    pub(super) fn on_begun(&mut self) {
        if let Some(request) = self.requests.get_mut(self.next) {
            request.begun = true;
            self.unanswered += 1;
        }
    }

    /// The last piece of the current request was pushed.
    pub(super) fn on_pushed(&mut self) {
        self.next += 1;
    }

    /// The current request failed here (or was a datagram): it gets no further piece. Those
    /// behind it move up, unless it had begun: then its number is used.
    pub(super) fn drop_current(&mut self) {
        let index = self.next;
        if self.requests.get(index).is_some_and(Request::was_begun) {
            if self.requests[index].begun {
                self.forget_attempt(index);
            }
            self.on_ended(index);
            return;
        }
        let _ = self.requests.remove(index);
        for index in index..self.requests.len() {
            self.requests[index].header.tassn = self.number(index);
        }
    }

    /// An attempt that is half pushed will not be finished.
    fn forget_attempt(&mut self, index: usize) {
        if self.dropped.len() == DROPPED_MAX {
            self.dropped.remove(0);
        }
        self.dropped.push(self.number(index));
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// Index of a request that is unanswered.
    pub(super) fn find(&self, tassn: u16) -> Option<usize> {
        let index = usize::from(tassn.wrapping_sub(self.first));
        let request = self.requests.get(index)?;
        (!request.ended && request.begun && index <= self.next).then_some(index)
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Request> {
        self.requests.get_mut(index)
    }

    /// The answer to an attempt is complete.
    pub(super) fn on_answered(&mut self, tassn: u16) {
        match self.dropped.iter().position(|&dropped| dropped == tassn) {
            Some(at) => {
                self.dropped.swap_remove(at);
            }
            None => self.unanswered = self.unanswered.saturating_sub(1),
        }
    }

    /// Whether it went back already: later refusals of the same round mean nothing.
    pub(super) fn is_held(&self) -> bool {
        self.hold.is_some()
    }

    /// A request ended. The rest of a message that is half pushed is not.
    pub(super) fn on_ended(&mut self, index: usize) {
        if let Some(request) = self.requests.get_mut(index) {
            request.ended = true;
        }
        if index == self.next {
            self.next += 1;
        }
        while self.requests.front().is_some_and(|r| r.ended) {
            self.requests.pop_front();
            self.first = self.first.wrapping_add(1);
            self.next = self.next.saturating_sub(1);
        }
    }

    /// Sends again from number `expected` on, at `until` at the earliest. `false`: that is beyond
    /// what was sent.
    pub(super) fn go_back(&mut self, expected: u16, until: Nanos) -> bool {
        let behind = expected.wrapping_sub(self.first).cast_signed();
        // Older than the front: what had that number was dropped here.
        let index = usize::try_from(behind).unwrap_or(0);
        if index > self.next {
            return false;
        }
        self.next = index;
        self.hold = Some(HeldFlow { until, expected });
        for request in self.requests.iter_mut().skip(index) {
            if request.begun {
                request.restart();
            }
        }
        true
    }

    /// What was in flight is lost with its carrier: everything unanswered is sent again.
    pub(super) fn on_carrier_lost(&mut self) {
        self.unanswered = 0;
        self.dropped.clear();
        self.hold = None;
        self.next = 0;
        for request in self.requests.iter_mut().filter(|r| r.begun && !r.ended) {
            request.restart();
        }
    }

    /// The target knows nothing of this sequence: it begins again at 0.
    pub(super) fn begin_anew(&mut self) {
        self.on_carrier_lost();
        self.requests.retain(|r| !r.ended);
        (self.first, self.next) = (0, 0);
        for index in 0..self.requests.len() {
            self.requests[index].header.tassn = self.number(index);
        }
    }

    /// Takes everything out. What was never begun keeps no number.
    pub(super) fn clear(&mut self, mut on_dropped: impl FnMut(&Request)) {
        if self.requests.get(self.next).is_some_and(|r| r.begun) {
            self.forget_attempt(self.next);
        }
        let used = self.requests.iter().rposition(Request::was_begun).map_or(0, |last| last + 1);
        self.first = self.number(used.max(self.next.min(self.requests.len())));
        for request in self.requests.iter().filter(|r| !r.ended) {
            on_dropped(request);
        }
        self.requests.clear();
        self.next = 0;
    }

    /// Nothing is in flight: numbers what is left from the one that the target waits for.
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
    use crate::exchange::{pair, request};

    fn write(seq: u32) -> Request {
        let sqe = Sqe::new(Opcode::Write);
        let header = request::header(&sqe, pair::initiator(1500, true), Mode::Rm, 8);
        Request::new(seq, &[0; SQE_WORDS_MAX], header.expect("a write"), Local::of(&sqe))
    }

    #[test]
    fn a_request_that_ended_behind_waiting_ones_is_not_sent_again() {
        let mut flow = Flow::new();
        for seq in 0..3 {
            flow.push(write(seq));
            assert_eq!(flow.current(0).map(|request| request.seq), Some(seq));
            flow.on_begun();
            flow.on_pushed();
        }
        flow.on_answered(1);
        flow.on_ended(1);
        flow.on_carrier_lost();
        for seq in [0, 2] {
            assert_eq!(flow.current(0).map(|request| request.seq), Some(seq));
            flow.on_begun();
            flow.on_pushed();
        }
        assert!(flow.current(0).is_none());
    }

    #[test]
    fn a_number_that_an_earlier_carrier_brought_is_not_given_again() {
        let begin = |flow: &mut Flow| {
            flow.push(write(0));
            assert!(flow.current(0).is_some());
            flow.on_begun();
            flow.on_pushed();
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
