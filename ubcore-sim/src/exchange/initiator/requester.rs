//! The initiator's side of one peer: from requests to pieces, sequence by sequence, and answers.
//!
//! *Owns*: outstanding requests, deadlines, what each response code means for its request. *Takes*: requests, answers,
//! time. *Gives*: pieces, completions. *Must not*: push a piece before the carrier has room for it; complete a request
//! twice; trust a length or offset from the peer.

use std::collections::{BTreeMap, VecDeque};

use udma_abi::{CqeStatus, Nanos, counters::Counter, sqe::BLOCK_WORDS};
use urma_packet::{
    FormWords, RequestFlags, RequestHeader, ResponseBody, ResponseHeader, ResponseStatus,
    SendValues, TransactionHeader,
};

use crate::carrier::{Carrier, PeerCarrier, RingPair, piece::Payload};
use crate::context::segment::SegmentCache;
use crate::context::tables::Tables;
use crate::endpoint::TpEndpoint;
use crate::engine::core::DeviceCore;
use crate::engine::gather::{self, Local, MessageSpan, Segments};
use crate::engine::mail::Handed;
use crate::engine::send::ShortSend;
use crate::exchange::ExchangeContext;
use crate::exchange::initiator::flow::{BegunRequest, Flow, Request, SEQUENCE_TRIES};
use crate::exchange::initiator::next_piece;
use crate::exchange::initiator::next_piece::{NextPiece, NotPushed, name};
use crate::exchange::initiator::schedule::Schedule;
use crate::exchange::initiator::send_queues::{SendQueueTable, Sender, TIMEOUT_MIN_NS};
use crate::exchange::pair::Pair;
use crate::exchange::short::{self, AckForms, SentForm, SentForms};

/// Most attempts in flight to one peer.
pub(crate) const IN_FLIGHT_MAX: usize = 2048;

/// Requests of this node's queues to one peer.
#[derive(Debug)]
pub(crate) struct Requester {
    flows: BTreeMap<Pair, Flow>,
    /// Flows with something to push.
    schedule: Schedule,
    /// Attempts begun and not answered; may be too high after losses, see `recount`.
    in_flight: usize,
    /// When a flow's timer has to be checked, at the latest.
    timer: Nanos,
    sent: SentForms,
    acks: AckForms,
}

/// Outcome of a slot in the schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PushResult {
    /// A piece was pushed; the flow may have more.
    Pushed,
    /// The carrier takes nothing now.
    Full,
    /// The flow has nothing to push now.
    Idle,
}

impl Default for Requester {
    fn default() -> Self {
        Self {
            flows: BTreeMap::new(),
            schedule: Schedule::default(),
            in_flight: 0,
            timer: Nanos::MAX,
            sent: SentForms::default(),
            acks: AckForms::default(),
        }
    }
}

/// Whether requests ended because no acknowledgement came within their error timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimedOut {
    /// Some requests ended for that reason.
    Some,
    /// No request ended for that reason.
    None,
}

impl Requester {
    /// Adds a request to its sequence.
    pub(crate) fn take_request(
        &mut self,
        work: &ExchangeContext<'_>,
        line: &PeerCarrier,
        handed: &Handed,
        (header, local): (RequestHeader, Local),
    ) {
        let pair = Pair::of_request(&header);
        let sender = work.senders.get(pair.queue());
        let (timeout, priority) =
            sender.map_or((TIMEOUT_MIN_NS, 0), |s| (s.timeout_ns(), s.side.priority));
        let flow = self.flows.entry(pair).or_insert_with(Flow::new);
        if flow.is_empty() {
            flow.wait_from(work.now, timeout);
            self.timer = self.timer.min(flow.doubt_at());
        }
        // Built in place: it holds the whole entry, and each move would copy that.
        flow.push(Request::new(handed.seq, &handed.words, header, local));
        if handed.placed && !line.is_packets() {
            flow.mark_placed();
        }
        flow.priority = priority;
        if !std::mem::replace(&mut flow.listed, true) {
            self.schedule.push(pair, priority);
        }
    }

    /// Forgets the requests of a queue without completing them.
    pub(crate) fn purge(&mut self, line: &PeerCarrier, queue: u32) {
        line.take_names_back();
        for (_, flow) in self.flows.iter_mut().filter(|(pair, _)| pair.queue() == queue) {
            flow.clear(|_| ());
        }
        self.after_clear();
    }

