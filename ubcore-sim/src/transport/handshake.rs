//! Making, replacing and ending the TP to one peer node.
//!
//! Has the state of one peer's TP and retries of CONNECT. Must not draw random numbers, hold the TP itself, or
//! change anything for a packet that shows nothing which only the peer has.

mod challenge;
mod terms;

use udma_abi::Nanos;
use urma_packet::HandshakeBody;
use urma_packet::{
    Body, Challenge, Close, CloseReason, Cookie, PacketHeader, Psn, Purpose, RefuseBody,
    RefuseReason, Tpn, WIRE_VERSION,
};

pub(crate) use challenge::{Challenger, refusal};
pub(crate) use terms::{
    Agreed, Doubt, HandshakeEvent, HandshakeState, Offer, OpenCfg, TpOpenError,
};

use super::strategy::Strategy;

/// Most challenges answered between two timers: more than expired cookies or changes of the pair can cause.
const CHALLENGES_MAX: u32 = 4;

/// Tries before the time between two of them doubles. A peer in a flood answers some and drops others: a few in a
/// short time reach it, and the doubling spares it when many nodes try.
const TRIES_ALIKE: u32 = 3;
/// Bits of the nonce that vary the time of a try.
const CHANCE_BITS: u32 = 8;

/// State machine of the TP to one peer.
///
/// ```text
///            open              CHALLENGE: CONNECT again, with its cookie
///   Idle ----------> Connecting ---------------------------------------------+
///     |               |  | ^  ACCEPT, or the peer's CONNECT                  |
///     |               |  | +-------------------------------------------------+
///     |               |  +--------> Open  --- CONNECT of another TP ---> Open (replaced)
///     |  CONNECT      |              | CLOSE with its key, close(), REFUSE of a question
///     +----> Open     | retries      v
///                     | used up,   Closed ---- open ----> Connecting
///                     v REFUSE
///                   Failed
/// ```
///
/// When both open at once, each CONNECT is the answer to the other: both hold both offers, and the choice (the
/// minimum of the two) is symmetric, so no side has to yield.
#[derive(Debug)]
pub(crate) struct Handshake {
    cfg: OpenCfg,
    state: HandshakeState,
    /// This side's numbers of the current attempt.
    offer: Option<Offer>,
    /// The latest cookie from the peer for the current attempt.
    cookie: Cookie,
    /// Challenges answered since the last timer.
    challenged: u32,
    /// TPN at this node of the TP that is open, or was last; 0: there was none.
    last_tpn: Tpn,
    /// The reason for a pending question to the peer whether it still holds the TP.
    verifying: Option<Doubt>,
    tries: u32,
    /// Whether the peer had no place for this node when it was last asked.
    is_crowded: bool,
    deadline: Nanos,
    reply: Option<PacketHeader>,
}

impl Handshake {
    /// Creates the state without a TP, for an unknown peer.
    pub(crate) fn new(cfg: OpenCfg) -> Self {
        Self {
            cfg,
            state: HandshakeState::Idle,
            offer: None,
            cookie: Cookie::default(),
            challenged: 0,
            last_tpn: Tpn::from_low_bits(0),
            verifying: None,
            tries: 0,
            is_crowded: false,
            deadline: 0,
            reply: None,
        }
    }

    /// Returns the state of the handshake.
    pub(crate) const fn state(&self) -> HandshakeState {
        self.state
    }

    /// TPN at this node of the TP that is open, or was last; 0: there was none.
    pub(crate) const fn last_tpn(&self) -> Tpn {
        self.last_tpn
    }

    /// This node's number for its state of the pair.
    pub(crate) const fn name(&self) -> u32 {
        self.cfg.state
    }

    /// Whether `connect` has the numbers of the open TP's peer, which only that peer knows.
    pub(crate) fn holds(&self, connect: &HandshakeBody) -> bool {
        let HandshakeState::Open(tp) = self.state else { return false };
        let shown = (connect.source_tpn, connect.first_psn, connect.incarnation, connect.close_key);
        (tp.peer_tpn, tp.rx_psn, tp.peer_incarnation, tp.peer_key) == shown
    }

