//! In-network computing on one machine: three switches, of which any two reach all hosts, and processes of it.
//!
//! *Owns*: addresses and the map of a network, processes that end with their value. *Takes*: the programs of the crate
//! whose test it is. *Gives*: controllers and switches in this process, joined ranks. *Must not*: check a result.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test fails by it")]

#[cfg(feature = "ping")]
mod ping;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use inc::controller::ControllerCfg;
use inc::document::read_map;
use inc::switch::SwitchLimits;
use inc_control::{ControllerServer, ControllerServerCfg, MemoryStore};
use inc_net::drive::LinkAccess;
use inc_net::group::{IncGroup, IncGroupCfg};
use inc_net::switch::{ControlledSwitch, ControlledSwitchCfg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[cfg(feature = "ping")]
pub use ping::ping_nodes;

/// Switches of a network.
pub const SWITCHES: u8 = 3;
/// Hosts of a network, each with one rank.
pub const RANKS: u8 = 4;
/// A process that takes longer hangs.
const HANG: Duration = Duration::from_secs(60);
/// Between two looks at what is waited for.
const STEP: Duration = Duration::from_millis(5);

/// Addresses of a network, none of which another test has: `127.a.b.0/24`.
#[derive(Debug, Clone, Copy)]
pub struct Network(pub u8, pub u8);

impl Network {
    fn at(self, station: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.0, self.1, station)
    }

    /// Address of a switch, from 0 on.
    #[must_use]
    pub fn switch(self, index: u8) -> SocketAddr {
        SocketAddr::from((self.at(1 + index), 4791))
    }

    /// Address of the host of a rank.
    #[must_use]
    pub fn host(self, rank: u8) -> IpAddr {
        self.at(100 + rank).into()
    }

    /// Address for a controller that is a process.
    #[must_use]
    pub fn controller(self) -> IpAddr {
        self.at(250).into()
    }

    /// Three switches in a triangle; each host is linked to two of them.
    #[must_use]
    pub fn map(self) -> String {
        let (mut nodes, mut links) = (String::from("nodes:\n"), String::from("links:\n"));
        for index in 0..SWITCHES {
            let address = self.switch(index).ip();
            nodes += &format!("  - {{name: s{index}, kind: switch, address: {address}}}\n");
            links += &format!("  - ends: [s{index}, s{}]\n", (index + 1) % SWITCHES);
        }
        for rank in 0..RANKS {
            nodes += &format!("  - {{name: h{rank}, kind: host, address: {}}}\n", self.host(rank));
            for offset in 0..2 {
                links += &format!("  - ends: [s{}, h{rank}]\n", (rank + offset) % SWITCHES);
            }
        }
        nodes + &links
    }

    /// A controller in this process. A process that stands still for `silence` is dead to it.
    #[must_use]
    pub fn start_controller(self, silence: Duration) -> ControllerServer {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let silence_ns = u64::try_from(silence.as_nanos()).unwrap();
        ControllerServer::start(ControllerServerCfg {
            controller: ControllerCfg { silence_ns, ..ControllerCfg::default() },
            map: read_map(&self.map()).unwrap(),
            hosts: any,
            switches: any,
            store: Box::new(MemoryStore),
            tls: None,
        })
        .unwrap()
    }

    /// A switch in this process. Dropped, it is gone as if it had been killed.
    #[must_use]
    pub fn start_switch(self, index: u8, controller: SocketAddr) -> ControlledSwitch {
        ControlledSwitch::start(ControlledSwitchCfg {
            address: self.switch(index),
            limits: SwitchLimits { memory: 1 << 28, communicators: 100 },
            controller,
            others: Vec::new(),
            name: None,
            tls: None,
            access: LinkAccess::Udp,
        })
        .unwrap()
    }

    /// All switches, in this process.
    #[must_use]
    pub fn start_switches(self, controller: SocketAddr) -> Vec<Option<ControlledSwitch>> {
        (0..SWITCHES).map(|index| Some(self.start_switch(index, controller))).collect()
    }

    /// Joins as a rank, in this process.
    #[must_use]
    pub fn join(self, controller: SocketAddr, rank: u8) -> IncGroup {
        self.join_by(controller, rank, LinkAccess::Udp)
    }

    /// Joins as a rank, in this process, whose datagrams go to the link so.
    #[must_use]
    pub fn join_by(self, controller: SocketAddr, rank: u8, access: LinkAccess) -> IncGroup {
        let cfg = IncGroupCfg {
            controller,
            address: Some(self.host(rank)),
            access,
            ..IncGroupCfg::new(controller.ip(), RANKS.into(), rank.into())
        };
        IncGroup::join(cfg).unwrap()
    }
}

/// Runs a program in a thread for each rank; what each returns.
pub fn each_rank<T: Send>(program: impl Fn(u8) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let program = &program;
        let ranks: Vec<_> = (0..RANKS).map(|rank| scope.spawn(move || program(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Waits until something is so.
///
/// # Panics
/// It is not so within a time in which everything is.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..HANG.as_millis() / STEP.as_millis() {
        if is_so() {
            return;
        }
        thread::park_timeout(STEP);
    }
    panic!("waited in vain: {what}");
}

/// A process that ends with this value.
#[derive(Debug)]
pub struct Program(Option<Child>);

impl Program {
    /// Starts it; what it prints is kept for [`Program::output`].
    #[must_use]
    pub fn spawn(command: &mut Command) -> Self {
        Self(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    /// Starts a program that prints a line when it is ready, and waits for the line, of which `part` is a part.
    #[must_use]
    pub fn spawn_ready(command: &mut Command, part: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains(part), "{line}");
        Self(Some(child))
    }

    /// Starts it with an open input, and waits for the first line that it prints, of which `part` is a part.
    #[must_use]
    pub fn spawn_asking(command: &mut Command, part: &str) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = Vec::new();
        // Byte by byte: what comes later is for `output`.
        let mut out = child.stdout.take().unwrap();
        let mut byte = [0];
        while !line.ends_with(b"\n") && out.read(&mut byte).unwrap() == 1 {
            line.extend(byte);
        }
        child.stdout = Some(out);
        let program = Self(Some(child));
        let line = String::from_utf8_lossy(&line).into_owned();
        if !line.contains(part) {
            panic!("{line:?}: {:?}", program.output());
        }
        program
    }

    /// Ends the line that it reads.
    pub fn go_on(&mut self) {
        let input = self.0.as_mut().unwrap().stdin.as_mut().unwrap();
        input.write_all(b"\n").unwrap();
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let id = self.0.as_ref().unwrap().id();
        kill(Pid::from_raw(id.cast_signed()), signal).unwrap();
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// It takes longer than anything takes here.
    #[must_use]
    pub fn output(mut self) -> Output {
        let mut child = self.0.take().unwrap();
        for _ in 0..HANG.as_millis() / STEP.as_millis() {
            if child.try_wait().unwrap().is_some() {
                return child.wait_with_output().unwrap();
            }
            thread::park_timeout(STEP);
        }
        let _ = child.kill();
        panic!("a process hangs: {:?}", child.wait_with_output());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // Also one that was stopped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
