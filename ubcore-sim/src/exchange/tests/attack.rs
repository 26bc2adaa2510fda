//! Senders that receive nothing of what is sent to the addresses they use: what they send is counted by its reason
//! and moves nothing, and an honest pair goes on meanwhile.
//!
//! Time here costs nothing: what a packet of a flood costs the machine is measured on real sockets (`tests/hostile`,
//! `measure_an_honest_pair_in_floods`).

use std::{collections::VecDeque, sync::Arc};

use udma_abi::{
    CqeStatus, Nanos, Opcode, RawEid,
    cmd::{Access, Mode},
    counters::Counter,
};
use urma_packet::{
    Ack, Body, Challenge, Close, CloseReason, FurtherPorts, HandshakeBody, ICRC_LEN, Mtu, Packet,
    PacketHeader, PathProbe, Psn, Purpose, RefuseBody, RefuseReason, RequestFlags, RequestHeader,
    SackBitmap, StrategyCaps, Tpn, UmHeader,
};

use super::{
    places::send_first_piece,
    world::{self, Kind, Quiet, SENDER, World, step_exchange},
};
use crate::{
    context::function::{FunctionCfg, FunctionId, FunctionQuota},
    endpoint::flow,
    exchange::{Connecting, initiator::next_piece, pair},
    limits,
    link::Rng,
    ports::Backlog,
    transport::TRANSMIT_MAX,
};

const SECOND: Nanos = 1_000_000_000;
const ALL: Access = Access::READ.union(Access::WRITE).union(Access::ATOMIC);

fn invented(n: usize) -> RawEid {
    let mut eid = [7; 16];
    eid[8..].copy_from_slice(&(n as u64).to_be_bytes());
    RawEid(eid)
}

/// A packet arrives at node `n`. Whether a step is due.
pub(super) fn arrive(w: &mut World, n: usize, from: RawEid, header: &PacketHeader) -> bool {
    let mut bytes = vec![0; header.packet_len(0)];
    header.emit(&[], &flow(from, w.eid(n)), &mut bytes).expect("valid");
    let now = w.now;
    let node = &mut w.nodes[n];
    node.on_datagram(now, from, &bytes)
}

pub(super) fn connect(from: RawEid, to: RawEid) -> PacketHeader {
    let terms = HandshakeBody {
        version_min: 1,
        version_max: 1,
        mtu: Mtu::B4096,
        strategies: StrategyCaps::SELECTIVE_REPEAT,
        incarnation: u64::MAX,
        source_eid: from.0,
        dest_eid: to.0,
        source_tpn: Tpn::from_low_bits(5),
        first_psn: Psn::new(1),
        window: 64,
        source_uasid: 0,
        dest_uasid: 0,
        state: 1,
        nonce: 2,
        close_key: 3,
        purpose: Purpose::Open,
        cookie: [0; 16],
        ports: FurtherPorts::default(),
    };
    PacketHeader::new(Tpn::from_low_bits(0), Psn::new(0), Body::Connect(terms))
}

#[test]
fn an_invented_client_takes_no_place_and_bounded_room() {
    let mut w = World::new(Kind::Packets);
    let before = w.known();
    let to = w.eid(1);
    for n in 0..3 * limits::PEERS {
        // Each is read alone: as many are answered as there is room for.
        w.nodes[1].exchange.endpoint.on_backlog(w.now, Backlog::Empty);
        arrive(&mut w, 1, invented(n), &connect(invented(n), to));
    }
    assert_eq!(w.known(), before);
    let mut buf = vec![0; TRANSMIT_MAX];
    let now = w.now;
    let answers =
        std::iter::from_fn(|| w.nodes[1].exchange.endpoint.poll_transmit(now, &mut buf)).count();
    assert_eq!(answers, 256, "the queue of answers is bounded");
    assert!(w.counter(1, Counter::DropUnproven) > 0, "what found no room is counted");
}

