//! Switches and hosts as processes, of which some are killed or stopped in mid-operation.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use inc::controller::ControllerCfg;
use inc::document::read_map;
use inc_control::{ControllerServer, ControllerServerCfg, MemoryStore};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const RANKS: u8 = 4;
/// Rounds of each kind: every switch is lost some times.
const ROUNDS: u8 = 20;
/// A process that takes longer hangs.
const HANG: Duration = Duration::from_secs(60);

/// A process that ends with this value.
struct Station(Option<Child>);

impl Station {
    fn signal(&self, signal: Signal) {
        let id = self.0.as_ref().unwrap().id();
        kill(Pid::from_raw(id.cast_signed()), signal).unwrap();
    }

    fn output(mut self) -> Output {
        let mut child = self.0.take().unwrap();
        let step = Duration::from_millis(10);
        for _ in 0..HANG.as_millis() / step.as_millis() {
            if child.try_wait().unwrap().is_some() {
                return child.wait_with_output().unwrap();
            }
            thread::park_timeout(step);
        }
        let _ = child.kill();
        panic!("a process hangs: {:?}", child.wait_with_output());
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

struct World {
    net: u8,
    controller: ControllerServer,
    switches: Vec<Station>,
}

fn at(net: u8, station: u8) -> String {
    format!("127.47.{net}.{station}")
}

impl World {
    /// Three switches, of which any two reach all hosts.
    fn new(net: u8) -> Self {
        let (mut map, mut links) = (String::from("nodes:\n"), String::from("links:\n"));
        for index in 1..4 {
            map += &format!("  - {{name: s{index}, kind: switch, address: {}}}\n", at(net, index));
        }
        for rank in 0..RANKS {
            map +=
                &format!("  - {{name: h{rank}, kind: host, address: {}}}\n", at(net, 100 + rank));
            for offset in 0..2 {
                links += &format!("  - ends: [s{}, h{rank}]\n", 1 + (rank + offset) % 3);
            }
        }
        links += "  - ends: [s1, s2]\n  - ends: [s2, s3]\n  - ends: [s1, s3]\n";
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let controller = ControllerServer::start(ControllerServerCfg {
            controller: ControllerCfg { silence_ns: 1_000_000_000, ..ControllerCfg::default() },
            map: read_map(&(map + &links)).unwrap(),
            hosts: any,
            switches: any,
            store: Box::new(MemoryStore),
            tls: None,
        })
        .unwrap();
        let mut world = Self { net, controller, switches: Vec::new() };
        world.switches = (1..4).map(|index| world.switch(index)).collect();
        world
    }

    fn switch(&self, index: u8) -> Station {
        let mut child = Command::new(env!("CARGO_BIN_EXE_inc-switch"))
            .args(["127.0.0.1", "--address", &at(self.net, index)])
            .args(["--controller-port", &self.controller.switches().port().to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains(&at(self.net, index)), "{line}");
        Station(Some(child))
    }

    fn hosts(&self, round: u8, arguments: &[&str]) -> Vec<Station> {
        let host = |rank: u8| {
            let child = Command::new(env!("CARGO_BIN_EXE_inc-host"))
                .args([RANKS.to_string(), "127.0.0.1".into(), rank.to_string()])
                .args(["--address", &at(self.net, 100 + rank)])
                .args(["--controller-port", &self.controller.hosts().port().to_string()])
                .args(["--group", &format!("round{round}")])
                .args(arguments)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            Station(Some(child))
        };
        (0..RANKS).map(host).collect()
    }
}

/// Long enough for several operations, short enough that none of the hosts is done.
fn mid_operation() {
    thread::park_timeout(Duration::from_millis(150));
}

const WORK: [&str; 6] = ["--count", "20000", "--times", "150", "--type", "f32"];

#[test]
fn a_switch_that_is_killed_or_stopped_changes_no_result() {
    let mut world = World::new(1);
    for round in 0..ROUNDS {
        let hosts = world.hosts(round, &WORK);
        mid_operation();
        let lost = usize::from(round % 3);
        // A stopped switch keeps its connections: its silence ends them.
        let signal = if round % 2 == 0 { Signal::SIGKILL } else { Signal::SIGSTOP };
        world.switches[lost].signal(signal);
        for (rank, host) in hosts.into_iter().enumerate() {
            let output = host.output();
            let (text, errors) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "round {round}, rank {rank}: {errors}");
            assert!(text.contains("150 times: right"), "round {round}, rank {rank}: {text}");
        }
        drop(std::mem::replace(&mut world.switches[lost], Station(None)));
        let again = world.switch(1 + round % 3);
        world.switches[lost] = again;
        // Two switches have to be in service when the next one is lost.
        thread::park_timeout(Duration::from_millis(300));
    }
}

#[test]
fn a_host_that_is_killed_ends_the_operations_of_the_others_by_name() {
    let world = World::new(2);
    for round in 0..ROUNDS / 2 {
        let mut hosts = world.hosts(round, &["--count", "20000", "--times", "1000000"]);
        mid_operation();
        let lost = round % RANKS;
        let signal = if round % 2 == 0 { Signal::SIGKILL } else { Signal::SIGSTOP };
        let gone = hosts.remove(lost.into());
        gone.signal(signal);
        for host in hosts {
            let output = host.output();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "round {round}: {errors}");
            assert!(errors.contains(&format!("rank {lost}")), "round {round}: {errors}");
        }
    }
}