    /// Pushes pieces of requests, in the order of [`super::schedule`].
    pub(crate) fn push(
        &mut self,
        line: &mut PeerCarrier,
        work: &mut ExchangeContext<'_>,
        budget: &mut usize,
    ) -> bool {
        let mut busy = false;
        while *budget > 0
            && let Some(scheduled) = self.schedule.pop()
        {
            let announced = self.tell_broken_off(line, work, scheduled.pair);
            match announced.unwrap_or_else(|| self.push_next(line, work, scheduled.pair)) {
                PushResult::Pushed => {
                    *budget -= 1;
                    if self.schedule.is_empty() {
                        self.push_followers(line, work, (scheduled.pair, &mut *budget));
                    }
                    self.schedule.push_again(scheduled);
                    busy = true;
                }
                PushResult::Full => {
                    self.schedule.put_back(scheduled);
                    break;
                }
                PushResult::Idle => {
                    if let Some(flow) = self.flows.get_mut(&scheduled.pair) {
                        flow.listed = false;
                    }
                }
            }
        }
        busy
    }

    /// Informs the target of a message that was broken off, if one was.
    fn tell_broken_off(
        &mut self,
        line: &mut PeerCarrier,
        work: &mut ExchangeContext<'_>,
        pair: Pair,
    ) -> Option<PushResult> {
        let flow = self.flows.get_mut(&pair)?;
        let header = TransactionHeader::Request(*flow.broken_off()?);
        if !line.push(work.endpoint, &header, Payload::Here, &[]) {
            return Some(PushResult::Full);
        }
        flow.on_announced();
        Some(PushResult::Pushed)
    }

    fn push_next(
        &mut self,
        line: &mut PeerCarrier,
        work: &mut ExchangeContext<'_>,
        pair: Pair,
    ) -> PushResult {
        if self.in_flight >= IN_FLIGHT_MAX {
            self.recount();
        }
        let now = work.now;
        let Self { flows, in_flight, .. } = self;
        let (Some(flow), Some(carrier)) = (flows.get_mut(&pair), &mut line.carrier) else {
            return PushResult::Idle;
        };
        let Some(request) = flow.current(now) else { return PushResult::Idle };
        if *in_flight >= IN_FLIGHT_MAX && !request.cut.has_begun() {
            return PushResult::Full;
        }
        let Some(sender) = work.senders.get_mut(pair.queue()) else {
            flow.clear(|_| ());
            return PushResult::Idle;
        };
        let tables = &work.core.tables;
        let piece = next_piece(carrier, (work.endpoint, tables), (request, &mut sender.cache));
        let header = TransactionHeader::Request(piece.header);
        if !carrier.has_room(work.endpoint, &header, piece.room()) {
            return PushResult::Full;
        }
        let of = (pair.queue(), &piece, &*request);
        let ready_at = next_piece::ready_at(tables, carrier, of, now);
        if now < ready_at {
            self.timer = self.timer.min(ready_at);
            return PushResult::Full;
        }
        let timeout = sender.timeout_ns();
        let room = (&mut *work.endpoint, &mut *work.bytes);
        let pushed = piece.push(line, (request, sender), tables, room);
        match pushed {
            Ok(()) => {}
            Err(NotPushed::NoRoom) => return PushResult::Full,
            Err(NotPushed::Dead) => {
                line.is_cut_off = true;
                return PushResult::Full;
            }
            Err(NotPushed::Unread(status)) => {
                let seq = request.seq;
                flow.drop_current();
                work.senders.end(pair.queue(), seq, status, 0);
                return PushResult::Pushed;
            }
        }
        count(tables, line.is_packets(), &piece, request);
        next_piece::on_pushed(tables, line, (pair.queue(), &piece, request), now);
        let (seq, len) = (request.seq, request.len);
        if piece.is_datagram() {
            flow.drop_current();
            work.senders.end(pair.queue(), seq, CqeStatus::Success, len);
        } else {
            flow.on_pushed(&piece.packet);
            *in_flight += usize::from(piece.is_first());
        }
        flow.wait_from(now, timeout);
        self.timer = self.timer.min(flow.doubt_at());
        PushResult::Pushed
    }

