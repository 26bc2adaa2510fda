//! The target's side of one peer: pieces in, placed bytes and receive completions out, one answer per attempt.
//!
//! *Owns*: the order of checks and effects, answers that wait to be sent. *Takes*: pieces in order. *Gives*: answers.
//! *Must not*: move a byte before every check passed; acknowledge before placement.

use std::collections::{BTreeMap, VecDeque};

use udma_abi::{CqeStatus, Nanos, RawEid, counters::Counter};
use urma_mem::Region;
use urma_packet::{
    RequestFlags, RequestHeader, RequestOp, ResponseBody, ResponseHeader, ResponseStatus,
    TransactionHeader,
};

use crate::carrier::{PeerCarrier, RingPair, WholeEntry, piece::Payload};
use crate::engine::gather::Segments;
use crate::engine::pull::Puller;
use crate::exchange::ExchangeContext;
use crate::exchange::pair::Pair;
use crate::exchange::short::{TakenForm, TakenForms};
use crate::exchange::target::guesses::{Guesses, Shown};
use crate::exchange::target::memory::PieceOutcome;
use crate::exchange::target::memory::{self, ReadJob};
use crate::exchange::target::message::{self, send_piece};
use crate::exchange::target::message::{place_late, write_piece};
use crate::exchange::target::receive::{ReceivingSides, TakenReceive};
use crate::exchange::target::serve::{NotBegun, PieceAction, Reply, Served};
use crate::exchange::target::{RequestFragment, RequestSource};

/// Most sequences of one peer.
const SERVED_MAX: usize = 1 << 16;
/// Most answers that wait for the carrier. More than [`crate::exchange::initiator::requester::IN_FLIGHT_MAX`], so
/// that two nodes that keep that limit never wait for each other; a node that exceeds it is not read from meanwhile.
const ANSWERS_MAX: usize = 4096;

/// Most acknowledgements that wait for a message to carry them.
const ANSWERS_HELD: usize = 4;

/// Requests of one peer's queues to this node.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    served: BTreeMap<Pair, Served>,
    pub(crate) answers: VecDeque<ResponseHeader>,
    pub(crate) reads: VecDeque<ReadJob>,
    /// Cached forms of messages from the peer.
    taken: TakenForms,
    /// Token guesses of the peer.
    guesses: Guesses,
    /// When a request of it last made progress: a piece was accepted, or it ended.
    pub(crate) progress_at: Nanos,
    /// Reads what the peer names, if its memory is mapped.
    pub(crate) puller: Option<Puller>,
}

/// The peer, as its requests and their completions name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) eid: RawEid,
    /// Numbers of the reliable and the unreliable path; 0: none.
    pub(crate) tpn: u32,
    pub(crate) datagram_tpn: u32,
    /// Whether its token guesses are limited. A node on this host, whose processes have the same user, can read
    /// tokens in the shared table.
    pub(crate) is_limited: bool,
}