/// The packets that node `n` sends now.
pub(super) fn answers(w: &mut World, n: usize) -> Vec<Body> {
    let mut buf = vec![0; TRANSMIT_MAX];
    let now = w.now;
    std::iter::from_fn(|| {
        let sent = w.nodes[n].exchange.endpoint.poll_transmit(now, &mut buf)?;
        Some(Packet::parse(&buf[..sent.len]).expect("a packet").header.body)
    })
    .collect()
}

#[test]
fn a_step_follows_what_is_more_than_counted_and_answered() {
    let mut w = World::new(Kind::Packets);
    let (to, client) = (w.eid(1), invented(0));
    assert!(!arrive(&mut w, 1, client, &connect(client, to)), "no proof");
    let Some(Body::Challenge(challenge)) = answers(&mut w, 1).pop() else { panic!("no challenge") };
    let (now, node) = (w.now, &mut w.nodes[1]);
    for bytes in [&[][..], &[0xc0; 64]] {
        assert!(!node.on_datagram(now, client, bytes), "no packet");
    }
    let mut proven = connect(client, to);
    if let Body::Connect(terms) = &mut proven.body {
        terms.cookie = challenge.cookie;
    }
    assert!(arrive(&mut w, 1, client, &proven), "a new TP");
    assert!(w.known()[1].0 > 0);
}

#[test]
fn connects_without_proof_hold_up_nothing_that_waits_behind_them() {
    let mut w = World::new(Kind::Packets);
    let (to, client) = (w.eid(1), invented(0));
    let flood = |w: &mut World| {
        let mut challenges = 0;
        for n in 1..2_000 {
            arrive(w, 1, invented(n), &connect(invented(n), to));
            challenges += answers(w, 1).len();
        }
        challenges
    };
    arrive(&mut w, 1, client, &connect(client, to));
    let Some(Body::Challenge(challenge)) = answers(&mut w, 1).pop() else { panic!("no challenge") };
    w.nodes[1].exchange.endpoint.on_backlog(w.now, Backlog::Empty);
    w.nodes[1].exchange.endpoint.on_backlog(w.now, Backlog::More);
    assert_eq!(flood(&mut w), 256, "what waits behind them waits for two milliseconds");
    // A client that proves its address is served all the same.
    let before = w.known()[1].0;
    let mut proven = connect(client, to);
    if let Body::Connect(terms) = &mut proven.body {
        terms.cookie = challenge.cookie;
    }
    arrive(&mut w, 1, client, &proven);
    assert_eq!(w.known()[1].0, before + 1);
    assert!(answers(&mut w, 1).iter().any(|body| matches!(body, Body::Accept(_))));
    // An input that is never empty does not shut out new clients.
    w.now += 10_000_000;
    w.nodes[1].exchange.endpoint.on_backlog(w.now, Backlog::More);
    assert_eq!(flood(&mut w), 128);
}

#[test]
fn forged_packets_are_no_sign_of_life() {
    let mut w = World::new(Kind::Packets);
    let _results = w.segment(0, 1, 4096, ALL);
    let _words = w.segment(1, 2, 4096, ALL);
    let (from, to) = (w.eid(0), w.eid(1));
    // The peer dies without a word; forged packets go on in its name.
    w.run_for(SECOND / 100);
    w.stop(0);
    let received = SackBitmap::from_words(&[]).expect("none");
    let ack = Ack { window: 1, congestion: false, trigger: Psn::new(0), received };
    for _ in 0..160 {
        for tpn in [1, 0xff_fffe] {
            let dest = Tpn::from_low_bits(tpn);
            arrive(&mut w, 1, from, &PacketHeader::new(dest, Psn::new(9), Body::Ack(ack)));
        }
        arrive(&mut w, 1, from, &connect(from, to));
        w.run_for(SECOND / 10);
    }
    assert_eq!(w.known()[1], (0, 0), "the dead node is forgotten all the same");
}

