//! Making, replacing and ending the TP to one peer node.
//!
//! - owns: the state of one peer's TP (idle, connecting, open, closed, failed), the incarnation known of
//!   the peer, retries of CONNECT.
//! - takes: an open request with fresh numbers, CONNECT / ACCEPT / REFUSE / CLOSE, time.
//! - gives: what was agreed on, packets (unsealed), deadlines.
//! - must not: draw random numbers, hold the TP itself.
//!
//! ```text
//!            open                     ACCEPT, or the peer's CONNECT
//!   Idle ----------> Connecting --------------------------------------> Open
//!     |                  | retries used up, REFUSE                       |  CONNECT of another TP: replaced
//!     |  CONNECT         v                                               |
//!     +---------------> (Open)        Failed                             v CLOSE, close()
//!                                                                     Closed ---- open ----> Connecting
//! ```
//!
//! When both open at once, each CONNECT is the answer to the other: both hold both offers, and the
//! choice (the minimum of the two) is symmetric, so no side has to yield.

mod terms;

use udma_abi::Nanos;
use urma_packet::Handshake as Terms;
use urma_packet::{
    Body, Close, CloseReason, PacketHeader, Psn, Refusal, RefuseReason, StrategyCaps, Tpn,
    WIRE_VERSION,
};

pub use terms::{Agreed, HandshakeEvent, HandshakeState, Offer, OpenCfg, OpenError};

use super::strategy::Strategy;

/// State machine of the TP to one peer.
#[derive(Debug)]
pub struct Handshake {
    cfg: OpenCfg,
    state: HandshakeState,
    /// This side's numbers of the current attempt.
    offer: Option<Offer>,
    /// Greatest incarnation seen of the peer.
    peer_incarnation: u64,
    /// Cookies of CONNECTs whose TP is over: a late copy does not bring it back.
    finished: [u64; 8],
    finished_at: usize,
    /// Cookie of the peer's CONNECT that made the TP.
    peer_cookie: u64,
    /// An open TP is asked whether its peer still holds it.
    verifying: bool,
    tries: u32,
    deadline: Nanos,
    reply: Option<PacketHeader>,
}

impl Handshake {
    /// No TP, nothing known of the peer.
    #[must_use]
    pub const fn new(cfg: OpenCfg) -> Self {
        Self {
            cfg,
            state: HandshakeState::Idle,
            offer: None,
            peer_incarnation: 0,
            finished: [0; 8],
            finished_at: 0,
            peer_cookie: 0,
            verifying: false,
            tries: 0,
            deadline: 0,
            reply: None,
        }
    }

    /// Where it stands.
    #[must_use]
    pub const fn state(&self) -> HandshakeState {
        self.state
    }

    /// Starts to open a TP with the numbers of `offer`; false when one is open or being opened
    /// (the numbers were not used then).
    pub fn open(&mut self, now: Nanos, offer: Offer) -> bool {
        if matches!(self.state, HandshakeState::Connecting | HandshakeState::Open(_)) {
            return false;
        }
        self.state = HandshakeState::Connecting;
        self.offer = Some(offer);
        self.tries = 0;
        self.deadline = now;
        true
    }

    /// Asks the peer of an open TP whether it still holds it, by repeating CONNECT: the same life
    /// answers with the same ACCEPT; another life does not know the TP, which is closed then, as it
    /// is when no answer comes. Nothing happens when no TP is open or it is being asked already.
    pub const fn verify(&mut self, now: Nanos) {
        if matches!(self.state, HandshakeState::Open(_)) && !self.verifying {
            self.verifying = true;
            self.tries = 0;
            self.deadline = now;
        }
    }

    /// Whether the question of [`Handshake::verify`] has no answer yet.
    #[must_use]
    pub const fn is_verifying(&self) -> bool {
        self.verifying
    }

    /// Ends the TP and tells the peer (once: a peer that missed it learns on its next packet).
    pub fn close(&mut self, reason: CloseReason) {
        if let HandshakeState::Open(tp) = self.state {
            let close =
                Close { reason, source_tpn: tp.local_tpn, incarnation: self.cfg.incarnation };
            self.reply = Some(PacketHeader::new(tp.peer_tpn, Psn::new(0), Body::Close(close)));
        }
        self.finish(HandshakeState::Closed);
    }

