//! One other node (or this one): its carrier, what goes there, what came from there.
//!
//! *Owns*: both directions' sequences, answers on their way, the bounds of one step. *Takes*: pieces,
//! requests, time. *Gives*: pieces. *Must not*: let one queue's trouble stop another queue.

use std::collections::{BTreeMap, VecDeque};

use udma_abi::{CmdStatus, CqeStatus, Nanos, RawEid, counters::Counter};
use urma_packet::{CloseReason, TransactionHeader};

use super::Work;
use super::carrier::{Broken, Carrier, PIECE_MAX, Payload};
use super::flow::Flow;
use super::guesses::Guesses;
use super::memory::ReadJob;
use super::packets::Packets;
use super::pair::Pair;
use super::receive::Datagram;
use super::respond::Part;
use super::serve::Served;
use super::turns::Turns;
use super::write::place_late;
use crate::context::link::DirectParts;
use crate::transport::Agreed;

/// Pieces in each direction that one step moves for one peer.
const PIECES_PER_STEP: usize = 64;
/// Looks at what a peer left behind: more than its ring holds, whatever it claims.
const LAST_ROUNDS_MAX: usize = 4096;
/// Answers that may wait for the carrier. More than [`super::send::UNDER_WAY_MAX`], so that two nodes
/// which keep that bound never wait for each other; one that does not is not read from meanwhile.
const ANSWERS_MAX: usize = 4096;

/// Where the search for a node stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// The host was asked.
    Asked,
    /// There is a carrier.
    Yes,
    /// There is no way.
    No(CmdStatus),
}

/// One node.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) eid: RawEid,
    pub(super) found: Found,
    pub(super) carrier: Option<Carrier>,
    pub(super) direct: Option<DirectParts>,
    /// Life of the node that the sequences belong to; 0 when not known.
    pub(super) incarnation: u64,
    /// Why the last handshake came to nothing, for whoever waits for it.
    pub(super) open_failed: Option<CmdStatus>,
    /// Since when a new way is wanted.
    pub(super) wanted_since: Option<Nanos>,
    /// Numbers of the reliable and the unreliable way.
    pub(super) ways: [Option<u32>; 2],
    pub(super) flows: BTreeMap<Pair, Flow>,
    /// Flows with something to push, in turn.
    pub(super) turn: Turns,
    /// Attempts begun and not answered; may be too high after losses, see `recount`.
    pub(super) under_way: usize,
    /// When a flow has to be looked at, at the latest.
    pub(super) timer: Nanos,
    pub(super) served: BTreeMap<Pair, Served>,
    pub(super) answers: VecDeque<urma_packet::ResponseHeader>,
    pub(super) reads: VecDeque<ReadJob>,
    /// Tokens that it shows without having been right.
    pub(super) guesses: Guesses,
    /// Its half holds nonsense: cut off.
    pub(super) lied: bool,
    /// What the node calls its state of this pair; 0 when not known.
    pub(super) state: u32,
    /// There were ways of this node to it.
    pub(super) used: bool,
    /// The TP ended by a CLOSE: both sides know.
    pub(super) parted: bool,
    /// Since when nobody uses it and nothing is under way.
    pub(super) quiet_since: Option<Nanos>,
}

impl Peer {
    pub(super) fn new(eid: RawEid, found: Found, carrier: Option<Carrier>) -> Self {
        Self {
            eid,
            found,
            carrier,
            direct: None,
            incarnation: 0,
            open_failed: None,
            wanted_since: None,
            ways: [None; 2],
            flows: BTreeMap::new(),
            turn: Turns::default(),
            under_way: 0,
            timer: Nanos::MAX,
            served: BTreeMap::new(),
            answers: VecDeque::new(),
            reads: VecDeque::new(),
            guesses: Guesses::default(),
            lied: false,
            state: 0,
            used: false,
            parted: false,
            quiet_since: None,
        }
    }