#[test]
fn packets_of_unknown_paths_are_answered_seldom() {
    let mut w = World::new(Kind::Packets);
    let unknown = (Tpn::from_low_bits(0xabcdef), Psn::new(1));
    let notices = |w: &mut World, from: usize| {
        (0..1_000).for_each(|n| send_first_piece(w, invented(from + n), unknown, Opcode::Write));
        let is_notice = |body: &Body| matches!(body, Body::Close(close) if close.key == 0);
        answers(w, 1).iter().filter(|body| is_notice(body)).count()
    };
    assert_eq!(notices(&mut w, 0), 1, "each costs a system call");
    w.now += 99_999;
    assert_eq!(notices(&mut w, 1_000), 0);
    w.now += 1;
    assert_eq!(notices(&mut w, 2_000), 1, "a peer that lost its path gets a notice");
}

/// A datagram for queue 2000 with the number `number`.
pub(super) fn datagram(w: &World, number: Psn, token: u32) -> PacketHeader {
    let sqe = w.to_jetty(Opcode::Send, 2000, 0);
    let header =
        next_piece::header(&sqe, pair::initiator(SENDER, true), Mode::Um, 0).expect("SEND");
    let flags = RequestFlags::ONLY | RequestFlags::DATAGRAM | RequestFlags::NO_TAACK;
    let token = Some(urma_packet::TokenValue(token));
    let header = RequestHeader { flags, token, ..header };
    let ends =
        UmHeader { source_eid: w.eid(0).0, dest_eid: w.eid(1).0, source_uasid: 0, dest_uasid: 0 };
    PacketHeader::new(Tpn::from_low_bits(0), number, Body::UmSend(ends, header))
}

#[test]
fn a_forged_number_makes_no_datagram_count_as_seen_or_as_new() {
    let mut w = World::new(Kind::Packets);
    let _room = w.segment(1, 2, 4096, ALL);
    w.receiver_of(1, 2000, Mode::Um);
    let from = w.eid(0);
    (0..8).for_each(|_| w.post(1, 2000, 2, 0, 64));
    let [first, second] = [Psn::new(100), Psn::new(101)];
    let honest = |w: &World, number| datagram(w, number, world::TOKEN);
    let packet = honest(&w, first);
    arrive(&mut w, 1, from, &packet);
    assert!(w.received(1).is_some());
    // Numbers ahead, the very next one among them, and far away; none shows the token.
    for number in (101..200).chain([5_000_000, 9_000_000]) {
        let forged = datagram(&w, Psn::new(number), 0xbad);
        arrive(&mut w, 1, from, &forged);
    }
    let packets = [honest(&w, first), honest(&w, second)];
    arrive(&mut w, 1, from, &packets[0]);
    assert!(w.received(1).is_none(), "it came before");
    arrive(&mut w, 1, from, &packets[1]);
    assert!(w.received(1).is_some(), "its number was only forged");
}

#[test]
fn a_full_table_gives_the_place_of_an_idle_node_to_a_new_one() {
    let mut w = World::new(Kind::Packets);
    let results = w.segment(0, 1, 4096, ALL);
    let words = w.segment(1, 2, 4096, ALL);
    let add = |w: &mut World| {
        let sqe = udma_abi::Sqe { operand: 1, ..w.to_memory(Opcode::FetchAdd, 2, 0) };
        let seq = w.send(0, &sqe, &[(1, 0, 8)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 8)));
    };
    add(&mut w);
    let now = w.now;
    let node = &mut w.nodes[1];
    let mut seek = |now, n| node.exchange.connect(&node.core, now, invented(n), Mode::Rm);
    // One is known already; it is not idle yet.
    (1..limits::PEERS).for_each(|n| assert_eq!(seek(now, n), Connecting::Pending, "{n}"));
    let full = Connecting::Failed(udma_abi::CmdStatus::NoRoom);
    assert_eq!(seek(now, 5000), full);
    w.run_for(2 * SECOND);
    let now = w.now;
    let node = &mut w.nodes[1];
    assert_eq!(
        node.exchange.connect(&node.core, now, invented(5001), Mode::Rm),
        Connecting::Pending
    );
    assert_eq!(w.nodes[1].exchange.peers.len(), limits::PEERS);
    assert!(!w.nodes[1].exchange.peers.contains_key(&w.eid(0)));
    // The node that lost its place comes again when another one is free; nothing is done twice.
    w.nodes[1].exchange.peers.remove(&invented(1));
    add(&mut w);
    assert_eq!(words.load_u64(0).expect("inside"), 2);
    assert_eq!(results.load_u64(0).expect("inside"), 1);
}

