//! Nodes on real sockets, and senders that do not receive what is sent to the addresses they use.
//!
//! *Owns*: the senders. *Takes*: two ends that exchange packets. *Gives*: whether imports and
//! requests go on. *Must not*: measure speed, except in the tests that are run by name for that.
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use ubcore_sim::host::{eid_ip, ip_eid};
use ubcore_sim::node::Node;
use udma_abi::{DeviceBacking, counters::Counter};
use urma_core::{CrStatus, TransportMode};
use urma_mem::sync::{AtomicBool, AtomicU64, Ordering};
use urma_packet::{
    Ack, Body, Cookie, FurtherPorts, HandshakeBody, IcrcFlow, Initiator, InitiatorKind,
    MemoryAccess, Mtu, OrderTag, PacketHeader, Psn, Purpose, ROCE_PORT, RequestFlags,
    RequestHeader, RequestOp, SackBitmap, StrategyCaps, Target, TargetKind, TokenValue, Tpn,
};
use urma_tests::world::{
    End, Failure, Host, Link, Moving, Outcome, Plan, Setup, World, check, fail, pattern, same,
};

const PACKETS: Setup = Setup::new(Link::Packets, Moving::On, TransportMode::Rm);

/// CONNECT from `from` to `to`, as the life `incarnation` of the node at `from`.
fn connect(from: SocketAddr, to: SocketAddr, incarnation: u64) -> Vec<u8> {
    let terms = HandshakeBody {
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
        ports: FurtherPorts::default(),
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
    let bytes = pattern(round as u64, 4000);
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
    let ends = [&world.a, &world.b].map(|end| address(end.half.node()));
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
        let counter = |counter| end.half.node().device().counter(counter);
        same("challenges of anyone but the peer", counter(Counter::Challenges) <= 1, true)?;
        check(counter(Counter::DropUnproven) > 0, "the forged packets arrived")?;
    }
    Ok(())
}

/// A test of this file as a process of its own, which ends with this value.
#[derive(Debug)]
struct Other {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Other {
    /// Starts the ignored test `role` with `value` in [`ROLE`].
    fn start(role: &str, value: &str, change: impl Fn(&mut Command)) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", role, "--ignored", "--nocapture"]).env(ROLE, value);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn()?;
        let out = child.stdout.take().ok_or_else(|| Failure::new("no output"))?;
        Ok(Self { child, out: BufReader::new(out) })
    }