    /// A handshake packet of the peer. `fresh` gives numbers for a TP that the peer asks for, or
    /// `None` when there is no room for one.
    pub fn on_packet(
        &mut self,
        header: &PacketHeader,
        fresh: &mut dyn FnMut() -> Option<Offer>,
    ) -> HandshakeEvent {
        match header.body {
            Body::Connect(terms) => self.on_connect(&terms, fresh),
            Body::Accept(terms) => self.on_accept(header.dest, &terms),
            Body::Refuse(refusal) => self.on_refuse(&refusal),
            Body::Close(close) => self.on_close(header.dest, &close),
            _ => HandshakeEvent::NotExpected,
        }
    }

    /// The next packet to send at `now`, written to the front of `buf`; its length, with four
    /// bytes at the end for the ICRC. Also where retries run out.
    pub fn poll_transmit(&mut self, now: Nanos, buf: &mut [u8]) -> Option<usize> {
        let header = match self.reply.take() {
            Some(reply) => reply,
            None => self.connect(now)?,
        };
        header.emit_headers(0, buf).ok().map(|frame| frame.total)
    }

    /// When [`Handshake::poll_transmit`] has something to do.
    #[must_use]
    pub const fn poll_deadline(&self) -> Option<Nanos> {
        match self.state {
            _ if self.reply.is_some() => Some(0),
            HandshakeState::Connecting => Some(self.deadline),
            HandshakeState::Open(_) if self.verifying => Some(self.deadline),
            _ => None,
        }
    }

    /// The packet that tells a peer that the TPN it sent to does not exist here.
    #[must_use]
    pub const fn unknown_tp(dest_of_packet: Tpn, incarnation: u64) -> PacketHeader {
        let reason = CloseReason::UnknownTp;
        let close = Close { reason, source_tpn: dest_of_packet, incarnation };
        PacketHeader::new(Tpn::from_low_bits(0), Psn::new(0), Body::Close(close))
    }

    fn on_connect(
        &mut self,
        terms: &Terms,
        fresh: &mut dyn FnMut() -> Option<Offer>,
    ) -> HandshakeEvent {
        if terms.source_eid != self.cfg.peer_eid {
            return HandshakeEvent::NotExpected;
        }
        if let Some(reason) = self.objection(terms) {
            self.refuse(terms, reason);
            return if reason == RefuseReason::StaleIncarnation {
                HandshakeEvent::OldIncarnation
            } else {
                HandshakeEvent::NotExpected
            };
        }
        if let HandshakeState::Open(tp) = self.state
            && (tp.peer_tpn, tp.rx_psn, tp.peer_incarnation)
                == (terms.source_tpn, terms.first_psn, terms.incarnation)
        {
            // The answer was lost, both opened at once, or the peer asks whether the TP is alive.
            self.verifying = false;
            self.accept(&tp, terms);
            return HandshakeEvent::Nothing;
        }
        if self.finished.contains(&terms.cookie) {
            return HandshakeEvent::NotExpected;
        }
        let pending = if self.state == HandshakeState::Connecting { self.offer } else { None };
        let Some(offer) = pending.or_else(fresh) else {
            self.refuse(terms, RefuseReason::Resources);
            return HandshakeEvent::Nothing;
        };
        let old = self.state;
        self.finish(HandshakeState::Closed);
        let new = self.agree(&offer, terms);
        self.offer = Some(offer);
        self.peer_cookie = terms.cookie;
        self.become_open(new);
        self.accept(&new, terms);
        match old {
            HandshakeState::Open(old) => HandshakeEvent::Replaced { old, new },
            _ => HandshakeEvent::Opened(new),
        }
    }