#[test]
fn a_datagram_names_the_address_that_it_comes_from_and_goes_to() {
    let mut w = World::new(Kind::Packets);
    let _room = w.segment(1, 2, 4096, ALL);
    w.receiver_of(1, 2000, Mode::Um);
    w.post(1, 2000, 2, 0, 64);
    let (from, other) = (w.eid(0), invented(1).0);
    let changes: [fn(&mut UmHeader, [u8; 16]); 3] =
        [|ends, eid| ends.source_eid = eid, |ends, eid| ends.dest_eid = eid, |_, _| {}];
    for (number, change) in changes.into_iter().enumerate() {
        let mut packet = datagram(&w, Psn::new(100), world::TOKEN);
        let Body::UmSend(ends, _) = &mut packet.body else { panic!() };
        change(ends, other);
        arrive(&mut w, 1, from, &packet);
        assert_eq!(w.received(1).is_some(), number == 2, "{number}");
    }
    assert_eq!(w.counter(1, Counter::DropUm), 2);
}

#[test]
fn a_datagram_names_the_uasid_of_the_function_that_sends_it() {
    let mut w = World::new(Kind::Packets);
    let _here = w.segment(0, 1, 4096, ALL);
    w.sender_of(0, Mode::Um);
    let (from, to, now) = (w.eid(0), w.eid(1), w.now);
    for (uasid, is_client) in [(0, false), (1000, true)] {
        let tables = &w.nodes[0].core.tables;
        let cfg = FunctionCfg { uasid: 1000, quota: FunctionQuota::NONE };
        let owner = match is_client {
            true => tables.add_function(cfg, Arc::new(Quiet)).expect("room").id(),
            false => FunctionId::FIRST,
        };
        w.nodes[0].exchange.senders.get_mut(SENDER).expect("one").side.owner = owner;
        w.hand(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, 64)]);
        let node = &mut w.nodes[0];
        node.exchange.take_mail_of(&node.core, now, SENDER);
        step_exchange(&mut node.exchange, &node.core, now);
        let mut buf = vec![0; TRANSMIT_MAX];
        let sent = node.exchange.endpoint.poll_transmit(now, &mut buf).expect("a packet");
        let packet = Packet::open(&buf[..sent.len], &flow(from, to)).expect("valid");
        let Body::UmSend(ends, _) = packet.header.body else { panic!("{packet:?}") };
        assert_eq!(ends.source_uasid, uasid);
    }
}

#[test]
fn a_packet_of_another_tp_is_not_taken() {
    let mut w = World::new(Kind::Packets);
    let _here = w.segment(0, 1, 4096, ALL);
    let words = w.segment(1, 2, 4096, ALL);
    let (from, to) = (w.eid(0), w.eid(1));
    let sqe = udma_abi::Sqe { operand: 1, ..w.to_memory(Opcode::FetchAdd, 2, 0) };
    w.hand(0, &sqe, &[(1, 0, 8)]);
    let now = w.now;
    let node = &mut w.nodes[0];
    node.exchange.take_mail_of(&node.core, now, SENDER);
    step_exchange(&mut node.exchange, &node.core, now);
    let mut buf = vec![0; TRANSMIT_MAX];
    let sent = node.exchange.endpoint.poll_transmit(now, &mut buf).expect("a packet");
    let packet = Packet::open(&buf[..sent.len], &flow(from, to)).expect("valid");
    assert!(packet.payload.is_empty(), "an atomic has its operands in its header");
    let mut header = packet.header;
    let own = header.dest;
    for (dest, unknown) in [(Tpn::from_low_bits(own.value() ^ 1), 1), (own, 0)] {
        header.dest = dest;
        let before = w.counter(1, Counter::DropUnknownTp);
        arrive(&mut w, 1, from, &header);
        let node = &mut w.nodes[1];
        step_exchange(&mut node.exchange, &node.core, now);
        assert_eq!(w.counter(1, Counter::DropUnknownTp) - before, unknown);
        assert_eq!(words.load_u64(0).expect("inside"), 1 - unknown);
    }
}