    /// Pushes more pieces of the request whose piece was just pushed, except the last one, as long as they fill
    /// packets and no other sequence waits. Errors are left to [`Self::push_next`].
    fn push_followers(
        &mut self,
        line: &PeerCarrier,
        work: &mut ExchangeContext<'_>,
        (pair, budget): (Pair, &mut usize),
    ) {
        let Some(Carrier::Packets(peer)) = &line.carrier else { return };
        if work.core.tables.nic.as_ref().is_some_and(|nic| nic.is_paced()) {
            // Each packet has a time of its own.
            return;
        }
        let Some(flow) = self.flows.get_mut(&pair) else { return };
        let Some(request) = flow.current(work.now).filter(|request| request.cut.has_begun()) else {
            return;
        };
        let Some(sender) = work.senders.get_mut(pair.queue()) else { return };
        let Some(tp) = work.endpoint.tp_mut(*peer) else { return };
        let tables = &work.core.tables;
        while *budget > 0 {
            let piece = NextPiece::of(request, tp.payload_max());
            if piece.is_last()
                || !piece.fills_packet()
                || piece.push_to(tp, (request, sender), tables).is_err()
            {
                break;
            }
            count(tables, true, &piece, request);
            request.cut.take(&piece.packet);
            *budget -= 1;
        }
    }

    /// Pushes a short message as its sequence's next request, if nothing waits before it. It carries the oldest of
    /// `answers` if that is of the opposite sequence. Returns whether it was pushed.
    #[inline]
    pub(crate) fn send_short(
        &mut self,
        (ring, answers): (&mut RingPair, &mut VecDeque<ResponseHeader>),
        core: &DeviceCore,
        (now, senders): (impl FnOnce() -> Nanos, &SendQueueTable),
        short: &ShortSend<'_>,
    ) -> bool {
        let Some(sent) = self.sent.of(senders, short) else { return false };
        if !self.schedule.is_empty() || self.in_flight >= IN_FLIGHT_MAX {
            return false;
        }
        let flow = self.flows.entry(sent.pair).or_insert_with(Flow::new);
        let Ok(len) = u32::try_from(short.body.len()) else { return false };
        if !flow.is_open() || short.body.len() > ring.piece_max() {
            return false;
        }
        let imm = short.entry.imm.unwrap_or(0);
        let values = SendValues { tassn: flow.next_number(), length: len, imm };
        let header = sent.form.fill(&values);
        let acked = answers.front().and_then(|answer| sent.acked_by(answer));
        if ring.push_short((&header, sent.form.header_len()), &short.body, acked).is_err() {
            return false;
        }
        // Before the state is updated: the peer waits for it.
        ring.publish();
        let now = now();
        if acked.is_some() {
            answers.pop_front();
        }
        flow.push_begun(&BegunRequest {
            seq: short.seq,
            block: short.block,
            local: short::local_of(short.entry),
            len,
            header: &sent.header,
            op: short::op_of(short.entry),
        });
        flow.priority = sent.priority;
        flow.wait_from(now, sent.timeout);
        self.timer = self.timer.min(flow.doubt_at());
        self.in_flight += 1;
        core.tables.counts.add_alone(Counter::RingRequests, 1);
        core.tables.counts.add_alone(Counter::RingBytes, u64::from(len));
        true
    }

    /// The form of a queue's messages like the direct entry `block`.
    pub(crate) fn form_of(&self, queue: u32, block: &[u64; BLOCK_WORDS]) -> Option<&SentForm> {
        self.sent.known(queue, block)
    }

    /// Number of the next request of a sequence, if no request of any sequence is outstanding.
    pub(crate) fn next_if_idle(&self, pair: Pair) -> Option<u16> {
        let is_idle = self.schedule.is_empty() && self.in_flight == 0;
        let flow = self.flows.get(&pair).filter(|flow| is_idle && flow.is_finished())?;
        Some(flow.next_number())
    }

