//! Routes between nodes with several ports: which packets count by which one, and who may move a TP.

use udma_abi::{CqeStatus, Opcode, RawEid, cmd::Access, cmd::Mode, counters::Counter};
use urma_packet::{
    Body, Cookie, FurtherPorts, HandshakeBody, Packet, PacketHeader, PathProbe, Psn, Purpose, Tpn,
};

use super::attack::datagram;
use super::world::{TOKEN, World, assert_filled, fill};
use crate::cfg::PortMode;
use crate::endpoint::{RouteUse, flow};
use crate::exchange::Connecting;
use crate::ports::{Backlog, Route};
use crate::transport::{Doubt, TRANSMIT_MAX};

const ALL: Access = Access::READ.union(Access::WRITE).union(Access::ATOMIC);
/// An address that no node has: 127.9.0.9.
const STRANGER: RawEid = RawEid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 9, 0, 9]);
const MS: u64 = 1_000_000;
const DONE: Option<(CqeStatus, u32)> = Some((CqeStatus::Success, 64));

/// Two nodes of two ports, with a TP between them.
fn two() -> World {
    let mut w = World::with_ports(2);
    w.run_for(10 * MS);
    w
}

/// The packets that node `n` sends now, with their routes.
fn sent(w: &mut World, n: usize) -> Vec<(Route, Body)> {
    let mut buf = vec![0; TRANSMIT_MAX];
    let now = w.now;
    w.nodes[n].exchange.endpoint.on_backlog(now, Backlog::Empty);
    std::iter::from_fn(|| {
        let sent = w.nodes[n].exchange.endpoint.poll_transmit(now, &mut buf)?;
        let packet = Packet::parse(&buf[..sent.len]).expect("a packet");
        Some((Route { port: sent.port, to: sent.to }, packet.header.body))
    })
    .collect()
}

/// A packet arrives at node 1, at its `port`, from the address given; what it sends then.
fn arrive(w: &mut World, port: u8, from: RawEid, header: &PacketHeader) -> Vec<(Route, Body)> {
    arrive_at(w, 1, Route { port, to: from }, header)
}

/// The same at node `n` by a route.
fn arrive_at(w: &mut World, n: usize, by: Route, header: &PacketHeader) -> Vec<(Route, Body)> {
    let mut bytes = vec![0; header.packet_len(0)];
    let own = w.address(n, by.port);
    header.emit(&[], &flow(by.to, own), &mut bytes).expect("valid");
    let now = w.now;
    w.nodes[n].on_datagram_by(now, by, &bytes);
    sent(w, n)
}

/// A CONNECT of node 0 with numbers of its own, as that node may send it from any of its addresses.
fn connect(w: &World, cookie: Cookie) -> HandshakeBody {
    connect_of(w, 0, cookie)
}

/// The same of node `n`.
fn connect_of(w: &World, n: usize, cookie: Cookie) -> HandshakeBody {
    let cfg = &w.nodes[n].core.tables.cfg;
    HandshakeBody {
        version_min: 1,
        version_max: 1,
        mtu: urma_packet::Mtu::B4096,
        strategies: urma_packet::StrategyCaps::SELECTIVE_REPEAT,
        incarnation: cfg.incarnation,
        source_eid: cfg.eid.0,
        dest_eid: w.eid(1 - n).0,
        source_tpn: Tpn::from_low_bits(5),
        first_psn: Psn::new(0),
        window: 64,
        source_uasid: 0,
        dest_uasid: 0,
        state: 1,
        nonce: 77,
        close_key: 9,
        purpose: Purpose::Open,
        cookie,
        ports: FurtherPorts::default(),
    }
}

fn packet(terms: HandshakeBody) -> PacketHeader {
    PacketHeader::new(Tpn::from_low_bits(0), Psn::new(0), Body::Connect(terms))
}

/// The cookie of the only challenge, which goes back by the route given.
fn challenged(answers: &[(Route, Body)], route: Route) -> Cookie {
    let cookies = answers.iter().filter_map(|(by, body)| {
        let Body::Challenge(challenge) = body else { return None };
        Some((*by, challenge.cookie))
    });
    let [(by, cookie)] = cookies.collect::<Vec<_>>()[..] else { panic!("{answers:?}") };
    assert_eq!(by, route);
    cookie
}