const US: Nanos = 1_000;
const EACH: Access = Access::READ.union(Access::WRITE).union(Access::ATOMIC);
/// Bytes of a WRITE, and how many are outstanding.
const LEN: usize = 8 << 10;
const OUTSTANDING: usize = 16;
/// Forged packets in each slice of time: two million a second.
const PER_SLICE: u64 = 4;
const SLICE: Nanos = 2 * US;

/// Counters of packets that are not taken.
const DROPS: [Counter; 8] = [
    Counter::DropIcrc,
    Counter::DropMalformed,
    Counter::DropUnknownTp,
    Counter::DropUnproven,
    Counter::DropWindow,
    Counter::DropUm,
    Counter::RxDuplicate,
    Counter::Challenges,
];

/// A node that WRITEs to the other one without a pause, and what others see of it.
struct Honest {
    w: World,
    rng: Rng,
    outstanding: VecDeque<u32>,
    /// The node that is attacked.
    victim: usize,
}

/// What is sent in the name of the victim's peer; `None`: nothing of the kind was seen yet.
type Forger = fn(&mut Honest) -> Option<(RawEid, Vec<u8>)>;

impl Honest {
    fn new(victim: usize) -> Self {
        let mut w = World::new(Kind::Packets);
        world::fill(&w.segment(0, 1, LEN, EACH));
        let _there = w.segment(1, 2, LEN, EACH);
        w.seen = Some(VecDeque::new());
        let mut honest = Self { w, rng: Rng::new(7), outstanding: VecDeque::new(), victim };
        honest.goodput(500, None);
        honest
    }

    /// WRITEs that end in so many slices, while packets of `forgers` arrive.
    fn goodput(&mut self, slices: u64, forgers: Option<&[Forger]>) -> usize {
        let mut done = 0;
        for slice in 0..slices {
            while self.outstanding.len() < OUTSTANDING {
                let write = self.w.to_memory(Opcode::Write, 2, 0);
                self.outstanding.push_back(self.w.hand(0, &write, &[(1, 0, LEN)]));
            }
            for n in 0..PER_SLICE {
                let Some(forgers) = forgers else { break };
                let all = forgers.len() as u64;
                let forger = forgers[((slice * PER_SLICE + n) % all) as usize];
                self.send(forger);
            }
            self.w.run_for(SLICE);
            while let Some(&seq) = self.outstanding.front()
                && let Some(end) = self.w.end_now(0, seq)
            {
                assert_eq!(end, (CqeStatus::Success, LEN as u32));
                self.outstanding.pop_front();
                done += 1;
            }
        }
        done
    }

    /// A forged packet arrives. Whether there was one.
    fn send(&mut self, forger: Forger) -> bool {
        let Some((from, bytes)) = forger(self) else { return false };
        let now = self.w.now;
        self.w.nodes[self.victim].on_datagram(now, from, &bytes);
        true
    }

    fn drops(&self) -> [u64; 8] {
        DROPS.map(|counter| self.w.counter(self.victim, counter))
    }

    fn peer(&self) -> RawEid {
        self.w.eid(1 - self.victim)
    }

    fn own(&self) -> RawEid {
        self.w.eid(self.victim)
    }