    /// Takes a sequence back from ping-pong mode: `ended` requests were completed there, and one may be open, with
    /// the time when it was sent.
    pub(crate) fn take_back(
        &mut self,
        (pair, ended): (Pair, u32),
        open: Option<(BegunRequest<'_>, Nanos)>,
        (timeout, priority): (Nanos, u8),
    ) {
        let flow = self.flows.entry(pair).or_insert_with(Flow::new);
        flow.pass(ended);
        let Some((request, since)) = open else { return };
        flow.push_begun(&request);
        flow.priority = priority;
        flow.wait_from(since, timeout);
        self.timer = self.timer.min(flow.doubt_at());
        self.in_flight += 1;
    }

    /// Takes an acknowledgement of a known form. Returns whether it did.
    #[inline]
    pub(crate) fn take_ack(&mut self, work: &mut ExchangeContext<'_>, front: &FormWords) -> bool {
        let Some((pair, tassn)) = self.acks.find(front) else { return false };
        self.end_acked(work, pair, tassn)
    }

    /// Completes request `tassn`, which the peer acknowledged, if nothing about it is unusual. Returns whether it
    /// did.
    #[inline]
    pub(crate) fn end_acked(
        &mut self,
        work: &mut ExchangeContext<'_>,
        pair: Pair,
        tassn: u16,
    ) -> bool {
        let Some(flow) = self.flows.get_mut(&pair) else { return false };
        let Some(end) = flow.end_front(tassn, work.now) else { return false };
        self.in_flight = self.in_flight.saturating_sub(1);
        work.senders.succeed(work.core, pair.queue(), end);
        true
    }

    /// Forgets all message forms: queues changed.
    pub(crate) fn forget_forms(&mut self) {
        self.sent.forget();
    }

    /// Checks deadlines: [`Self::timer`] is over.
    pub(crate) fn on_time(
        &mut self,
        line: &PeerCarrier,
        work: &mut ExchangeContext<'_>,
    ) -> TimedOut {
        let now = work.now;
        self.timer = Nanos::MAX;
        let carrier = line.carrier.as_ref();
        let is_connected = carrier.is_some_and(|carrier| carrier.is_connected(work.endpoint));
        let (mut ended, mut doubted) = (false, None);
        for (pair, flow) in &mut self.flows {
            let deadline = flow.deadline(is_connected);
            if !flow.is_empty() && deadline <= now {
                line.take_names_back();
                let timeout = CqeStatus::AckTimeout;
                flow.clear(|request| work.senders.end(pair.queue(), request.seq, timeout, 0));
                ended = true;
            }
            if flow.is_empty() {
                continue;
            }
            if flow.doubt_at() <= now {
                doubted = doubted.max(Some(flow.since()));
            }
            self.timer = self.timer.min(flow.look_at(now, deadline));
            match flow.held_until() {
                Some(until) if now < until => self.timer = self.timer.min(until),
                Some(_) if !std::mem::replace(&mut flow.listed, true) => {
                    self.schedule.push(*pair, flow.priority);
                }
                _ => {}
            }
        }
        if ended {
            self.after_clear();
        }
        if let (Some(since), Some(Carrier::Packets(peer))) = (doubted, carrier) {
            work.endpoint.doubt(now, *peer, since);
        }
        if ended { TimedOut::Some } else { TimedOut::None }
    }

    pub(crate) fn on_response(
        &mut self,
        work: &mut ExchangeContext<'_>,
        header: &ResponseHeader,
        bytes: &[u8],
    ) {
        let pair = Pair::of_response(header);
        let Some(flow) = self.flows.get_mut(&pair) else {
            return work.core.tables.count(Counter::DropMalformed);
        };
        let found = flow.find(header.tassn);
        let Some(index) = found else {
            // It belongs to a request that was given up here.
            if is_final(header, bytes.len()) {
                flow.on_answered(header.tassn);
                self.in_flight = self.in_flight.saturating_sub(1);
            }
            return self.relist(pair);
        };
        let Some(sender) = work.senders.get_mut(pair.queue()) else { return };
        let timeout = sender.timeout_ns();
        flow.wait_from(work.now, timeout);
        let held = flow.is_held();
        let Some(request) = flow.get_mut(index) else { return };
        let effect = effect(request, (sender, work.now), work.core, header, bytes);
        let seq = request.seq;
        if effect != Effect::More {
            flow.on_answered(header.tassn);
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        match effect {
            Effect::More => {}
            Effect::End(status, count) => {
                if status == CqeStatus::Success {
                    self.acks.learn(header);
                }
                flow.on_ended(index);
                if status == CqeStatus::RnrRetryExceeded {
                    // The target still expects this number.
                    flow.go_back(header.tassn, work.now);
                }
                work.senders.end(pair.queue(), seq, status, count);
            }
            Effect::Wait(wait_ns) => {
                let until = work.now.saturating_add(wait_ns);
                flow.go_back(header.tassn, until);
                flow.wait_from(until, timeout);
                self.timer = self.timer.min(until);
            }
            // Later refusals of a round that was given up already.
            Effect::From(_) if held => {}
            Effect::From(expected) => {
                if !flow.go_back(expected, work.now) {
                    flow.on_ended(index);
                    work.senders.end(pair.queue(), seq, CqeStatus::RemOperation, 0);
                }
            }
        }
        self.relist(pair);
    }

    /// Puts a flow back on the schedule: it may have something to push again.
    fn relist(&mut self, pair: Pair) {
        if let Some(flow) = self.flows.get_mut(&pair)
            && !flow.is_empty()
            && !std::mem::replace(&mut flow.listed, true)
        {
            self.schedule.push(pair, flow.priority);
        }
    }

    /// Whether something has to be pushed.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.schedule.is_empty()
    }

    /// Whether no request is outstanding.
    pub(crate) fn is_quiet(&self) -> bool {
        self.flows.values().all(Flow::is_empty)
    }

    /// Number of attempts begun and not answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// When it has to be called at the latest; `Nanos::MAX`: on input only.
    pub(crate) fn timer(&self) -> Nanos {
        self.timer
    }

    /// Handles the loss of the carrier: what was unanswered is sent again on the next one to the same life.
    pub(crate) fn on_carrier_lost(&mut self) {
        // What has nothing to send does not ask for another one.
        self.schedule = Schedule::default();
        for (pair, flow) in &mut self.flows {
            flow.on_carrier_lost();
            flow.listed = !flow.is_empty();
            if flow.listed {
                self.schedule.push(*pair, flow.priority);
            }
        }
        self.in_flight = 0;
        // Without a carrier the error timeouts count alone: they may be over.
        self.timer = 0;
    }

    /// Restarts the error timeouts at `now`.
    pub(crate) fn wait_anew(&mut self, now: Nanos) {
        self.flows.values_mut().for_each(|flow| flow.wait_anew(now));
    }

    /// Starts the sequences anew, with what is unanswered: the peer does not know them.
    pub(crate) fn begin_anew(&mut self) {
        self.flows.values_mut().for_each(Flow::begin_anew);
    }

    /// Drops all requests without completing them: no queue is left.
    pub(crate) fn forget_queues(&mut self) {
        for flow in self.flows.values_mut() {
            flow.clear(|_| ());
        }
        self.after_clear();
        self.forget_forms();
    }

    /// Completes every outstanding request with an error.
    pub(crate) fn end_all(
        &mut self,
        line: &PeerCarrier,
        senders: &mut SendQueueTable,
        status: CqeStatus,
    ) {
        line.take_names_back();
        for (pair, flow) in &mut self.flows {
            flow.clear(|request| senders.end(pair.queue(), request.seq, status, 0));
            flow.listed = false;
        }
        // What waits for a slot would make a handshake.
        self.schedule = Schedule::default();
        self.recount();
    }

    /// After requests were dropped: puts flows on the schedule that have to announce a broken-off message.
    fn after_clear(&mut self) {
        for (pair, flow) in &mut self.flows {
            if flow.broken_off().is_some() && !std::mem::replace(&mut flow.listed, true) {
                self.schedule.push(*pair, flow.priority);
            }
        }
        self.recount();
    }

    fn recount(&mut self) {
        self.in_flight = self.flows.values().map(|flow| flow.unanswered() as usize).sum();
    }
}

/// The next piece of a request, as long as the carrier takes it.
fn next_piece(
    carrier: &Carrier,
    (endpoint, tables): (&TpEndpoint, &Tables),
    (request, cache): (&Request, &mut SegmentCache),
) -> NextPiece {
    let named = carrier
        .naming()
        .and_then(|naming| name(request, Segments { cache, table: &tables.segments }, naming));
    match named {
        Some(bytes) => NextPiece::naming(request, bytes),
        None if request.header.flags.contains(RequestFlags::DATAGRAM) => {
            NextPiece::of(request, carrier.datagram_max(endpoint))
        }
        None => NextPiece::of(request, carrier.piece_max(endpoint)),
    }
}

fn count(tables: &Tables, is_packets: bool, piece: &NextPiece, request: &Request) {
    let (requests, bytes) = if is_packets {
        (Counter::PacketRequests, Counter::PacketBytes)
    } else {
        (Counter::RingRequests, Counter::RingBytes)
    };
    let again = request.header.flags.contains(RequestFlags::RETRY);
    if piece.is_first() && !again {
        tables.counts.add_alone(requests, 1);
    }
    if !again {
        tables.counts.add_alone(bytes, u64::from(piece.packet.len));
    }
}

/// Effect of an answer on its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    /// More pieces of the answer follow.
    More,
    End(CqeStatus, u32),
    /// The request is sent again after so many ns.
    Wait(u64),
    /// Everything from this number on is sent again.
    From(u16),
}