    /// What carries packets there, if packets do.
    pub(super) fn packets(&mut self) -> Option<&mut Packets> {
        if let Some(Carrier::Packets(packets)) = &mut self.carrier { Some(packets) } else { None }
    }

    /// One bounded step. Whether anything was done.
    pub(super) fn step(&mut self, work: &mut Work<'_>, inbox: &mut Vec<u8>) -> bool {
        if work.base.tables.faults.ack_before_placement() {
            self.served.values_mut().for_each(|served| place_late(served, work));
        }
        let mut busy = self.take_in(work, inbox);
        self.on_time(work);
        self.reopen(work);
        let mut budget = PIECES_PER_STEP;
        busy |= self.push_answers(work, &mut budget);
        busy |= self.push_requests(work, &mut budget);
        if self.carrier.as_mut().is_some_and(Carrier::flush) {
            work.base.tables.counts.add(Counter::Wakeups, 1);
        }
        busy
    }

    /// Whether a step would find something without any input.
    pub(super) fn has_work(&self) -> bool {
        let answers = !self.answers.is_empty() || !self.reads.is_empty();
        answers || !self.turn.is_empty() || self.carrier.as_ref().is_some_and(Carrier::is_waiting)
    }

    pub(super) fn poll_deadline(&self) -> Option<Nanos> {
        let or_never = |at: Option<Nanos>| at.unwrap_or(Nanos::MAX);
        let carrier = or_never(self.carrier.as_ref().and_then(Carrier::poll_deadline));
        let at = self.timer.min(carrier).min(or_never(self.quiet_deadline()));
        (at != Nanos::MAX).then_some(at)
    }

    pub(super) fn piece_max(&self) -> usize {
        self.carrier.as_ref().map_or(PIECE_MAX, Carrier::piece_max)
    }

    /// Number of its way, for completions.
    pub(super) fn tpn_of(&self, datagram: Datagram) -> u32 {
        self.ways[usize::from(datagram == Datagram::Yes)].unwrap_or(0)
    }

    /// Gives a piece to the carrier if it takes it now.
    pub(super) fn push_piece(
        &mut self,
        header: &TransactionHeader,
        payload: Payload,
        bytes: &[u8],
    ) -> bool {
        let Some(carrier) = &mut self.carrier else { return false };
        if !carrier.has_room(header, bytes.len()) {
            return false;
        }
        match carrier.push(header, payload, bytes) {
            Ok(()) => true,
            Err(Broken::Full) => false,
            Err(Broken::Dead) => {
                self.lied = true;
                false
            }
        }
    }

    fn take_in(&mut self, work: &mut Work<'_>, inbox: &mut Vec<u8>) -> bool {
        let mut busy = false;
        for _ in 0..PIECES_PER_STEP {
            if self.answers.len() + self.reads.len() >= ANSWERS_MAX {
                break;
            }
            let Some(carrier) = &mut self.carrier else { break };
            let piece = match carrier.pop(inbox) {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(_) => {
                    self.lied = true;
                    break;
                }
            };
            busy = true;
            let bytes = &inbox[piece.bytes];
            match &piece.header {
                TransactionHeader::Request(header) => {
                    let part = Part { header, payload: piece.payload, bytes };
                    self.on_request(work, &part);
                }
                TransactionHeader::Response(header) => self.on_response(work, header, bytes),
            }
        }
        busy
    }

    /// What it published before it went: an answer there ends its request as served. Nothing is
    /// answered any more.
    pub(super) fn take_last_words(&mut self, work: &mut Work<'_>, inbox: &mut Vec<u8>) {
        for _ in 0..LAST_ROUNDS_MAX {
            if self.lied || !self.take_in(work, inbox) {
                break;
            }
            self.answers.clear();
            self.reads.clear();
        }
    }

