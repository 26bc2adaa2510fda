//! One other node (or this one): its carrier, with a requester and a responder above it, and the users of its path.
//!
//! Has the bounds of one step. Must not let one queue's trouble stop another queue, or wait for a queue.

use udma_abi::{CmdStatus, CqeStatus, Nanos, RawEid, counters::Counter};
use urma_mem::{Region, sync::Ordering};
use urma_packet::{AckForm, CloseReason, ResponseStatus, TransactionHeader};

use crate::{
    carrier::{Carrier, PeerCarrier, piece::Inbound},
    context::{link::DirectParts, plugged::PluggedModel},
    endpoint::TpEndpoint,
    engine::{core::DeviceCore, send::ShortSend},
    exchange::{
        ExchangeContext,
        ack_delay::{Answers, PostHabit},
        initiator::{
            requester::{Requester, TimedOut},
            send_queues::SendQueueTable,
        },
        pair::Pair,
        target::{
            self, RequestFragment, RequestSource, WaitingPiece,
            receive::Unsequenced,
            responder::{Responder, Source},
        },
    },
    ports::HostRequest,
    transport::Agreed,
};

/// Pieces per direction that one step moves for one peer.
const PIECES_PER_STEP: usize = 64;
/// Rounds in which the rest of a gone peer's ring is read: more than its ring holds, whatever it claims.
const LAST_ROUNDS_MAX: usize = 4096;

/// State of one peer node: its carrier, and both sides of the exchange with it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) eid: RawEid,
    /// How it is reached. With neither a carrier nor a reason, the host was asked.
    pub(crate) line: PeerCarrier,
    /// Why there is no path to it.
    pub(crate) unreachable: Option<CmdStatus>,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    pub(crate) direct: Option<DirectParts>,
    /// Life of the node that the sequences belong to; 0 if unknown.
    pub(crate) incarnation: u64,
    /// Error of the last handshake, for the commands that wait for it.
    pub(crate) open_failed: Option<CmdStatus>,
    /// Time since when a new path is wanted.
    pub(crate) wanted_since: Option<Nanos>,
    /// Numbers of the reliable and the unreliable path.
    pub(crate) paths: [Option<u32>; 2],
    /// The node's own number for its state of this pair; 0 if unknown.
    pub(crate) state: u32,
    /// This node had paths to it.
    pub(crate) used: bool,
    /// The TP ended by a CLOSE, so both sides know.
    pub(crate) parted: bool,
    /// The node closed, and no new life of it has been found.
    pub(crate) is_shut: bool,
    /// Time since when no queue uses it and nothing is outstanding.
    pub(crate) quiet_since: Option<Nanos>,
    /// For packet peers: whether acknowledgements wait for the program's next request.
    pub(crate) habit: PostHabit,
    /// Packets for it arrived, or some of their pieces are left: the next step takes them.
    pub(crate) has_arrival: bool,
    /// A received piece that waits for its contexts, in virtual time.
    waiting: Option<Box<WaitingPiece>>,
}

/// Kind of an entry that was taken by its form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FormTaken {
    /// A message that acknowledged one of this node's.
    Answer,
    Other,
}

impl Peer {
    pub(crate) fn new(eid: RawEid, carrier: Option<Carrier>) -> Self {
        Self {
            eid,
            line: PeerCarrier::new(carrier),
            unreachable: None,
            requester: Requester::default(),
            responder: Responder::default(),
            direct: None,
            incarnation: 0,
            open_failed: None,
            wanted_since: None,
            paths: [None; 2],
            state: 0,
            used: false,
            parted: false,
            is_shut: false,
            quiet_since: None,
            habit: PostHabit::default(),
            has_arrival: false,
            waiting: None,
        }
    }

    /// Creates the state of a node that is known from now on.
    pub(crate) fn since(now: Nanos, eid: RawEid, carrier: Option<Carrier>) -> Self {
        let mut peer = Self::new(eid, carrier);
        peer.responder.progress_at = now;
        peer
    }

