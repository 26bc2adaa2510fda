//! Nodes that take all places: who loses one to a node that comes after them.

use std::mem::discriminant;

use udma_abi::{CqeStatus, Nanos, Opcode, RawEid, Sqe, cmd::Access, cmd::Mode, counters::Counter};
use urma_packet::{
    Body, CloseReason, PacketHeader, Psn, RefuseReason, RequestFlags, RequestHeader, Tpn,
};

use super::attack::{answers, arrive, connect};
use super::world::{Kind, SENDER, TOKEN, World};
use crate::endpoint::flow;
use crate::exchange::Connecting;
use crate::exchange::peers::peer::Peer;
use crate::exchange::{initiator::next_piece, pair};
use crate::limits::PEERS;
use crate::ports::Backlog;

const SECOND: Nanos = 1_000_000_000;
const RW: Access = Access::READ.union(Access::WRITE).union(Access::ATOMIC);

/// Node `n` of the IPv6 /64 with this number.
fn node_of(net: u64, n: usize) -> RawEid {
    RawEid::from_words([0x2001_0db8_0000_0000 | net, n as u64 + 1])
}

/// A node opens a TP to node 1, as its sender receives what it is sent; `None`: it is refused.
fn open(w: &mut World, from: RawEid) -> Option<(Tpn, Psn)> {
    let to = w.eid(1);
    w.nodes[1].exchange.endpoint.on_backlog(w.now, Backlog::Empty);
    arrive(w, 1, from, &connect(from, to));
    let cookie = answers(w, 1).into_iter().find_map(|body| match body {
        Body::Challenge(challenge) => Some(challenge.cookie),
        _ => None,
    });
    let mut proven = connect(from, to);
    if let (Body::Connect(terms), Some(cookie)) = (&mut proven.body, cookie) {
        terms.cookie = cookie;
    }
    arrive(w, 1, from, &proven);
    answers(w, 1).into_iter().find_map(|body| match body {
        // The sender's own numbers begin with those of its CONNECT.
        Body::Accept(terms) => Some((terms.source_tpn, Psn::new(1))),
        Body::Refuse(refusal) => {
            assert_eq!(refusal.reason, RefuseReason::Resources);
            None
        }
        _ => None,
    })
}

/// The peer never says that it goes on.
pub(super) fn send_first_piece(
    w: &mut World,
    from: RawEid,
    (tpn, psn): (Tpn, Psn),
    opcode: Opcode,
) {
    let sqe = match opcode {
        Opcode::Send => w.to_jetty(opcode, 2000, 0),
        _ => w.to_memory(opcode, 2, 0),
    };
    let whole = next_piece::header(&sqe, pair::initiator(SENDER, true), Mode::Rm, 4096);
    let first = RequestHeader { flags: RequestFlags::FIRST, ..whole.expect("a request") };
    let header = PacketHeader::new(tpn, psn, Body::Request(first));
    let payload = [1; 256];
    let mut bytes = vec![0; header.packet_len(payload.len())];
    header.emit(&payload, &flow(from, w.eid(1)), &mut bytes).expect("valid");
    let now = w.now;
    w.nodes[1].on_datagram(now, from, &bytes);
}

/// A node that uses one other, and that others fill.
fn filled(nets: usize) -> World {
    let mut w = World::new(Kind::Packets);
    let other = w.eid(0);
    for _ in 0..100 {
        let (now, node) = (w.now, &mut w.nodes[1]);
        if node.exchange.connect(&node.core, now, other, Mode::Rm) != Connecting::Pending {
            break;
        }
        w.run_for(10_000);
    }
    fill(&mut w, nets);
    w
}

/// Nodes of so many networks take all places; each of them leaves a message unfinished. The first is a SEND, which
/// has the only receive.
fn fill(w: &mut World, nets: usize) {
    let _there = w.segment(1, 2, 4096, RW);
    w.receiver(1, 2000);
    w.post(1, 2000, 2, 0, 4096);
    let room = PEERS - w.known()[1].0;
    for n in 0..room {
        let from = node_of((n % nets) as u64, n);
        let numbers = open(w, from).expect("there is room");
        let opcode = if n == 0 { Opcode::Send } else { Opcode::Write };
        send_first_piece(w, from, numbers, opcode);
    }
    w.run_for(10_000);
    assert_eq!(w.known()[1].0, PEERS);
    let is_unfinished = |peer: &&Peer| peer.responder.has_unfinished();
    assert_eq!(w.nodes[1].exchange.peers.values().filter(is_unfinished).count(), room);
}

