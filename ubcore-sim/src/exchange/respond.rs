//! The target's side: pieces in, placed bytes and receive completions out, one answer per attempt.
//!
//! *Owns*: the order of checks and effects. *Takes*: pieces in order. *Gives*: answers, queued for
//! the carrier. *Must not*: move a byte before every check passed; acknowledge before placement.

use udma_abi::{Cqe, CqeStatus, counters::Counter, cqe::INLINE_MAX};
use urma_packet::{RequestFlags, RequestHeader, RequestOp, ResponseHeader, ResponseStatus};

use super::Work;
use super::carrier::{Carrier, Payload};
use super::guesses::{Guesses, Judged, Shown};
use super::memory::{self, ReadJob};
use super::pair::Pair;
use super::peer::Peer;
use super::receive::{Ask, Datagram, Taken};
use super::serve::{Answer, Message, Served, Turn};
use super::write::write_piece;
use crate::engine::gather::{self, Span, Store};

/// Sequences of one peer.
const SERVED_MAX: usize = 1 << 16;

/// A piece of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub(super) header: &'a RequestHeader,
    pub(super) payload: Payload,
    pub(super) bytes: &'a [u8],
}

/// How far a piece brought its request.
#[derive(Debug)]
pub(super) enum Outcome {
    /// More pieces follow.
    More,
    /// Done, with this answer.
    Done(Answer),
    /// Done; the data follow.
    Read(ReadJob),
    /// No receive; the same request comes again.
    NotReady(ResponseStatus),
}

impl Outcome {
    pub(super) const fn refused(status: ResponseStatus) -> Self {
        match status {
            ResponseStatus::ReceiverNotReady { .. } => Self::NotReady(status),
            _ => Self::Done(Answer::Status(status)),
        }
    }

    /// What it says about the tokens that were shown.
    fn judged(&self) -> Judged {
        match self {
            Self::More | Self::Read(_) | Self::NotReady(_) => Judged::Begun,
            Self::Done(Answer::Value(_) | Answer::Status(ResponseStatus::Ack)) => Judged::Right,
            Self::Done(Answer::Status(ResponseStatus::AccessAbort)) => Judged::Wrong,
            Self::Done(Answer::Status(_)) => Judged::Neither,
        }
    }

    pub(super) const ACK: Self = Self::refused(ResponseStatus::Ack);
}

impl Part<'_> {
    pub(super) fn is_first(&self) -> bool {
        self.header.flags.contains(RequestFlags::FIRST)
    }

    pub(super) fn is_last(&self) -> bool {
        self.header.flags.contains(RequestFlags::LAST)
    }

    /// Payload bytes that this piece stands for.
    pub(super) fn len(&self) -> u32 {
        match self.payload {
            Payload::Placed => self.header.access.length,
            // A piece is at most `PIECE_MAX` or a path MTU long.
            Payload::Here => u32::try_from(self.bytes.len()).unwrap_or(u32::MAX),
        }
    }
}

impl Peer {
    /// A piece of a request came.
    pub(super) fn on_request(&mut self, work: &mut Work<'_>, part: &Part<'_>) {
        let header = part.header;
        if header.flags.contains(RequestFlags::DATAGRAM) {
            work.on_datagram(self.eid, self.tpn_of(Datagram::Yes), part);
            return;
        }
        let pair = Pair::of_request(header);
        if self.served.len() >= SERVED_MAX && !self.served.contains_key(&pair) {
            if part.is_first() {
                self.answer(header, Answer::Status(ResponseStatus::NoResources));
            }
            return;
        }
        let served = self.served.entry(pair).or_default();
        match served.turn(header) {
            Turn::Execute => {}
            Turn::Again(answer) => return self.answer_again(work, header, answer),
            Turn::TooEarly { expected } => {
                let status = ResponseStatus::OutOfSequence { expected };
                return self.answer(header, Answer::Status(status));
            }
            Turn::Skip => return,
            Turn::Stray => return work.base.tables.count(Counter::DropMalformed),
        }
        let from = From { eid: self.eid, tpn: self.ways[0].unwrap_or(0) };
        let guesses = is_limited(self.carrier.as_ref()).then_some(&mut self.guesses);
        match judge(guesses, work, header, |work| execute(served, work, from, part)) {
            Outcome::More => {}
            Outcome::Done(answer) => {
                served.on_done(header, answer);
                self.answer(header, answer);
            }
            Outcome::Read(job) => {
                served.on_done(header, Answer::Status(ResponseStatus::Ack));
                self.reads.push_back(job);
            }
            Outcome::NotReady(status) => {
                work.base.tables.counts.add(Counter::RnrSent, 1);
                if let Some(taken) = served.message.take().and_then(|m| m.receive) {
                    work.receives.give_back(work.base, taken);
                }
                served.skip_rest(header);
                self.answer(header, Answer::Status(status));
            }
        }
    }