    /// Does one bounded step. Returns whether anything was done.
    pub(crate) fn exchange_pieces(
        &mut self,
        work: &mut ExchangeContext<'_>,
        inbox: &mut Vec<u8>,
        answers: Answers,
    ) -> bool {
        self.responder.place_late(work);
        self.has_arrival = false;
        let mut busy = self.take_in(work, inbox);
        let answers = self.answers_of_step(work.now, busy, answers);
        let Self { line, requester, responder, .. } = self;
        if work.now >= requester.timer() && requester.on_time(line, work) == TimedOut::Some {
            // If too many events wait for the host already, the user gets the reason another time.
            let request = HostRequest::AskWhy { eid: self.eid, is_packets: line.is_packets() };
            let _ = work.core.tables.ask_host(request);
        }
        let is_held = answers == Answers::MayWait && responder.may_wait();
        if requester.is_waiting() || responder.is_waiting() && !is_held {
            if work.endpoint.open(work.now, self.eid) {
                // Waiting commands get the outcome of this one.
                self.open_failed = None;
            }
            let mut budget = PIECES_PER_STEP;
            busy |= responder.push(line, work, &mut budget);
            busy |= requester.push(line, work, &mut budget);
        }
        if line.carrier.as_mut().is_some_and(Carrier::flush) {
            work.core.tables.counts.add(Counter::Wakeups, 1);
        }
        busy
    }

    /// How to handle the answers of a step that received something, or not, if the caller lets them wait.
    fn answers_of_step(&mut self, now: Nanos, is_fresh: bool, answers: Answers) -> Answers {
        if !self.line.is_packets() {
            return if is_fresh { answers } else { Answers::Go };
        }
        if self.requester.is_waiting() {
            self.habit.on_posted(now);
        } else {
            self.habit.on_time(now);
            if is_fresh && answers == Answers::MayWait && self.responder.is_waiting() {
                self.habit.on_taken(now);
            }
        }
        if answers == Answers::MayWait { self.habit.answers() } else { Answers::Go }
    }

    /// Whether a step would find something: received pieces, waiting ones, or a timer that is due.
    pub(crate) fn is_due(&self, core: &DeviceCore, now: Nanos) -> bool {
        self.has_arrival
            || self.has_work()
            || self.waiting.is_some()
            || now >= self.requester.timer()
            || core.tables.faults.ack_before_placement()
    }

    /// Whether a step would find work that no input announces.
    pub(crate) fn has_work(&self) -> bool {
        self.responder.is_waiting()
            || self.requester.is_waiting()
            || self.line.carrier.as_ref().is_some_and(Carrier::is_waiting)
    }

    /// Memory and offset of the next piece, for a peer with a ring.
    pub(crate) fn next_place(&self) -> Option<(&Region, usize)> {
        self.line.carrier.as_ref().and_then(Carrier::next_place)
    }

    /// Deadline of the timers of this peer, without those of its TP ([`TpEndpoint::poll_deadline`]).
    pub(crate) fn poll_deadline(&self, endpoint: &TpEndpoint) -> Option<Nanos> {
        let quiet = self.quiet_deadline(endpoint).unwrap_or(Nanos::MAX);
        let at = self.requester.timer().min(quiet);
        (at != Nanos::MAX).then_some(at)
    }

    /// Number of its path, for completions.
    pub(crate) fn tpn_of(&self, datagram: Unsequenced) -> u32 {
        self.paths[usize::from(datagram == Unsequenced::Yes)].unwrap_or(0)
    }

    /// Sends a short message at once, if nothing has to go before it. Returns whether it did.
    #[inline]
    pub(crate) fn send_short(
        &mut self,
        core: &DeviceCore,
        (now, senders): (impl FnOnce() -> Nanos, &SendQueueTable),
        short: &ShortSend<'_>,
    ) -> bool {
        let Some(Carrier::Ring(ring)) = &mut self.line.carrier else { return false };
        let answers = &mut self.responder.answers;
        if self.line.is_cut_off
            || !self.requester.send_short((ring, answers), core, (now, senders), short)
        {
            return false;
        }
        self.responder.push_answers(ring);
        if ring.flush() {
            core.tables.counts.add(Counter::Wakeups, 1);
        }
        true
    }

