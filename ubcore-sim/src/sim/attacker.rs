//! A station that sends anything to any node, from any address, and receives nothing.
//!
//! - owns: its generator, so that what it sends does not change random choices elsewhere in the simulation.
//! - takes: the addresses of all nodes; now and then a TPN, as if guessed.
//! - gives: datagrams with a valid ICRC.
//! - must not: see packets or random choices of nodes.

use std::sync::Arc;

use udma_abi::{Nanos, RawEid};
use urma_packet::{
    Ack, Body, Challenge, Close, CloseReason, Cookie, FurtherPorts, HandshakeBody, ICRC_LEN,
    Initiator, InitiatorKind, JettyId, MemoryAccess, Mtu, OrderTag, PacketHeader, Psn, Purpose,
    RefuseBody, RefuseReason, RequestFlags, RequestHeader, RequestOp, ResponseHeader,
    ResponseStatus, SackBitmap, StrategyCaps, Target, TargetKind, TokenId, TokenValue, Tpn,
    UmHeader,
};

use crate::endpoint::flow;
use crate::link::{Datagram, Rng};

/// Most packets in a round of flooding.
const FLOOD_MAX: u64 = 64;
/// Chance that a round floods, in parts per million.
const FLOOD_PPM: u32 = 20_000;
/// Chance that a finished packet is corrupted, in parts per million.
const MUTATED_PPM: u32 = 100_000;

/// A guessed TPN of a node, with the peer at its other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guess {
    /// EID of the attacked node.
    pub node: RawEid,
    /// EID of the peer whose packets are forged.
    pub peer: RawEid,
    /// Number of the TP at the node.
    pub tpn: u32,
}

/// Most packets that a node gets at once: about as many as a socket buffer holds.
const FLOOD_AT_ONCE: u64 = 4096;

/// Station without a device, which sends forged packets to a node.
#[derive(Debug)]
pub struct Attacker {
    rng: Rng,
    /// Chance that it sends in a round, in parts per million.
    ppm: u32,
    /// Packets to each node per millisecond, and the time up to which they were sent.
    flood_per_ms: u32,
    flooded_until: Nanos,
    eids: Vec<RawEid>,
}

impl Attacker {
    /// A station that knows the addresses `eids` and sends in a round with a probability of `ppm` parts per million.
    #[must_use]
    pub fn new(seed: u64, ppm: u32, eids: Vec<RawEid>) -> Self {
        let rng = Rng::new(seed ^ 0x0bad_0bad);
        Self { rng, ppm, flood_per_ms: 0, flooded_until: 0, eids }
    }

    /// Also sends `per_ms` packets to each node per millisecond.
    pub(super) fn with_flood(self, per_ms: u32) -> Self {
        Self { flood_per_ms: per_ms, ..self }
    }

    /// Whether it sends a continuous flood.
    pub(super) fn is_flooding(&self) -> bool {
        self.flood_per_ms != 0
    }

    /// Number of flood packets that are due for each node.
    pub(super) fn flood_count(&mut self, now: Nanos) -> u64 {
        let due = now.saturating_sub(self.flooded_until) * u64::from(self.flood_per_ms) / 1_000_000;
        if due > 0 {
            self.flooded_until = now;
        }
        due.min(FLOOD_AT_ONCE)
    }

    /// A flood packet to `to`, from the address of a node or, if `third`, of none. One in 64 is a CONNECT.
    pub(super) fn flood_packet(&mut self, third: bool, to: RawEid) -> Datagram {
        let mut from = self.eids[self.rng.index(self.eids.len())];
        if third || from == to {
            from.0[13] = 9;
        }
        let (dest, source) = (self.tpn(), self.tpn());
        let header = if self.rng.chance_ppm(15_625) {
            let terms = self.terms(from, to, source);
            PacketHeader::new(Tpn::from_low_bits(0), Psn::new(0), Body::Connect(terms))
        } else {
            self.traffic(from, to, dest)
        };
        sealed(from, to, &header, None)
    }

