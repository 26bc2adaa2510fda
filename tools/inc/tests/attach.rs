//! Queue pairs of programs that know nothing of groups: `inc-attach` joins for them, and the switches add up what they send.
//!
//! The queue pairs here are edges with the plain framing; `cargo xtask vm inc` has those of Linux.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use inc::edge::{EdgeAttributes, EdgeCfg, EdgeEnd, Framing, MessageMode, Reliability, WriteWindow};
use inc::element::{ElementType, Operator, Reduction};
use inc::port::{EdgeId, EdgePort, PortDatagram, QpnShare};
use inc::slots::IncTime;
use inc::wire::{Collective, IncHeader, IncKind, Seq, TreeEpoch};
use inc_net::drive::{LinkAccess, Station, StationDriver, system_random};
use inc_world::{Network, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use urma_packet::{Psn, Tpn};

const SILENCE: Duration = Duration::from_secs(1);
const RANKS: u8 = 2;
const WINDOW: u32 = 4;
/// Messages of a rank: several windows.
const MESSAGES: u32 = 40;
/// Elements of a message: three packets.
const ELEMENTS: u16 = 175;

fn sum() -> Reduction {
    Reduction::new(Operator::Sum, ElementType::I32).unwrap()
}

fn value(rank: u8, message: u32, at: u16) -> i32 {
    let product = (i32::from(rank) + 3) * 1_000_003 * message.cast_signed();
    product.wrapping_add(i32::from(at) * 77_777)
}

fn bytes_of(value: impl Fn(u16) -> i32) -> Vec<u8> {
    (0..ELEMENTS).flat_map(|at| value(at).to_le_bytes()).collect()
}

/// What a verbs program has: a queue pair, and its own messages.
struct QueuePair {
    port: EdgePort<()>,
    edge: EdgeId,
    own: Vec<Vec<u8>>,
    results: Vec<Vec<u8>>,
}

impl Station for QueuePair {
    fn on_datagram(&mut self, now: IncTime, source: SocketAddr, bytes: &[u8]) {
        let results = &mut self.results;
        self.port.on_datagram(now, source, bytes, |(), _, data| results.push(data.to_vec()));
    }

    fn poll_transmit(&mut self, now: IncTime, buf: &mut [u8]) -> Option<PortDatagram> {
        let own = &self.own;
        self.port.poll_transmit(now, buf, |(), seq| &own[seq.0 as usize])
    }

    fn poll_deadline(&self) -> Option<IncTime> {
        self.port.poll_deadline()
    }

    fn on_time(&mut self, now: IncTime) {
        self.port.on_time(now);
    }

    fn share_qpns(&mut self, with: Arc<dyn QpnShare>) {
        self.port.share_qpns(with);
    }
}

impl QueuePair {
    fn new(address: SocketAddr, rank: u8) -> StationDriver<Self> {
        let mut port = EdgePort::new(system_random().unwrap(), 2..1 << 24);
        let edge = port.reserve(0, (), address).unwrap();
        let own = (0..MESSAGES).map(|message| bytes_of(|at| value(rank, message, at))).collect();
        StationDriver::new(Self { port, edge, own, results: Vec::new() }, address, LinkAccess::Udp)
            .unwrap()
    }

    fn end(&self) -> EdgeEnd {
        self.port.end(self.edge).unwrap()
    }

    fn open(&mut self, attributes: EdgeAttributes, there: EdgeEnd) {
        let (epoch, first) = (TreeEpoch(0), Seq(0));
        let cfg = EdgeCfg { attributes, here: self.end(), there, epoch, first };
        self.port.open(self.edge, cfg).unwrap();
    }

    fn send(&mut self, message: u32) {
        let header = IncHeader {
            kind: IncKind::Contribution(Collective::Allreduce(sum())),
            seq: Seq(message),
            epoch: TreeEpoch(0),
            op_id: 0,
            is_repeat: false,
            is_last: false,
            count: ELEMENTS,
        };
        self.port.send(self.edge, &header).unwrap();
    }
}

/// An `inc-attach` that ends with this value.
struct Attached(Child);

impl Attached {
    fn start(network: Network, controller: SocketAddr, rank: u8, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_inc-attach"));
        command
            .args([RANKS.to_string(), "127.0.0.1".into(), rank.to_string()])
            .args(["--controller-port", &controller.port().to_string()])
            .args(["--group", &format!("{network:?}"), "--packets", "3"])
            .args(["--window", &WINDOW.to_string()])
            .args(arguments);
        if !arguments.contains(&"--path-mtu") {
            command.args(["--path-mtu", "256"]);
        }
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn for_end(network: Network, controller: SocketAddr, rank: u8, end: EdgeEnd) -> Self {
        let (qpn, psn) = (end.qpn.value(), end.first_psn.value());
        let (qpn, psn) = (format!("{qpn:#x}"), psn.to_string());
        let (base, key) = (format!("{:#x}", end.window.base), end.window.key.to_string());
        let address = end.address.ip().to_string();
        let numbers = ["--address", &address, "--qpn", &qpn, "--psn", &psn];
        let memory = ["--mode", "write", "--base", &base, "--key", &key];
        Self::start(network, controller, rank, &[&numbers[..], &memory].concat())
    }

    /// The switch's end, from the one line that it prints.
    fn switch(&mut self) -> EdgeEnd {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        let ["switch", ip, "qpn", qpn, "psn", psn, "base", base, "key", key] = words[..] else {
            panic!("{line:?}: {}", self.errors());
        };
        EdgeEnd {
            address: SocketAddr::new(ip.parse().unwrap(), 4791),
            qpn: Tpn::new(qpn.parse().unwrap()).unwrap(),
            first_psn: Psn::new(psn.parse().unwrap()),
            window: WriteWindow { base: base.parse().unwrap(), key: key.parse().unwrap() },
        }
    }

    fn errors(&mut self) -> String {
        let mut errors = String::new();
        self.0.stderr.as_mut().unwrap().read_to_string(&mut errors).unwrap();
        errors
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
    }

    fn status(&mut self) -> ExitStatus {
        wait_until("the end of inc-attach", || self.0.try_wait().unwrap().is_some());
        self.0.wait().unwrap()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All queue pairs send all their messages, a window ahead of the results at most, which are right.
fn run(queue_pairs: &mut [StationDriver<QueuePair>]) {
    let mut sent = vec![0; queue_pairs.len()];
    wait_until("results of all messages", || {
        for (driver, sent) in queue_pairs.iter_mut().zip(&mut sent) {
            let results = u32::try_from(driver.station.results.len()).unwrap();
            while *sent < MESSAGES && *sent < results + WINDOW {
                driver.station.send(*sent);
                *sent += 1;
            }
            driver.turn();
        }
        queue_pairs.iter().all(|driver| driver.station.results.len() == MESSAGES as usize)
    });
    for driver in queue_pairs {
        for (message, result) in (0..).zip(&driver.station.results) {
            let all = |at| value(0, message, at).wrapping_add(value(1, message, at));
            assert_eq!(*result, bytes_of(all), "message {message}");
        }
    }
}

fn attributes(mode: MessageMode) -> EdgeAttributes {
    EdgeAttributes {
        reliability: Reliability::Reliable,
        mode,
        framing: Framing::Plain(sum()),
        path_mtu: 256,
        packets: 3,
        window: WINDOW,
        ..EdgeAttributes::DEFAULT
    }
}

fn queue_pairs(network: Network) -> Vec<StationDriver<QueuePair>> {
    let address = |rank| SocketAddr::new(network.host(rank), 4791);
    (0..RANKS).map(|rank| QueuePair::new(address(rank), rank)).collect()
}

#[test]
fn switches_add_up_what_queue_pairs_write_and_write_the_sums_back() {
    let network = Network(47, 3);
    let controller = network.start_controller(SILENCE);
    let mut queue_pairs = queue_pairs(network);
    // Those of the queue pairs come first, and wait for a tree.
    let mut ranks: Vec<_> = (0..RANKS)
        .zip(&queue_pairs)
        .map(|(rank, of)| Attached::for_end(network, controller.hosts(), rank, of.station.end()))
        .collect();
    thread::park_timeout(Duration::from_millis(300));
    let _switches = network.start_switches(controller.switches());
    for (rank, of) in ranks.iter_mut().zip(&mut queue_pairs) {
        of.station.open(attributes(MessageMode::Write), rank.switch());
    }
    run(&mut queue_pairs);
    // Both are ended in order.
    ranks.iter().for_each(|rank| rank.signal(Signal::SIGTERM));
    for rank in &mut ranks {
        assert!(rank.status().success(), "{}", rank.errors());
    }
}

/// What a client of `ibv_rc_pingpong` sends and receives, on the connection to its peer.
fn pingpong(port: u16, end: EdgeEnd) -> EdgeEnd {
    let mut stream = None;
    wait_until("a listener", || {
        stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok();
        stream.is_some()
    });
    let mut stream = stream.unwrap();
    let IpAddr::V4(ip) = end.address.ip() else { panic!("{end:?}") };
    let (qpn, psn, gid) = (end.qpn.value(), end.first_psn.value(), ip.to_ipv6_mapped().to_bits());
    let text = format!("0000:{qpn:06x}:{psn:06x}:{gid:032x}\0");
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer).unwrap();
    stream.write_all(b"done\0").unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let parts: Vec<_> = answer.trim_end_matches('\0').split(':').collect();
    let ["0000", qpn, psn, gid] = parts[..] else { panic!("{answer}") };
    let number = |text| u32::from_str_radix(text, 16).unwrap();
    let gid = gid.strip_prefix("00000000000000000000ffff").unwrap();
    EdgeEnd {
        address: SocketAddr::new(Ipv4Addr::from_bits(number(gid)).into(), 4791),
        qpn: Tpn::new(number(qpn)).unwrap(),
        first_psn: Psn::new(number(psn)),
        window: WriteWindow { base: 0, key: 0 },
    }
}

#[test]
fn pingpong_clients_reduce_and_a_lost_rank_is_named() {
    let network = Network(47, 4);
    let controller = network.start_controller(SILENCE);
    let _switches = network.start_switches(controller.switches());
    let mut queue_pairs = queue_pairs(network);
    // Below those that the system gives to connections and to listeners of other tests.
    let ports = [18_515, 18_516];
    let start = |rank: u8, port: u16| {
        let port = port.to_string();
        Attached::start(network, controller.hosts(), rank, &["--pingpong", &port])
    };
    let mut ranks: Vec<_> = (0..RANKS).zip(ports).map(|(rank, port)| start(rank, port)).collect();
    let ends: Result<Vec<_>, _> = thread::scope(|scope| {
        let asked = queue_pairs.iter().zip(ports).map(|(of, port)| {
            let end = of.station.end();
            scope.spawn(move || pingpong(port, end))
        });
        let asked: Vec<_> = asked.collect();
        asked.into_iter().map(|asked| asked.join()).collect()
    });
    let Ok(ends) = ends else {
        ranks.iter().for_each(|rank| rank.signal(Signal::SIGTERM));
        panic!("{:?}", ranks.iter_mut().map(Attached::errors).collect::<Vec<_>>());
    };
    for (end, of) in ends.into_iter().zip(&mut queue_pairs) {
        of.station.open(attributes(MessageMode::Send), end);
    }
    run(&mut queue_pairs);
    ranks[0].signal(Signal::SIGKILL);
    assert_eq!(ranks[1].status().code(), Some(2));
    let errors = ranks[1].errors();
    assert!(errors.contains("inc-attach 1") && errors.contains("rank 0"), "{errors}");
}

#[test]
fn what_no_queue_pair_can_have_is_refused() {
    let network = Network(47, 5);
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let numbers = ["--address", "127.47.5.100", "--qpn", "17", "--psn"];
    for (arguments, why) in [
        (&["0x1000000"][..], "more than 24 bits"),
        (&["1", "--mode", "write"], "--base and --key"),
        (&["1", "--type", "i33"], "no such type"),
        (&["1", "--type", "f32", "--operator", "bxor"], "there is no bxor of f32"),
        (&["1", "--path-mtu", "1000"], "a path MTU is a power of two"),
        (&["1", "--pingpong", "7"], "cannot be used with"),
        (&["1", "--wait", "0"], "no controller at 127.0.0.1:9"),
    ] {
        let arguments = [&numbers[..], arguments].concat();
        let mut rank = Attached::start(network, nowhere, 0, &arguments);
        assert_eq!(rank.status().code(), Some(2), "{arguments:?}");
        let errors = rank.errors();
        assert!(errors.contains(why), "{arguments:?}: {errors}");
    }
}