/// Whether this is the last piece of the answer.
fn is_final(header: &ResponseHeader, len: usize) -> bool {
    match header.body {
        ResponseBody::ReadData { offset, length } => offset as usize + len >= length as usize,
        ResponseBody::None | ResponseBody::Acks { .. } | ResponseBody::Atomic(_) => true,
    }
}

fn effect(
    request: &mut Request,
    (sender, now): (&mut Sender, Nanos),
    core: &DeviceCore,
    header: &ResponseHeader,
    bytes: &[u8],
) -> Effect {
    match header.status {
        ResponseStatus::Ack => on_ack(request, sender, core, header, bytes),
        ResponseStatus::ReceiverNotReady { timer } => {
            core.tables.counts.add(Counter::RnrReceived, 1);
            let wait = ResponseStatus::rnr_timer_ns(timer);
            if !request.may_retry(sender.side.rnr_retry, now, wait) {
                return Effect::End(CqeStatus::RnrRetryExceeded, 0);
            }
            if core.tables.faults.not_ready_forgotten() {
                return Effect::Wait(Nanos::MAX / 2);
            }
            Effect::Wait(wait)
        }
        ResponseStatus::OutOfSequence { expected } => {
            if request.sequence_used >= SEQUENCE_TRIES {
                return Effect::End(CqeStatus::AckTimeout, 0);
            }
            request.sequence_used += 1;
            Effect::From(expected)
        }
        ResponseStatus::Length => Effect::End(CqeStatus::RemRespLen, 0),
        ResponseStatus::Unsupported => Effect::End(CqeStatus::RemUnsupportedReq, 0),
        ResponseStatus::NoResources | ResponseStatus::TargetReset | ResponseStatus::NoTarget => {
            Effect::End(CqeStatus::RemOperation, 0)
        }
        ResponseStatus::AccessAbort => Effect::End(CqeStatus::RemAccessAbort, 0),
        ResponseStatus::DataPoison => Effect::End(CqeStatus::RemDataPoison, 0),
    }
}