    /// A data packet that the victim got before.
    fn data(&mut self) -> Option<Vec<u8>> {
        let to = self.victim;
        let seen = self.w.seen.as_ref()?;
        let is_data = |(n, bytes): &&(usize, Vec<u8>)| {
            let packet = Packet::parse(bytes);
            *n == to && packet.is_ok_and(|packet| packet.header.body.is_sequenced())
        };
        let from = self.rng.index(seen.len());
        let found = seen.iter().cycle().skip(from).take(seen.len()).find(is_data);
        found.map(|(_, bytes)| bytes.clone())
    }

    /// TPN of the victim's end of the TP, which no third node receives.
    fn tpn(&self) -> Tpn {
        let (tpn, _) = self.w.nodes[self.victim].exchange.endpoint.tpns().next().expect("a TP");
        Tpn::from_low_bits(tpn)
    }

    fn random(&mut self) -> u32 {
        self.rng.next_u64() as u32
    }

    /// The bytes with a right ICRC.
    fn sealed(&self, mut bytes: Vec<u8>) -> Option<(RawEid, Vec<u8>)> {
        flow(self.peer(), self.own()).seal(&mut bytes).ok()?;
        Some((self.peer(), bytes))
    }

    fn packet(&self, dest: Tpn, psn: Psn, body: Body) -> Option<(RawEid, Vec<u8>)> {
        let header = PacketHeader::new(dest, psn, body);
        let mut bytes = vec![0; header.packet_len(0)];
        header.emit(&[], &flow(self.peer(), self.own()), &mut bytes).expect("a packet");
        Some((self.peer(), bytes))
    }
}

fn noise(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let mut bytes = vec![0; 64 + h.rng.index(900)];
    h.rng.fill(&mut bytes);
    Some((h.peer(), bytes))
}

fn damaged(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let mut bytes = h.data()?;
    // The tail: some bits of the headers are masked.
    let at = bytes.len() - 1 - h.rng.index(16);
    bytes[at] ^= 1 << h.rng.below(8);
    Some((h.peer(), bytes))
}

fn cut(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let mut bytes = h.data()?;
    bytes.truncate(16 + h.rng.index(bytes.len() - 20) / 4 * 4);
    Some((h.peer(), bytes))
}

/// Cut in its headers, with a right ICRC.
fn cut_and_sealed(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let mut bytes = h.data()?;
    bytes.truncate(12 + 4 * h.rng.index(3) + ICRC_LEN);
    h.sealed(bytes)
}

/// The BTH of one packet and the rest of an acknowledgement.
fn spliced(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let bth = h.data()?[..12].to_vec();
    let received = SackBitmap::default();
    let ack = Ack { window: 64, congestion: false, trigger: Psn::new(1), received };
    let (_, ack) = h.packet(h.tpn(), Psn::new(0), Body::Ack(ack))?;
    h.sealed([&bth, &ack[12..]].concat())
}

fn replayed(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    Some((h.peer(), h.data()?))
}

fn of_another_tp(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let mut bytes = h.data()?;
    bytes[5 + h.rng.index(3)] ^= 1 + h.rng.index(255) as u8;
    h.sealed(bytes)
}

fn of_a_stranger(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let (stranger, mut bytes) = (RawEid([9; 16]), h.data()?);
    flow(stranger, h.own()).seal(&mut bytes).ok()?;
    Some((stranger, bytes))
}

fn beyond_the_window(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let mut bytes = h.data()?;
    // A quarter of all numbers away, in either direction.
    bytes[9] ^= 0x40;
    h.sealed(bytes)
}

fn ack_of_what_was_never_sent(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let seen = h.w.seen.as_ref()?;
    let acked = |(n, bytes): &(usize, Vec<u8>)| {
        let header = Packet::parse(bytes).ok()?.header;
        (*n == h.victim && matches!(header.body, Body::Ack(_))).then_some(header.psn)
    };
    let psn = seen.iter().rev().find_map(acked)?.plus(1 << 20);
    let received = SackBitmap::from_words(&[u64::MAX; 4])?;
    let ack = Ack { window: u16::MAX, congestion: true, trigger: psn, received };
    h.packet(h.tpn(), psn, Body::Ack(ack))
}

