//! Two processes that play ping-pong and only sleep on the descriptors of their event channels.
//!
//! *Owns*: the processes, and how they learn of each other. *Takes*: the path between them: packets, the same host, one daemon.
//! *Gives*: the longest sleep and how many were long, if rounds were asked for. *Must not*: judge times, but for a sleep that would be
//! a hang. `URMA_ROUNDS=1000000 cargo test -p ubcored --test daemon asleep -- --nocapture --test-threads 1` runs many rounds.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    process::{Child, Command, Stdio},
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};

use rustix::event::{Timespec, epoll};
use urma::{
    Arm, Context, Eid, Jetty, JettyCfg, JettyId, JettyRecv, Jfc, JfcCfg, Jfce, JfrCfg, JfsCfg,
    NodeCfg, PathChoice, RecvWr, Region, RemoteJetty, Segment, SegmentAccess, SegmentCfg, SendOp,
    SendWr, TargetJetty, TransportMode,
};

use super::world::Daemon;

/// Path of the child, and how many threads each process has; set in the child.
const CHILD: &str = "URMA_TEST_ASLEEP";
/// Rounds of each thread.
const ROUNDS: &str = "URMA_ROUNDS";
/// Rounds of each thread in every run of the tests.
const USUAL: u64 = 300;
/// Receives that are posted at once.
const RECEIVES: u64 = 8;
/// A descriptor that is not readable for so long, twice, will not be: all processes may have been stopped meanwhile.
const HANG: Timespec = Timespec { tv_sec: 8, tv_nsec: 0 };
/// Sleeps that are counted.
const LONG: Duration = Duration::from_millis(100);

/// How the two processes reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Path {
    Packets,
    Host,
    Daemon,
}

/// What a thread found out of its sleeps.
#[derive(Clone, Copy, Default, Debug)]
struct Sleeps {
    longest: Duration,
    long: u64,
}

/// One thread's end: the JFCs of both directions are on one channel.
struct Player {
    jetty: Jetty,
    jfc: Jfc,
    recv_jfc: Jfc,
    jfce: Jfce,
    segment: Segment,
    _memory: Region,
    set: OwnedFd,
    sleeps: Sleeps,
}

impl Player {
    fn new(context: &Context) -> Self {
        let mode = TransportMode::Rm;
        let jfce = context.create_jfce().unwrap();
        let [jfc, recv_jfc] =
            [(); 2].map(|()| context.create_jfc(&JfcCfg::new(64), Some(&jfce)).unwrap());
        let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, 16), jfc: &recv_jfc };
        let send = JfsCfg { err_timeout: 21, ..JfsCfg::new(mode, 16) };
        let mut jetty = context.create_jetty(&JettyCfg::new(send, &jfc, recv)).unwrap();
        let memory = Region::private(1 << 14).unwrap();
        let segment =
            context.register(&memory, &SegmentCfg::new(SegmentAccess::REMOTE_ALL), None).unwrap();
        for ctx in 0..RECEIVES {
            let dst = [segment.sge(64, 8)];
            jetty.post_recv(&[RecvWr { dst: &dst, user_ctx: ctx }]).unwrap();
        }
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        epoll::add(&set, jfce.fd(), epoll::EventData::new_u64(1), epoll::EventFlags::IN).unwrap();
        let sleeps = Sleeps::default();
        Self { jetty, jfc, recv_jfc, jfce, segment, _memory: memory, set, sleeps }
    }

    fn send(&mut self, to: &TargetJetty) {
        let src = [self.segment.sge(0, 8)];
        self.jetty.post_send(&[SendWr::new(SendOp::Send { src: &src }, to, 7)]).unwrap();
    }

    /// Sleeps until the descriptor is readable. Whether it is.
    fn sleep(&mut self) -> bool {
        let begun = Instant::now();
        let mut events = Vec::with_capacity(1);
        let is_woken = (0..2).any(|_| {
            let room = rustix::buffer::spare_capacity(&mut events);
            epoll::wait(&self.set, room, Some(&HANG)).unwrap() != 0
        });
        let took = begun.elapsed();
        self.sleeps.longest = self.sleeps.longest.max(took);
        self.sleeps.long += u64::from(took >= LONG);
        is_woken
    }

    /// Sleeps, and handles the completions of the JFCs whose events came: how many were sent and received.
    fn next(&mut self) -> Result<(u64, u64), String> {
        if !self.sleep() {
            let late = [self.jfc.poll_one(), self.recv_jfc.poll_one()];
            return Err(format!("nothing woke the program; its queues have {late:?}"));
        }
        let mut out = [0; 2];
        let count = self.jfce.wait(&mut out, Some(Duration::ZERO)).unwrap();
        let (mut sent, mut received) = (0, 0);
        for id in &out[..count] {
            let (jfc, come) = match *id == self.jfc.id() {
                true => (&mut self.jfc, &mut sent),
                false => (&mut self.recv_jfc, &mut received),
            };
            jfc.ack_events(1).unwrap();
            jfc.arm(Arm::Any).unwrap();
            while let Some(done) = jfc.poll_one().unwrap() {
                if !done.status.is_success() {
                    return Err(format!("{done:?}"));
                }
                *come += 1;
            }
        }
        Ok((sent, received))
    }

    /// As many rounds as are asked for with `peer`.
    fn play(mut self, peer: &TargetJetty, (serves, rounds): (bool, u64)) -> Result<Sleeps, String> {
        self.jfc.arm(Arm::Any).unwrap();
        self.recv_jfc.arm(Arm::Any).unwrap();
        let (mut sent, mut received, mut posted) = (0, 0, 0);
        if serves {
            self.send(peer);
            posted += 1;
        }
        while sent < rounds || received < rounds {
            let (gone, come) =
                self.next().map_err(|why| format!("{why}; sent {sent}, received {received}"))?;
            sent += gone;
            received += come;
            for _ in 0..come {
                let dst = [self.segment.sge(64, 8)];
                self.jetty.post_recv(&[RecvWr { dst: &dst, user_ctx: 1 }]).unwrap();
                if posted < rounds {
                    self.send(peer);
                    posted += 1;
                }
            }
        }
        Ok(self.sleeps)
    }
}

