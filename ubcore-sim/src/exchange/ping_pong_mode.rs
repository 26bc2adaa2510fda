//! Ping-pong mode: two jetties of two nodes of this host answer each other's messages, with one message in flight.
//!
//! The mode has the peer while it is on, and gives it back with all that is open. Must not take what differs in any
//! way from the messages before, or survive another visit of the shared part.

use std::sync::Arc;

use udma_abi::{
    MessageEntry, Nanos, PollOfOne, RawEid, ReceivedMessage, counters::Counter, cqe::RecvForm,
    sqe::BLOCK_WORDS,
};
use urma_mem::SerialOwner;
use urma_packet::{RequestHeader, ResponseHeader, SendForm, SendValues};

use crate::{
    carrier::Carrier,
    cfg::PingPongs,
    engine::{core::DeviceCore, mail::ShortBody, queue::DeviceSendQueue, send::StepOutcome},
    exchange::{
        Exchange, ExchangeParts,
        initiator::flow::BegunRequest,
        pair::Pair,
        peers::peer::Peer,
        short::{TakenForm, local_of, op_of},
        target::receive::{FormReceiver, ReceivePlace},
    },
};

/// The peer while ping-pong mode is on, both sequences, the unacknowledged message and the acknowledgement that is
/// owed.
///
/// A message is acknowledged by the next one in the other direction, and its request is completed before anything
/// else looks at it. So the state that the lane keeps for a message is written only when the mode ends. Every call
/// that reaches the shared part ends the mode (`SharedPlace::part`), so nothing that it relies on can change
/// meanwhile.
#[derive(Debug)]
pub(crate) struct PingPongMode {
    peer: Peer,
    /// Index of the peer in the list of expected ring entries.
    place: usize,
    queue: Arc<DeviceSendQueue>,
    /// Identity under which the queue is leased, once the mode has lasted long.
    owner: SerialOwner,
    /// Messages after which it has lasted long.
    lease_after: u32,
    said: Said,
    received: Receiving,
}

/// The messages that this node sends.
#[derive(Debug)]
struct Said {
    pair: Pair,
    form: SendForm,
    header: RequestHeader,
    timeout: Nanos,
    priority: u8,
    /// TASSN of the next message.
    next: u16,
    /// Sequence number of the next message in its send queue.
    seq: u32,
    /// Messages that were acknowledged.
    ended: u32,
    open: Option<OpenSaid>,
}

/// A message that is not acknowledged.
#[derive(Debug)]
struct OpenSaid {
    block: [u64; BLOCK_WORDS],
    since: Nanos,
}

/// The messages that this node receives.
#[derive(Debug)]
struct Receiving {
    pair: Pair,
    form: SendForm,
    receiver: FormReceiver,
    completion: RecvForm,
    message: ReceivedMessage,
    is_solicited: bool,
    answer: ResponseHeader,
    /// TASSN of the next message.
    next: u16,
    tpn: u32,
    /// Acknowledgement of the newest message, which is owed.
    owed: Option<u16>,
    receives: ReceivePlace,
}

/// What the peer's ring entry was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AnswerEntry {
    /// The expected answer; it is taken.
    Answer,
    /// The expected answer; it is taken, and acknowledged a request whose queue another thread steps: leave the mode,
    /// then call [`Exchange::end_answered`].
    AnswerToOther,
    /// Something for another path. Nothing happened.
    Other,
}

/// A request that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    eid: RawEid,
    pair: Pair,
    tassn: u16,
}