impl Responder {
    /// Takes a piece of a request.
    pub(crate) fn on_request(
        &mut self,
        work: &mut ExchangeContext<'_>,
        source: &Source,
        part: &RequestFragment<'_>,
    ) {
        let header = part.header;
        if header.flags.contains(RequestFlags::DATAGRAM) {
            message::on_datagram(work, source.eid, source.datagram_tpn, part);
            return;
        }
        let pair = Pair::of_request(header);
        if part.breaks_off() {
            return self.on_broken_off(work, pair, header.tassn);
        }
        if self.served.len() >= SERVED_MAX && !self.served.contains_key(&pair) {
            if part.is_first() {
                self.answer(header, Reply::Status(ResponseStatus::NoResources));
            }
            return;
        }
        let served = self.served.entry(pair).or_default();
        match served.action(header) {
            PieceAction::Execute => {}
            PieceAction::Again(_) if work.core.tables.faults.served_again() => {
                served.expected = header.tassn;
            }
            PieceAction::Again(answer) => return self.answer_again(work, source, header, answer),
            PieceAction::TooEarly { expected } => {
                let status = ResponseStatus::OutOfSequence { expected };
                return self.answer(header, Reply::Status(status));
            }
            PieceAction::Skip => return,
            PieceAction::Stray => return work.core.tables.count(Counter::DropMalformed),
        }
        let from = RequestSource { eid: source.eid, tpn: source.tpn };
        let guesses = source.is_limited.then_some(&mut self.guesses);
        let puller = self.puller.as_mut();
        let run = |work: &mut ExchangeContext<'_>| execute(served, work, from, part, puller);
        let outcome = judge((guesses, source.eid), work, header, run);
        if outcome.is_progress() {
            self.progress_at = work.now;
        }
        match outcome {
            PieceOutcome::More => {}
            PieceOutcome::Done(answer) => {
                if !source.is_limited && is_taken_message(part, answer) {
                    self.taken.learn(work.receives, (source.eid, header));
                }
                served.on_done(header, answer);
                self.answer(header, answer);
            }
            PieceOutcome::Read(job) => {
                served.on_done(header, Reply::Status(ResponseStatus::Ack));
                self.reads.push_back(job);
            }
            PieceOutcome::NotReady(status) => {
                work.core.tables.counts.add(Counter::RnrSent, 1);
                again(served, work, header);
                self.answer(header, Reply::Status(status));
            }
            PieceOutcome::NoBytes => {
                again(served, work, header);
                let status = ResponseStatus::OutOfSequence { expected: header.tassn };
                self.answer(header, Reply::Status(status));
            }
        }
    }

    /// The peer broke a message off: its receive becomes free for another one.
    fn on_broken_off(&mut self, work: &mut ExchangeContext<'_>, pair: Pair, tassn: u16) {
        let served = self.served.get_mut(&pair);
        match served.ok_or(NotBegun).and_then(|served| served.break_off(tassn)) {
            Ok(Some(taken)) => give_back(work, taken),
            Ok(None) => {}
            Err(NotBegun) => work.core.tables.count(Counter::DropMalformed),
        }
    }

    /// Takes a whole ring entry, if it is a message of a known form, the next one of its sequence, and there is a
    /// receive for it. `None`: it did not; otherwise returns the opposite sequence.
    #[inline]
    pub(crate) fn take_short(
        &mut self,
        work: &mut ExchangeContext<'_>,
        source: &Source,
        entry: &WholeEntry<'_>,
    ) -> Option<Option<Pair>> {
        let (taken, values) = self.taken.find(work.receives, &entry.front)?;
        let at = taken.header_len();
        let len = entry.len().checked_sub(at).filter(|len| *len == values.length as usize)?;
        let served = self.served.get_mut(&taken.pair);
        let served = served.filter(|served| served.is_next(values.tassn))?;
        let ExchangeContext { core, receive_cache, receives, .. } = work;
        let segments = Segments { cache: receive_cache, table: &core.tables.segments };
        let place = |to: &Region, offset| entry.place(at, (to, offset), len);
        let entry_idx = receives.place_short(core, segments, (&taken.receiver, len), place)?;
        let done = TakenForm::done(&values, entry_idx, source.tpn);
        let encode = |owner| taken.completion.encode(&done, owner);
        taken.receiver.port.complete_with(taken.is_solicited, encode);
        core.tables.counts.add_alone(Counter::Completions, 1);
        served.on_next_done();
        if let Some(answer) = &taken.answer {
            self.answers.push_back(ResponseHeader { tassn: values.tassn, ..*answer });
        }
        Some(taken.opposite)
    }

    /// The form of a sequence's messages, if the long path took one since the objects of this node last changed.
    pub(crate) fn form_of(&self, receives: &ReceivingSides, pair: Pair) -> Option<&TakenForm> {
        self.taken.known(receives, pair)
    }

