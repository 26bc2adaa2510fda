//! The host's ends of tests of `urma_perftest` in the machine.
//!
//! *Owns*: the processes, one after the other, which end with the value. *Gives*: results.

use std::{
    fs::File,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};

use urma_vm::vfio::MachineUse;

use crate::{
    clock::{now, pause},
    say::Failure,
};

/// Tests that run one after the other.
const TESTS: &[&str] = &["write_lat", "read_lat", "send_bw", "write_bw"];
/// What both sides of a test have.
const OPTIONS: &[&str] = &["-n", "50", "-s", "4096", "--wait-timeout", "170"];

/// Longest time from the machine's result to the end of the last process.
const LAST_BOUND: Duration = Duration::from_secs(10);

/// One process at a time.
pub(super) struct HostPeers {
    program: PathBuf,
    log: PathBuf,
    port: u16,
    waiting: std::slice::Iter<'static, &'static str>,
    running: Option<(&'static str, Child)>,
    ended: Vec<(&'static str, Result<(), String>)>,
}

impl HostPeers {
    /// Starts the first one; what they print is kept beside `log`.
    pub(super) fn new(program: &Path, log: &Path) -> Result<Self, Failure> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|found| found.local_addr());
        let port = free.map_err(Failure::system("looking for a free port"))?.port();
        let (program, log) = (program.to_path_buf(), log.with_extension("peers"));
        let (waiting, ended) = (TESTS.iter(), Vec::new());
        let mut peers = Self { program, log, port, waiting, running: None, ended };
        peers.step();
        Ok(peers)
    }

    /// What the machine is to do.
    pub(super) const fn purpose(&self) -> MachineUse {
        MachineUse::Checks { port: self.port, peers: TESTS, options: OPTIONS }
    }

    /// Starts the next one when one has ended. To be called every few milliseconds.
    pub(super) fn step(&mut self) {
        if let Some((name, child)) = &mut self.running {
            let result = match child.try_wait() {
                Ok(None) => return,
                Ok(Some(status)) if status.success() => Ok(()),
                Ok(Some(status)) => Err(format!("it ended with {status}")),
                Err(error) => Err(error.to_string()),
            };
            self.ended.push((name, result));
            self.running = None;
        }
        let Some(name) = self.waiting.next() else { return };
        match self.start(name) {
            Ok(child) => self.running = Some((name, child)),
            Err(error) => self.ended.push((name, Err(error.to_string()))),
        }
    }

    fn start(&self, name: &str) -> std::io::Result<Child> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.program);
        command.arg(name).args(["-P", &self.port.to_string(), "--bind_ip", "127.0.0.1"]);
        command.args(OPTIONS).env("URMA_EID", "random").env("URMA_PATH", "packets");
        command.stdout(log.try_clone()?).stderr(log).spawn()
    }

    /// A result of each test. The last process may end a little later than the machine's side of its test.
    pub(super) fn results(&mut self) -> Vec<(String, Result<(), String>)> {
        let end = now() + LAST_BOUND;
        while self.running.is_some() && self.waiting.len() == 0 && now() < end {
            pause(Duration::from_millis(2));
            self.step();
        }
        let result = |name: &&str| {
            let ended = self.ended.iter().find(|(ended, _)| ended == name);
            let none = || Err("the machine did not come to its end".to_owned());
            let result = ended.map_or_else(none, |(_, result)| result.clone());
            (format!("urma_perftest {name}, seen from the host"), result)
        };
        TESTS.iter().map(result).collect()
    }
}

impl Drop for HostPeers {
    fn drop(&mut self) {
        if let Some((_, child)) = &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