fn is_accepted(answers: &[(Route, Body)]) -> bool {
    answers.iter().any(|(_, body)| matches!(body, Body::Accept(_)))
}

#[test]
fn a_cookie_is_good_at_the_two_addresses_between_which_it_went() {
    let mut w = two();
    let (first, second) = (w.eid(0), w.address(0, 1));
    let bare = packet(connect(&w, Cookie::default()));
    let cookie = challenged(&arrive(&mut w, 0, first, &bare), Route { port: 0, to: first });
    let shown = packet(connect(&w, cookie));
    // Shown from the other address, which has not answered yet, and at the other port.
    let other = challenged(&arrive(&mut w, 1, second, &shown), Route { port: 1, to: second });
    assert_ne!(other, cookie);
    challenged(&arrive(&mut w, 1, first, &shown), Route { port: 1, to: first });
    challenged(&arrive(&mut w, 0, second, &shown), Route { port: 0, to: second });
    let shown = packet(connect(&w, other));
    assert!(is_accepted(&arrive(&mut w, 1, second, &shown)), "it receives there");
}

#[test]
fn a_connect_counts_from_addresses_of_that_life_of_its_node_alone() {
    let mut w = two();
    let unproven = w.counter(1, Counter::DropUnproven);
    let terms = connect(&w, Cookie::default());
    let another = HandshakeBody { incarnation: terms.incarnation + 1, ..terms };
    let second = w.address(0, 1);
    for (from, terms) in [(STRANGER, terms), (second, another)] {
        for port in [0, 1] {
            assert!(arrive(&mut w, port, from, &packet(terms)).is_empty());
        }
    }
    assert_eq!(w.counter(1, Counter::DropUnproven), unproven + 4);
    // From its EID a new life may come, and from the further address the one that named it.
    for (from, terms) in [(w.eid(0), another), (second, terms)] {
        challenged(&arrive(&mut w, 0, from, &packet(terms)), Route { port: 0, to: from });
    }
}

/// Addresses are taken over from a packet that came by a route of the EID, or a node that moved would hand its pair
/// to any address.
#[test]
fn a_node_that_moved_names_no_new_addresses() {
    let mut w = two();
    let second = w.address(0, 1);
    let named = |w: &World, cookie| HandshakeBody {
        ports: FurtherPorts::new(&[second.0, STRANGER.0]).expect("two"),
        ..connect(w, cookie)
    };
    let by = Route { port: 1, to: second };
    let bare = packet(named(&w, Cookie::default()));
    let cookie = challenged(&arrive(&mut w, 1, second, &bare), by);
    let shown = packet(named(&w, cookie));
    assert!(is_accepted(&arrive(&mut w, 1, second, &shown)));
    let again =
        packet(HandshakeBody { nonce: 78, close_key: 10, ..connect(&w, Cookie::default()) });
    assert!(arrive(&mut w, 1, STRANGER, &again).is_empty());
    challenged(&arrive(&mut w, 1, second, &again), by);
}

#[test]
fn packets_of_a_tp_count_by_routes_of_its_nodes_alone() {
    let mut w = two();
    let source = w.segment(0, 1, 64, ALL);
    let target = w.segment(1, 2, 64, ALL);
    fill(&source);
    let sqe = w.to_memory(Opcode::Write, 2, 0);
    w.hand(0, &sqe, &[(1, 0, 64)]);
    let now = w.now;
    let node = &mut w.nodes[0];
    node.exchange.take_mail_of(&node.core, now, super::world::SENDER);
    super::world::step_exchange(&mut node.exchange, &node.core, now);
    let mut buf = vec![0; TRANSMIT_MAX];
    let data = node.exchange.endpoint.poll_transmit(now, &mut buf).expect("a packet");
    let unknown = w.counter(1, Counter::DropUnknownTp);
    let mut arrive = |w: &mut World, port, from| {
        let bytes = &mut buf[..data.len];
        flow(from, w.address(1, port)).seal(bytes).expect("a packet");
        w.nodes[1].on_datagram_by(now, Route { port, to: from }, bytes);
    };
    for port in [0, 1] {
        arrive(&mut w, port, STRANGER);
    }
    assert_eq!(w.counter(1, Counter::DropUnknownTp), unknown + 2);
    let further = w.address(0, 1);
    arrive(&mut w, 1, further);
    let eid = w.eid(0);
    arrive(&mut w, 0, eid);
    w.run_for(MS);
    assert_eq!(w.counter(1, Counter::DropUnknownTp), unknown + 2);
    assert_eq!(w.counter(1, Counter::RxDuplicate), 1, "it counts once, whatever its route");
    assert_filled(&target, 64);
}

