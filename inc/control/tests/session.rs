//! Switches and hosts with a real controller on loopback; what is between them is played by the test.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use inc::control::{
    ChunkReport, CommunicatorId, EdgeEnds, HostCommand, HostReport, PartCounts, SwitchCommand,
    SwitchReport, TreeLife,
};
use inc::controller::{ControllerCfg, GroupSecret, SwitchCapacity};
use inc::document::read_map;
use inc::edge::{EdgeAttributes, EdgeEnd, WriteWindow};
use inc::port::{EdgeTotals, StrayCounts};
use inc::slots::{ChunkTimes, SwitchCounts, To};
use inc::wire::{AbortReason, Seq, TreeEpoch};
use inc_control::{
    ControllerServer, ControllerServerCfg, ControllerStore, ControllerTool, FileStore, HostSession,
    HostSessionCfg, MemoryStore, ServerExposure, SwitchSession, SwitchSessionCfg,
};
use urma_packet::{Psn, Tpn};

/// A test that hangs fails.
const HANG: Duration = Duration::from_secs(20);

const MAP: &str = "nodes:
  - {name: root, kind: switch, address: 127.1.0.1}
  - {name: left, kind: switch, address: 127.1.0.2}
  - {name: right, kind: switch, address: 127.1.0.3}
  - {name: h0, kind: host, address: 127.2.0.1}
  - {name: h1, kind: host, address: 127.2.0.2}
links:
  - ends: [root, left]
  - ends: [root, right]
  - ends: [left, h0]
  - ends: [right, h1]
";

fn controller(cfg: ControllerCfg) -> ControllerServer {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    controller_at([any, any], cfg, Box::new(MemoryStore))
}

fn controller_at(
    [hosts, switches]: [SocketAddr; 2],
    cfg: ControllerCfg,
    store: Box<dyn ControllerStore>,
) -> ControllerServer {
    // The machine of a test may be slow.
    let controller = ControllerCfg { silence_ns: 3_000_000_000, ..cfg };
    let map = read_map(MAP).unwrap();
    let cfg = ControllerServerCfg { controller, map, hosts, switches, store, tls: None };
    let http = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    ControllerServer::start_exposed(cfg, ServerExposure { http, is_insecure: false }).unwrap()
}

fn end(address: IpAddr, qpn: u32) -> EdgeEnd {
    EdgeEnd {
        address: SocketAddr::new(address, 4791),
        qpn: Tpn::new(qpn).unwrap(),
        first_psn: Psn::new(qpn + 1),
        window: WriteWindow { base: 7, key: 8 },
    }
}