    /// Starts to open a TP with the numbers of `offer`; `false`: one is open or being opened, and the numbers were
    /// not used.
    pub(crate) fn open(&mut self, now: Nanos, offer: Offer) -> bool {
        if matches!(self.state, HandshakeState::Connecting | HandshakeState::Open(_)) {
            return false;
        }
        self.state = HandshakeState::Connecting;
        self.offer = Some(offer);
        self.cookie = Cookie::default();
        (self.tries, self.is_crowded) = (0, false);
        self.deadline = now;
        true
    }

    /// Creates another attempt to open a TP with the same peer, besides this one.
    pub(crate) fn rival(&self) -> Self {
        Self::new(self.cfg)
    }

    /// Continues with other numbers on another route: the tries so far count.
    pub(crate) fn renew(&mut self, now: Nanos, offer: Offer) {
        if self.state == HandshakeState::Connecting {
            self.offer = Some(offer);
            self.cookie = Cookie::default();
            self.deadline = now;
        }
    }

    /// Gives up the attempt in favour of the peer's own.
    pub(crate) fn yield_to_peer(&mut self) {
        if self.state == HandshakeState::Connecting {
            self.finish(HandshakeState::Closed);
        }
    }

    /// Number of CONNECTs sent in this attempt.
    pub(crate) const fn tries(&self) -> u32 {
        self.tries
    }

    /// TPN at this node of the attempt or the TP.
    pub(crate) fn local_tpn(&self) -> Option<Tpn> {
        self.offer.map(|offer| offer.tpn)
    }

    /// Whether `nonce` is that of the outstanding CONNECT.
    pub(crate) fn has_asked(&self, nonce: u64) -> bool {
        self.offer.is_some_and(|offer| offer.nonce == nonce)
    }

    /// Asks the peer of an open TP, under a fresh `nonce`, whether it still holds it: it accepts again, or refuses,
    /// and then the TP is closed. What silence does depends on the `doubt`. Does nothing if no TP is open or as much
    /// is being asked already.
    pub(crate) fn verify(&mut self, now: Nanos, doubt: Doubt, nonce: u64) {
        if let (HandshakeState::Open(_), Some(offer)) = (self.state, &mut self.offer)
            && self.verifying < Some(doubt)
        {
            offer.nonce = nonce;
            self.verifying = Some(doubt);
            self.tries = 0;
            self.deadline = now;
        }
    }

    /// Repeats the question of [`Handshake::verify`] at once on another route: the tries so far do not count.
    pub(crate) fn ask_again(&mut self, now: Nanos) {
        if self.is_verifying() {
            (self.tries, self.deadline) = (0, now);
        }
    }

    /// Whether an answer to a packet of the peer, or a CLOSE, has to be sent.
    pub(crate) const fn has_reply(&self) -> bool {
        self.reply.is_some()
    }

    /// Whether the question of [`Handshake::verify`] has no answer yet.
    pub(crate) const fn is_verifying(&self) -> bool {
        self.verifying.is_some()
    }

    /// Closes the TP and sends the peer a CLOSE (once: a peer that missed it learns of it from its next packet).
    pub(crate) fn close(&mut self, reason: CloseReason) {
        self.reply = self.close_packet(reason).or(self.reply);
        self.finish(HandshakeState::Closed);
    }

    /// The CLOSE packet for the open TP.
    pub(crate) fn close_packet(&self, reason: CloseReason) -> Option<PacketHeader> {
        let (HandshakeState::Open(tp), Some(offer)) = (self.state, self.offer) else { return None };
        let close = Close { reason, source_tpn: tp.local_tpn, key: offer.close_key };
        Some(PacketHeader::new(tp.peer_tpn, Psn::new(0), Body::Close(close)))
    }