    /// Returns the datagrams of this round.
    pub(super) fn count(&mut self) -> u64 {
        match (self.rng.chance_ppm(self.ppm), self.rng.chance_ppm(FLOOD_PPM)) {
            (false, _) => 0,
            (true, false) => 1 + self.rng.below(3),
            (true, true) => self.rng.below(FLOOD_MAX),
        }
    }

    /// Returns one datagram; some use a TPN of `guesses`, which are correct.
    pub fn datagram(&mut self, guesses: &[Guess]) -> Datagram {
        let guess = guesses.get(self.rng.index(guesses.len() * 2)).copied();
        let (from, to) = match guess {
            Some(guess) => (guess.peer, guess.node),
            None => (self.source(), self.eids[self.rng.index(self.eids.len())]),
        };
        // TPN at the other end of a guessed TP.
        let other =
            guess.and_then(|a| guesses.iter().find(|b| (b.node, b.peer) == (a.peer, a.node)));
        let dest = guess.map_or_else(|| self.tpn(), |guess| Tpn::from_low_bits(guess.tpn));
        let source = other.map_or_else(|| self.tpn(), |guess| Tpn::from_low_bits(guess.tpn));
        let header = match guess {
            Some(_) => self.handshake(from, to, dest, source),
            None if self.rng.chance_ppm(500_000) => self.handshake(from, to, dest, source),
            None => self.traffic(from, to, dest),
        };
        let change = self.rng.chance_ppm(MUTATED_PPM).then(|| {
            let at = self.rng.index(header.packet_len(0) - ICRC_LEN);
            (at, 1 << self.rng.below(8))
        });
        sealed(from, to, &header, change)
    }

    /// The address of a node, or sometimes an invented one.
    fn source(&mut self) -> RawEid {
        let mut eid = self.eids[self.rng.index(self.eids.len())];
        if self.rng.chance_ppm(250_000) {
            self.rng.fill(&mut eid.0[13..]);
        }
        eid
    }

    /// Returns a random TPN other than 0.
    fn tpn(&mut self) -> Tpn {
        Tpn::from_low_bits(1 + self.word() % 0xff_ffff)
    }

    fn psn(&mut self) -> Psn {
        Psn::new(self.word())
    }

    #[expect(clippy::cast_possible_truncation, reason = "half of the random bits are enough")]
    fn word(&mut self) -> u32 {
        self.rng.next_u64() as u32
    }

    fn handshake(&mut self, from: RawEid, to: RawEid, dest: Tpn, source: Tpn) -> PacketHeader {
        let at = |dest, body| PacketHeader::new(dest, Psn::new(0), body);
        let zero = Tpn::from_low_bits(0);
        let nonce = self.rng.next_u64();
        let mut cookie = Cookie::default();
        match self.rng.below(8) {
            0..=2 => {
                if self.rng.chance_ppm(500_000) {
                    self.rng.fill(&mut cookie);
                }
                let verify = self.rng.chance_ppm(250_000);
                let purpose = if verify { Purpose::Verify } else { Purpose::Open };
                at(
                    zero,
                    Body::Connect(HandshakeBody {
                        purpose,
                        cookie,
                        ..self.terms(from, to, source)
                    }),
                )
            }
            3 => at(dest, Body::Accept(self.terms(from, to, source))),
            4 => {
                self.rng.fill(&mut cookie);
                at(dest, Body::Challenge(Challenge { nonce, cookie }))
            }
            5 => {
                let reason = RefuseReason::ALL[self.rng.index(RefuseReason::ALL.len())];
                let refusal =
                    RefuseBody { reason, version_min: 1, version_max: 1, state: 1, nonce };
                at(dest, Body::Refuse(refusal))
            }
            6 => {
                let reason = CloseReason::ALL[self.rng.index(CloseReason::ALL.len())];
                let key = if self.rng.chance_ppm(500_000) { 0 } else { nonce };
                at(dest, Body::Close(Close { reason, source_tpn: source, key }))
            }
            _ => {
                let reason = CloseReason::UnknownTp;
                at(zero, Body::Close(Close { reason, source_tpn: source, key: 0 }))
            }
        }
    }

