//! Two state machines over a bad link: both end open with mirrored numbers, or neither.
#![expect(clippy::cast_possible_truncation, reason = "random numbers are cut to size on purpose")]

use std::sync::Arc;

use udma_abi::RawEid;
use urma_packet::{IcrcFlow, Mtu, Packet};

use super::*;
use crate::link::{Datagram, FaultCfg, Link, Outage, Rng};

const MS: Nanos = 1_000_000;
const A: RawEid = RawEid([1; 16]);
const B: RawEid = RawEid([2; 16]);

/// One node: its machine, the numbers it hands out, what it was told.
struct Node {
    eid: RawEid,
    machine: Handshake,
    rng: Rng,
    next_tpn: u32,
    events: Vec<HandshakeEvent>,
}

impl Node {
    fn new(eid: RawEid, peer: RawEid, incarnation: u64) -> Self {
        let cfg = OpenCfg::new(eid.0, peer.0, incarnation);
        Self {
            eid,
            machine: Handshake::new(cfg),
            rng: Rng::new(incarnation << 8 | u64::from(eid.0[0])),
            next_tpn: incarnation as u32 * 100,
            events: Vec::new(),
        }
    }

    fn offer(&mut self) -> Offer {
        self.next_tpn += 1;
        Offer {
            tpn: Tpn::from_low_bits(self.next_tpn),
            psn: Psn::new(self.rng.next_u64() as u32),
            cookie: self.rng.next_u64(),
        }
    }

    fn open(&mut self, now: Nanos) {
        let offer = self.offer();
        assert!(self.machine.open(now, offer));
    }

    fn agreed(&self) -> Option<Agreed> {
        match self.machine.state() {
            HandshakeState::Open(agreed) => Some(agreed),
            _ => None,
        }
    }

    fn transmit(&mut self, now: Nanos, to: RawEid, link: &mut dyn Link) {
        let mut buf = [0; 256];
        while let Some(len) = self.machine.poll_transmit(now, &mut buf) {
            flow().seal(&mut buf[..len]).expect("long enough");
            link.send(now, Datagram { from: self.eid, to, bytes: Arc::from(&buf[..len]) });
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        let Ok(packet) = Packet::open(bytes, &flow()) else { return };
        let fresh = self.offer();
        let event = self.machine.on_packet(&packet.header, &mut || Some(fresh));
        self.events.push(event);
    }
}

fn flow() -> IcrcFlow {
    let addr = std::net::SocketAddr::from(([127, 0, 0, 1], 4791));
    IcrcFlow::new(addr, addr)
}

struct Pair {
    nodes: [Node; 2],
    link: Box<dyn Link>,
    now: Nanos,
}

impl Pair {
    fn new(seed: u64, faults: &FaultCfg) -> Self {
        let nodes = [Node::new(A, B, 1), Node::new(B, A, 1)];
        Self { nodes, link: faults.build(&mut Rng::new(seed)), now: 0 }
    }

    /// Until nothing more happens by itself.
    fn drive(&mut self) {
        loop {
            for me in 0..2 {
                let to = self.nodes[1 - me].eid;
                self.nodes[me].transmit(self.now, to, &mut *self.link);
            }
            let next = [
                self.link.poll_deadline(),
                self.nodes[0].machine.poll_deadline(),
                self.nodes[1].machine.poll_deadline(),
            ];
            let Some(next) = next.into_iter().flatten().min() else { return };
            self.now = next.max(self.now);
            while let Some(datagram) = self.link.poll(self.now) {
                let me = usize::from(datagram.to != self.nodes[0].eid);
                self.nodes[me].receive(&datagram.bytes);
            }
        }
    }

    fn restart(&mut self, which: usize, incarnation: u64) {
        let (eid, peer) = (self.nodes[which].eid, self.nodes[1 - which].eid);
        self.nodes[which] = Node::new(eid, peer, incarnation);
    }