/// The line that names a jetty to the other process.
fn line_of(id: JettyId) -> String {
    format!("{} {} {}\n", id.eid.to_ip(), id.uasid, id.id)
}

fn id_in(line: &str) -> JettyId {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [ip, uasid, id] = words[..] else { panic!("the other process says {line:?}") };
    let eid = ip.parse::<Eid>().unwrap();
    JettyId { eid, uasid: uasid.parse().unwrap(), id: id.parse().unwrap() }
}

/// One of both processes: its threads play with those of the process at the other end of `stream`.
fn play(
    cfg: NodeCfg,
    stream: &UnixStream,
    (threads, serves, rounds): (usize, bool, u64),
) -> Result<Vec<Sleeps>, String> {
    let context = Arc::new(urma::open_device(cfg).unwrap().open(0).unwrap());
    let players: Vec<_> = (0..threads).map(|_| Player::new(&context)).collect();
    let mut writes = stream;
    for player in &players {
        writes.write_all(line_of(player.jetty.remote().id).as_bytes()).unwrap();
    }
    let mut lines = BufReader::new(stream).lines();
    let mut next_line = || lines.next().unwrap().unwrap();
    let targets: Vec<_> = players
        .iter()
        .map(|player| {
            let name = RemoteJetty { id: id_in(&next_line()), ..player.jetty.remote() };
            context.import_jetty(&name).unwrap()
        })
        .collect();
    // Both have imported the other one's queues.
    writes.write_all(b"ready\n").unwrap();
    assert_eq!(next_line(), "ready");
    let together = Arc::new(Barrier::new(threads));
    let plays: Vec<_> = players
        .into_iter()
        .zip(targets)
        .map(|(player, target)| {
            let together = Arc::clone(&together);
            thread::spawn(move || {
                together.wait();
                player.play(&target, (serves, rounds))
            })
        })
        .collect();
    let sleeps: Vec<_> = plays.into_iter().map(|play| play.join().unwrap()).collect();
    // A node answers until both are done.
    writes.write_all(b"done\n").unwrap();
    if sleeps.iter().all(Result::is_ok) {
        assert_eq!(next_line(), "done");
    }
    sleeps.into_iter().collect()
}

fn cfg(path: Path, daemon: Option<&Daemon>) -> NodeCfg {
    match path {
        Path::Packets => NodeCfg { path: PathChoice::Packets, ..NodeCfg::default() },
        Path::Host => NodeCfg { path: PathChoice::SameHost, ..NodeCfg::default() },
        Path::Daemon => daemon.unwrap().cfg(),
    }
}

fn rounds() -> u64 {
    std::env::var(ROUNDS).ok().and_then(|text| text.parse().ok()).unwrap_or(USUAL)
}

/// The child, which plays what its environment says; it does nothing in other runs.
#[test]
fn a_process_plays_with_its_parent() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let words: Vec<&str> = what.split(',').collect();
    let [path, threads, socket] = words[..] else { panic!("{what}") };
    let cfg = match path {
        "Packets" => cfg(Path::Packets, None),
        "Host" => cfg(Path::Host, None),
        _ => NodeCfg { ubcored: Some(socket.into()), ..NodeCfg::default() },
    };
    let stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let played = play(cfg, &stream, (threads.parse().unwrap(), false, rounds()));
    report("child", &what, &played);
    played.unwrap();
}

fn report(side: &str, what: &str, played: &Result<Vec<Sleeps>, String>) {
    if std::env::var_os(ROUNDS).is_some() {
        println!("{side} {what}: {} rounds a thread, {played:?}", rounds());
    }
}

fn spawn(what: &str, socket: UnixStream) -> Child {
    let name = "asleep::a_process_plays_with_its_parent";
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture"]).env(CHILD, what);
    child.stdin(Stdio::from(OwnedFd::from(socket)));
    if std::env::var_os(ROUNDS).is_none() {
        child.stdout(Stdio::null());
    }
    child.spawn().unwrap()
}

fn two_processes(path: Path) {
    let daemon = (path == Path::Daemon).then(|| Daemon::start("asleep"));
    for threads in [1, 2] {
        let (here, there) = UnixStream::pair().unwrap();
        let socket = daemon.as_ref().map(|daemon| daemon.socket.display().to_string());
        let what = format!("{path:?},{threads},{}", socket.unwrap_or_default());
        let mut child = spawn(&what, there);
        let played = play(cfg(path, daemon.as_ref()), &here, (threads, true, rounds()));
        report("parent", &what, &played);
        drop(here);
        let end = child.wait().unwrap();
        played.unwrap();
        assert!(end.success(), "{what}: the child says what failed");
    }
}

#[test]
fn two_processes_over_packets_lose_no_event() {
    two_processes(Path::Packets);
}

#[test]
fn two_processes_of_a_host_lose_no_event() {
    two_processes(Path::Host);
}

#[test]
fn two_clients_of_a_daemon_lose_no_event() {
    two_processes(Path::Daemon);
}