    /// Something waits and there is no TP: ask for one.
    fn reopen(&mut self, work: &mut Work<'_>) {
        let waiting = !self.turn.is_empty() || !self.answers.is_empty() || !self.reads.is_empty();
        let Some(Carrier::Packets(packets)) = &mut self.carrier else { return };
        if waiting && !packets.is_open() {
            let Work { numbers, now, .. } = work;
            packets.open(*now, || numbers.offer(self.eid));
        }
    }

    /// Another life of the node: nothing of the old one counts any more.
    pub(super) fn on_new_life(&mut self, work: &mut Work<'_>, incarnation: u64) {
        self.end_all(work, CqeStatus::AckTimeout);
        self.flows.clear();
        self.turn.clear();
        self.answers.clear();
        self.reads.clear();
        self.under_way = 0;
        self.timer = Nanos::MAX;
        self.forget_served(work);
        self.incarnation = incarnation;
    }

    /// A handshake made another TP.
    pub(super) fn on_new_tp(&mut self, work: &mut Work<'_>, new: &Agreed) {
        if self.incarnation != 0 && self.incarnation != new.peer_incarnation {
            self.on_new_life(work, new.peer_incarnation);
        } else if self.state != 0 && self.state != new.peer_state {
            self.on_forgotten(work);
        } else {
            self.on_carrier_replaced(work.now);
        }
        self.incarnation = new.peer_incarnation;
        self.state = new.peer_state;
        self.parted = false;
        self.open_failed = None;
    }

    fn forget_served(&mut self, work: &mut Work<'_>) {
        for served in std::mem::take(&mut self.served).into_values() {
            if let Some(taken) = served.message.and_then(|m| m.receive) {
                work.receives.give_back(work.base, taken);
            }
        }
    }

    /// The same life of the node forgot this one, which it does only when nothing is under way: all
    /// sequences begin anew, with what is unanswered.
    pub(super) fn on_forgotten(&mut self, work: &mut Work<'_>) {
        self.on_carrier_replaced(work.now);
        self.forget_served(work);
        self.flows.values_mut().for_each(Flow::begin_anew);
    }

    /// No queue is left: requests go without an end, and receives in use with them.
    pub(super) fn forget_queues(&mut self) {
        for flow in self.flows.values_mut() {
            flow.clear(|_| ());
        }
        for served in self.served.values_mut() {
            served.forget();
        }
        self.reads.clear();
        self.ways = [None; 2];
        self.recount();
    }

    /// The peer said that its TP is over, or another one is made: it lives, and the error timeouts count
    /// from now on. A process that was stopped finds such words when it goes on.
    fn on_carrier_replaced(&mut self, now: Nanos) {
        self.on_carrier_lost();
        self.flows.values_mut().for_each(|flow| flow.wait_anew(now));
    }

    /// The TP is over, by the peer's word.
    pub(super) fn on_closed(&mut self, now: Nanos, reason: CloseReason) {
        // After these the peer repeats nothing. One whose TP gave up goes on with another.
        self.parted = matches!(reason, CloseReason::Idle | CloseReason::Shutdown);
        self.on_carrier_replaced(now);
    }

    /// The TP is over: what was unanswered goes again with the next one to the same life.
    pub(super) fn on_carrier_lost(&mut self) {
        self.answers.clear();
        self.reads.clear();
        for (pair, flow) in &mut self.flows {
            flow.on_carrier_lost();
            if !flow.is_empty() && !std::mem::replace(&mut flow.listed, true) {
                self.turn.push(*pair, flow.priority);
            }
        }
        self.under_way = 0;
    }

    /// Ends every request that is on its way there.
    pub(super) fn end_all(&mut self, work: &mut Work<'_>, status: CqeStatus) {
        for (pair, flow) in &mut self.flows {
            flow.clear(|request| work.senders.end(pair.queue(), request.seq, status, 0));
        }
        self.recount();
    }

    pub(super) fn recount(&mut self) {
        self.under_way = self.flows.values().map(|flow| flow.unanswered() as usize).sum();
    }
}