    /// Words after `key` in the next line that has it.
    fn words(&mut self, key: &str) -> Outcome<Vec<String>> {
        let mut line = String::new();
        while self.out.read_line(&mut line)? != 0 {
            if let Some((_, words)) = line.split_once(key) {
                return Ok(words.split_whitespace().map(str::to_owned).collect());
            }
            line.clear();
        }
        Err(Failure::new("the other process ended early"))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Environment variable with the part of a process that a test starts.
const ROLE: &str = "URMA_ATTACKED_ROLE";
/// The user that has no rights.
const OVERFLOW_UID: u32 = 65534;

#[test]
#[ignore = "a process that another_user_moves_nothing_between_two_processes starts"]
fn serve_a_peer() -> Outcome {
    if std::env::var_os(ROLE).is_none() {
        return Ok(());
    }
    let host = Host::open(PACKETS)?;
    let half = Plan::new(PACKETS.mode).half(&host)?;
    println!("peer {}", half.words());
    // Serves until the other process closes its end.
    std::io::stdin().read_line(&mut String::new())?;
    let counter = |counter| half.node().device().counter(counter);
    println!("counted {} {}", counter(Counter::Challenges), counter(Counter::DropUnproven));
    Ok(())
}

#[test]
#[ignore = "a process that another_user_moves_nothing_between_two_processes starts"]
fn send_forged_connects() -> Outcome {
    /// About 100 s; the process that started this one ends it.
    const ROUNDS: u32 = 200_000;
    let Ok(ends) = std::env::var(ROLE) else { return Ok(()) };
    let ips: Vec<IpAddr> = ends.split(' ').filter_map(|ip| ip.parse().ok()).collect();
    let &[one, other] = &ips[..] else { return Err(Failure::new("two addresses")) };
    let attack = |(from, to)| -> Outcome<(UdpSocket, Vec<u8>)> {
        let (socket, to) = (UdpSocket::bind((from, 0))?, SocketAddr::new(to, ROCE_PORT));
        let packet = connect(socket.local_addr()?, to, u64::MAX);
        socket.connect(to)?;
        socket.set_read_timeout(Some(Duration::from_micros(500)))?;
        Ok((socket, packet))
    };
    let attacks = [attack((one, other))?, attack((other, one))?];
    println!("attack begins");
    for _ in 0..ROUNDS {
        for (socket, packet) in &attacks {
            socket.send(packet)?;
        }
        // Nothing is sent to this port: the call is a pause.
        let _ = attacks[0].0.recv(&mut [0; 64]);
    }
    Ok(())
}

#[test]
fn another_user_moves_nothing_between_two_processes() -> Outcome {
    const ROUNDS: u64 = 400;
    const LEN: usize = 4000;
    let mut server = Other::start("serve_a_peer", "", |_| ())?;
    let words = server.words("peer ")?;
    let host = Host::open(PACKETS)?;
    let plan = Plan::new(PACKETS.mode);
    let half = plan.half(&host)?;
    let (jetty, segment) = half.named(&words.join(" "))?;
    let mut end = End::new(half, &jetty, &segment, plan.access)?;
    let ends = format!("{} {}", address(host.node()).ip(), words[0]);
    let as_overflow_uid = |command: &mut Command| _ = command.uid(OVERFLOW_UID).gid(OVERFLOW_UID);
    // Where the user cannot be changed, or may not execute this program, the attacker has this
    // user.
    let attacker = Other::start("send_forged_connects", &ends, as_overflow_uid);
    let mut attacker = attacker.or_else(|_| Other::start("send_forged_connects", &ends, |_| ()))?;
    attacker.words("attack begins")?;
    for round in 0..ROUNDS {
        let _again = end.half.ctx.import_jetty(&jetty)?;
        let bytes = pattern(round, LEN);
        end.mem().put(0, &bytes)?;
        let writes: Outcome<Vec<_>> = (0..8).map(|n| end.write(0, n * LEN, LEN)).collect();
        for ctx in writes? {
            end.sent_ok(ctx)?;
        }
        let ctx = end.read(7 * LEN, LEN, LEN)?;
        end.sent_ok(ctx)?;
        same("bytes that came back", end.mem().take(LEN, LEN)?, bytes)?;
    }
    drop(server.child.stdin.take());
    let counted = server.words("counted ")?;
    let counter = |counter| host.node().device().counter(counter).to_string();
    let here = [counter(Counter::Challenges), counter(Counter::DropUnproven)];
    for counted in [&counted[..], &here] {
        let challenges = counted[0].parse::<u64>().unwrap_or(u64::MAX);
        same("challenges of anyone but the peer", challenges <= 1, true)?;
        check(counted[1] != "0", "the forged packets arrived")?;
    }
    Ok(())
}

/// Sends CONNECTs from all `sockets` round-robin until `stop`, `rate` a second at most.
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
    let node: &Arc<Node> = host.node();
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
    let to = address(server.node());
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
    check(server.node().device().counter(Counter::Challenges) > 0, "CONNECTs were challenged")
}

/// Prints how long an honest client needs while 100,000 CONNECTs a second come from others.
#[test]
#[ignore = "measures; run with --release --ignored --nocapture measure_a_client_in_a_flood"]
fn measure_a_client_in_a_flood() -> Outcome {
    let server = Host::open(PACKETS)?;
    let plan = Plan::new(TransportMode::Rm);
    let mut took = Vec::new();
    let start = server.node().now();
    let honest = || {
        for round in 0..100 {
            let client = Host::open(PACKETS)?;
            let begun = server.node().now();
            work(&mut World::between(PACKETS, &plan, &client, &server)?, round)?;
            took.push(server.node().now() - begun);
        }
        Ok(())
    };
    let sent = flooded(&server, 100_000, honest)?;
    let rate = sent * 1_000_000_000 / (server.node().now() - start);
    took.sort_unstable();
    let us = |at: usize| took[at] / 1_000;
    let challenges = server.node().device().counter(Counter::Challenges);
    println!("{rate} CONNECTs/s sent, {challenges} of {sent} challenged");
    println!("100 clients: median {} us, p90 {} us, longest {} us", us(50), us(90), us(99));
    Ok(())
}

/// Where the packets of a flood seem to come from. All are whole packets with a right ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// Nothing is sent; a thread spins as the sender does.
    Spinner,
    /// Another port of the peer's address.
    PeersAddress,
    /// The peer's address and port.
    Peer,
    /// Port 4791 of an address that no node has.
    Stranger,
}

