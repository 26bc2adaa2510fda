//! Two controllers that keep their state in a real etcd: one is in charge, the other one goes on when it is gone.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use inc::control::{
    ChunkReport, EdgeEnds, HostCommand, HostReport, SwitchCommand, SwitchReport, TreeLife,
};
use inc::controller::SwitchCapacity;
use inc::edge::{EdgeAttributes, EdgeEnd, WriteWindow};
use inc::wire::{Seq, TreeEpoch};
use inc_control::{HostSession, HostSessionCfg, SwitchSession, SwitchSessionCfg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use urma_packet::{Psn, Tpn};

/// A test that hangs fails.
const HANG: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(20);

const MAP: &str = "nodes:
  - {name: one, kind: switch, address: 127.62.0.1}
  - {name: h0, kind: host, address: 127.62.0.10}
  - {name: h1, kind: host, address: 127.62.0.11}
links:
  - ends: [one, h0]
  - ends: [one, h1]
";

/// A process that is killed when this value goes.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }
}

/// etcd, and two controllers that use it.
struct World {
    folder: PathBuf,
    _etcd: Process,
    controllers: [Controller; 2],
}

struct Controller {
    process: Process,
    at: Ipv4Addr,
    ports: [u16; 3],
    said: mpsc::Receiver<String>,
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// What an HTTP server answers; nothing, where there is none.
fn http(at: SocketAddr, path: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(at) else { return String::new() };
    stream.set_read_timeout(Some(HANG)).unwrap();
    let mut text = String::new();
    let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
    // It may go away in between.
    let _ = stream.write_all(request.as_bytes());
    let _ = stream.read_to_string(&mut text);
    text
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..HANG.as_millis() / STEP.as_millis() {
        if is_so() {
            return;
        }
        thread::park_timeout(STEP);
    }
    panic!("waited in vain: {what}");
}

impl World {
    fn new(name: &str, net: u8) -> Self {
        let folder = std::env::temp_dir().join(format!("inc-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [clients, peers] =
            [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
        let etcd = Command::new("etcd")
            .arg("--data-dir")
            .arg(folder.join("etcd"))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd (Debian: etcd-server) is missing");
        let etcd = Process(etcd);
        let health: SocketAddr = clients.trim_start_matches("http://").parse().unwrap();
        wait_until("etcd", || http(health, "/health").contains("true"));
        std::fs::write(folder.join("map.yaml"), MAP).unwrap();
        let ports = [free_port(), free_port(), free_port()];
        let controller = |index| {
            let at = Ipv4Addr::new(127, 62, net, index);
            let mut child = Command::new(env!("CARGO_BIN_EXE_inc-controller"))
                .arg("--topology")
                .arg(folder.join("map.yaml"))
                .args(["--store", &format!("etcd:{clients}"), "--listen", &at.to_string()])
                .args(["--hosts-port", &ports[0].to_string()])
                .args(["--switches-port", &ports[1].to_string()])
                .args(["--http-port", &ports[2].to_string()])
                .args(["--silence", "3000"])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let (sender, said) = mpsc::channel();
            let streams: [Box<dyn Read + Send>; 2] =
                [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
            for stream in streams {
                let sender = sender.clone();
                thread::spawn(move || {
                    for line in BufReader::new(stream).lines().map_while(Result::ok) {
                        // Who does not listen any more has seen enough.
                        let _ = sender.send(line);
                    }
                });
            }
            Controller { process: Process(child), at, ports, said }
        };
        let first = controller(1);
        first.wait_for("ready");
        let second = controller(2);
        second.wait_for("waiting to be in charge");
        Self { folder, _etcd: etcd, controllers: [first, second] }
    }

    fn addresses(&self, port: usize) -> [SocketAddr; 2] {
        [0, 1].map(|of: usize| self.controllers[of].address(port))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Controller {
    fn address(&self, port: usize) -> SocketAddr {
        SocketAddr::from((self.at, self.ports[port]))
    }

    fn wait_for(&self, text: &str) -> String {
        loop {
            let line = self.said.recv_timeout(HANG);
            let line = line.unwrap_or_else(|error| panic!("{text:?}: {error}"));
            if line.contains(text) {
                return line;
            }
        }
    }
}

fn end(qpn: u32) -> EdgeEnd {
    EdgeEnd {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 4791)),
        qpn: Tpn::new(qpn).unwrap(),
        first_psn: Psn::new(0),
        window: WriteWindow { base: 0, key: 0 },
    }
}

/// A rank, and the commands that it gets.
struct PlayedHost {
    session: HostSession,
    commands: mpsc::Receiver<HostCommand>,
}

fn join([controller, other]: [SocketAddr; 2], rank: u32) -> PlayedHost {
    let address = IpAddr::from([127, 62, 0, 10 + u8::try_from(rank).unwrap()]);
    let session = HostSession::join(HostSessionCfg {
        controller,
        others: vec![other],
        group: "job".to_owned(),
        world_size: 2,
        rank,
        address,
        tenant: 0,
        secret: None,
        wait: HANG,
        tls: None,
    });
    let session = session.unwrap();
    let (sender, commands) = mpsc::channel();
    let on_command = Box::new(move |command| drop(sender.send(command)));
    session.create_communicator(EdgeAttributes::DEFAULT, end(rank + 1), on_command).unwrap();
    PlayedHost { session, commands }
}

fn installed(life: TreeLife) -> SwitchReport {
    SwitchReport::Installed(life, EdgeEnds { children: vec![end(50), end(51)], parent: None })
}

/// Between Install and Start the controller is killed; the other one brings the communicator to its end.
#[test]
fn the_other_controller_goes_on_where_a_killed_one_was() {
    let mut world = World::new("killed", 1);
    let [controller, other] = world.addresses(1);
    let (sender, commands) = mpsc::channel();
    let switch = SwitchSession::open(
        SwitchSessionCfg {
            controller,
            others: vec![other],
            name: Some("one".to_owned()),
            address: None,
            incarnation: 5,
            capacity: SwitchCapacity { memory: 1 << 30, communicators: 10 },
            tls: None,
        },
        Box::new(move |command| drop(sender.send(command))),
    );
    let switch = switch.unwrap();
    let metrics = world.controllers[0].address(2);
    wait_until("the switch", || {
        http(metrics, "/metrics").contains("inc_switch_session{switch=\"one\"} 1")
    });
    let at = world.addresses(0);
    let ranks = [0, 1].map(|rank| thread::spawn(move || join(at, rank)));
    let hosts = ranks.map(|rank| rank.join().unwrap());
    let SwitchCommand::Install(first, _) = commands.recv_timeout(HANG).unwrap() else { panic!() };
    assert_eq!(first.epoch, TreeEpoch(1));
    world.controllers[0].process.0.kill().unwrap();
    switch.report(installed(first));

    // A new epoch of the same communicator, in the switch that is there.
    let mut last = first;
    let mut started = [false; 2];
    wait_until("a start at both hosts", || {
        while let Ok(command) = commands.try_recv() {
            if let SwitchCommand::Install(life, _) = command {
                assert_eq!(life.communicator, first.communicator);
                switch.report(installed(life));
            }
        }
        for (host, is_started) in hosts.iter().zip(&mut started) {
            while let Ok(command) = host.commands.try_recv() {
                match command {
                    HostCommand::Prepare(life) => {
                        assert!(life.epoch.0 > first.epoch.0, "{life:?}");
                        let chunks = ChunkReport { oldest: Seq(7), has_result: vec![false; 128] };
                        host.session.report(HostReport::Chunks(life, chunks, end(9)));
                    }
                    HostCommand::Start(life, start) => {
                        assert_eq!(
                            (life.communicator, start.plan.first),
                            (first.communicator, Seq(7))
                        );
                        last = life;
                        *is_started = start.parent.is_some() && start.without.is_none();
                    }
                    // The members' own programs, while the switch is not back.
                    HostCommand::Switch(SwitchCommand::Install(life, _)) => {
                        host.session.report(HostReport::Switch(installed(life)));
                    }
                    HostCommand::Switch(_) => {}
                    HostCommand::Abort(_, reason, why) => panic!("{reason}: {why}"),
                }
            }
        }
        started == [true, true]
    });
    assert!(last.epoch.0 > first.epoch.0);
    // Nothing of it is left at the second controller when both ranks destroyed it.
    thread::scope(|scope| {
        for PlayedHost { session, .. } in &hosts {
            scope.spawn(move || session.destroy(first.communicator).unwrap());
        }
    });
    let left = http(world.controllers[1].address(2), "/metrics");
    assert!(left.contains("inc_switch_reserved_bytes{switch=\"one\"} 0"), "{left}");
}

/// One that stood still while its lease ended writes nothing more, and ends.
#[test]
fn a_controller_that_stood_still_is_not_in_charge_any_more() {
    let mut world = World::new("still", 2);
    let [first, second] = &mut world.controllers;
    let in_charge = format!("the controller in charge is {}", first.address(0));
    wait_until(&in_charge, || http(second.address(2), "/healthz").contains(&in_charge));
    first.process.signal(Signal::SIGSTOP);
    second.wait_for("ready");
    let is_serving = |of: &Controller| http(of.address(2), "/healthz").contains("ok");
    assert!(is_serving(second));
    first.process.signal(Signal::SIGCONT);
    let why = first.wait_for("another controller may be in charge");
    assert!(why.starts_with("inc-controller: "), "{why}");
    wait_until("its end", || first.process.0.try_wait().unwrap().is_some());
    assert!(is_serving(second));
}