    fn terms(&mut self, from: RawEid, to: RawEid, source_tpn: Tpn) -> HandshakeBody {
        let incarnations = [0, 1, 2, u64::MAX, self.rng.next_u64()];
        HandshakeBody {
            version_min: 1,
            version_max: 1,
            mtu: Mtu::B1024,
            strategies: StrategyCaps::SELECTIVE_REPEAT,
            incarnation: incarnations[self.rng.index(incarnations.len())],
            source_eid: from.0,
            dest_eid: to.0,
            source_tpn,
            first_psn: self.psn(),
            window: 64,
            source_uasid: 0,
            dest_uasid: 0,
            state: 1,
            nonce: self.rng.next_u64(),
            close_key: self.rng.next_u64(),
            purpose: Purpose::Open,
            cookie: Cookie::default(),
            ports: FurtherPorts::default(),
        }
    }

    fn traffic(&mut self, from: RawEid, to: RawEid, dest: Tpn) -> PacketHeader {
        let psn = self.psn();
        let request = self.request();
        match self.rng.below(5) {
            0 => {
                let ends =
                    UmHeader { source_eid: from.0, dest_eid: to.0, source_uasid: 0, dest_uasid: 0 };
                let access = MemoryAccess { address: 0, token_id: TokenId::default(), length: 0 };
                let flags = RequestFlags::ONLY | RequestFlags::DATAGRAM | RequestFlags::NO_TAACK;
                let send = RequestHeader { flags, access, op: RequestOp::Send, ..request };
                PacketHeader::new(Tpn::from_low_bits(0), psn, Body::UmSend(ends, send))
            }
            1 => PacketHeader::new(dest, psn, Body::Request(request)),
            2 => {
                let response = ResponseHeader::ack(&request, ResponseStatus::AccessAbort);
                PacketHeader::new(dest, psn, Body::Response(response))
            }
            kind => {
                let received = SackBitmap::from_words(&[]).unwrap_or_default();
                let ack = Ack { window: 64, congestion: false, trigger: self.psn(), received };
                let body = if kind == 3 { Body::Ack(ack) } else { Body::Nak(ack) };
                PacketHeader::new(dest, psn, body)
            }
        }
    }

    /// A WRITE without payload; a caller may turn it into a SEND to a queue of a node.
    fn request(&mut self) -> RequestHeader {
        let id = JettyId::from_low_bits(100 + self.word() % 4);
        let token_id = TokenId::from_low_bits(self.word() % 64);
        RequestHeader {
            flags: RequestFlags::ONLY,
            order: OrderTag::None,
            tassn: 0,
            initiator: Initiator { kind: InitiatorKind::Jetty, id },
            target: Some(Target { kind: TargetKind::Jetty, id, hint: 0 }),
            token: Some(TokenValue(self.word())),
            access: MemoryAccess { address: self.rng.next_u64(), token_id, length: 0 },
            op: RequestOp::Write,
        }
    }
}

/// Writes a packet, flips the bits of one byte if `change` says so, then seals it with a valid ICRC.
fn sealed(
    from: RawEid,
    to: RawEid,
    header: &PacketHeader,
    change: Option<(usize, u8)>,
) -> Datagram {
    let mut bytes = vec![0; header.packet_len(0)];
    // Packets that contradict themselves are sent as well.
    let _ = header.emit_headers(0, &mut bytes);
    if let Some((at, bits)) = change {
        bytes[at] ^= bits;
    }
    let _ = flow(from, to).seal(&mut bytes);
    Datagram { from, to, bytes: Arc::from(bytes) }
}