fn on_ack(
    request: &mut Request,
    sender: &mut Sender,
    core: &DeviceCore,
    header: &ResponseHeader,
    bytes: &[u8],
) -> Effect {
    let lie = Effect::End(CqeStatus::RemOperation, 0);
    if header.body.opcode() != request.header.op.answered_by() {
        return lie;
    }
    match header.body {
        ResponseBody::None | ResponseBody::Acks { .. } => {
            Effect::End(CqeStatus::Success, request.len)
        }
        ResponseBody::ReadData { offset, length } => {
            let Ok(len) = u32::try_from(bytes.len()) else { return lie };
            let fits = length == request.len && offset == request.got && len <= length - offset;
            if !fits || (len == 0 && length != 0) {
                return lie;
            }
            let last = offset + len == length;
            store(request, sender, core, (u64::from(offset), bytes, last));
            request.got += len;
            if last { ended(request) } else { Effect::More }
        }
        ResponseBody::Atomic(value) => {
            // Its length is that of its operands.
            if value.size.bytes() != request.len {
                return lie;
            }
            let all = value.value.to_le_bytes();
            let len = (value.size.bytes() as usize).min(all.len());
            store(request, sender, core, (0, &all[..len], true));
            ended(request)
        }
    }
}

fn ended(request: &Request) -> Effect {
    match request.failed {
        Some(status) => Effect::End(status, 0),
        None => Effect::End(CqeStatus::Success, request.len),
    }
}

/// Stores received data in the request's local pieces; an error there is the request's status when its answer is
/// complete.
fn store(
    request: &mut Request,
    sender: &mut Sender,
    core: &DeviceCore,
    (at, bytes, last): (u64, &[u8], bool),
) {
    let mut segments = Segments { cache: &mut sender.cache, table: &core.tables.segments };
    let span = MessageSpan { at, len: bytes.len(), last };
    let pieces = request.local.pieces(&request.words);
    if let Err(status) = gather::write_in(pieces, &mut segments, span, bytes) {
        request.failed.get_or_insert(status);
    }
}