    /// Takes the next entry of a ring, if its form is known. Returns whether it did.
    #[inline]
    fn take_short(&mut self, work: &mut ExchangeContext<'_>, source: &Source) -> bool {
        self.take_form(work, source).is_some()
    }

    /// Takes the next entry of a ring, if its form is known, and says which kind it was.
    #[inline(always)]
    fn take_form(&mut self, work: &mut ExchangeContext<'_>, source: &Source) -> Option<FormTaken> {
        let Some(Carrier::Ring(ring)) = &mut self.line.carrier else { return None };
        let entry = ring.next_whole()?;
        if urma_packet::is_ack(&entry.front) {
            let is_plain = entry.len() == AckForm::LEN && entry.acked.is_none();
            let is_taken = is_plain && self.requester.take_ack(work, &entry.front);
            if is_taken {
                entry.done();
            }
            return is_taken.then_some(FormTaken::Other);
        }
        let opposite = self.responder.take_short(work, source, &entry)?;
        let acked = entry.acked;
        entry.done();
        let Some(tassn) = acked else { return Some(FormTaken::Other) };
        self.take_acked(work, opposite, tassn);
        Some(FormTaken::Answer)
    }

    /// Takes the next entry of a ring for a poll, if its form is known and it is the only work.
    #[inline]
    pub(crate) fn take_alone(&mut self, work: &mut ExchangeContext<'_>) -> Option<FormTaken> {
        let source = self.source();
        self.take_form(work, &source)
    }

    /// Completes request `tassn`, which the peer acknowledged in an entry of the opposite sequence.
    #[inline]
    pub(crate) fn take_acked(
        &mut self,
        work: &mut ExchangeContext<'_>,
        pair: Option<Pair>,
        tassn: u16,
    ) {
        let Some(pair) = pair else { return work.core.tables.count(Counter::DropMalformed) };
        if !self.requester.end_acked(work, pair, tassn) {
            self.requester.on_response(work, &pair.response(tassn, ResponseStatus::Ack), &[]);
        }
    }

    fn take_in(&mut self, work: &mut ExchangeContext<'_>, inbox: &mut Vec<u8>) -> bool {
        let source = self.source();
        let mut busy = false;
        let has_lane = work.core.tables.has_message_lane();
        for _ in 0..PIECES_PER_STEP {
            if !self.responder.has_room() {
                break;
            }
            if has_lane && self.take_short(work, &source) {
                busy = true;
                continue;
            }
            let Some(piece) = self.next_piece(work, inbox) else { return busy };
            busy = true;
            self.take(work, &piece, inbox);
        }
        // There may be more.
        self.has_arrival = true;
        busy
    }

    /// Returns the next piece whose request has its contexts, and puts its bytes into `inbox`.
    #[inline(always)]
    fn next_piece(
        &mut self,
        work: &mut ExchangeContext<'_>,
        inbox: &mut Vec<u8>,
    ) -> Option<Inbound> {
        match work.core.tables.contexts() {
            None => self.line.pop(work.endpoint, inbox),
            Some(contexts) => self.next_modelled(contexts, work, inbox),
        }
    }

    #[cold]
    fn next_modelled(
        &mut self,
        contexts: &PluggedModel,
        work: &mut ExchangeContext<'_>,
        inbox: &mut Vec<u8>,
    ) -> Option<Inbound> {
        if let Some(waiting) = self.waiting.take_if(|piece| !contexts.is_before(piece.ready_at)) {
            *inbox = waiting.bytes;
            return Some(waiting.piece);
        }
        if self.waiting.is_some() {
            return None;
        }
        let piece = self.line.pop(work.endpoint, inbox)?;
        let TransactionHeader::Request(header) = &piece.header else { return Some(piece) };
        let from = RequestSource { eid: self.eid, tpn: 0 };
        let ready_at = target::look_up(work, from, header);
        if !contexts.is_before(ready_at) {
            return Some(piece);
        }
        contexts.wait(ready_at, None);
        let bytes = std::mem::take(inbox);
        self.waiting = Some(Box::new(WaitingPiece { ready_at, piece, bytes }));
        None
    }

