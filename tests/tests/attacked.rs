//! Nodes on real sockets, and senders that do not receive what is sent to the addresses they use.
//!
//! *Owns*: the senders. *Takes*: two ends that exchange packets. *Gives*: whether imports and requests
//! go on. *Must not*: say anything about speed, but for what is run by name to measure.
#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use ubcore_sim::host::{eid_ip, ip_eid};
use ubcore_sim::node::Node;
use udma_abi::{DeviceBacking, counters::Counter};
use urma_core::TransportMode;
use urma_mem::sync::{AtomicBool, AtomicU64, Ordering};
use urma_packet::{
    Body, Cookie, Handshake, IcrcFlow, Mtu, PacketHeader, Psn, Purpose, ROCE_PORT, StrategyCaps,
    Tpn,
};
use urma_tests::world::{Host, Link, Moving, Outcome, Plan, Setup, World, check, same};

const PACKETS: Setup = Setup::new(Link::Packets, Moving::On, TransportMode::Rm);

/// CONNECT from `from` to `to`, as the life `incarnation` of the node at `from`.
fn connect(from: SocketAddr, to: SocketAddr, incarnation: u64) -> Vec<u8> {
    let terms = Handshake {
        version_min: 1,
        version_max: 1,
        mtu: Mtu::B4096,
        strategies: StrategyCaps::SELECTIVE_REPEAT,
        incarnation,
        source_eid: ip_eid(from.ip()).0,
        dest_eid: ip_eid(to.ip()).0,
        source_tpn: Tpn::from_low_bits(77),
        first_psn: Psn::new(5),
        window: 64,
        source_uasid: 0,
        dest_uasid: 0,
        state: 1,
        nonce: incarnation,
        close_key: 9,
        purpose: Purpose::Open,
        cookie: Cookie::default(),
    };
    let header = PacketHeader::new(Tpn::from_low_bits(0), Psn::new(0), Body::Connect(terms));
    let mut bytes = vec![0; header.packet_len(0)];
    header.emit(&[], &IcrcFlow::new(from, to), &mut bytes).expect("a valid packet");
    bytes
}

fn address(node: &Node) -> SocketAddr {
    SocketAddr::new(eid_ip(node.eid()), ROCE_PORT)
}

/// Sockets on port 4791 of so many addresses that no node has.
fn strangers(count: u8) -> Vec<UdpSocket> {
    let process = std::process::id().to_be_bytes();
    let address = |n| IpAddr::V4(Ipv4Addr::new(127, 200 | process[2] >> 6, process[3], n));
    let bind = |n| UdpSocket::bind((address(n), ROCE_PORT)).expect("an address of the host");
    (1..=count).map(bind).collect()
}

/// Imports the other end anew on both sides, and writes.
fn work(world: &mut World, round: usize) -> Outcome {
    let _again = world.a.half.ctx.import_jetty(&world.b.half.jetty.remote())?;
    let bytes = urma_tests::world::pattern(round as u64, 4000);
    world.a.mem().put(0, &bytes)?;
    world.b.mem().poison(8000, bytes.len())?;
    let ctx = world.a.write(0, 8000, bytes.len())?;
    world.a.sent_ok(ctx)?;
    world.b.mem().placed(8000, &bytes)
}

#[test]
fn a_connect_from_another_port_of_the_peers_address_moves_nothing() -> Outcome {
    const ROUNDS: u64 = 200;
    let mut world = World::new(PACKETS)?;
    let ends = [&world.a, &world.b].map(|end| address(&end.half.node));
    let attack = |from: SocketAddr, to: SocketAddr| -> Outcome<(UdpSocket, Vec<u8>)> {
        let socket = UdpSocket::bind((from.ip(), 0))?;
        let packet = connect(socket.local_addr()?, to, u64::MAX);
        socket.connect(to)?;
        Ok((socket, packet))
    };
    let attacks = [attack(ends[0], ends[1])?, attack(ends[1], ends[0])?];
    for round in 0..ROUNDS {
        for (socket, packet) in &attacks {
            socket.send(packet)?;
        }
        work(&mut world, usize::try_from(round).unwrap_or(0))?;
    }
    for end in [&world.a, &world.b] {
        let counter = |counter| end.half.node.device().counter(counter);
        same("challenges of anyone but the peer", counter(Counter::Challenges) <= 1, true)?;
        check(counter(Counter::DropUnproven) > 0, "the forged packets arrived")?;
    }
    Ok(())
}