    /// Takes a handshake packet of the peer; a CONNECT has passed [`Challenger::screen`]. `fresh` gives numbers for a
    /// TP that the peer asks for.
    pub(crate) fn on_packet(
        &mut self,
        header: &PacketHeader,
        fresh: &mut dyn FnMut() -> Offer,
    ) -> HandshakeEvent {
        match header.body {
            Body::Connect(terms) => self.on_connect(&terms, fresh),
            Body::Challenge(challenge) => self.on_challenge(header.dest, &challenge),
            Body::Accept(terms) => self.on_accept(header.dest, &terms),
            Body::Refuse(refusal) => self.on_refuse(&refusal),
            Body::Close(close) => self.on_close(header.dest, &close),
            Body::Request(_)
            | Body::Response(_)
            | Body::Pack
            | Body::Ack(_)
            | Body::Nak(_)
            | Body::UmSend(..)
            | Body::Probe(_)
            | Body::ProbeEcho(_)
            | Body::Losses(_)
            | Body::Tail(_)
            | Body::Repair(_) => HandshakeEvent::NotExpected,
        }
    }

    /// Writes the next packet to send at `now` to the front of `buf`; returns its length, with four bytes at the end
    /// for the ICRC. Also called when retries run out.
    pub(crate) fn poll_transmit(&mut self, now: Nanos, buf: &mut [u8]) -> Option<usize> {
        let header = match self.reply.take() {
            Some(reply) => reply,
            None => self.connect(now)?,
        };
        header.emit_headers(0, buf).ok().map(|frame| frame.total)
    }

    /// When [`Handshake::poll_transmit`] has something to do.
    pub(crate) const fn poll_deadline(&self) -> Option<Nanos> {
        if self.reply.is_some() {
            return Some(0);
        }
        let waits = match self.state {
            HandshakeState::Connecting => true,
            HandshakeState::Open(_) => self.is_verifying(),
            HandshakeState::Idle | HandshakeState::Closed | HandshakeState::Failed(_) => false,
        };
        if waits { Some(self.deadline) } else { None }
    }

    /// The packet that reports, without proof, that the TPN to which a peer sent does not exist here.
    pub(crate) const fn unknown_tp(dest_of_packet: Tpn) -> PacketHeader {
        let close = Close { reason: CloseReason::UnknownTp, source_tpn: dest_of_packet, key: 0 };
        PacketHeader::new(Tpn::from_low_bits(0), Psn::new(0), Body::Close(close))
    }

    fn on_connect(
        &mut self,
        terms: &HandshakeBody,
        fresh: &mut dyn FnMut() -> Offer,
    ) -> HandshakeEvent {
        if let HandshakeState::Open(tp) = self.state
            && self.holds(terms)
        {
            // The answer was lost, both opened at once, or the peer asks whether the TP is alive.
            self.accept(&tp, terms);
            return HandshakeEvent::Nothing;
        }
        if let Some(reason) = self.objection(terms) {
            self.reply = Some(refusal(terms, reason, self.cfg.state));
            return HandshakeEvent::NotExpected;
        }
        let pending = if self.state == HandshakeState::Connecting { self.offer } else { None };
        let offer = pending.unwrap_or_else(fresh);
        let new = self.agree(&offer, terms);
        self.offer = Some(offer);
        self.accept(&new, terms);
        self.become_open(new)
    }

    /// The peer wants proof that this node receives at its address: CONNECT is sent again at once, and is not counted
    /// as a retry.
    fn on_challenge(&mut self, dest: Tpn, challenge: &Challenge) -> HandshakeEvent {
        match (self.state, self.offer) {
            (HandshakeState::Connecting, Some(offer))
                if (offer.nonce, offer.tpn) == (challenge.nonce, dest) =>
            {
                self.cookie = challenge.cookie;
                if self.challenged < CHALLENGES_MAX {
                    self.challenged += 1;
                    self.reply = Some(self.connect_packet(&offer));
                }
                HandshakeEvent::Nothing
            }
            _ => HandshakeEvent::NotExpected,
        }
    }