impl Exchange {
    /// Enters ping-pong mode with the queue's direct entry `block`, which is next. `None`: the entry takes another
    /// path.
    #[cold]
    #[inline(never)]
    pub(crate) fn begin_ping_pong(
        &mut self,
        core: &DeviceCore,
        queue: &Arc<DeviceSendQueue>,
        block: &[u64; BLOCK_WORDS],
    ) -> Option<Box<PingPongMode>> {
        self.turns.on_other();
        let entry = MessageEntry::decode(block)?;
        let path = self.paths.get(&entry.tpn).filter(|path| !path.dead && !path.standard)?;
        let eid = path.eid;
        let peer = self.peers.for_message(&eid)?;
        let is_ring = matches!(peer.line.carrier, Some(Carrier::Ring(_)));
        if !is_ring || peer.line.is_cut_off {
            return None;
        }
        let sent = peer.requester.form_of(queue.id, block)?;
        let (pair, opposite) = (sent.pair, sent.opposite()?);
        let (form, header) = (sent.form, sent.header);
        let (timeout, priority) = (sent.timeout, sent.priority);
        let next = peer.requester.next_if_idle(pair)?;
        let taken = peer.responder.form_of(&self.receives, opposite)?;
        let mut received = Receiving {
            pair: opposite,
            form: *taken.form(),
            receiver: taken.receiver.clone(),
            completion: taken.completion,
            message: taken.completion.message(),
            is_solicited: taken.is_solicited,
            answer: taken.answer?,
            next: peer.responder.next_of(opposite)?,
            owed: None,
            tpn: peer.source().tpn,
            receives: self.receives.place_of(&taken.receiver, &self.receive_cache)?,
        };
        let owed = peer.responder.take_only_ack(opposite)?;
        // The mode owes the acknowledgement from now on; without it no peer may have anything to do.
        let begun = self
            .peers
            .place_of(&eid)
            .and_then(|place| Some((place, core.begin_ping_pong(queue, block)?)));
        let Some((place, seq)) = begun else {
            if let Some(peer) = self.peers.get_mut(&eid) {
                peer.responder.take_back((opposite, received.next), received.ack(owed));
            }
            return None;
        };
        received.owed = owed;
        let peer = self.peers.lend(&eid)?;
        let said = Said { pair, form, header, timeout, priority, next, seq, ended: 0, open: None };
        core.tables.count(Counter::PingPongs);
        let (queue, owner, lease_after) =
            (Arc::clone(queue), SerialOwner::none(), self.turns.lease_after);
        Some(Box::new(PingPongMode { peer, place, queue, owner, lease_after, said, received }))
    }