    fn assert_mirrored(&self, seed: u64) {
        let [a, b] = [0, 1].map(|i| self.nodes[i].agreed());
        let (Some(a), Some(b)) = (a, b) else {
            panic!("seed {seed}: {:?} {:?}", self.nodes[0].machine, self.nodes[1].machine)
        };
        assert_eq!((a.local_tpn, a.peer_tpn), (b.peer_tpn, b.local_tpn), "seed {seed}");
        assert_eq!((a.tx_psn, a.rx_psn), (b.rx_psn, b.tx_psn), "seed {seed}");
        assert_eq!(
            (a.mtu, a.window_packets, a.strategy),
            (b.mtu, b.window_packets, b.strategy),
            "seed {seed}"
        );
    }
}

fn bad_link(rng: &mut Rng) -> FaultCfg {
    FaultCfg {
        delay_ns: rng.below(3 * MS),
        jitter_ns: rng.below(MS),
        loss_ppm: rng.below(250_000) as u32,
        duplicate_ppm: rng.below(300_000) as u32,
        reorder_ppm: rng.below(300_000) as u32,
        reorder_ns: 1 + rng.below(20 * MS),
        corrupt_ppm: rng.below(100_000) as u32,
        ..FaultCfg::default()
    }
}

#[test]
fn one_side_opens_under_hundreds_of_seeds() {
    for seed in 0..300 {
        let mut pair = Pair::new(seed, &bad_link(&mut Rng::new(seed)));
        pair.nodes[0].open(0);
        pair.drive();
        pair.assert_mirrored(seed);
        assert!(pair.now < 1_200 * MS, "seed {seed} took {}", pair.now);
    }
}

#[test]
fn both_sides_open_at_once_under_hundreds_of_seeds() {
    for seed in 0..300 {
        let mut pair = Pair::new(seed, &bad_link(&mut Rng::new(seed)));
        pair.nodes[0].open(0);
        let later = Rng::new(seed ^ 1).below(4 * MS);
        pair.nodes[1].open(later);
        pair.drive();
        pair.assert_mirrored(seed);
    }
}

#[test]
fn a_restarted_peer_replaces_the_tp() {
    for seed in 0..100 {
        let mut faults = bad_link(&mut Rng::new(seed));
        faults.loss_ppm /= 2;
        let mut pair = Pair::new(seed, &faults);
        pair.nodes[0].open(0);
        pair.drive();
        let old = pair.nodes[0].agreed().expect("open");
        pair.restart(1, 2);
        pair.nodes[1].open(pair.now);
        pair.drive();
        pair.assert_mirrored(seed);
        let new = pair.nodes[0].agreed().expect("open");
        assert_eq!((old.peer_incarnation, new.peer_incarnation), (1, 2));
        let replaced = HandshakeEvent::Replaced { old, new };
        assert!(pair.nodes[0].events.contains(&replaced), "seed {seed}");
    }
}

#[test]
fn asking_an_open_tp_finds_the_same_life_alive() {
    for seed in 0..100 {
        let mut faults = bad_link(&mut Rng::new(seed));
        faults.loss_ppm /= 2;
        let mut pair = Pair::new(seed, &faults);
        pair.nodes[0].open(0);
        pair.drive();
        let tp = pair.nodes[0].agreed().expect("open");
        for asker in 0..2 {
            pair.nodes[asker].machine.verify(pair.now);
            assert!(pair.nodes[asker].machine.is_verifying());
            pair.drive();
            assert!(!pair.nodes[asker].machine.is_verifying());
        }
        assert_eq!(pair.nodes[0].agreed(), Some(tp), "seed {seed}");
        pair.assert_mirrored(seed);
    }
}

#[test]
fn asking_an_open_tp_finds_another_life_or_nobody() {
    let mut pair = Pair::new(1, &FaultCfg::default());
    pair.nodes[0].open(0);
    pair.drive();
    let old = pair.nodes[0].agreed().expect("open");
    pair.restart(1, 2);
    pair.nodes[0].machine.verify(pair.now);
    pair.drive();
    let closed = HandshakeEvent::Closed(old, CloseReason::UnknownTp);
    assert!(pair.nodes[0].events.contains(&closed), "{:?}", pair.nodes[0].events);
    pair.nodes[0].open(pair.now);
    pair.drive();
    pair.assert_mirrored(1);
    assert_eq!(pair.nodes[0].agreed().map(|tp| tp.peer_incarnation), Some(2));
    // Nobody answers: the TP is closed within the bound of an ordinary attempt.
    let dark = FaultCfg { loss_ppm: 1_000_000, ..FaultCfg::default() };
    pair.link = dark.build(&mut Rng::new(1));
    let start = pair.now;
    pair.nodes[0].machine.verify(pair.now);
    pair.drive();
    assert_eq!(pair.nodes[0].machine.state(), HandshakeState::Closed);
    assert!(pair.now - start < 1_500 * MS);
}

#[test]
fn packets_of_an_older_incarnation_are_named_and_change_nothing() {
    let mut pair = Pair::new(1, &FaultCfg::default());
    pair.restart(0, 5);
    pair.nodes[0].open(0);
    pair.drive();
    let tp = pair.nodes[1].agreed().expect("open");
    let mut ghost = Node::new(A, B, 4);
    ghost.open(pair.now);
    let mut buf = [0; 256];
    let len = ghost.machine.poll_transmit(pair.now, &mut buf).expect("CONNECT");
    flow().seal(&mut buf[..len]).expect("long enough");
    pair.nodes[1].receive(&buf[..len]);
    assert_eq!(pair.nodes[1].events.last(), Some(&HandshakeEvent::OldIncarnation));
    assert_eq!(pair.nodes[1].agreed(), Some(tp));
    // The ghost learns it, too.
    let len = pair.nodes[1].machine.poll_transmit(pair.now, &mut buf).expect("REFUSE");
    flow().seal(&mut buf[..len]).expect("long enough");
    ghost.receive(&buf[..len]);
    let refused = OpenError::Refused(RefuseReason::StaleIncarnation);
    assert_eq!(ghost.machine.state(), HandshakeState::Failed(refused));
}

#[test]
fn a_silent_peer_fails_within_the_bound() {
    let dead = Outage { from: 0, until: Nanos::MAX, pair: None };
    let mut pair = Pair::new(1, &FaultCfg { outages: vec![dead], ..FaultCfg::default() });
    pair.nodes[0].open(0);
    pair.drive();
    assert_eq!(pair.nodes[0].machine.state(), HandshakeState::Failed(OpenError::Timeout));
    // 5 + 10 + .. + 160 + 4 x 200 ms.
    assert_eq!(pair.now, 1_115 * MS);
    // It may be tried again.
    pair.nodes[0].open(pair.now);
    assert_eq!(pair.nodes[0].machine.state(), HandshakeState::Connecting);
}

#[test]
fn the_minimum_of_both_offers_is_agreed_on() {
    for simultaneous in [0, 1] {
        let mut pair = Pair::new(1, &FaultCfg { delay_ns: MS, ..FaultCfg::default() });
        let mut cfg = OpenCfg::new(A.0, B.0, 1);
        (cfg.mtu, cfg.window_packets) = (Mtu::B8192, 64);
        pair.nodes[0].machine = Handshake::new(cfg);
        let mut cfg = OpenCfg::new(B.0, A.0, 1);
        (cfg.mtu, cfg.window_packets) = (Mtu::B512, 1000);
        cfg.strategies = StrategyCaps::GO_BACK_N;
        pair.nodes[1].machine = Handshake::new(cfg);
        pair.nodes[0].open(0);
        if simultaneous == 1 {
            pair.nodes[1].open(0);
        }
        pair.drive();
        pair.assert_mirrored(0);
        let agreed = pair.nodes[0].agreed().expect("open");
        assert_eq!(
            (agreed.mtu, agreed.window_packets, agreed.strategy),
            (Mtu::B512, 64, Strategy::GoBackN)
        );
    }
}

#[test]
fn nothing_in_common_is_refused_at_once() {
    let mut pair = Pair::new(1, &FaultCfg::default());
    let mut cfg = OpenCfg::new(B.0, A.0, 1);
    cfg.strategies = StrategyCaps::KNITTING;
    pair.nodes[1].machine = Handshake::new(cfg);
    pair.nodes[0].open(0);
    pair.drive();
    let refused = OpenError::Refused(RefuseReason::Parameters);
    assert_eq!(pair.nodes[0].machine.state(), HandshakeState::Failed(refused));
    assert_eq!(pair.nodes[1].machine.state(), HandshakeState::Idle);
}

#[test]
fn closing_tells_the_peer_and_a_late_connect_does_not_bring_it_back() {
    let mut pair = Pair::new(1, &FaultCfg::default());
    pair.nodes[0].open(0);
    let mut buf = [0; 256];
    let len = pair.nodes[0].machine.poll_transmit(0, &mut buf).expect("CONNECT");
    flow().seal(&mut buf[..len]).expect("long enough");
    pair.nodes[1].receive(&buf[..len]);
    pair.drive();
    let tp = pair.nodes[1].agreed().expect("open");
    pair.nodes[0].machine.close(CloseReason::Shutdown);
    pair.drive();
    let closed = HandshakeEvent::Closed(tp, CloseReason::Shutdown);
    assert_eq!(pair.nodes[1].events.last(), Some(&closed));
    pair.nodes[1].receive(&buf[..len]);
    assert_eq!(pair.nodes[1].events.last(), Some(&HandshakeEvent::NotExpected));
    assert_eq!(pair.nodes[1].machine.state(), HandshakeState::Closed);
}

#[test]
fn a_packet_for_an_unknown_tp_closes_it_at_the_sender() {
    let mut pair = Pair::new(1, &FaultCfg::default());
    pair.nodes[0].open(0);
    pair.drive();
    pair.restart(1, 2);
    // The restarted node gets data for a TPN that it does not know.
    let tp = pair.nodes[0].agreed().expect("open");
    let header = Handshake::unknown_tp(tp.peer_tpn, 2);
    let event = pair.nodes[0].machine.on_packet(&header, &mut || None);
    assert_eq!(event, HandshakeEvent::Closed(tp, CloseReason::UnknownTp));
    pair.nodes[0].open(pair.now);
    pair.drive();
    pair.assert_mirrored(0);
}

#[test]
fn answers_without_the_cookie_are_not_taken() {
    let mut pair = Pair::new(1, &FaultCfg::default());
    pair.nodes[0].open(0);
    let mut buf = [0; 256];
    let len = pair.nodes[0].machine.poll_transmit(0, &mut buf).expect("CONNECT");
    flow().seal(&mut buf[..len]).expect("long enough");
    pair.nodes[1].receive(&buf[..len]);
    let len = pair.nodes[1].machine.poll_transmit(0, &mut buf).expect("ACCEPT");
    let mut header = Packet::parse(&buf[..len]).expect("own packet").header;
    let Body::Accept(terms) = &mut header.body else { panic!("ACCEPT") };
    terms.cookie ^= 1;
    let event = pair.nodes[0].machine.on_packet(&header, &mut || None);
    assert_eq!(event, HandshakeEvent::NotExpected);
    assert_eq!(pair.nodes[0].machine.state(), HandshakeState::Connecting);
}