    fn on_accept(&mut self, dest: Tpn, terms: &HandshakeBody) -> HandshakeEvent {
        let ends = (self.cfg.peer_eid, self.cfg.local_eid);
        let Some(offer) = self.offer.filter(|offer| {
            (offer.nonce, offer.tpn) == (terms.nonce, dest)
                && ends == (terms.source_eid, terms.dest_eid)
        }) else {
            return HandshakeEvent::NotExpected;
        };
        match self.state {
            HandshakeState::Connecting if self.is_offered(terms) => {
                self.become_open(self.agree(&offer, terms))
            }
            HandshakeState::Open(_) if self.is_verifying() && self.holds(terms) => {
                self.verifying = None;
                HandshakeEvent::Proven
            }
            // It answers a question of now, and holds this side's end with another one of its own: it had
            // given up the attempt that this side took, and took this side's with its next one.
            HandshakeState::Open(_) if self.is_verifying() && self.is_offered(terms) => {
                self.become_open(self.agree(&offer, terms))
            }
            // The network doubled it.
            HandshakeState::Open(_) => HandshakeEvent::Nothing,
            HandshakeState::Idle
            | HandshakeState::Connecting
            | HandshakeState::Closed
            | HandshakeState::Failed(_) => HandshakeEvent::NotExpected,
        }
    }

    fn on_refuse(&mut self, refusal: &RefuseBody) -> HandshakeEvent {
        if self.offer.is_none_or(|offer| offer.nonce != refusal.nonce) {
            return HandshakeEvent::NotExpected;
        }
        match (self.state, refusal.reason) {
            // The reason may be gone soon: the retries continue.
            (HandshakeState::Connecting, RefuseReason::Resources) => {
                self.is_crowded = true;
                HandshakeEvent::Nothing
            }
            (HandshakeState::Connecting, reason) if reason != RefuseReason::NoTp => {
                self.finish(HandshakeState::Failed(TpOpenError::Refused(reason)));
                HandshakeEvent::Nothing
            }
            (HandshakeState::Open(tp), RefuseReason::NoTp) if self.is_verifying() => {
                self.finish(HandshakeState::Closed);
                let same = refusal.state == tp.peer_state;
                let reason = if same { CloseReason::UnknownTp } else { CloseReason::Idle };
                HandshakeEvent::Closed(reason)
            }
            _ => HandshakeEvent::NotExpected,
        }
    }

    fn on_close(&mut self, dest: Tpn, close: &Close) -> HandshakeEvent {
        let HandshakeState::Open(tp) = self.state else { return HandshakeEvent::NotExpected };
        if close.source_tpn != tp.peer_tpn {
            return HandshakeEvent::NotExpected;
        }
        if close.reason == CloseReason::UnknownTp {
            return HandshakeEvent::Doubted;
        }
        if dest != tp.local_tpn || close.key != tp.peer_key {
            return HandshakeEvent::NotExpected;
        }
        self.finish(HandshakeState::Closed);
        HandshakeEvent::Closed(close.reason)
    }

    fn objection(&self, terms: &HandshakeBody) -> Option<RefuseReason> {
        if terms.dest_eid != self.cfg.local_eid {
            Some(RefuseReason::UnknownEid)
        } else if !(terms.version_min..=terms.version_max).contains(&WIRE_VERSION) {
            Some(RefuseReason::Version)
        } else if Strategy::best_of(terms.strategies & self.cfg.strategies).is_none() {
            Some(RefuseReason::Parameters)
        } else {
            None
        }
    }

    /// Whether an ACCEPT is within what was offered.
    fn is_offered(&self, terms: &HandshakeBody) -> bool {
        terms.version_min == WIRE_VERSION
            && terms.mtu.bytes() <= self.cfg.mtu.bytes()
            && self.cfg.strategies.contains(terms.strategies)
    }

    fn agree(&self, offer: &Offer, terms: &HandshakeBody) -> Agreed {
        let mine_is_smaller = self.cfg.mtu.bytes() < terms.mtu.bytes();
        Agreed {
            local_tpn: offer.tpn,
            peer_tpn: terms.source_tpn,
            tx_psn: offer.psn,
            rx_psn: terms.first_psn,
            mtu: if mine_is_smaller { self.cfg.mtu } else { terms.mtu },
            window_packets: self.cfg.window_packets.min(terms.window),
            strategy: Strategy::best_of(terms.strategies & self.cfg.strategies)
                .unwrap_or(Strategy::GoBackN),
            peer_incarnation: terms.incarnation,
            peer_key: terms.close_key,
            peer_state: terms.state,
            peer_ports: terms.ports,
        }
    }