/// A node calls the address of another one its own: packets of that one stay its own.
#[test]
fn an_address_that_another_node_names_is_still_its_owners() {
    let mut w = two();
    let liar = STRANGER;
    let terms = |w: &World, cookie| HandshakeBody {
        source_eid: liar.0,
        ports: FurtherPorts::new(&[w.eid(0).0, w.address(0, 1).0]).expect("two"),
        ..connect(w, cookie)
    };
    let bare = packet(terms(&w, Cookie::default()));
    let cookie = challenged(&arrive(&mut w, 0, liar, &bare), Route { port: 0, to: liar });
    let shown = packet(terms(&w, cookie));
    assert!(is_accepted(&arrive(&mut w, 0, liar, &shown)));
    let (_source, _target) = (w.segment(0, 1, 64, ALL), w.segment(1, 2, 64, ALL));
    let sqe = w.to_memory(Opcode::Write, 2, 0);
    let seq = w.hand(0, &sqe, &[(1, 0, 64)]);
    w.run_for(10 * MS);
    assert_eq!(w.end_now(0, seq), DONE, "the TP of the node that has the address");
    w.pulled = vec![w.eid(0)];
    let seq = w.hand(0, &sqe, &[(1, 0, 64)]);
    w.run_for(100 * MS);
    assert_eq!(w.end_now(0, seq), DONE, "it moves to its further address all the same");
}

/// A path of node 1 to node 0, as [`World::tpn`] is one of node 0.
fn path_back(w: &mut World) -> u32 {
    let eid = w.eid(0);
    for _ in 0..100 {
        let (now, node) = (w.now, &mut w.nodes[1]);
        match node.exchange.connect(&node.core, now, eid, Mode::Rm) {
            Connecting::Ready { tpn, .. } => return tpn,
            Connecting::Pending => w.run_for(MS),
            Connecting::Failed(why) => panic!("{why}"),
        }
    }
    panic!("no path")
}

/// A WRITE of each node at the same time; the numbers by which they end.
fn post_both(w: &mut World, tpns: [u32; 2]) -> [u32; 2] {
    let sqe = w.to_memory(Opcode::Write, 2, 0);
    [0, 1].map(|n| {
        w.tpn = tpns[n];
        w.hand(n, &sqe, &[(1, 0, 64)])
    })
}

/// Each of the nodes finds that the port is gone by requests of its own, at the same time.
#[test]
fn both_nodes_leave_a_port_at_once() {
    let mut w = two();
    let _segments = [0, 1].map(|n| [1, 2].map(|tid| w.segment(n, tid, 64, ALL)));
    let tpns = [w.tpn, path_back(&mut w)];
    w.pulled = vec![w.eid(0)];
    let seqs = post_both(&mut w, tpns);
    w.run_for(100 * MS);
    for n in [0, 1] {
        assert_eq!(w.end_now(n, seqs[n]), DONE);
        assert_eq!(w.counter(n, Counter::PortFailed), 1);
    }
}

/// Routes on which node `n` asks for a TP in the time given, without repeats.
fn tried(w: &mut World, n: usize, ns: u64) -> Vec<Route> {
    let end = w.now + ns;
    let mut routes = Vec::new();
    while w.now < end {
        let now = w.now;
        let node = &mut w.nodes[n];
        super::world::step_exchange(&mut node.exchange, &node.core, now);
        let asks =
            |body: &Body| matches!(body, Body::Connect(terms) if terms.purpose == Purpose::Open);
        routes.extend(sent(w, n).into_iter().filter(|(_, body)| asks(body)).map(|(by, _)| by));
        w.now += MS;
    }
    routes.dedup();
    routes
}