    /// Takes a received piece.
    fn take(&mut self, work: &mut ExchangeContext<'_>, piece: &Inbound, inbox: &[u8]) {
        let source = self.source();
        let bytes = &inbox[piece.bytes.clone()];
        match &piece.header {
            TransactionHeader::Request(header) => {
                let part = RequestFragment { header, payload: piece.payload, bytes };
                self.responder.on_request(work, &source, &part);
                if let Some(tassn) = piece.acked {
                    let opposite = Pair::of_request(header).opposite();
                    self.take_acked(work, opposite, tassn);
                }
            }
            TransactionHeader::Response(header) => {
                for answer in header.each() {
                    self.requester.on_response(work, &answer, bytes);
                }
            }
        }
    }

    /// Takes the waiting piece before its time, because its carrier ends. Returns whether there was one.
    fn take_waiting(&mut self, work: &mut ExchangeContext<'_>) -> bool {
        let Some(waiting) = self.waiting.take() else { return false };
        self.take(work, &waiting.piece, &waiting.bytes);
        true
    }

    /// The node as the source of requests, for their completions.
    pub(crate) fn source(&self) -> Source {
        Source {
            eid: self.eid,
            tpn: self.tpn_of(Unsequenced::No),
            datagram_tpn: self.tpn_of(Unsequenced::Yes),
            is_limited: self.line.is_packets(),
        }
    }

    /// Takes what the peer published before it went: an answer there completes its request as usual. Nothing is
    /// answered any more.
    pub(crate) fn take_last_messages(
        &mut self,
        work: &mut ExchangeContext<'_>,
        inbox: &mut Vec<u8>,
    ) {
        for _ in 0..LAST_ROUNDS_MAX {
            let is_taken = self.take_waiting(work);
            if self.line.is_cut_off || !(self.take_in(work, inbox) | is_taken) {
                break;
            }
            self.responder.drop_answers();
        }
    }

    /// Switches to a new life of the node: all state of the old one is void.
    pub(crate) fn on_new_life(&mut self, work: &mut ExchangeContext<'_>, incarnation: u64) {
        self.take_waiting(work);
        self.requester.end_all(&self.line, work.senders, CqeStatus::AckTimeout);
        self.requester = Requester::default();
        self.responder.drop_answers();
        if !work.core.tables.faults.sequences_kept() {
            self.responder.forget_served(work);
        }
        self.incarnation = incarnation;
    }

    /// Switches to the TP that a handshake opened.
    pub(crate) fn on_new_tp(&mut self, work: &mut ExchangeContext<'_>, new: &Agreed) {
        if self.incarnation != 0 && self.incarnation != new.peer_incarnation {
            self.on_new_life(work, new.peer_incarnation);
        } else if self.state != 0 && self.state != new.peer_state {
            self.on_forgotten(work);
        } else {
            self.on_carrier_replaced(work);
        }
        self.incarnation = new.peer_incarnation;
        self.state = new.peer_state;
        (self.parted, self.is_shut) = (false, false);
        self.open_failed = None;
    }

    /// Starts all sequences anew, with what is unanswered: the same life of the node forgot this one, which it does
    /// only when nothing is outstanding.
    fn on_forgotten(&mut self, work: &mut ExchangeContext<'_>) {
        self.on_carrier_replaced(work);
        self.responder.forget_served(work);
        self.requester.begin_anew();
    }