    fn become_open(&mut self, agreed: Agreed) -> HandshakeEvent {
        self.verifying = None;
        self.last_tpn = agreed.local_tpn;
        self.state = HandshakeState::Open(agreed);
        HandshakeEvent::Opened(agreed)
    }

    /// Ends the current attempt or TP.
    fn finish(&mut self, state: HandshakeState) {
        self.verifying = None;
        self.offer = None;
        self.state = state;
    }

    fn accept(&mut self, tp: &Agreed, terms: &HandshakeBody) {
        let Some(offer) = self.offer else { return };
        let choice = HandshakeBody {
            version_min: WIRE_VERSION,
            version_max: WIRE_VERSION,
            mtu: tp.mtu,
            strategies: tp.strategy.caps(),
            window: tp.window_packets,
            dest_uasid: terms.source_uasid,
            nonce: terms.nonce,
            ..self.terms(&offer)
        };
        self.reply = Some(PacketHeader::new(tp.peer_tpn, Psn::new(0), Body::Accept(choice)));
    }

    /// The CONNECT, if it is time for it.
    fn connect(&mut self, now: Nanos) -> Option<PacketHeader> {
        let wanted = self.state == HandshakeState::Connecting || self.is_verifying();
        let offer = self.offer.filter(|_| wanted && self.deadline <= now)?;
        if self.tries > self.cfg.retries {
            match self.verifying {
                // A TP whose peer gave no answer is over; a new attempt shows whether the peer is there.
                Some(Doubt::Idle) => self.finish(HandshakeState::Closed),
                Some(Doubt::Hint) => self.verifying = None,
                None if self.is_crowded => {
                    let refused = TpOpenError::Refused(RefuseReason::Resources);
                    self.finish(HandshakeState::Failed(refused));
                }
                None => self.finish(HandshakeState::Failed(TpOpenError::Timeout)),
            }
            return None;
        }
        self.deadline = now.saturating_add(self.wait(&offer));
        self.tries += 1;
        self.challenged = 0;
        Some(self.connect_packet(&offer))
    }

    /// Time until CONNECT is repeated: doubled after every [`TRIES_ALIKE`] tries, less up to half at random. Tries at
    /// even intervals could all meet the same bursts of an overload.
    fn wait(&self, offer: &Offer) -> Nanos {
        let doubled = self.cfg.retry_ns.saturating_mul(1 << (self.tries / TRIES_ALIKE).min(32));
        let longest = doubled.min(self.cfg.retry_max_ns);
        let chance = offer.nonce.rotate_left(CHANCE_BITS * (self.tries % 8)) % (1 << CHANCE_BITS);
        longest - (longest >> (CHANCE_BITS + 1)) * chance
    }

    fn connect_packet(&self, offer: &Offer) -> PacketHeader {
        let terms = self.terms(offer);
        let terms = if self.is_verifying() {
            HandshakeBody { purpose: Purpose::Verify, ..terms }
        } else {
            HandshakeBody { cookie: self.cookie, ..terms }
        };
        PacketHeader::new(Tpn::from_low_bits(0), Psn::new(0), Body::Connect(terms))
    }

    fn terms(&self, offer: &Offer) -> HandshakeBody {
        HandshakeBody {
            version_min: WIRE_VERSION,
            version_max: WIRE_VERSION,
            mtu: self.cfg.mtu,
            strategies: self.cfg.strategies,
            incarnation: self.cfg.incarnation,
            source_eid: self.cfg.local_eid,
            dest_eid: self.cfg.peer_eid,
            source_tpn: offer.tpn,
            first_psn: offer.psn,
            window: self.cfg.window_packets,
            source_uasid: self.cfg.local_uasid,
            dest_uasid: 0,
            state: self.cfg.state,
            nonce: offer.nonce,
            close_key: offer.close_key,
            purpose: Purpose::Open,
            cookie: Cookie::default(),
            ports: self.cfg.ports,
        }
    }
}

#[cfg(test)]
mod tests;
