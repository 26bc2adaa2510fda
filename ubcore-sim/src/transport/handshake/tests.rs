//! Two state machines over a bad link: both end open with mirrored numbers, or neither.
#![expect(clippy::cast_possible_truncation, reason = "random numbers are cut to size on purpose")]

use std::sync::Arc;

use udma_abi::RawEid;
use urma_packet::{IcrcFlow, Mtu, Packet, StrategyCaps};

use super::*;
use crate::link::{Cut, Datagram, FaultCfg, Link, Outage, Rng};

mod forged;
mod outcomes;

const MS: Nanos = 1_000_000;
const A: RawEid = RawEid([1; 16]);
const B: RawEid = RawEid([2; 16]);

/// One node: its machine, the numbers it hands out, what it received.
struct Node {
    eid: RawEid,
    machine: Handshake,
    challenger: Challenger,
    replies: Vec<PacketHeader>,
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
            challenger: Challenger::new([incarnation as u8 ^ eid.0[0]; 16]),
            replies: Vec::new(),
            rng: Rng::new(incarnation.wrapping_shl(8) | u64::from(eid.0[0])),
            next_tpn: (incarnation as u32).wrapping_mul(100) & 0xffff,
            events: Vec::new(),
        }
    }

    fn offer(&mut self) -> Offer {
        self.next_tpn += 1;
        Offer {
            tpn: Tpn::from_low_bits(self.next_tpn),
            psn: Psn::new(self.rng.next_u64() as u32),
            nonce: self.rng.next_u64(),
            close_key: self.rng.next_u64(),
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
        for bytes in self.sent(now) {
            link.send(now, Datagram { from: self.eid, to, bytes });
        }
    }

    /// Everything that it sends at `now`.
    fn sent(&mut self, now: Nanos) -> Vec<Arc<[u8]>> {
        let mut buf = [0; 256];
        let mut all: Vec<_> = self.replies.drain(..).map(|reply| sealed(&reply)).collect();
        while let Some(len) = self.machine.poll_transmit(now, &mut buf) {
            flow().seal(&mut buf[..len]).expect("long enough");
            all.push(Arc::from(&buf[..len]));
        }
        all
    }

    fn receive(&mut self, now: Nanos, bytes: &[u8]) {
        if let Ok(packet) = Packet::open(bytes, &flow()) {
            self.take(now, &packet.header);
        }
    }

    fn take(&mut self, now: Nanos, header: &PacketHeader) {
        if let Body::Connect(terms) = &header.body
            && let Some(reply) = self.challenger.screen(now, terms, [A, B], Some(&self.machine))
        {
            return self.replies.push(reply);
        }
        let fresh = self.offer();
        let event = self.machine.on_packet(header, &mut || fresh);
        if event == HandshakeEvent::Doubted {
            self.machine.verify(now, Doubt::Hint, fresh.nonce);
        }
        self.events.push(event);
    }

    /// The forged packet changes nothing.
    fn assert_unmoved(&mut self, now: Nanos, forged: &PacketHeader) {
        let before = format!("{:?}", self.machine);
        self.take(now, forged);
        assert_eq!(format!("{:?}", self.machine), before, "{forged:?}");
    }
}

fn sealed(header: &PacketHeader) -> Arc<[u8]> {
    let mut buf = [0; 256];
    let len = header.emit(&[], &flow(), &mut buf).expect("valid");
    Arc::from(&buf[..len])
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
                self.nodes[me].receive(self.now, &datagram.bytes);
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
        let replaced = HandshakeEvent::Opened(new);
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
            pair.nodes[asker].machine.verify(pair.now, Doubt::Idle, 77 + seed);
            assert!(pair.nodes[asker].machine.is_verifying());
            pair.drive();
            assert!(!pair.nodes[asker].machine.is_verifying());
        }
        assert_eq!(pair.nodes[0].agreed(), Some(tp), "seed {seed}");
        pair.assert_mirrored(seed);
    }
}

