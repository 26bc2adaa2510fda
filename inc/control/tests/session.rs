//! Switches and hosts with a real controller on loopback; what is between them is played by the test.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::time::Duration;

use inc::control::{CommunicatorId, EdgeEnds, HostCommand, SwitchCommand, SwitchReport};
use inc::controller::{ControllerCfg, SwitchCapacity};
use inc::document::read_map;
use inc::edge::{EdgeAttributes, EdgeEnd, WriteWindow};
use inc::wire::{Seq, TreeEpoch};
use inc_control::{
    ControllerServer, ControllerServerCfg, HostSession, HostSessionCfg, MemoryStore, SwitchSession,
    SwitchSessionCfg,
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
    ControllerServer::start(ControllerServerCfg {
        // The machine of a test may be slow.
        controller: ControllerCfg { silence_ns: 3_000_000_000, ..cfg },
        map: read_map(MAP).unwrap(),
        hosts: any,
        switches: any,
        store: Box::new(MemoryStore),
        tls: None,
    })
    .unwrap()
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
            HostCommand::Start(_, start) if start.parent.is_ok() => {
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