/// Both nodes try a handshake by another route each, since the one in use carries nothing: the node with the smaller
/// EID takes the route of the other one, which gives up its own. If both took the other's, or both gave up, they
/// would do so again.
#[test]
fn both_nodes_move_at_once_and_agree() {
    // With a TP that carries nothing any more, and later without one.
    for (n, after) in [(0, 40 * MS), (1, 40 * MS), (0, 20_000 * MS), (1, 20_000 * MS)] {
        let mut w = two();
        (0..2).for_each(|n| w.patience(n, 24));
        let _segments = [0, 1].map(|n| [1, 2].map(|tid| w.segment(n, tid, 64, ALL)));
        let tpns = [w.tpn, path_back(&mut w)];
        w.is_mute = [true; 2];
        post_both(&mut w, tpns);
        w.run_for(after);
        let last = tried(&mut w, n, after).pop().expect("a route that is tried");
        let peers = (0..2).flat_map(|port| (0..2).map(move |to| (port, to)));
        let mut routes = peers.map(|(port, to)| Route { port, to: w.address(1 - n, to) });
        let by = routes.find(|by| *by != last && by.port != 0).expect("another route");
        let bare = packet(connect_of(&w, 1 - n, Cookie::default()));
        let cookie = challenged(&arrive_at(&mut w, n, by, &bare), by);
        let shown = packet(connect_of(&w, 1 - n, cookie));
        let answers = arrive_at(&mut w, n, by, &shown);
        let connects = answers.iter().filter(|(_, body)| matches!(body, Body::Connect(_)));
        let connects: Vec<Route> = connects.map(|(to, _)| *to).collect();
        let leads = (connects.contains(&by), is_accepted(&answers));
        assert_eq!(leads, (n == 0, n == 1), "node {n} after {after} ns: {answers:?}");
    }
}

#[test]
fn a_datagram_counts_from_addresses_of_its_node_alone() {
    let mut w = two();
    let _room = w.segment(1, 2, 4096, ALL);
    w.receiver_of(1, 2000, Mode::Um);
    (0..4).for_each(|_| w.post(1, 2000, 2, 0, 64));
    let dropped = w.counter(1, Counter::DropUm);
    let message = datagram(&w, Psn::new(100), TOKEN);
    for port in [0, 1] {
        arrive(&mut w, port, STRANGER, &message);
        assert!(w.received(1).is_none());
    }
    assert_eq!(w.counter(1, Counter::DropUm), dropped + 2);
    let further = w.address(0, 1);
    arrive(&mut w, 1, further, &message);
    assert!(w.received(1).is_some());
}

/// The question whether an idle TP is still held goes by a route that carries nothing any more.
#[test]
fn an_idle_tp_moves_when_its_peer_is_asked() {
    let mut w = two();
    let (peer, now) = (w.eid(1), w.now);
    w.pulled = vec![w.eid(0)];
    w.nodes[0].exchange.endpoint.ask(now, peer, Doubt::Idle);
    w.run_for(100 * MS);
    assert_eq!([0, 1].map(|n| w.counter(n, Counter::PortFailed)), [1, 0]);
    let since = Some(now + 1);
    assert!(w.nodes[0].exchange.endpoint.is_proven(w.now, peer, since), "the peer accepted");
}

/// Node 0 balances, and has a request under way; the probe that it sends by its second port.
fn probed(w: &mut World) -> PathProbe {
    let _ = [w.segment(0, 1, 64, ALL), w.segment(1, 2, 64, ALL)];
    let now = w.now;
    w.nodes[0].exchange.endpoint.set_port_mode(now, PortMode::Balance);
    post(w);
    let all = sent(w, 0);
    let probes = all.iter().filter_map(|(by, body)| {
        let Body::Probe(probe) = body else { return None };
        Some((*by, *probe))
    });
    let [(by, probe)] = probes.collect::<Vec<_>>()[..] else { panic!("{all:?}") };
    assert_eq!(by, Route { port: 1, to: w.address(1, 1) });
    probe
}