    fn on_accept(&mut self, dest: Tpn, terms: &Terms) -> HandshakeEvent {
        if terms.source_eid != self.cfg.peer_eid || terms.dest_eid != self.cfg.local_eid {
            return HandshakeEvent::NotExpected;
        }
        if terms.incarnation < self.peer_incarnation {
            return HandshakeEvent::OldIncarnation;
        }
        match (self.state, self.offer) {
            (HandshakeState::Connecting, Some(offer))
                if (offer.cookie, offer.tpn) == (terms.cookie, dest) && self.is_offered(terms) =>
            {
                let agreed = self.agree(&offer, terms);
                self.become_open(agreed);
                HandshakeEvent::Opened(agreed)
            }
            (HandshakeState::Open(tp), _)
                if (tp.peer_tpn, tp.peer_incarnation) == (terms.source_tpn, terms.incarnation) =>
            {
                self.verifying = false;
                HandshakeEvent::Nothing
            }
            (HandshakeState::Open(tp), Some(offer))
                if self.verifying && (offer.cookie, offer.tpn) == (terms.cookie, dest) =>
            {
                // A peer that knew of none made a TP of the question. Its numbers were used before:
                // that one goes, and whoever needs a TP asks anew.
                self.peer_incarnation = terms.incarnation;
                self.finish(HandshakeState::Closed);
                self.reply = Some(Self::unknown_tp(dest, self.cfg.incarnation));
                let same = terms.state == tp.peer_state;
                let reason = if same { CloseReason::UnknownTp } else { CloseReason::Idle };
                HandshakeEvent::Closed(tp, reason)
            }
            _ => {
                // The peer holds a TP that this side does not: it shall forget it.
                let header = Self::unknown_tp(dest, self.cfg.incarnation);
                self.reply = Some(header);
                HandshakeEvent::NotExpected
            }
        }
    }

    fn on_refuse(&mut self, refusal: &Refusal) -> HandshakeEvent {
        let asked = self.offer.is_some_and(|offer| offer.cookie == refusal.cookie);
        if self.state != HandshakeState::Connecting || !asked {
            return HandshakeEvent::NotExpected;
        }
        if refusal.reason == RefuseReason::Resources {
            // May be over soon: the retries go on.
            return HandshakeEvent::Nothing;
        }
        self.finish(HandshakeState::Failed(OpenError::Refused(refusal.reason)));
        HandshakeEvent::Refused(refusal.reason)
    }

    fn on_close(&mut self, dest: Tpn, close: &Close) -> HandshakeEvent {
        let HandshakeState::Open(tp) = self.state else { return HandshakeEvent::NotExpected };
        if close.incarnation < self.peer_incarnation {
            return HandshakeEvent::OldIncarnation;
        }
        let names_me = dest == tp.local_tpn || close.reason == CloseReason::UnknownTp;
        if close.source_tpn != tp.peer_tpn || !names_me {
            return HandshakeEvent::NotExpected;
        }
        self.peer_incarnation = close.incarnation;
        self.finish(HandshakeState::Closed);
        HandshakeEvent::Closed(tp, close.reason)
    }

    fn objection(&self, terms: &Terms) -> Option<RefuseReason> {
        if terms.incarnation < self.peer_incarnation {
            Some(RefuseReason::StaleIncarnation)
        } else if terms.dest_eid != self.cfg.local_eid {
            Some(RefuseReason::UnknownEid)
        } else if !(terms.version_min..=terms.version_max).contains(&WIRE_VERSION) {
            Some(RefuseReason::Version)
        } else if choose(terms.strategies & self.cfg.strategies).is_none() {
            Some(RefuseReason::Parameters)
        } else {
            None
        }
    }

    /// Whether an ACCEPT stays inside what was offered.
    fn is_offered(&self, terms: &Terms) -> bool {
        terms.version_min == WIRE_VERSION
            && terms.mtu.bytes() <= self.cfg.mtu.bytes()
            && self.cfg.strategies.contains(terms.strategies)
    }

    fn agree(&self, offer: &Offer, terms: &Terms) -> Agreed {
        let mine_is_smaller = self.cfg.mtu.bytes() < terms.mtu.bytes();
        Agreed {
            local_tpn: offer.tpn,
            peer_tpn: terms.source_tpn,
            tx_psn: offer.psn,
            rx_psn: terms.first_psn,
            mtu: if mine_is_smaller { self.cfg.mtu } else { terms.mtu },
            window_packets: self.cfg.window_packets.min(terms.window),
            strategy: choose(terms.strategies & self.cfg.strategies).unwrap_or(Strategy::GoBackN),
            peer_incarnation: terms.incarnation,
            peer_state: terms.state,
            peer_uasid: terms.source_uasid,
        }
    }

