//! A controller as a process that is killed and stopped while its communicators reduce.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]
#![expect(clippy::disallowed_types, reason = "counters of a test, which nothing waits on")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;
use std::{fs, thread};

use inc::element::Operator;
use inc_control::proto::Snapshot;
use inc_control::{ControllerTool, HOSTS_PORT, SWITCHES_PORT};
use inc_net::group::CommunicatorCfg;
use inc_net::switch::ControlledSwitch;
use inc_world::{Network, Program, RANKS, wait_until};
use nix::sys::signal::Signal;

/// In each fifth one the controller is stopped, in the others killed.
const ROUNDS: u32 = 25;
const NETWORK: Network = Network(48, 1);
const ELEMENTS: u16 = 2000;
/// Longer than the controller takes for a sign that a session is dead.
const STOPPED: Duration = Duration::from_millis(500);

/// What ranks and the test tell each other.
#[derive(Default)]
struct Work {
    is_over: AtomicBool,
    /// Operations of rank 0 that are over.
    done: AtomicU32,
    /// Rounds after which another communicator is to be made.
    rounds: AtomicU32,
    /// Communicators that were made and used, by all ranks.
    made: AtomicU32,
}

/// Ends the work of the ranks, also if the test fails.
struct EndOfWork<'a>(&'a Work);

impl Drop for EndOfWork<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, SeqCst);
    }
}

impl Work {
    fn goes_on(&self) {
        let before = self.done.load(SeqCst);
        wait_until("operations go on", || self.done.load(SeqCst) >= before + 3);
    }
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::new(NETWORK.controller(), port)
}

/// Folder of the topology and of what the controller stores.
fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("killed-controller");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("map.yaml"), NETWORK.map()).unwrap();
    folder
}

fn controller(folder: &Path) -> Program {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inc-controller"));
    command
        .args(["--listen", &NETWORK.controller().to_string(), "--topology"])
        .arg(folder.join("map.yaml"))
        .arg("--store")
        .arg(format!("file:{}", folder.join("store").display()));
    Program::spawn_ready(&mut command, "ready")
}

fn snapshot() -> Option<Snapshot> {
    ControllerTool::connect(at(HOSTS_PORT), None).ok()?.list(None).ok()
}

/// The communicator that runs all the time is the oldest.
fn epoch() -> u32 {
    let communicators = snapshot().unwrap().communicators;
    communicators.iter().min_by_key(|of| of.id).unwrap().epoch
}

/// Waits until all ranks and so many switches have sessions.
fn wait_for_sessions(switches: usize) {
    wait_until("sessions are back", || {
        let Some(snapshot) = snapshot() else { return false };
        let members = snapshot.groups.iter().flat_map(|group| &group.members);
        members.filter(|member| member.has_session).count() == usize::from(RANKS)
            && snapshot.switches.iter().filter(|switch| switch.has_session).count() == switches
    });
}

/// Reduces until rank 0 says that it is over; makes another communicator after each round.
fn reduce(rank: u8, work: &Work) {
    let group = NETWORK.join(at(HOSTS_PORT), rank);
    let communicator = group.communicator(CommunicatorCfg::default()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                while work.rounds.load(SeqCst) <= round {
                    if work.is_over.load(SeqCst) {
                        return;
                    }
                    thread::park_timeout(Duration::from_millis(2));
                }
                let another = group.communicator(CommunicatorCfg::default()).unwrap();
                let ranks = another.allreduce(&[u32::from(rank), round], Operator::Sum).unwrap();
                assert_eq!(ranks, [6, u32::from(RANKS) * round]);
                work.made.fetch_add(1, SeqCst);
            }
        });
        let mut vector: Vec<_> = (0..ELEMENTS).map(|i| f64::from(i) + f64::from(rank)).collect();
        let sums: Vec<_> = (0..ELEMENTS).map(|i| f64::from(i) * 4.0 + 6.0).collect();
        vector.push(0.0);
        loop {
            let is_over = rank == 0 && work.is_over.load(SeqCst);
            vector[usize::from(ELEMENTS)] = f64::from(u8::from(is_over));
            let sum = communicator.allreduce(&vector, Operator::Sum).unwrap();
            let (last, found) = sum.split_last().unwrap();
            assert_eq!(found, sums);
            if rank == 0 {
                work.done.fetch_add(1, SeqCst);
            }
            if *last != 0.0 {
                return;
            }
        }
    });
}

#[test]
fn communicators_go_on_while_their_controller_is_killed_and_stopped() {
    let folder = folder();
    let mut process = Some(controller(&folder));
    let mut switches = NETWORK.start_switches(at(SWITCHES_PORT));
    let work = Work::default();
    thread::scope(|scope| {
        let _end = EndOfWork(&work);
        for rank in 0..RANKS {
            let work = &work;
            scope.spawn(move || reduce(rank, work));
        }
        let mut unchanged = 0;
        for round in 0..ROUNDS {
            work.goes_on();
            wait_for_sessions(switches.len());
            let before = epoch();
            let mut lost = None;
            if round % 5 == 4 {
                process.as_ref().unwrap().signal(Signal::SIGSTOP);
                thread::park_timeout(STOPPED);
                work.goes_on();
                process.as_ref().unwrap().signal(Signal::SIGCONT);
            } else {
                process.as_ref().unwrap().signal(Signal::SIGKILL);
                drop(process.take());
                work.goes_on();
                if round % 8 == 6 {
                    // No one can replace it before the controller is back.
                    let used = |switch: &ControlledSwitch| switch.switch().view().edges != 0;
                    let place =
                        switches.iter().position(|of| of.as_ref().is_some_and(used)).unwrap();
                    drop(switches[place].take());
                    lost = Some(place);
                }
                process = Some(controller(&folder));
            }
            wait_for_sessions(switches.len() - usize::from(lost.is_some()));
            work.goes_on();
            // All ranks make another one, on the sessions that came back.
            work.rounds.store(round + 1, SeqCst);
            let made = u32::from(RANKS) * (round + 1);
            wait_until("another communicator", || work.made.load(SeqCst) == made);
            let after = epoch();
            assert!(after >= before, "round {round}: epoch {before}, then {after}");
            if let Some(place) = lost {
                assert!(after > before, "round {round}: the tree has a switch that is gone");
                let index = u8::try_from(place).unwrap();
                switches[place] = Some(NETWORK.start_switch(index, at(SWITCHES_PORT)));
            } else {
                unchanged += u32::from(after == before);
            }
        }
        // An edge may die where processors are scarce, but not each time.
        assert!(unchanged > ROUNDS / 2, "the tree stayed as it was in {unchanged} rounds");
    });
}