    /// Number of the next request of a sequence, if no other state of it is kept.
    pub(crate) fn next_of(&self, pair: Pair) -> Option<u16> {
        let served = self.served.get(&pair)?;
        served.is_next(served.expected).then_some(served.expected)
    }

    /// Takes the only waiting answer, if that acknowledges a request of this sequence, and returns its number.
    /// `None`: other answers wait.
    pub(crate) fn take_only_ack(&mut self, pair: Pair) -> Option<Option<u16>> {
        let is_one = self.answers.len() <= 1 && self.may_wait();
        let is_of = |answer: &ResponseHeader| Pair::of_response(answer) == pair;
        let is_fit = is_one && self.answers.iter().all(is_of);
        is_fit.then(|| self.answers.pop_front().map(|answer| answer.tassn))
    }

    /// Takes a sequence back from ping-pong mode: `next` is the number of its next request, and `owed` the
    /// acknowledgement of the last one.
    pub(crate) fn take_back(&mut self, (pair, next): (Pair, u16), owed: Option<ResponseHeader>) {
        if let Some(served) = self.served.get_mut(&pair) {
            served.pass_to(next);
        }
        self.answers.extend(owed);
    }

    /// Stages waiting answers, as far as there is room in a ring.
    pub(crate) fn push_answers(&mut self, ring: &mut RingPair) {
        while let Some(answer) = self.answers.front() {
            let header = TransactionHeader::Response(*answer);
            // Errors of the ring are found by the next step.
            if ring.push(&header, Payload::Here, &[]).is_err() {
                return;
            }
            self.answers.pop_front();
        }
    }

    /// Whether the waiting answers may be delayed: they are few, and acknowledgements.
    pub(crate) fn may_wait(&self) -> bool {
        let is_ack = |answer: &ResponseHeader| {
            answer.status == ResponseStatus::Ack && answer.body == ResponseBody::None
        };
        self.answers.len() <= ANSWERS_HELD
            && self.reads.is_empty()
            && self.answers.iter().all(is_ack)
    }

    /// Queues an answer for the requester's queue.
    fn answer(&mut self, header: &RequestHeader, answer: Reply) {
        let plain = answer == Reply::Status(ResponseStatus::Ack);
        if plain && header.flags.contains(RequestFlags::NO_TAACK) {
            return;
        }
        self.answers.push_back(memory::response(header, answer));
    }

    fn answer_again(
        &mut self,
        work: &mut ExchangeContext<'_>,
        source: &Source,
        header: &RequestHeader,
        answer: Reply,
    ) {
        let plain = answer == Reply::Status(ResponseStatus::Ack);
        match header.op {
            RequestOp::Read if plain => {
                let guesses = source.is_limited.then_some(&mut self.guesses);
                match judge((guesses, source.eid), work, header, |work| read(work, header)) {
                    PieceOutcome::Read(job) => self.reads.push_back(job),
                    PieceOutcome::NotReady(status) | PieceOutcome::Done(Reply::Status(status)) => {
                        self.answer(header, Reply::Status(status));
                    }
                    PieceOutcome::Done(Reply::Value(_))
                    | PieceOutcome::More
                    | PieceOutcome::NoBytes => {}
                }
            }
            // Its result is no longer kept, and a second execution could give another one.
            RequestOp::Atomic(..) if plain => {
                self.answer(header, Reply::Status(ResponseStatus::NoResources));
            }
            RequestOp::Read
            | RequestOp::Atomic(..)
            | RequestOp::Send
            | RequestOp::SendImm(_)
            | RequestOp::SendInvalidate(_)
            | RequestOp::Write
            | RequestOp::WriteImm(_)
            | RequestOp::WriteNotify(_)
            | RequestOp::WriteAtomicAdd(_)
            | RequestOp::FlushDma => self.answer(header, answer),
        }
    }