    /// Queues an answer.
    fn answer(&mut self, header: &RequestHeader, answer: Answer) {
        let plain = answer == Answer::Status(ResponseStatus::Ack);
        if plain && header.flags.contains(RequestFlags::NO_TAACK) {
            return;
        }
        self.answers.push_back(memory::response(header, answer));
    }

    fn answer_again(&mut self, work: &mut Work<'_>, header: &RequestHeader, answer: Answer) {
        let plain = answer == Answer::Status(ResponseStatus::Ack);
        match header.op {
            RequestOp::Read if plain => {
                let guesses = is_limited(self.carrier.as_ref()).then_some(&mut self.guesses);
                match judge(guesses, work, header, |work| read(work, header)) {
                    Outcome::Read(job) => self.reads.push_back(job),
                    Outcome::NotReady(status) | Outcome::Done(Answer::Status(status)) => {
                        self.answer(header, Answer::Status(status));
                    }
                    Outcome::Done(Answer::Value(_)) | Outcome::More => {}
                }
            }
            // Its result is not kept any more, and doing it again would not be the same.
            RequestOp::Atomic(..) if plain => {
                self.answer(header, Answer::Status(ResponseStatus::NoResources));
            }
            _ => self.answer(header, answer),
        }
    }

    /// The target of messages under way is gone: their receives end as `status`.
    pub(super) fn abort_messages(&mut self, work: &Work<'_>, id: u32, status: CqeStatus) {
        for (pair, served) in &mut self.served {
            if let Some((tassn, taken)) = served.abort(id) {
                taken.fail(work.base, status);
                let answer = ResponseStatus::TargetReset;
                self.answers.push_back(pair.response(tassn, answer));
            }
        }
    }

    /// Sends what is due: answers, then pieces of reads in turn.
    pub(super) fn push_answers(&mut self, work: &mut Work<'_>, budget: &mut usize) -> bool {
        let mut busy = false;
        while *budget > 0
            && let Some(answer) = self.answers.front()
        {
            let header = urma_packet::TransactionHeader::Response(*answer);
            if !self.push_piece(&header, Payload::Here, &[]) {
                return busy;
            }
            self.answers.pop_front();
            *budget -= 1;
            busy = true;
        }
        while *budget > 0
            && let Some(mut job) = self.reads.pop_front()
        {
            let size = self.piece_max();
            let (header, len) = job.next_piece(work, size);
            let header = urma_packet::TransactionHeader::Response(header);
            let bytes = std::mem::take(work.bytes);
            let pushed = self.push_piece(&header, Payload::Here, &bytes[..len]);
            *work.bytes = bytes;
            if !pushed {
                self.reads.push_front(job);
                break;
            }
            if !job.on_pushed(len) {
                self.reads.push_back(job);
            }
            *budget -= 1;
            busy = true;
        }
        busy
    }
}

/// Where a request comes from, as completions name it.
#[derive(Clone, Copy, Debug)]
pub(super) struct From {
    pub(super) eid: udma_abi::RawEid,
    pub(super) tpn: u32,
}

/// A node on this host, whose processes are of the same user, reads tokens in the shared table.
fn is_limited(carrier: Option<&Carrier>) -> bool {
    matches!(carrier, Some(Carrier::Packets(_)))
}