/// Peers of node 1 that the next round steps.
fn due(w: &World) -> Vec<RawEid> {
    let node = &w.nodes[1];
    let due = |peer: &&Peer| peer.is_due(&node.core, w.now);
    node.exchange.peers.values().filter(due).map(|peer| peer.eid).collect()
}

#[test]
fn a_packet_makes_the_peer_due_that_sent_it_and_no_other() {
    let mut w = World::new(Kind::Packets);
    let _there = w.segment(1, 2, 4096, RW);
    let nodes = [0, 1, 2].map(|n| node_of(0, n));
    let numbers = nodes.map(|from| open(&mut w, from).expect("there is room"));
    w.run_for(10_000);
    assert_eq!(due(&w), []);
    send_first_piece(&mut w, nodes[1], numbers[1], Opcode::Write);
    assert_eq!(due(&w), [nodes[1]]);
    let is_busy = |w: &World| {
        let peer = &w.nodes[1].exchange.peers[&nodes[1]];
        peer.responder.has_unfinished()
    };
    assert!(!is_busy(&w), "a piece waits for a step");
    w.run_for(10_000);
    assert!(is_busy(&w), "the step took the piece");
    assert_eq!(due(&w), [], "nothing is left");
}

#[test]
fn pieces_that_a_round_leaves_keep_their_peer_due() {
    const LEN: usize = 512 << 10;
    let mut w = World::new(Kind::Packets);
    let _from = w.segment(0, 1, LEN, RW);
    let _to = w.segment(1, 2, LEN, RW);
    let write = w.to_memory(Opcode::Write, 2, 0);
    let seqs = [(); 8].map(|()| w.hand(0, &write, &[(1, 0, LEN)]));
    let mut left = 0;
    for turn in 0..20_000 {
        // The receiver looks seldom, so that more than the 64 pieces of a round have come.
        let looks = turn % 16 == 0;
        for n in 0..=usize::from(looks) {
            let node = &mut w.nodes[n];
            node.exchange.take_mail_of(&node.core, w.now, SENDER);
            node.exchange.full_round(&node.core, w.now);
        }
        if looks && w.nodes[1].exchange.endpoint.has_pieces() {
            assert_eq!(due(&w), [w.eid(0)], "nothing else would announce them");
            left += 1;
        }
        let _ = (w.carry(0), w.carry(1));
        w.now += 500;
    }
    assert!(left > 0, "no round left a piece: the case was not there");
    for seq in seqs {
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, LEN as u32)));
    }
}

fn is_known(w: &World, eid: RawEid) -> bool {
    w.nodes[1].exchange.peers.contains_key(&eid)
}

#[test]
fn who_fills_all_places_from_one_network_keeps_no_other_node_out() {
    let mut w = filled(1);
    let (used, honest, first) = (w.eid(0), node_of(77, 0), node_of(0, 0));
    // Of its own network it is one of too many itself.
    assert_eq!(open(&mut w, node_of(0, 5000)), None);
    assert!(is_known(&w, first));
    let closed = discriminant(&CloseReason::Shutdown);
    let to = w.eid(1);
    w.nodes[1].exchange.endpoint.on_backlog(w.now, Backlog::Empty);
    arrive(&mut w, 1, honest, &connect(honest, to));
    let Some(Body::Challenge(challenge)) = answers(&mut w, 1).pop() else { panic!("no challenge") };
    let mut proven = connect(honest, to);
    if let Body::Connect(terms) = &mut proven.body {
        terms.cookie = challenge.cookie;
    }
    arrive(&mut w, 1, honest, &proven);
    let said = answers(&mut w, 1);
    let is_notified =
        |body: &Body| matches!(body, Body::Close(close) if discriminant(&close.reason) == closed);
    assert!(said.iter().any(is_notified), "who loses its place repeats nothing: {said:?}");
    assert!(said.iter().any(|body| matches!(body, Body::Accept(_))), "{said:?}");
    assert!(is_known(&w, honest) && is_known(&w, used) && !is_known(&w, first));
    assert_eq!(w.counter(1, Counter::MessagesBroken), 1, "its receive is for others");
    // The program itself finds a place, too.
    let (now, node) = (w.now, &mut w.nodes[1]);
    let own = node.exchange.connect(&node.core, now, node_of(78, 0), Mode::Rm);
    assert_eq!(own, Connecting::Pending);
    assert_eq!(w.known()[1].0, PEERS);
}