    /// Ends unfinished messages whose target is gone: their receives end with `status`.
    pub(crate) fn abort_messages(
        &mut self,
        work: &ExchangeContext<'_>,
        id: u32,
        status: CqeStatus,
    ) {
        for (pair, served) in &mut self.served {
            if let Some((tassn, taken)) = served.abort(id) {
                taken.fail(work.core, status);
                let answer = ResponseStatus::TargetReset;
                self.answers.push_back(pair.response(tassn, answer));
            }
        }
    }

    /// Sends what is due: answers, then pieces of reads, one of each read at a time.
    pub(crate) fn push(
        &mut self,
        line: &mut PeerCarrier,
        work: &mut ExchangeContext<'_>,
        budget: &mut usize,
    ) -> bool {
        let mut busy = false;
        while *budget > 0
            && let Some(answer) = self.answers.front()
        {
            let mut header = *answer;
            let mut joined = 1;
            while line.is_packets()
                && let Some(next) = self.answers.get(joined)
                && header.join(next)
            {
                joined += 1;
            }
            let header = TransactionHeader::Response(header);
            if !line.push(work.endpoint, &header, Payload::Here, &[]) {
                return busy;
            }
            self.answers.drain(..joined);
            *budget -= 1;
            busy = true;
        }
        while *budget > 0
            && let Some(mut job) = self.reads.pop_front()
        {
            let size = line.piece_max(work.endpoint);
            let (header, packet) = job.next_piece(work, size);
            let header = TransactionHeader::Response(header);
            let bytes = std::mem::take(work.bytes);
            let payload = &bytes[..packet.len as usize];
            let pushed = line.push(work.endpoint, &header, Payload::Here, payload);
            *work.bytes = bytes;
            if !pushed {
                self.reads.push_front(job);
                break;
            }
            if !job.on_pushed(&packet) {
                self.reads.push_back(job);
            }
            *budget -= 1;
            busy = true;
        }
        busy
    }

    /// Whether there is room for the effects of further pieces.
    pub(crate) fn has_room(&self) -> bool {
        self.answers.len() + self.reads.len() < ANSWERS_MAX
    }

    /// Whether something has to be pushed.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.answers.is_empty() || !self.reads.is_empty()
    }

    /// Whether a message is incomplete.
    pub(crate) fn has_unfinished(&self) -> bool {
        self.served.values().any(|served| served.message.is_some())
    }

    /// Whether the peer never sent a request of a sequence.
    pub(crate) fn is_unused(&self) -> bool {
        self.served.is_empty()
    }

    /// Whether the peer ever guessed a token.
    pub(crate) fn has_guessed(&self) -> bool {
        self.guesses.is_used()
    }

    /// Places writes that a planted fault acknowledged before.
    pub(crate) fn place_late(&mut self, work: &mut ExchangeContext<'_>) {
        if work.core.tables.faults.ack_before_placement() {
            self.served.values_mut().for_each(|served| place_late(served, work));
        }
    }

    /// Drops the answers: requests without an answer are sent again.
    pub(crate) fn drop_answers(&mut self) {
        self.answers.clear();
        self.reads.clear();
    }

    /// Handles the end of the carrier. Incomplete messages start anew, if they come at all: receives in use are given
    /// back.
    pub(crate) fn on_carrier_lost(&mut self, work: &mut ExchangeContext<'_>) {
        self.drop_answers();
        for served in self.served.values_mut() {
            if let Some(taken) = served.message.take().and_then(|m| m.receive) {
                give_back(work, taken);
            }
        }
    }

    /// Starts all sequences anew; receives in use are given back.
    pub(crate) fn forget_served(&mut self, work: &mut ExchangeContext<'_>) {
        self.taken.forget();
        for served in std::mem::take(&mut self.served).into_values() {
            if let Some(taken) = served.message.and_then(|m| m.receive) {
                give_back(work, taken);
            }
        }
    }

    /// Drops unfinished messages without completing them, and receives in use: no queue is left.
    pub(crate) fn forget_queues(&mut self) {
        for served in self.served.values_mut() {
            served.forget();
        }
        self.taken.forget();
        self.reads.clear();
    }
}