/// Socket that sends the packets of a flood.
enum Exit {
    Nowhere,
    Socket(UdpSocket),
    /// A socket that sends whole IPv4 packets, with the headers to be put in front.
    Raw(OwnedFd, SocketAddrV4, [u8; RAW_HEADERS]),
}

/// An IPv4 header without options, and a UDP header.
const RAW_HEADERS: usize = 20 + 8;

impl Exit {
    /// Opens the socket that sends as `source` to `to`, whose peer is `peer`.
    fn open(source: Source, peer: SocketAddr, to: SocketAddr) -> Outcome<Self> {
        let from = match source {
            Source::Spinner => return Ok(Self::Nowhere),
            Source::Peer => return Self::raw(peer, to),
            Source::PeersAddress => UdpSocket::bind((peer.ip(), 0))?,
            Source::Stranger => strangers(1).remove(0),
        };
        from.connect(to)?;
        Ok(Self::Socket(from))
    }

    /// Opens a raw socket, which needs CAP_NET_RAW.
    fn raw(from: SocketAddr, to: SocketAddr) -> Outcome<Self> {
        let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, to) else {
            return fail("nodes of a test have IPv4 addresses");
        };
        let socket = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW));
        let socket = socket.map_err(std::io::Error::from)?;
        // Length and checksum are filled in by the kernel.
        let mut headers = [0; RAW_HEADERS];
        headers[..10].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17]);
        headers[12..16].copy_from_slice(&from.ip().octets());
        headers[16..20].copy_from_slice(&to.ip().octets());
        headers[20..22].copy_from_slice(&ROCE_PORT.to_be_bytes());
        headers[22..24].copy_from_slice(&ROCE_PORT.to_be_bytes());
        Ok(Self::Raw(socket, to, headers))
    }

    /// Returns `packet` with the headers that this socket needs.
    fn framed(&self, mut packet: Vec<u8>) -> Vec<u8> {
        let Self::Raw(_, _, headers) = self else { return packet };
        let mut bytes = headers.to_vec();
        let len = u16::try_from(packet.len() + 8).expect("a short packet");
        bytes[24..26].copy_from_slice(&len.to_be_bytes());
        bytes.append(&mut packet);
        bytes
    }

    /// Sends `bytes`; returns whether the system took them.
    fn send(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Nowhere => {
                std::hint::spin_loop();
                false
            }
            Self::Socket(socket) => socket.send(bytes).is_ok(),
            Self::Raw(socket, to, _) => sendto(socket, bytes, SendFlags::empty(), to).is_ok(),
        }
    }
}

/// Packets of TPs that the node at `to` does not have.
fn packets_of_tps(from: SocketAddr, to: SocketAddr) -> Vec<Vec<u8>> {
    let id = urma_packet::JettyId::from_low_bits(1);
    let access = MemoryAccess { address: 0, token_id: urma_packet::TokenId::default(), length: 0 };
    let request = RequestHeader {
        flags: RequestFlags::ONLY,
        order: OrderTag::None,
        tassn: 0,
        initiator: Initiator { kind: InitiatorKind::Jetty, id },
        target: Some(Target { kind: TargetKind::Jetty, id, hint: 0 }),
        token: Some(TokenValue(1)),
        access,
        op: RequestOp::Write,
    };
    let received = SackBitmap::default();
    let packet = |n: u32| {
        let ack = Ack { window: 64, congestion: false, trigger: Psn::new(n), received };
        let body = if n.is_multiple_of(2) { Body::Request(request) } else { Body::Ack(ack) };
        let tpn = Tpn::from_low_bits(1 + n * 65_521);
        let header = PacketHeader::new(tpn, Psn::new(n * 997), body);
        let mut bytes = vec![0; header.packet_len(0)];
        let flow = IcrcFlow::new(SocketAddr::new(from.ip(), ROCE_PORT), to);
        header.emit(&[], &flow, &mut bytes).expect("a valid packet");
        bytes
    };
    (0..256).map(packet).collect()
}