#[test]
fn asking_an_open_tp_finds_another_life_or_no_node() {
    let mut pair = Pair::new(1, &FaultCfg::default());
    pair.nodes[0].open(0);
    pair.drive();
    assert!(pair.nodes[0].agreed().is_some());
    pair.restart(1, 2);
    pair.nodes[0].machine.verify(pair.now, Doubt::Idle, 77);
    pair.drive();
    let closed = HandshakeEvent::Closed(CloseReason::UnknownTp);
    assert_eq!(pair.nodes[1].agreed(), None, "a question makes no TP");
    assert!(pair.nodes[0].events.contains(&closed), "{:?}", pair.nodes[0].events);
    pair.nodes[0].open(pair.now);
    pair.drive();
    pair.assert_mirrored(1);
    assert_eq!(pair.nodes[0].agreed().map(|tp| tp.peer_incarnation), Some(2));
    // There is no answer: the TP is closed within the bound of an ordinary attempt.
    let dark = FaultCfg { loss_ppm: 1_000_000, ..FaultCfg::default() };
    pair.link = dark.build(&mut Rng::new(1));
    let start = pair.now;
    pair.nodes[0].machine.verify(pair.now, Doubt::Idle, 77);
    pair.drive();
    assert_eq!(pair.nodes[0].machine.state(), HandshakeState::Closed);
    assert!(pair.now - start < 1_500 * MS);
}

/// Each takes the other's CONNECT, one of them after it gave up the attempt that the other took.
#[test]
fn ends_that_do_not_match_are_found_by_a_question() {
    let mut pair = Pair::new(1, &FaultCfg::default());
    let [a, b] = &mut pair.nodes;
    // The CONNECT of `from` with the cookie that `to` gave for it, in flight.
    let proven = |from: &mut Node, to: &mut Node| {
        from.open(0);
        from.sent(0).iter().for_each(|connect| to.receive(0, connect));
        to.sent(0).iter().for_each(|challenge| from.receive(0, challenge));
        from.sent(0)
    };
    let (late, of_a) = (proven(b, a), proven(a, b));
    b.machine.finish(HandshakeState::Failed(TpOpenError::Timeout));
    b.open(0);
    late.iter().for_each(|connect| a.receive(0, connect));
    of_a.iter().for_each(|connect| b.receive(0, connect));
    b.sent(0).iter().for_each(|accept| a.receive(0, accept));
    let lame = a.agreed().expect("open");
    assert_ne!(Some(lame.peer_tpn), b.agreed().map(|tp| tp.local_tpn));
    a.take(0, &Handshake::unknown_tp(lame.peer_tpn));
    pair.drive();
    pair.assert_mirrored(1);
    let opened = |event: &&HandshakeEvent| matches!(event, HandshakeEvent::Opened(_));
    assert_eq!(pair.nodes[0].events.iter().filter(opened).count(), 2, "and replaced once");
}

#[test]
fn a_peer_that_starts_again_replaces_whatever_its_incarnation() {
    for next in [0, 1, 3, u64::MAX] {
        let mut pair = Pair::new(1, &FaultCfg::default());
        pair.restart(0, 2);
        pair.nodes[0].open(0);
        pair.drive();
        pair.restart(0, next);
        pair.nodes[0].open(pair.now);
        pair.drive();
        pair.assert_mirrored(1);
        assert_eq!(pair.nodes[1].agreed().map(|tp| tp.peer_incarnation), Some(next));
    }
}

#[test]
fn a_peer_that_drops_every_other_connect_in_bursts_is_reached_soon() {
    let mut late = 0;
    for seed in 0..50 {
        for period in [5 * MS / 2, 5 * MS, 10 * MS] {
            let mut node = Node::new(A, B, 1);
            node.rng = Rng::new(seed);
            // CONNECTs in the second half of each period are dropped.
            let begin = period / 2 + seed * period / 100;
            node.open(begin);
            let mut tries = std::iter::from_fn(|| {
                let at = node.machine.poll_deadline()?;
                node.machine.poll_transmit(at, &mut [0; 256])?;
                Some(at)
            });
            let reached = tries.find(|at| at % period < period / 2);
            let reached = reached.expect("reached before the tries are used up");
            late += u32::from(reached - begin >= 100 * MS);
        }
    }
    assert!(late <= 1, "{late} of 150 clients needed more than 100 ms");
}