fn handshakes(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let (zero, nonce) = (Tpn::from_low_bits(0), h.rng.next_u64());
    let source_tpn = Tpn::from_low_bits(h.random());
    let (dest, body) = match h.rng.below(5) {
        0 => {
            let reason = CloseReason::Shutdown;
            (h.tpn(), Body::Close(Close { reason, source_tpn, key: nonce }))
        }
        1 => {
            let reason = CloseReason::UnknownTp;
            (zero, Body::Close(Close { reason, source_tpn, key: 0 }))
        }
        2 => (h.tpn(), Body::Challenge(Challenge { nonce, cookie: [7; 16] })),
        3 => {
            let reason = RefuseReason::NoTp;
            let refusal = RefuseBody { reason, version_min: 1, version_max: 1, state: 1, nonce };
            (h.tpn(), Body::Refuse(refusal))
        }
        _ => (h.tpn(), Body::ProbeEcho(PathProbe { nonce, size: 4176 })),
    };
    h.packet(dest, Psn::new(0), body)
}

/// Each kind, and where it is counted.
const FORGERS: [(Forger, &[Counter]); 11] = [
    (noise, &[Counter::DropIcrc, Counter::DropMalformed]),
    (damaged, &[Counter::DropIcrc]),
    (cut, &[Counter::DropIcrc]),
    (cut_and_sealed, &[Counter::DropMalformed]),
    (spliced, &[Counter::DropMalformed]),
    (replayed, &[Counter::RxDuplicate, Counter::DropWindow]),
    (of_another_tp, &[Counter::DropUnknownTp]),
    (of_a_stranger, &[Counter::DropUnknownTp]),
    (beyond_the_window, &[Counter::DropWindow]),
    (ack_of_what_was_never_sent, &[Counter::DropMalformed]),
    (handshakes, &[Counter::DropUnproven]),
];

#[test]
fn each_forged_packet_is_counted_by_its_reason() {
    for victim in [0, 1] {
        let mut honest = Honest::new(victim);
        for (kind, (forger, reasons)) in FORGERS.into_iter().enumerate() {
            let (before, mut sent) = (honest.drops(), 0);
            for _ in 0..200 {
                sent += u64::from(honest.send(forger));
            }
            assert!(sent > 0, "kind {kind} at node {victim}");
            let counted = DROPS.iter().zip(honest.drops()).zip(before);
            let at = counted.map(|((counter, now), before)| (counter, now - before));
            let (right, wrong): (Vec<_>, Vec<_>) =
                at.partition(|(counter, _)| reasons.contains(counter));
            let total: u64 = right.iter().map(|(_, count)| count).sum();
            assert_eq!(total, sent, "kind {kind} at node {victim}: {right:?}");
            assert!(wrong.iter().all(|(_, count)| *count == 0), "kind {kind}: {wrong:?}");
            honest.goodput(100, None);
        }
    }
}

/// Times with and without the flood take turns in one run.
#[test]
fn an_honest_pair_keeps_its_goodput_in_a_flood() {
    let forgers = FORGERS.map(|(forger, _)| forger);
    for victim in [0, 1] {
        let mut honest = Honest::new(victim);
        let (mut calm, mut flooded) = (0, 0);
        let before = honest.drops().iter().sum::<u64>();
        for _ in 0..5 {
            calm += honest.goodput(400, None);
            flooded += honest.goodput(400, Some(&forgers));
        }
        assert!(calm > 1_000, "{calm} WRITEs without a flood");
        assert!(flooded * 10 >= calm * 9, "node {victim}: {flooded} of {calm}");
        let dropped = honest.drops().iter().sum::<u64>() - before;
        assert!(dropped >= 5 * 400 * PER_SLICE, "{dropped}");
    }
}