/// Posts a WRITE at node 0; its packet is not sent yet.
fn post(w: &mut World) {
    let sqe = w.to_memory(Opcode::Write, 2, 0);
    w.hand(0, &sqe, &[(1, 0, 64)]);
    let now = w.now;
    let node = &mut w.nodes[0];
    node.exchange.take_mail_of(&node.core, now, super::world::SENDER);
    super::world::step_exchange(&mut node.exchange, &node.core, now);
}

/// Ports of node 0 that carry the TP.
fn used(w: &World) -> Vec<u8> {
    used_by(w, 0)
}

/// Ports of node `n` that carry the TP.
fn used_by(w: &World, n: usize) -> Vec<u8> {
    let tp = w.nodes[n].exchange.endpoint.tp(w.eid(1 - n)).expect("a peer");
    let used = tp.routes().filter(|(_, state, _)| *state == RouteUse::Used);
    used.map(|(route, ..)| route.port).collect()
}

/// An echo comes to node 0 at a port, from the same one of node 1.
fn echo(w: &mut World, port: u8, probe: PathProbe) {
    let dest = Tpn::from_low_bits(w.nodes[0].exchange.endpoint.tpns().next().expect("a TP").0);
    let header = PacketHeader::new(dest, Psn::new(0), Body::ProbeEcho(probe));
    let mut bytes = vec![0; header.packet_len(0)];
    let (now, from, own) = (w.now, w.address(1, port), w.address(0, port));
    header.emit(&[], &flow(from, own), &mut bytes).expect("valid");
    w.nodes[0].on_datagram_by(now, Route { port, to: from }, &bytes);
}

#[test]
fn a_route_carries_packets_when_its_own_probe_came_back_by_it() {
    let mut w = two();
    let probe = probed(&mut w);
    assert_eq!(used(&w), [0]);
    echo(&mut w, 1, PathProbe { nonce: probe.nonce ^ 1, ..probe });
    assert_eq!(used(&w), [0], "of another probe");
    echo(&mut w, 0, probe);
    assert_eq!(used(&w), [0], "by another route");
    echo(&mut w, 1, probe);
    assert_eq!(used(&w), [0, 1]);
}

#[test]
fn acknowledgements_go_where_packets_come_from() {
    let mut w = two();
    let _ = [w.segment(0, 1, 64, ALL), w.segment(1, 2, 64, ALL)];
    post(&mut w);
    let now = w.now;
    let mut buf = vec![0; TRANSMIT_MAX];
    let data = w.nodes[0].exchange.endpoint.poll_transmit(now, &mut buf).expect("a packet");
    for port in [1, 0, 1] {
        let (from, own) = (w.address(0, port), w.address(1, port));
        let bytes = &mut buf[..data.len];
        flow(from, own).seal(bytes).expect("a packet");
        let route = Route { port, to: from };
        w.nodes[1].on_datagram_by(now, route, bytes);
        // The second time it is a duplicate, and asks for an acknowledgement as well.
        w.now += MS;
        let acks = sent(&mut w, 1).into_iter().filter(|(_, body)| matches!(body, Body::Ack(_)));
        assert_eq!(acks.map(|(by, _)| by).collect::<Vec<_>>(), [route]);
    }
}

/// Only one port of each node is left, of different numbers: no route of the TP works.
#[test]
fn a_tp_moves_by_a_handshake_when_none_of_its_routes_works() {
    for (mode, gone) in [(PortMode::ActiveBackup, [0, 1]), (PortMode::Balance, [1, 0])] {
        let mut w = two();
        let _ = [w.segment(0, 1, 64, ALL), w.segment(1, 2, 64, ALL)];
        let now = w.now;
        w.nodes[0].exchange.endpoint.set_port_mode(now, mode);
        w.pulled = vec![w.address(0, gone[0]), w.address(1, gone[1])];
        let sqe = w.to_memory(Opcode::Write, 2, 0);
        let seq = w.hand(0, &sqe, &[(1, 0, 64)]);
        w.run_for(400 * MS);
        assert_eq!(w.end_now(0, seq), DONE, "{mode:?}");
        assert_eq!(used(&w), [1 - gone[0]]);
    }
}