/// Executes a piece of a request, unless its node guessed too much.
fn judge(
    guesses: Option<&mut Guesses>,
    work: &mut Work<'_>,
    header: &RequestHeader,
    execute: impl FnOnce(&mut Work<'_>) -> Outcome,
) -> Outcome {
    let Some(guesses) = guesses else { return execute(work) };
    let shown = Shown::by(header);
    if let Some(wait) = guesses.wait_ns(work.now, &shown) {
        let timer = ResponseStatus::rnr_timer_of(wait);
        return Outcome::NotReady(ResponseStatus::ReceiverNotReady { timer });
    }
    let outcome = execute(work);
    guesses.on_judged(work.now, &shown, outcome.judged());
    outcome
}

fn read(work: &mut Work<'_>, header: &RequestHeader) -> Outcome {
    match memory::read(work, header) {
        Ok(job) => Outcome::Read(job),
        Err(status) => Outcome::refused(status),
    }
}

fn execute(served: &mut Served, work: &mut Work<'_>, from: From, part: &Part<'_>) -> Outcome {
    match part.header.op {
        op if op.is_send() => send_piece(served, work, from, part),
        RequestOp::Read => read(work, part.header),
        RequestOp::Atomic(op, operands) => memory::atomic(work, part.header, op, &operands),
        RequestOp::FlushDma => Outcome::ACK,
        _ => write_piece(served, work, from, part),
    }
}

/// A receive for a message: the one that an earlier attempt got as far as taking, or a new one.
pub(super) fn receive_for(
    served: &mut Served,
    work: &mut Work<'_>,
    from: From,
    part: &Part<'_>,
) -> Result<Taken, ResponseStatus> {
    if let Some(taken) = served.message.take().and_then(|m| m.receive) {
        return Ok(taken);
    }
    let ask = ask(from, part.header, Datagram::No).ok_or(ResponseStatus::NoTarget)?;
    work.receives.take(work.base, &ask)
}

fn ask(from: From, header: &RequestHeader, datagram: Datagram) -> Option<Ask> {
    Some(Ask {
        target: header.target?,
        from: from.eid,
        initiator: header.initiator,
        token: match header.op {
            // The other one is the segment's.
            RequestOp::WriteImm(told) => told.token,
            _ => header.token,
        },
        datagram,
    })
}

fn send_piece(served: &mut Served, work: &mut Work<'_>, from: From, part: &Part<'_>) -> Outcome {
    let begun = if part.is_first() {
        begin_receive(served, work, from, part)
    } else {
        served.message.take().ok_or(ResponseStatus::Length)
    };
    let mut message = match begun {
        Ok(message) => message,
        Err(status) => return Outcome::refused(status),
    };
    let fits = message.fits(part.header, part.len()) && part.payload == Payload::Here;
    let placed = fits && place_received(work, &message, part);
    if !placed {
        if let Some(taken) = message.receive {
            taken.fail(work.base, if fits { CqeStatus::LocAccess } else { CqeStatus::LocLen });
        }
        let status = if fits { ResponseStatus::NoResources } else { ResponseStatus::Length };
        return Outcome::refused(status);
    }
    if !part.is_last() {
        message.done += part.len();
        served.message = Some(message);
        return Outcome::More;
    }
    if let Some(taken) = message.receive {
        complete(work, taken, from, part);
    }
    Outcome::ACK
}

/// A message, with a receive that it fits.
fn begin_receive(
    served: &mut Served,
    work: &mut Work<'_>,
    from: From,
    part: &Part<'_>,
) -> Result<Message, ResponseStatus> {
    let length = part.header.access.length;
    let taken = receive_for(served, work, from, part)?;
    if let Err((status, answer)) = check_receive(work, &taken, length) {
        taken.fail(work.base, status);
        return Err(answer);
    }
    Ok(Message { start: 0, length, done: 0, life: 0, receive: Some(taken) })
}

/// The message fits the receive, and the receive's pieces are there: status for each side if not.
fn check_receive(
    work: &mut Work<'_>,
    taken: &Taken,
    length: u32,
) -> Result<(), (CqeStatus, ResponseStatus)> {
    if u64::from(length) > taken.capacity() {
        return Err((CqeStatus::LocLen, ResponseStatus::Length));
    }
    gather::check(taken.pieces(), &mut work.segments(), Store::Yes)
        .map_err(|status| (status, ResponseStatus::NoResources))
}

/// Payload of so few bytes goes into the completion.
fn goes_inline(taken: &Taken, part: &Part<'_>) -> bool {
    taken.is_inline() && part.bytes.len() <= INLINE_MAX && part.is_first() && part.is_last()
}

fn place_received(work: &mut Work<'_>, message: &Message, part: &Part<'_>) -> bool {
    let Some(taken) = &message.receive else { return false };
    if goes_inline(taken, part) {
        return true;
    }
    let span = Span { at: u64::from(message.done), len: part.bytes.len(), last: part.is_last() };
    gather::write_in(taken.pieces(), &mut work.segments(), span, part.bytes).is_ok()
}

pub(super) fn complete(work: &Work<'_>, taken: Taken, from: From, part: &Part<'_>) {
    let header = part.header;
    let (opcode, imm) = match header.op {
        RequestOp::SendImm(imm) => (1, imm),
        RequestOp::SendInvalidate(told) => {
            let token_id = told.token_id.value() << 8;
            work.base.tables.segments.invalidate(token_id, told.token.0);
            (2, u64::from(token_id) | u64::from(told.token.0) << 32)
        }
        RequestOp::WriteImm(told) => (3, told.imm),
        _ => (0, 0),
    };
    let mut cqe = Cqe {
        opcode,
        imm,
        byte_cnt: header.access.length,
        remote_id: header.initiator.id.value(),
        rmt_eid: from.eid,
        tpn: from.tpn,
        ..Cqe::default()
    };
    if header.op.is_send() && goes_inline(&taken, part) {
        cqe.inline_en = true;
        cqe.inline[..part.bytes.len()].copy_from_slice(part.bytes);
    }
    taken.complete(work.base, cqe, header.flags.contains(RequestFlags::SOLICITED));
}

impl Work<'_> {
    /// A message outside any sequence: it finds a receive or is dropped.
    pub(super) fn on_datagram(
        &mut self,
        eid: udma_abi::RawEid,
        tpn: u32,
        part: &Part<'_>,
    ) -> Reached {
        let from = From { eid, tpn };
        let whole = part.is_first() && part.is_last() && part.payload == Payload::Here;
        let exact = part.header.access.length == part.len();
        let ask = ask(from, part.header, Datagram::Yes).filter(|_| whole && exact);
        let Some(ask) = ask else {
            self.base.tables.count(Counter::DropMalformed);
            return Reached::Nothing;
        };
        let Ok(taken) = self.receives.take(self.base, &ask) else {
            self.base.tables.count(Counter::DropUm);
            return Reached::Nothing;
        };
        if let Err((status, _)) = check_receive(self, &taken, part.header.access.length) {
            self.base.tables.count(Counter::DropUm);
            taken.fail(self.base, status);
            return Reached::Receive;
        }
        let length = part.header.access.length;
        let message = Message { start: 0, length, done: 0, life: 0, receive: Some(taken) };
        let placed = place_received(self, &message, part);
        if let Some(taken) = message.receive {
            if placed {
                complete(self, taken, from, part);
            } else {
                taken.fail(self.base, CqeStatus::LocAccess);
            }
        }
        Reached::Receive
    }
}

/// How far a datagram came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reached {
    /// No target, no valid token or no receive: as if it had been lost.
    Nothing,
    /// It used a receive.
    Receive,
}

impl Pair {
    /// An answer without data to a request of this sequence.
    fn response(self, tassn: u16, status: ResponseStatus) -> ResponseHeader {
        let (initiator, target) = self.ends();
        let body = urma_packet::ResponseBody::None;
        ResponseHeader { tassn, initiator, target, status, body }
    }
}
