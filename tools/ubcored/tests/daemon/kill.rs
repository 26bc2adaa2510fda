//! Clients that are killed at random moments: what is left of them, and what survivors get.
//!
//! `urma_perftest` by a daemon that is killed.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use urma::{JettyId, Mapping, NodeCfg, RemoteJetty, RemoteSegment, SegmentAccess, TokenId, Ubva};

use super::world::{Daemon, End, Peer, until};

/// The socket of the daemon that a victim attaches to.
const SOCKET: &str = "UBCORED_TEST_SOCKET";
/// Rounds of the campaign; the default is for every run of the tests.
const ROUNDS: &str = "UBCORED_KILLS";
/// A program that becomes a victim, such as a virtual machine, in place of a process of this program.
const VICTIM: &str = "UBCORED_VICTIM";

/// A process that is killed.
struct Victim {
    child: Child,
    jetty: u32,
    token_id: u32,
    va: u64,
}

impl Victim {
    fn start(daemon: &Daemon) -> Self {
        let mut command = if let Some(other) = std::env::var_os(VICTIM) {
            let mut command = Command::new(other);
            command.args(["vm", "victim"]);
            command
        } else {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "kill::victim", "--ignored", "--nocapture"]);
            command
        };
        let mut child = command
            .env(SOCKET, &daemon.socket)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines
            .map_while(Result::ok)
            .find_map(|line| line.rsplit_once("victim ").map(|(_, rest)| rest.to_owned()));
        let line = line.unwrap();
        let mut numbers = line.trim().split(' ').map(|number| number.parse::<u64>().unwrap());
        let mut next = || numbers.next().unwrap();
        let (jetty, token_id) = (u32::try_from(next()).unwrap(), u32::try_from(next()).unwrap());
        Self { child, jetty, token_id, va: next() }
    }

    /// What a survivor imports of it.
    fn peer(&self, of: &End) -> Peer {
        let (jetty, segment) = (of.jetty.remote(), of.segment.remote());
        let jetty = RemoteJetty { id: JettyId { id: self.jetty, ..jetty.id }, ..jetty };
        let ubva = Ubva { va: self.va, ..segment.ubva };
        let token_id = TokenId::new(self.token_id);
        let segment = RemoteSegment { ubva, token_id, ..segment };
        let target = of.context.import_jetty(&jetty).unwrap();
        let access = SegmentAccess::REMOTE_ALL;
        let remote = of.context.import_segment(&segment, access, Mapping::None).unwrap();
        Peer { target, remote }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process of a victim: posts receives, and writes to itself, until it is killed.
#[test]
#[ignore = "a process that the campaign starts"]
fn victim() {
    // In a virtual machine, the settings name the function.
    let cfg = match std::env::var_os(SOCKET) {
        Some(socket) => NodeCfg { ubcored: Some(PathBuf::from(socket)), ..NodeCfg::default() },
        None => NodeCfg::from_env().unwrap(),
    };
    if cfg.ubcored.is_none() && cfg.vfio.is_none() {
        return;
    }
    let mut end = End::of(urma::open_device(cfg).unwrap().open(0).unwrap());
    let own = {
        let target = end.context.import_jetty(&end.jetty.remote()).unwrap();
        let exported = end.segment.remote();
        let access = SegmentAccess::REMOTE_ALL;
        let remote = end.context.import_segment(&exported, access, Mapping::None).unwrap();
        Peer { target, remote }
    };
    for ctx in 0..8 {
        end.receive((0, 4096), ctx);
    }
    let segment = end.segment.remote();
    let (jetty, token_id) = (end.jetty.remote().id.id, segment.token_id.value());
    println!("victim {jetty} {token_id} {}", segment.ubva.va);
    // Its parent kills it; without one it ends by itself.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        end.write(&own, (8192, 100_000), 100);
        loop {
            let next = end.completions.wait(Some(Duration::from_secs(10))).unwrap().unwrap();
            if next.user_ctx == 100 {
                break;
            }
            end.receive((0, 4096), next.user_ctx);
        }
    }
}