#[test]
fn a_message_that_does_not_go_on_keeps_no_place() {
    // None of nine networks has more than its share.
    let mut w = filled(9);
    let honest = node_of(77, 0);
    assert_eq!(open(&mut w, honest), None);
    w.run_for(9 * SECOND);
    assert_eq!(open(&mut w, honest), None, "a program may be busy for some seconds");
    w.run_for(2 * SECOND);
    assert!(open(&mut w, honest).is_some());
}

#[test]
fn a_broken_path_keeps_no_place_from_others() {
    let mut w = filled(9);
    w.run_for(55 * SECOND);
    // No process answered the question whether it still holds the TP; a request may still be repeated.
    assert_eq!(w.known()[1].1, 1, "all paths broke off, but that of the honest pair");
    w.run_for(10 * SECOND);
    assert!(open(&mut w, node_of(77, 0)).is_some());
}

#[test]
fn a_node_that_is_refused_says_that_the_peer_is_full() {
    let mut w = World::new(Kind::Packets);
    fill(&mut w, 9);
    w.run_for(2 * SECOND);
    assert!(open(&mut w, node_of(77, 0)).is_some(), "the place of the idle pair");
    w.restart(0);
    let (full, end) = (w.eid(1), w.now + 7 * SECOND);
    let asked = loop {
        let (now, node) = (w.now, &mut w.nodes[0]);
        let asked = node.exchange.connect(&node.core, now, full, Mode::Rm);
        node.exchange.on_packet_peer(full);
        if asked != Connecting::Pending || now > end {
            break asked;
        }
        w.run_for(10_000_000);
    };
    assert_eq!(asked, Connecting::Failed(udma_abi::CmdStatus::PeerFull));
}

/// Requests with the tokens `from..to`, each in a sequence of its own, so that none waits for another.
fn guess(w: &mut World, from: RawEid, (tpn, first): (Tpn, Psn), tokens: std::ops::Range<u32>) {
    for (at, token) in (0..).zip(tokens) {
        let sqe =
            Sqe { seg_token_value: token, token_value: token, ..w.to_memory(Opcode::Write, 2, 0) };
        let initiator = pair::initiator(SENDER + at, true);
        let whole = next_piece::header(&sqe, initiator, Mode::Rm, 8).expect("a request");
        let header = PacketHeader::new(tpn, first.plus(at), Body::Request(whole));
        let mut bytes = vec![0; header.packet_len(8)];
        header.emit(&[1; 8], &flow(from, w.eid(1)), &mut bytes).expect("valid");
        let now = w.now;
        w.nodes[1].on_datagram(now, from, &bytes);
    }
}

/// As many addresses as it takes: each node may guess a little, all of them no more than the target allows. Who shows the
/// right token from somewhere else is served at once.
#[test]
fn many_nodes_guess_no_faster_than_one_target_allows() {
    let mut w = World::new(Kind::Packets);
    let there = w.segment(1, 2, 4096, RW);
    let denied = |w: &World| w.counter(1, Counter::AccessDenied);
    let burst = |w: &mut World, nodes: std::ops::Range<usize>| {
        for n in nodes {
            let from = node_of(1, n);
            let numbers = open(w, from).expect("there is room");
            guess(w, from, numbers, 0..20);
        }
        w.run_for(10_000);
    };
    burst(&mut w, 0..40);
    assert_eq!(denied(&w), 256, "of 800");
    w.now += SECOND;
    burst(&mut w, 40..80);
    let later = denied(&w) - 256;
    assert!((60..=66).contains(&later), "one each 16 ms: {later}");
    // No turn is left; a user of another network has the token.
    let honest = node_of(2, 0);
    let numbers = open(&mut w, honest).expect("there is room");
    let before = w.counter(1, Counter::RnrSent);
    guess(&mut w, honest, numbers, TOKEN..TOKEN + 1);
    w.run_for(10_000);
    assert_eq!(w.counter(1, Counter::RnrSent), before);
    let mut placed = [0; 8];
    there.read(0, &mut placed).expect("in range");
    assert_eq!((placed, denied(&w)), ([1; 8], 256 + later));
}