    /// Leaves ping-pong mode: sets the peer's state as if all messages had taken the lane.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_ping_pong(&mut self, ping_pong: PingPongMode) {
        let PingPongMode { mut peer, queue, owner, said, received, .. } = ping_pong;
        queue.send.disown(&owner);
        let open =
            said.open.as_ref().and_then(|open| Some((open, MessageEntry::decode(&open.block)?)));
        let begun = open.as_ref().map(|(open, entry)| {
            let len = match entry.body {
                udma_abi::MessageBody::Piece(piece) => piece.len,
                udma_abi::MessageBody::Inline(..) => 0,
            };
            let (seq, local, op) = (said.seq.wrapping_sub(1), local_of(entry), op_of(entry));
            let request =
                BegunRequest { seq, block: &open.block, local, len, header: &said.header, op };
            (request, open.since)
        });
        peer.requester.take_back((said.pair, said.ended), begun, (said.timeout, said.priority));
        peer.responder.take_back((received.pair, received.next), received.ack(received.owed));
        self.receives.take_back(&received.receiver, received.receives);
        self.peers.take_back(peer);
        self.turns.on_ended(said.ended);
    }

    /// Whether a poll has nothing to do in ping-pong mode.
    #[inline]
    pub(crate) fn is_quiet_in(&self, ping_pong: &PingPongMode) -> bool {
        ping_pong.received.owed.is_none() && self.peers.awaited_place().is_none()
    }

    /// Sends the message of a direct entry. The clock is read after the message was published. Returns what is left;
    /// `None`: the entry takes another path.
    #[inline(always)]
    pub(crate) fn send_piggybacked(
        &mut self,
        core: &DeviceCore,
        ping_pong: &mut PingPongMode,
        now: impl FnOnce() -> Nanos,
        block: &[u64; BLOCK_WORDS],
    ) -> Option<StepOutcome> {
        let PingPongMode { peer, queue, owner, said, received, .. } = ping_pong;
        let Some(Carrier::Ring(ring)) = &mut peer.line.carrier else { return None };
        let values = SendValues { tassn: said.next, length: piece_len(block), imm: block[5] };
        let header = (&said.form.fill(&values), said.form.header_len());
        let owed = received.owed;
        let push = |body: &ShortBody<'_>| {
            let is_pushed = ring.push_short(header, body, owed).is_ok();
            if is_pushed {
                // Before the state is updated: the peer waits for it.
                ring.publish();
            }
            is_pushed
        };
        let left = core.send_piggybacked((queue, owner), block, push)?;
        received.owed = None;
        said.next = said.next.wrapping_add(1);
        said.seq = said.seq.wrapping_add(1);
        let since = now();
        self.ack_delay.on_return(since);
        said.open = Some(OpenSaid { block: *block, since });
        core.tables.counts.add_alone(Counter::RingRequests, 1);
        core.tables.counts.add_alone(Counter::RingBytes, u64::from(values.length));
        if ring.flush() {
            core.tables.counts.add(Counter::Wakeups, 1);
        }
        Some(left)
    }

    /// Takes the entry that the peer wrote, if it is the answer that ping-pong mode waits for.
    #[inline(always)]
    pub(crate) fn take_answer(
        &mut self,
        core: &DeviceCore,
        ping_pong: &mut PingPongMode,
        (now, poll): (Nanos, &mut PollOfOne),
    ) -> AnswerEntry {
        self.ack_delay.on_return(now);
        let is_awaited = self.peers.awaited_place() == Some(ping_pong.place);
        if !is_awaited || !self.ack_delay.may_wait() {
            return AnswerEntry::Other;
        }
        let received = ping_pong.take_answer(core, poll);
        if received != AnswerEntry::Other {
            if let Some(place) = ping_pong.peer.next_place() {
                self.peers.move_place(ping_pong.place, place);
            }
            self.ack_delay.on_taken(now);
        }
        received
    }

    /// Completes, after ping-pong mode, the request that its last entry acknowledged while another thread stepped its
    /// queue.
    #[cold]
    pub(crate) fn end_answered(&mut self, core: &DeviceCore, now: Nanos, answered: &Answered) {
        let ExchangeParts { peers, mut work, .. } = self.split(core, now);
        if let Some(peer) = peers.get_mut(&answered.eid) {
            peer.take_acked(&mut work, Some(answered.pair), answered.tassn);
        }
    }
}

impl Receiving {
    /// The acknowledgement of message `tassn`.
    fn ack(&self, tassn: Option<u16>) -> Option<ResponseHeader> {
        Some(ResponseHeader { tassn: tassn?, ..self.answer })
    }
}

impl PingPongMode {
    /// Number of the queue whose messages are sent in this mode.
    #[inline]
    pub(crate) fn queue(&self) -> u32 {
        self.queue.id
    }

    /// When the timeout of the open message has to be checked; `Nanos::MAX`: never.
    pub(crate) fn timer(&self) -> Nanos {
        self.said
            .open
            .as_ref()
            .map_or(Nanos::MAX, |open| open.since.saturating_add(self.said.timeout))
    }

    /// Whether the mode has lasted so long that its thread should lease the shared part; each of `leases` given
    /// before doubles that time.
    #[inline]
    pub(crate) fn wants_lease(&self, leases: u32) -> bool {
        self.said.ended >= self.lease_after << leases.min(LEASE_DOUBLINGS)
    }

    /// The request that the last entry acknowledged.
    pub(crate) fn answered(&self) -> Answered {
        let Self { peer, said, .. } = self;
        Answered { eid: peer.eid, pair: said.pair, tassn: said.next.wrapping_sub(1) }
    }