    /// Drops requests without completing them, and receives in use: no queue is left.
    pub(crate) fn forget_queues(&mut self) {
        self.requester.forget_queues();
        self.responder.forget_queues();
        self.paths = [None; 2];
    }

    /// Notes that the peer reported the end of its TP or a new one: it is alive, so the error timeouts restart now. A
    /// process that was stopped finds such reports when it continues.
    pub(crate) fn on_carrier_replaced(&mut self, work: &mut ExchangeContext<'_>) {
        self.on_carrier_lost(work);
        self.requester.wait_anew(work.now);
    }

    /// Handles the end of the TP by the peer's CLOSE.
    pub(crate) fn on_closed(&mut self, work: &mut ExchangeContext<'_>, reason: CloseReason) {
        // After these the peer repeats nothing. A peer whose TP gave up continues on another one.
        self.parted = matches!(reason, CloseReason::Idle | CloseReason::Shutdown);
        self.on_carrier_replaced(work);
        self.is_shut = reason == CloseReason::Shutdown;
        if self.is_shut {
            // What has no response gets none. Its sequences remain: the handshake for a later request
            // shows whether another life of the node has the EID.
            self.requester.end_all(&self.line, work.senders, CqeStatus::AckTimeout);
        }
    }

    /// Closes this node's side: the requests of its queues have no users any more, and responses are not repeated.
    pub(crate) fn on_own_close(&mut self) {
        self.forget_queues();
        self.responder.drop_answers();
    }

    /// Handles the end of the TP: what was unanswered is sent again on the next one to the same life.
    pub(crate) fn on_carrier_lost(&mut self, work: &mut ExchangeContext<'_>) {
        self.take_waiting(work);
        self.responder.on_carrier_lost(work);
        self.requester.on_carrier_lost();
    }
}

/// One path with its users.
#[derive(Clone, Debug)]
pub(crate) struct UsedPath {
    pub(crate) eid: RawEid,
    /// Number of imports and bindings; at 0 it is closing.
    pub(crate) users: u32,
    /// Life of the node that it was opened to; 0 when not known.
    pub(crate) life: u64,
    /// Requests for which a closing path stays open.
    pub(crate) posted: Vec<Posted>,
    /// It carries packets of the standard opcodes.
    pub(crate) standard: bool,
    /// The node died; the number is kept until its users gave it back.
    pub(crate) dead: bool,
}

impl UsedPath {
    /// Whether it leads to a former life of the node, not to `incarnation`.
    pub(crate) fn is_of_former_life(&self, incarnation: u64) -> bool {
        self.life != 0 && self.life != incarnation
    }

    /// Marks the path with number `tpn` as dead: nothing uses it any more.
    pub(crate) fn end(&mut self, core: &DeviceCore, tpn: u32) {
        self.dead = true;
        core.tables.links.end(tpn);
    }
}

/// Requests of one send queue that may use a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Posted {
    pub(crate) queue: u32,
    /// Producer index after the last of them, in blocks.
    end: u32,
}

impl Posted {
    /// Requests of `queue` that are posted and not retired; `None`: there are none.
    pub(crate) fn of(core: &DeviceCore, queue: u32) -> Option<Self> {
        let place = core.queues.get(queue)?;
        let held = place.send.with_blocking(|at| Some(at.engine().as_ref()?.blocks_left(place)));
        if held.marked {
            core.make_runnable(place);
        }
        let end = place.pi.load(Ordering::Acquire);
        held.value.filter(|&left| left != 0).map(|_| Self { queue, end })
    }

    /// Whether one of them is not retired. If another thread steps the queue, one may be left.
    pub(crate) fn is_left(&self, core: &DeviceCore) -> bool {
        let Some(place) = core.queues.get(self.queue) else { return false };
        let Some(held) = place.send.try_with(|at| at.engine().as_ref().map(|e| e.retired())) else {
            return true;
        };
        if held.marked {
            core.make_runnable(place);
        }
        held.value.is_some_and(|retired| self.end.wrapping_sub(retired).cast_signed() > 0)
    }
}