#[test]
fn survivors_of_killed_clients_get_one_completion_for_each_request() {
    let rounds = std::env::var(ROUNDS).map_or(6, |rounds| rounds.parse().unwrap());
    let daemon = Daemon::start("kills");
    let mut survivor = End::open(&daemon);
    let pinned = |daemon: &Daemon| daemon.clients()[0]["quotas"]["pinned_bytes"]["used"].clone();
    let (mut random, mut slowest) = (0xdead_beef_u64, Duration::ZERO);
    let mut before = None;
    for round in 0..rounds {
        let mut victim = Victim::start(&daemon);
        let peer = victim.peer(&survivor);
        // Enough for some to be under way, and never more than the queue holds.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let wait = Duration::from_micros((random >> 33) % 20_000);
        let mut open = post(&mut survivor, &peer, 0);
        let begun = Instant::now();
        while begun.elapsed() < wait {
            take(&mut survivor, &mut open, Duration::ZERO);
            open.extend(if open.is_empty() { post(&mut survivor, &peer, 0) } else { Vec::new() });
        }
        open.extend(post(&mut survivor, &peer, open.len()));
        victim.kill();
        let killed = Instant::now();
        until("each request has its end", || {
            take(&mut survivor, &mut open, Duration::from_millis(1));
            open.is_empty()
        });
        let ended = killed.elapsed();
        until("the daemon has one client", || daemon.clients().len() == 1);
        slowest = slowest.max(ended);
        println!("round {round}: killed after {wait:?}, all ends within {ended:?}");
        drop(peer);
        assert!(survivor.completions.poll(&mut [Default::default(); 4]).unwrap() == 0);
        // From the second round on nothing grows.
        let now = (daemon.held(), pinned(&daemon));
        let baseline = before.get_or_insert_with(|| now.clone());
        until("descriptors and memory are as before", || {
            (daemon.held(), pinned(&daemon)) == *baseline
        });
    }
    let end_ns = daemon.status()["end_ns_max"].as_u64().unwrap();
    let cleaned = Duration::from_nanos(end_ns);
    println!("{rounds} kills: survivors' ends within {slowest:?}, clean-up within {cleaned:?}");
    // The goal is 50 ms on a quiet machine; this one says that nothing hangs.
    assert!(cleaned < Duration::from_secs(5));
}

/// Posts writes and messages to a victim, beside `open` that are under way; returns their contexts.
fn post(survivor: &mut End, peer: &Peer, open: usize) -> Vec<u64> {
    let contexts: Vec<u64> = (0..8).map(|at| at + 1000 * (open as u64 + 1)).collect();
    for ctx in &contexts {
        match ctx % 2 {
            0 => survivor.write(peer, (0, 4096), *ctx),
            _ => survivor.send(peer, 64, *ctx),
        }
    }
    contexts
}

/// Takes completions: each is of a request that is open.
fn take(survivor: &mut End, open: &mut Vec<u64>, bound: Duration) {
    while let Ok(Some(next)) = survivor.completions.wait(Some(bound)) {
        let at = open.iter().position(|ctx| *ctx == next.user_ctx);
        let at = at.unwrap_or_else(|| panic!("a second completion: {next:?}"));
        open.swap_remove(at);
    }
}

/// A side of a test that goes on for minutes.
struct Side(Child);

impl Side {
    fn start(program: &Path, daemon: &Daemon, words: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(["write_lat", "--spin", "memory", "-D", "300", "--wait-timeout", "300"]);
        command.args(words).env("URMA_UBCORED", &daemon.socket);
        Self(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    fn said(&mut self) -> String {
        let mut said = String::new();
        std::io::Read::read_to_string(&mut self.0.stderr.take().unwrap(), &mut said).unwrap();
        said
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Both sides wait on memory, which does not say that its writer is gone.
#[test]
fn a_test_that_waits_on_memory_ends_with_its_daemon_and_names_the_device() {
    // Built with all programs of the workspace.
    let program = Path::new(env!("CARGO_BIN_EXE_ubcored")).with_file_name("urma_perftest");
    if !program.exists() {
        return urma_skip::skip("urma_perftest is not built: cargo build -p urma_perftest");
    }
    let mut daemon = Daemon::start("perftest");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut server = Side::start(&program, &daemon, &["-P", &port]);
    let mut client = Side::start(&program, &daemon, &["-P", &port, "-S", "127.0.0.1"]);
    // Both write, each only after the other: neither is opening its device any more.
    let writes = |daemon: &Daemon| daemon.status()["counters"]["direct_requests"].as_u64().unwrap();
    until("both sides write", || writes(&daemon) > 2);
    assert!(!server.has_ended() && !client.has_ended());
    daemon.kill();
    // Of the two, the one that learns it first may tell the other.
    until("both sides end", || server.has_ended() && client.has_ended());
    let said = [server.said(), client.said()].concat();
    assert!(said.contains("not operational") || said.contains("the device is lost"), "{said}");
    assert!(!said.contains("nothing happened"), "{said}");
}