/// Writes for `ns`, several requests at a time. Returns bytes written, and requests that failed.
fn write_for(world: &mut World, ns: u64) -> Outcome<(u64, u64)> {
    const LEN: usize = 16 << 10;
    const DEPTH: usize = 8;
    let node = Arc::clone(world.a.half.node());
    let (end, mut in_flight, mut done, mut failed) = (node.now() + ns, 0, 0, 0);
    loop {
        let posts = if node.now() < end { DEPTH - in_flight } else { 0 };
        for at in 0..posts {
            world.a.write(at * LEN, at * LEN, LEN)?;
            in_flight += 1;
        }
        if in_flight == 0 {
            return Ok((done * LEN as u64, failed));
        }
        let completion = world.a.sent()?;
        in_flight -= 1;
        let is_good = completion.status == CrStatus::Success;
        done += u64::from(is_good);
        failed += u64::from(!is_good);
    }
}

/// Runs a pair of nodes while packets from `source` come as fast as a socket sends them. Returns
/// packets and bytes a second, and requests that failed.
fn flooded_pair(source: Option<Source>) -> Outcome<[u64; 3]> {
    const NS: u64 = 3_000_000_000;
    let mut world = World::new(PACKETS)?;
    let [peer, to] = [&world.a, &world.b].map(|end| address(end.half.node()));
    let exit = source.map(|source| Exit::open(source, peer, to)).transpose()?;
    let from = match &exit {
        Some(Exit::Socket(socket)) => socket.local_addr()?,
        _ => peer,
    };
    let packets: Vec<_> = match &exit {
        Some(exit) => {
            packets_of_tps(from, to).into_iter().map(|packet| exit.framed(packet)).collect()
        }
        None => Vec::new(),
    };
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    write_for(&mut world, NS / 10)?;
    let start = world.a.half.node().now();
    let outcome = std::thread::scope(|scope| {
        if let Some(exit) = &exit {
            scope.spawn(|| {
                let mut count = 0;
                for packet in packets.iter().cycle() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    count += u64::from(exit.send(packet));
                }
                sent.store(count, Ordering::Relaxed);
            });
        }
        let outcome = write_for(&mut world, NS);
        stop.store(true, Ordering::Relaxed);
        outcome
    });
    let (bytes, failed) = outcome?;
    let second = |count| count * 1_000 / ((world.a.half.node().now() - start) / 1_000_000);
    Ok([second(sent.load(Ordering::Relaxed)), second(bytes), failed])
}

/// Prints what an honest pair of nodes keeps of its speed in floods of valid-looking packets.
#[test]
#[ignore = "measures; run with --release --ignored --nocapture measure_an_honest_pair_in_floods"]
fn measure_an_honest_pair_in_floods() -> Outcome {
    let [_, quiet, _] = flooded_pair(None)?;
    let [_, shared, _] = flooded_pair(Some(Source::Spinner))?;
    println!("alone: {} MB/s; beside a spinner: {} MB/s", quiet / 1_000_000, shared / 1_000_000);
    for source in [Source::PeersAddress, Source::Peer, Source::Stranger] {
        let [rate, speed, failed] = flooded_pair(Some(source))?;
        println!(
            "{source:?}: {rate} packets/s, {} MB/s: {} % of alone, {} % of beside a spinner, \
             {failed} requests failed",
            speed / 1_000_000,
            speed * 100 / quiet,
            speed * 100 / shared,
        );
    }
    Ok(())
}