    fn become_open(&mut self, agreed: Agreed) {
        self.verifying = false;
        self.peer_incarnation = agreed.peer_incarnation;
        self.state = HandshakeState::Open(agreed);
    }

    /// Leaves the current attempt or TP.
    fn finish(&mut self, state: HandshakeState) {
        if matches!(self.state, HandshakeState::Open(_)) && self.peer_cookie != 0 {
            self.finished[self.finished_at] = self.peer_cookie;
            self.finished_at = (self.finished_at + 1) % self.finished.len();
        }
        self.peer_cookie = 0;
        self.verifying = false;
        self.offer = None;
        self.state = state;
    }

    fn accept(&mut self, tp: &Agreed, terms: &Terms) {
        let choice = Terms {
            version_min: WIRE_VERSION,
            version_max: WIRE_VERSION,
            mtu: tp.mtu,
            strategies: caps_of(tp.strategy),
            first_psn: tp.tx_psn,
            window: tp.window_packets,
            dest_uasid: terms.source_uasid,
            cookie: terms.cookie,
            ..self.terms(tp.local_tpn)
        };
        self.reply = Some(PacketHeader::new(tp.peer_tpn, Psn::new(0), Body::Accept(choice)));
    }

    fn refuse(&mut self, terms: &Terms, reason: RefuseReason) {
        let refusal = Refusal {
            reason,
            version_min: WIRE_VERSION,
            version_max: WIRE_VERSION,
            cookie: terms.cookie,
        };
        self.reply = Some(PacketHeader::new(terms.source_tpn, Psn::new(0), Body::Refuse(refusal)));
    }

    /// CONNECT when it is time for it.
    fn connect(&mut self, now: Nanos) -> Option<PacketHeader> {
        let offer = match (self.state, self.offer) {
            (HandshakeState::Connecting, Some(offer)) if self.deadline <= now => offer,
            (HandshakeState::Open(_), Some(offer)) if self.verifying && self.deadline <= now => {
                offer
            }
            _ => return None,
        };
        if self.tries > self.cfg.retries {
            // A TP without an answer is over; whether the peer is there, a new one will show.
            let silent = HandshakeState::Failed(OpenError::Timeout);
            self.finish(if self.verifying { HandshakeState::Closed } else { silent });
            return None;
        }
        let wait = self.cfg.retry_ns.saturating_mul(1 << self.tries.min(32));
        self.deadline = now.saturating_add(wait.min(self.cfg.retry_max_ns));
        self.tries += 1;
        let terms = Terms { first_psn: offer.psn, cookie: offer.cookie, ..self.terms(offer.tpn) };
        Some(PacketHeader::new(Tpn::from_low_bits(0), Psn::new(0), Body::Connect(terms)))
    }

    fn terms(&self, tpn: Tpn) -> Terms {
        Terms {
            version_min: WIRE_VERSION,
            version_max: WIRE_VERSION,
            mtu: self.cfg.mtu,
            strategies: self.cfg.strategies,
            incarnation: self.cfg.incarnation,
            source_eid: self.cfg.local_eid,
            dest_eid: self.cfg.peer_eid,
            source_tpn: tpn,
            first_psn: Psn::new(0),
            window: self.cfg.window_packets,
            source_uasid: self.cfg.local_uasid,
            dest_uasid: 0,
            state: self.cfg.state,
            cookie: 0,
        }
    }
}

/// The best strategy of a set.
fn choose(common: StrategyCaps) -> Option<Strategy> {
    if common.contains(StrategyCaps::SELECTIVE_REPEAT) {
        Some(Strategy::SelectiveRepeat)
    } else if common.contains(StrategyCaps::GO_BACK_N) {
        Some(Strategy::GoBackN)
    } else {
        None
    }
}

const fn caps_of(strategy: Strategy) -> StrategyCaps {
    match strategy {
        Strategy::GoBackN => StrategyCaps::GO_BACK_N,
        Strategy::SelectiveRepeat => StrategyCaps::SELECTIVE_REPEAT,
    }
}

#[cfg(test)]
mod tests;