/// A switch that installs whatever it is asked to; its commands are shown to the test. It ends when the test says so.
struct PlayedSwitch {
    commands: mpsc::Receiver<SwitchCommand>,
    stop: mpsc::Sender<Option<SwitchReport>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl PlayedSwitch {
    fn open(server: &ControllerServer, name: &str, incarnation: u64) -> Self {
        let (sender, commands) = mpsc::channel();
        let (stop, events) = mpsc::channel();
        let cfg = SwitchSessionCfg {
            controller: server.switches(),
            others: Vec::new(),
            name: Some(name.to_owned()),
            address: None,
            incarnation,
            capacity: SwitchCapacity { memory: 1 << 30, communicators: 4096 },
            tls: None,
        };
        let report = stop.clone();
        let on_command = move |command| {
            if let SwitchCommand::Install(life, part) = &command {
                let children = part.children.iter().zip(100..);
                let ends = EdgeEnds {
                    children: children.map(|((_, at), qpn)| end(at.ip(), qpn)).collect(),
                    parent: part.parent.map(|at| end(at.ip(), 99)),
                };
                let _ = report.send(Some(SwitchReport::Installed(*life, ends)));
            }
            let _ = sender.send(command);
        };
        let session = SwitchSession::open(cfg, Box::new(on_command)).unwrap();
        let thread = std::thread::spawn(move || {
            while let Ok(Some(report)) = events.recv() {
                session.report(report);
            }
        });
        Self { commands, stop, thread: Some(thread) }
    }

    fn next(&self) -> SwitchCommand {
        self.commands.recv_timeout(HANG).unwrap()
    }
}

impl Drop for PlayedSwitch {
    fn drop(&mut self) {
        let _ = self.stop.send(None);
        self.thread.take().unwrap().join().unwrap();
    }
}

struct PlayedHost {
    session: HostSession,
    communicator: CommunicatorId,
    commands: mpsc::Receiver<HostCommand>,
}

impl PlayedHost {
    fn next(&self) -> HostCommand {
        self.commands.recv_timeout(HANG).unwrap()
    }
}

/// Both ranks join and make a communicator.
fn both(server: &ControllerServer) -> [PlayedHost; 2] {
    let threads = [1, 0].map(|rank| {
        let cfg = host_cfg(server, rank);
        std::thread::spawn(move || {
            let (sender, commands) = mpsc::channel();
            let end = end(cfg.address, 40 + rank);
            let session = HostSession::join(cfg).unwrap();
            let on_command = Box::new(move |command| drop(sender.send(command)));
            let communicator =
                session.create_communicator(EdgeAttributes::DEFAULT, end, on_command).unwrap();
            PlayedHost { session, communicator, commands }
        })
    });
    let [one, zero] = threads.map(|thread| thread.join().unwrap());
    [zero, one]
}

fn host_cfg(server: &ControllerServer, rank: u32) -> HostSessionCfg {
    HostSessionCfg {
        controller: server.hosts(),
        others: Vec::new(),
        group: "job".to_owned(),
        world_size: 2,
        rank,
        address: IpAddr::V4(Ipv4Addr::new(127, 2, 0, u8::try_from(rank + 1).unwrap())),
        tenant: 0,
        secret: None,
        wait: HANG,
        tls: None,
    }
}

#[test]
fn a_tree_is_installed_and_started_at_both_ends_of_each_edge() {
    let server = controller(ControllerCfg::new());
    let switches = ["root", "left", "right"].map(|name| PlayedSwitch::open(&server, name, 1));
    // Only those that are in service when the communicator is made are in its tree.
    let [zero, one] = loop {
        let hosts = both(&server);
        match hosts[0].next() {
            HostCommand::Start(_, start) if start.without.is_none() => {
                let HostCommand::Start(life, start) = hosts[1].next() else { panic!() };
                assert_eq!((life.epoch, start.plan.first), (TreeEpoch(1), Seq(0)));
                assert_eq!(start.parent.unwrap(), end("127.1.0.3".parse().unwrap(), 100));
                break hosts;
            }
            HostCommand::Start(..) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(zero.communicator, one.communicator);
    let mut started = Vec::new();
    for switch in &switches {
        loop {
            if let SwitchCommand::Start(life, first, ends) = switch.next()
                && life.communicator == zero.communicator
            {
                assert_eq!((life.epoch, first), (TreeEpoch(1), Seq(0)));
                started.push(ends);
                break;
            }
        }
    }
    let at = |address: &str, qpn| end(address.parse().unwrap(), qpn);
    assert_eq!(started[0].children, [at("127.1.0.2", 99), at("127.1.0.3", 99)]);
    assert_eq!(started[0].parent, None);
    assert_eq!(started[1].children, [at("127.2.0.1", 40)]);
    assert_eq!(started[1].parent, Some(at("127.1.0.1", 100)));
    assert_eq!(started[2].parent, Some(at("127.1.0.1", 101)));

    // All ranks destroy it: the switches give back its memory.
    let id = zero.communicator;
    let other = std::thread::spawn(move || one.session.destroy(id));
    zero.session.destroy(id).unwrap();
    other.join().unwrap().unwrap();
    for switch in &switches {
        while switch.next() != SwitchCommand::Remove(id) {}
    }
}

/// Three switches, and two hosts with a tree.
fn with_tree(server: &ControllerServer) -> ([PlayedSwitch; 3], [PlayedHost; 2]) {
    let switches = ["root", "left", "right"].map(|name| PlayedSwitch::open(server, name, 1));
    wait_for(server, |text| text.matches("inc_switch_session{").count() == 3);
    let hosts = both(server);
    for host in &hosts {
        let HostCommand::Start(_, start) = host.next() else { panic!() };
        assert!(start.parent.is_some(), "{start:?}");
    }
    (switches, hosts)
}

/// What the controller answers over HTTP.
fn http(server: &ControllerServer, path: &str) -> String {
    let mut stream = TcpStream::connect(server.http().unwrap()).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn wait_for(server: &ControllerServer, is_true: impl Fn(&str) -> bool) -> String {
    let (_never, pause) = mpsc::channel::<()>();
    for _ in 0..HANG.as_millis() / 10 {
        let text = http(server, "/metrics");
        if is_true(&text) {
            return text;
        }
        let _ = pause.recv_timeout(Duration::from_millis(10));
    }
    panic!("{}", http(server, "/metrics"));
}

#[test]
fn a_lost_switch_ends_the_epoch_and_its_return_brings_a_tree() {
    let server = controller(ControllerCfg::new());
    let (switches, hosts) = with_tree(&server);
    let [root, left, right] = switches;
    // What the switch in the program of rank 1 is asked to do.
    let switched = RefCell::new(Vec::new());
    let prepared = |epoch: u16| {
        for host in &hosts {
            let HostCommand::Prepare(life) = host.next() else { panic!() };
            assert_eq!(life.epoch, TreeEpoch(epoch));
            let chunks = ChunkReport { oldest: Seq(3), has_result: vec![false; 128] };
            let own = end("127.2.0.9".parse().unwrap(), 60);
            host.session.report(HostReport::Chunks(life, chunks, own));
        }
        // Without the root, the program of rank 1 reduces.
        if epoch == 2 {
            let HostCommand::Switch(SwitchCommand::Install(life, part)) = hosts[1].next() else {
                panic!()
            };
            assert_eq!((part.children.len(), part.parent), (2, None));
            let own = |qpn| end("127.2.0.2".parse().unwrap(), qpn);
            let ends = EdgeEnds { children: vec![own(80), own(81)], parent: None };
            let installed = SwitchReport::Installed(life, ends);
            hosts[1].session.report(HostReport::Switch(installed));
        }
        let start = |host: &PlayedHost| loop {
            match host.next() {
                HostCommand::Start(life, start) => {
                    assert_eq!((life.epoch, start.plan.first), (TreeEpoch(epoch), Seq(3)));
                    break (start.parent.unwrap().qpn.value(), start.without);
                }
                HostCommand::Switch(of) => switched.borrow_mut().push(of),
                other => panic!("{other:?}"),
            }
        };
        [start(&hosts[0]), start(&hosts[1])]
    };
    drop(root);
    for ((qpn, without), expected) in prepared(2).into_iter().zip([80, 81]) {
        assert_eq!(qpn, expected);
        assert!(without.as_ref().unwrap().contains("joins rank"), "{without:?}");
    }
    let _root = PlayedSwitch::open(&server, "root", 2);
    assert!(prepared(3).iter().all(|(_, without)| without.is_none()));
    let switched = switched.into_inner();
    let id = hosts[0].communicator;
    assert!(matches!(&switched[0], SwitchCommand::Start(life, ..) if life.epoch == TreeEpoch(2)));
    assert_eq!(switched[1..], [SwitchCommand::Remove(id)]);
    drop((left, right));
}

#[test]
fn an_edge_that_dies_while_no_controller_is_there_is_reported_to_the_next_one() {
    let folder = std::env::temp_dir().join(format!("inc-away-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let store = || Box::new(FileStore::new(folder.join("state")));
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = controller_at([any, any], ControllerCfg::new(), store());
    let ports = [server.hosts(), server.switches()];
    let (switches, hosts) = with_tree(&server);
    let id = hosts[0].communicator;
    let [root, left, _right] = &switches;
    for switch in [root, left] {
        while !matches!(switch.next(), SwitchCommand::Start(life, ..) if life.communicator == id) {}
    }
    drop(server);
    let life = TreeLife { communicator: id, epoch: TreeEpoch(1) };
    left.stop.send(Some(SwitchReport::EdgeDead(life, To::Parent))).unwrap();
    let _server = controller_at(ports, ControllerCfg::new(), store());
    for host in &hosts {
        let HostCommand::Prepare(life) = host.next() else { panic!() };
        assert_eq!((life.communicator, life.epoch), (id, TreeEpoch(2)));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn metrics_show_each_number_that_a_switch_reports() {
    let server = controller(ControllerCfg::new());
    let (switches, hosts) = with_tree(&server);
    let mut chunks = ChunkTimes { sum_ns: 1_500_000_123, ..ChunkTimes::default() };
    (chunks.counts[0], chunks.counts[1], chunks.counts[12]) = (3, 2, 1);
    let slots = SwitchCounts {
        contributions: 11,
        bytes: 12,
        other_epochs: 13,
        chunks,
        ..SwitchCounts::default()
    };
    let mut edges = EdgeTotals { naks: 14, ..EdgeTotals::default() };
    edges.drops = std::array::from_fn(|at| 20 + at as u64);
    let counts = PartCounts { slots, edges, slots_in_use: 15 };
    let strays = StrayCounts { refused: [0, 0, 0, 0, 0, 0, 31], unknown_qpns: 32 };
    let id = hosts[0].communicator;
    for report in [SwitchReport::Counts(id, Box::new(counts)), SwitchReport::Strays(strays)] {
        switches[1].stop.send(Some(report)).unwrap();
    }
    let text = wait_for(&server, |text| {
        text.contains("inc_drops_total{switch=\"left\",reason=\"qpn\"} 32")
    });
    let labels = format!("tenant=\"0\",communicator=\"{}\",switch=\"left\"", id.0);
    for (name, more, value) in [
        ("inc_contributions_total", "", "11"),
        ("inc_bytes_total", "", "12"),
        ("inc_naks_total", "", "14"),
        ("inc_slots_in_use", "", "15"),
        ("inc_drops_total", ",reason=\"truncated\"", "20"),
        ("inc_drops_total", ",reason=\"icrc\"", "26"),
        ("inc_drops_total", ",reason=\"gap\"", "27"),
        ("inc_drops_total", ",reason=\"source\"", "28"),
        ("inc_drops_total", ",reason=\"epoch\"", "13"),
        ("inc_chunk_seconds_bucket", ",le=\"0.000004000\"", "3"),
        ("inc_chunk_seconds_bucket", ",le=\"0.000016000\"", "5"),
        ("inc_chunk_seconds_bucket", ",le=\"16.777216000\"", "5"),
        ("inc_chunk_seconds_bucket", ",le=\"+Inf\"", "6"),
        ("inc_chunk_seconds_sum", "", "1.500000123"),
        ("inc_chunk_seconds_count", "", "6"),
    ] {
        let line = format!("{name}{{{labels}{more}}} {value}\n");
        assert_eq!(text.matches(&line).count(), 1, "{line}{text}");
    }
    assert!(text.contains("inc_drops_total{switch=\"left\",reason=\"icrc\"} 31\n"), "{text}");
    // Without switches the members reduce, which is counted once.
    drop(switches);
    wait_for(&server, |text| {
        text.contains("inc_fallbacks_total{tenant=\"0\",reason=\"topology\"} 1\n")
    });
    drop(hosts);
}

#[test]
fn a_controller_that_starts_again_goes_on_with_what_its_file_says() {
    let folder = std::env::temp_dir().join(format!("inc-restart-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let store = || Box::new(FileStore::new(folder.join("state")));
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = controller_at([any, any], ControllerCfg::new(), store());
    let ports = [server.hosts(), server.switches()];
    let (switches, hosts) = with_tree(&server);
    drop(server);
    // Sessions come back by themselves, and the communicator stays in its epoch.
    let server = controller_at(ports, ControllerCfg::new(), store());
    wait_for(&server, |text| {
        text.matches("inc_switch_session{switch=").count() == 3
            && !text.contains("inc_switch_session{switch=\"root\"} 0")
            && !text.contains("inc_switch_session{switch=\"left\"} 0")
            && !text.contains("inc_switch_session{switch=\"right\"} 0")
    });
    let text = http(&server, "/metrics");
    assert!(text.contains("inc_epoch{tenant=\"0\",communicator=\"1\"} 1"), "{text}");
    assert!(text.contains("inc_has_tree{tenant=\"0\",communicator=\"1\"} 1"), "{text}");
    assert!(text.contains("inc_drains_total{} 0"), "{text}");
    // Numbers are not given twice, and a lost switch is noticed as before.
    let created = {
        let make = |session: &HostSession, rank: u32| {
            let own = end("127.2.0.1".parse().unwrap(), 80 + rank);
            let ignore = Box::new(|_| {});
            session.create_communicator(EdgeAttributes::DEFAULT, own, ignore)
        };
        let [zero, one] = [&hosts[0].session, &hosts[1].session];
        std::thread::scope(|scope| {
            let other = scope.spawn(|| make(one, 1));
            [make(zero, 0), other.join().unwrap()]
        })
    };
    assert_eq!(created, [Ok(CommunicatorId(2)), Ok(CommunicatorId(2))]);
    drop(switches);
    let HostCommand::Prepare(life) = hosts[0].next() else { panic!() };
    assert_eq!((life.communicator, life.epoch), (CommunicatorId(1), TreeEpoch(2)));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_controller_that_forgot_ends_what_it_does_not_know() {
    let server = controller(ControllerCfg::new());
    let ports = [server.hosts(), server.switches()];
    let (switches, hosts) = with_tree(&server);
    drop(server);
    let _server = controller_at(ports, ControllerCfg::new(), Box::new(MemoryStore));
    for host in &hosts {
        let HostCommand::Abort(id, AbortReason::ShutDown, why) = host.next() else { panic!() };
        assert_eq!((id, why.as_str()), (host.communicator, "no such member of a group"));
    }
    while switches[0].next() != SwitchCommand::Remove(hosts[0].communicator) {}
}

#[test]
fn who_may_not_join_learns_why() {
    let secret = Some(GroupSecret::new("kelp"));
    let server = controller(ControllerCfg { secret: secret.clone(), ..ControllerCfg::new() });
    let join = |cfg: HostSessionCfg| HostSession::join(cfg).unwrap_err().to_string();
    let wrong = "rank 0 may not join group job: wrong proof";
    assert_eq!(join(host_cfg(&server, 0)), wrong);
    let other = Some(GroupSecret::new("kelq"));
    assert_eq!(join(HostSessionCfg { secret: other, ..host_cfg(&server, 0) }), wrong);
    let right = HostSessionCfg { secret, ..host_cfg(&server, 0) };
    let out = join(HostSessionCfg { rank: 2, ..right.clone() });
    assert_eq!(out, "rank 2 of group job is out of range: the group has 2 ranks");
    let short = Duration::from_millis(300);
    let missing = join(HostSessionCfg { wait: short, ..right.clone() });
    assert_eq!(missing, "rank 1 of group job did not come in time");
    let alone = HostSessionCfg { world_size: 1, ..right };
    assert!(HostSession::join(alone.clone()).is_ok());
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let none = join(HostSessionCfg { controller: nowhere, wait: short, ..alone });
    assert!(none.starts_with("no controller at 127.0.0.1:1: "), "{none}");
}

#[test]
fn who_may_not_put_a_topology_learns_why() {
    let secret = GroupSecret::new("kelp");
    let server = controller(ControllerCfg { secret: Some(secret.clone()), ..ControllerCfg::new() });
    let mut tool = ControllerTool::connect(server.hosts(), None).unwrap();
    let other = MAP.replace("name: root,", "name: top,").replace("[root,", "[top,");
    for wrong in [None, Some(GroupSecret::new("kelq"))] {
        let error = tool.put_topology(other.clone(), wrong.as_ref()).unwrap_err();
        assert_eq!(error.to_string(), "this topology may not be put: wrong proof");
        assert!(tool.topology().unwrap().map.contains("root"));
    }
    tool.put_topology(other, Some(&secret)).unwrap();
    assert!(!tool.topology().unwrap().map.contains("root"));
}

#[test]
fn without_tls_only_loopback_is_served() {
    let map = read_map(MAP).unwrap();
    let open = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    for (hosts, switches) in [(open, any), (any, open)] {
        let cfg = ControllerServerCfg {
            controller: ControllerCfg::new(),
            map: map.clone(),
            hosts,
            switches,
            store: Box::new(MemoryStore),
            tls: None,
        };
        let error = ControllerServer::start(cfg).unwrap_err().to_string();
        assert!(error.contains("0.0.0.0:0 is no loopback address"), "{error}");
    }
}

#[test]
fn health_says_whether_the_state_can_be_stored() {
    struct FullDisk;
    impl ControllerStore for FullDisk {
        fn save(&mut self, _: &[u8]) -> std::io::Result<()> {
            Err(std::io::Error::from(std::io::ErrorKind::StorageFull))
        }
        fn load(&mut self) -> std::io::Result<Option<Vec<u8>>> {
            Ok(None)
        }
    }
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = controller_at([any, any], ControllerCfg::new(), Box::new(FullDisk));
    assert!(http(&server, "/healthz").starts_with("HTTP/1.1 200"));
    // What is not stored is not answered: the rank does not learn that its group is complete.
    let cfg =
        HostSessionCfg { world_size: 1, wait: Duration::from_millis(200), ..host_cfg(&server, 0) };
    let joining = std::thread::spawn(|| HostSession::join(cfg));
    let (_never, pause) = mpsc::channel::<()>();
    while !http(&server, "/healthz").starts_with("HTTP/1.1 503") {
        let _ = pause.recv_timeout(Duration::from_millis(10));
    }
    drop(server);
    assert!(joining.join().unwrap().is_err());
}