    #[inline(always)]
    fn take_answer(&mut self, core: &DeviceCore, poll: &mut PollOfOne) -> AnswerEntry {
        let Self { peer, queue, owner, lease_after, said, received, .. } = self;
        let Some(Carrier::Ring(ring)) = &mut peer.line.carrier else { return AnswerEntry::Other };
        let Some(entry) = ring.next_whole() else { return AnswerEntry::Other };
        let Some(values) = received.form.read(&entry.front) else { return AnswerEntry::Other };
        // The answer acknowledges the open message, or comes after that was acknowledged.
        let acked = entry.acked;
        let is_fit = match acked {
            Some(tassn) => said.open.is_some() && tassn == said.next.wrapping_sub(1),
            None => true,
        };
        let at = received.form.header_len();
        let len = values.length as usize;
        if !is_fit
            || values.tassn != received.next
            || entry.len() != at + len
            || received.owed.is_some()
        {
            return AnswerEntry::Other;
        }
        let port = &received.receiver.port;
        let Some((region, offset)) = received.receives.next_for(len) else {
            return AnswerEntry::Other;
        };
        // A completion that is given to the poll takes no slot.
        let is_given = poll.of.is_some_and(|(jfcn, next)| port.may_give(jfcn, next));
        if !is_given && !port.reserve() {
            return AnswerEntry::Other;
        }
        if !entry.place(at, (region, offset), len) {
            if !is_given && port.give_back() {
                core.restart_later();
            }
            return AnswerEntry::Other;
        }
        let done = TakenForm::done(&values, received.receives.cursor.consume(), received.tpn);
        if is_given {
            poll.given = Some(received.message.with(&done));
        } else {
            port.complete_with(received.is_solicited, |owner| {
                received.completion.encode(&done, owner)
            });
        }
        core.tables.counts.add_alone(Counter::Completions, 1);
        entry.done();
        received.next = received.next.wrapping_add(1);
        received.owed = Some(values.tassn);
        if acked.is_none() {
            return AnswerEntry::Answer;
        }
        if core.on_answered((queue, owner)).is_none() {
            return AnswerEntry::AnswerToOther;
        }
        said.open = None;
        said.ended = said.ended.wrapping_add(1);
        if said.ended == *lease_after {
            queue.send.claim_for(owner);
        }
        AnswerEntry::Answer
    }
}

/// Length in bytes of a message's local piece.
#[inline]
const fn piece_len(block: &[u64; BLOCK_WORDS]) -> u32 {
    udma_abi::Sge::from_words([block[6], block[7]]).len
}

/// How often a program's messages were answered in a row, and how many turns ping-pong mode requires.
///
/// Interruptions and ends of the mode count too, so that short periods of it do not follow each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    in_row: u32,
    needed: u32,
    least: u32,
    most: u32,
    /// Messages in ping-pong mode after which what it visits is leased.
    pub(crate) lease_after: u32,
}

/// Turns in a row before ping-pong mode: entering and leaving it costs as much as some turns save.
const TURNS: u32 = 16;
/// Messages in ping-pong mode before queue and shared part are leased: taking a lease back costs as much as some of
/// them save.
const LEASE_AFTER: u32 = 256;
/// Each lease of the shared part that was taken back doubles that, at most so often.
pub(crate) const LEASE_DOUBLINGS: u32 = 12;
/// Most turns that are required, after ping-pong modes that were shorter than the number required.
const TURNS_MAX: u32 = 1 << 12;

impl Turns {
    pub(crate) fn new(ping_pongs: PingPongs) -> Self {
        let least = if ping_pongs == PingPongs::Never { u32::MAX } else { ping_pongs.least(TURNS) };
        let (most, lease_after) = (ping_pongs.least(TURNS_MAX), ping_pongs.least(LEASE_AFTER));
        Self { in_row: 0, needed: least, least, most, lease_after }
    }

    /// Notes a message that acknowledged this node's last one.
    #[inline]
    pub(crate) fn on_turn(&mut self) {
        self.in_row = self.in_row.saturating_add(1);
    }

    /// Notes that something else was done.
    #[inline]
    pub(crate) fn on_other(&mut self) {
        self.in_row = 0;
    }

    /// Whether ping-pong mode may begin.
    #[inline]
    pub(crate) fn are_enough(&self) -> bool {
        self.in_row >= self.needed && self.needed != u32::MAX
    }

    /// Notes the end of a ping-pong mode of so many messages.
    pub(crate) fn on_ended(&mut self, messages: u32) {
        let is_short = messages < self.needed;
        self.needed =
            if is_short { self.needed.saturating_mul(2).min(self.most) } else { self.least };
        self.in_row = 0;
    }
}
