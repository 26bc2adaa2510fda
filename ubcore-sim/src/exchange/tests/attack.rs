//! Senders that receive nothing of what is sent to the addresses they use.

use std::sync::Arc;

use udma_abi::{CqeStatus, Nanos, Opcode, RawEid, cmd::Access, cmd::Mode, counters::Counter};
use urma_packet::{
    Ack, Body, Mtu, Packet, PacketHeader, Psn, Purpose, RequestFlags, RequestHeader, SackBitmap,
    StrategyCaps, Tpn, UmHeader,
};
use urma_packet::{FurtherPorts, HandshakeBody};

use super::places::send_first_piece;
use super::world::{Kind, Quiet, SENDER, World, step_exchange};
use crate::context::function::{FunctionCfg, FunctionId, FunctionQuota};
use crate::endpoint::flow;
use crate::exchange::Connecting;
use crate::exchange::{initiator::request, pair};
use crate::limits;
use crate::ports::Backlog;
use crate::transport::TRANSMIT_MAX;

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
    let header = request::header(&sqe, pair::initiator(SENDER, true), Mode::Um, 0).expect("SEND");
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
    let honest = |w: &World, number| datagram(w, number, super::world::TOKEN);
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
        let mut packet = datagram(&w, Psn::new(100), super::world::TOKEN);
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