/// Whether a part was a whole message with its bytes, and was acknowledged.
fn is_taken_message(part: &RequestFragment<'_>, answer: Reply) -> bool {
    let is_whole = part.is_first() && part.is_last() && part.payload == Payload::Here;
    is_whole && part.header.op.is_send() && answer == Reply::Status(ResponseStatus::Ack)
}

/// Executes a piece of a request, unless its node guessed too much, or others did at its target.
fn judge(
    (guesses, eid): (Option<&mut Guesses>, RawEid),
    work: &mut ExchangeContext<'_>,
    header: &RequestHeader,
    execute: impl FnOnce(&mut ExchangeContext<'_>) -> PieceOutcome,
) -> PieceOutcome {
    let Some(guesses) = guesses else { return execute(work) };
    let shown = Shown::by(header);
    let mut wait = guesses.wait_ns(work.now, &shown);
    if wait.is_none() && work.targets.is_used(work.now) && guesses.is_guess(&shown) {
        let by = work.guesser(eid);
        wait = work.targets.wait_ns(work.now, by, &shown);
    }
    if let Some(wait) = wait {
        let timer = ResponseStatus::rnr_timer_of(wait);
        return PieceOutcome::NotReady(ResponseStatus::ReceiverNotReady { timer });
    }
    let outcome = execute(work);
    if guesses.on_judged(work.now, &shown, outcome.judged()) {
        let by = work.guesser(eid);
        work.targets.on_guess(work.now, by, &shown);
    }
    outcome
}

fn read(work: &mut ExchangeContext<'_>, header: &RequestHeader) -> PieceOutcome {
    match memory::read(work, header) {
        Ok(job) => PieceOutcome::Read(job),
        Err(status) => PieceOutcome::refused(status),
    }
}

/// Prepares for the request to come again: its receive is given back, and the rest of this attempt skipped.
fn again(served: &mut Served, work: &mut ExchangeContext<'_>, header: &RequestHeader) {
    if let Some(taken) = served.message.take().and_then(|m| m.receive) {
        work.receives.give_back(work.core, taken);
    }
    served.skip_rest(header);
}

/// Gives a receive back, since the rest of the message will not come.
fn give_back(work: &mut ExchangeContext<'_>, taken: TakenReceive) {
    work.core.tables.counts.add(Counter::MessagesBroken, 1);
    work.receives.give_back(work.core, taken);
}

fn execute(
    served: &mut Served,
    work: &mut ExchangeContext<'_>,
    from: RequestSource,
    part: &RequestFragment<'_>,
    puller: Option<&mut Puller>,
) -> PieceOutcome {
    if !part.header.op.has_payload()
        && let Some(taken) = served.message.take().and_then(|m| m.receive)
    {
        // A peer that keeps to the protocol has announced that the previous message breaks off.
        give_back(work, taken);
    }
    match part.header.op {
        RequestOp::Send | RequestOp::SendImm(_) | RequestOp::SendInvalidate(_) => {
            send_piece(served, work, (from, puller), part)
        }
        RequestOp::Write
        | RequestOp::WriteImm(_)
        | RequestOp::WriteNotify(_)
        | RequestOp::WriteAtomicAdd(_) => write_piece(served, work, (from, puller), part),
        RequestOp::Read => read(work, part.header),
        RequestOp::Atomic(op, operands) => match memory::atomic(work, part.header, op, &operands) {
            Ok(value) => PieceOutcome::Done(Reply::Value(value)),
            Err(status) => PieceOutcome::refused(status),
        },
        RequestOp::FlushDma => PieceOutcome::ACK,
    }
}

impl Pair {
    /// An answer without data to a request of this sequence.
    pub(crate) fn response(self, tassn: u16, status: ResponseStatus) -> ResponseHeader {
        let (initiator, target) = self.ends();
        let body = ResponseBody::None;
        ResponseHeader { tassn, initiator, target, status, body }
    }
}