/// Sends CONNECTs from all `sockets` in turn until `stop`, `rate` a second at most.
fn flood(node: &Node, sockets: &[UdpSocket], rate: u64, (stop, sent): (&AtomicBool, &AtomicU64)) {
    let to = address(node);
    let packet = |socket: &UdpSocket| Some(connect(socket.local_addr().ok()?, to, 1));
    let packets: Vec<_> = sockets.iter().filter_map(packet).collect();
    let (start, mut count) = (node.now(), 0);
    while !stop.load(Ordering::Relaxed) {
        for (socket, packet) in sockets.iter().zip(&packets) {
            count += u64::from(socket.send_to(packet, to).is_ok());
        }
        sent.store(count, Ordering::Relaxed);
        while count > (node.now() - start) * rate / 1_000_000_000 {
            std::thread::yield_now();
        }
    }
}

/// Runs `honest` while `host` is flooded by CONNECTs of invented clients; how many there were.
fn flooded(host: &Host, rate: u64, honest: impl FnOnce() -> Outcome) -> Outcome<u64> {
    let sockets = strangers(250);
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let node: &Arc<Node> = &host.node;
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| flood(node, &sockets, rate, (&stop, &sent)));
        let outcome = honest();
        stop.store(true, Ordering::Relaxed);
        outcome
    });
    outcome.map(|()| sent.load(Ordering::Relaxed))
}

#[test]
fn clients_that_were_invented_take_no_place() -> Outcome {
    let server = Host::open(PACKETS)?;
    // More addresses than there are places for peers; each sends once and never answers.
    let process = std::process::id().to_be_bytes();
    let to = address(&server.node);
    for n in 0..1_500_u16 {
        let [high, low] = n.to_be_bytes();
        let ip = Ipv4Addr::new(127, 230 + high, process[3], low);
        let socket = UdpSocket::bind((ip, ROCE_PORT))?;
        socket.send_to(&connect(socket.local_addr()?, to, 1), to)?;
    }
    let rate = 20_000;
    let honest = || {
        for round in 0..5 {
            let client = Host::open(PACKETS)?;
            let plan = Plan::new(TransportMode::Rm);
            work(&mut World::between(PACKETS, &plan, &client, &server)?, round)?;
        }
        Ok(())
    };
    flooded(&server, rate, honest)?;
    check(server.node.device().counter(Counter::Challenges) > 0, "CONNECTs were challenged")
}

/// Prints how long an honest client needs while 100,000 CONNECTs a second come from others.
#[test]
#[ignore = "measures; run with --release --ignored --nocapture measure_a_client_in_a_flood"]
fn measure_a_client_in_a_flood() -> Outcome {
    let server = Host::open(PACKETS)?;
    let plan = Plan::new(TransportMode::Rm);
    let mut took = Vec::new();
    let start = server.node.now();
    let honest = || {
        for round in 0..100 {
            let client = Host::open(PACKETS)?;
            let begun = server.node.now();
            work(&mut World::between(PACKETS, &plan, &client, &server)?, round)?;
            took.push(server.node.now() - begun);
        }
        Ok(())
    };
    let sent = flooded(&server, 100_000, honest)?;
    let rate = sent * 1_000_000_000 / (server.node.now() - start);
    took.sort_unstable();
    let us = |at: usize| took[at] / 1_000;
    let challenges = server.node.device().counter(Counter::Challenges);
    println!("{rate} CONNECTs/s sent, {challenges} of {sent} challenged");
    println!("100 clients: median {} us, p90 {} us, longest {} us", us(50), us(90), us(99));
    Ok(())
}
