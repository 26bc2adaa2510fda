//! How ranks that do not know the controller find it: rank 0 listens at a port of its own, and says to each that asks where
//! the controller is and what the group is called.
//!
//! Rank 0 reads nothing, so no stranger can keep it from an answer; the answer alone lets no one join a group that wants a
//! proof. Who asks looks for a controller at the same address, too: a rank needs to know one address, of either.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::clock;

/// TCP port of rank 0 for the other ranks.
pub const BOOTSTRAP_PORT: u16 = 52223;

/// What an answer begins with; the number is the version of its form.
const GREETING: &str = "inc rank 0, version 1";
/// An answer is no longer.
const ANSWER_MAX: usize = 1 << 16;
/// Rank 0 looks so often for ranks that ask.
const LOOK: Duration = Duration::from_millis(10);
/// A rank that takes no answer for so long gets none.
const SEND: Duration = Duration::from_millis(200);
/// An attempt to reach rank 0 or the controller takes no longer.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Pauses between attempts, at least and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// What rank 0 says of its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupInvitation {
    /// Name of the group.
    pub name: String,
    /// Ranks that it has when it is complete.
    pub world_size: u16,
    /// Where its controllers wait for hosts, of which one is in charge.
    pub controllers: Vec<SocketAddr>,
}

/// Why a rank did not find its group by rank 0.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// Rank 0 cannot listen.
    #[error("rank 0 cannot listen for the other ranks at TCP {address}: {error}")]
    Listen {
        /// Where it was to listen.
        address: SocketAddr,
        /// Error of the system.
        error: io::Error,
    },
    /// There is neither of both, or it does not answer.
    #[error(
        "rank 0 did not come in time: at {rank_zero} {rank_zero_why}; nor is there a controller at {controller}: \
         {controller_why}"
    )]
    NotFound {
        /// Where rank 0 was looked for.
        rank_zero: SocketAddr,
        /// What the last attempt there ended with.
        rank_zero_why: String,
        /// Where a controller was looked for.
        controller: SocketAddr,
        /// What the last attempt there ended with.
        controller_why: String,
    },
    /// Rank 0 expects another number of ranks.
    #[error("rank {rank} says world size {theirs} of group {group}, rank 0 said {ours}")]
    WorldSize {
        /// The rank that looked for it.
        rank: u16,
        /// Ranks, as this one was given them.
        theirs: u16,
        /// Name of the group.
        group: String,
        /// Ranks, as rank 0 was given them.
        ours: u16,
    },
}

/// Answers ranks that ask until it is dropped.
#[derive(Debug)]
pub(crate) struct InvitingRank {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl InvitingRank {
    pub(crate) fn start(
        address: SocketAddr,
        invitation: &GroupInvitation,
    ) -> Result<Self, BootstrapError> {
        let failed = |error| BootstrapError::Listen { address, error };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let answer = invitation.written();
        let (stop, stopped) = mpsc::channel::<()>();
        let run = move || {
            while stopped.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
                while let Ok((mut peer, from)) = listener.accept() {
                    let sent = peer
                        .set_nonblocking(false)
                        .and_then(|()| peer.set_write_timeout(Some(SEND)))
                        .and_then(|()| peer.write_all(answer.as_bytes()));
                    tracing::debug!(%from, ?sent, "a rank asked for the group");
                }
            }
        };
        let thread =
            thread::Builder::new().name("inc-rank-0".to_owned()).spawn(run).map_err(failed)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for InvitingRank {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl GroupInvitation {
    fn written(&self) -> String {
        let mut text = format!("{GREETING}\nworld_size {}\n", self.world_size);
        for controller in &self.controllers {
            let _ = writeln!(text, "controller {controller}");
        }
        // With its length, so that a name of any form has an end, and an answer that was cut is none.
        let _ = write!(text, "group {}\n{}", self.name.len(), self.name);
        text
    }

    /// The error is what is wrong with it.
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "its answer is no text".to_owned())?;
        let (greeting, mut rest) = text.split_once('\n').unwrap_or((text, ""));
        if greeting != GREETING {
            let begin: String = greeting.escape_debug().take(GREETING.len()).collect();
            return Err(format!("its answer begins with \"{begin}\", not with \"{GREETING}\""));
        }
        let (mut world_size, mut controllers) = (None, Vec::new());
        loop {
            let (line, behind) = rest.split_once('\n').ok_or("its answer is cut")?;
            let (what, value) = line.split_once(' ').ok_or("a line of its answer has no value")?;
            let wrong = || format!("its answer has a wrong {}", what.escape_debug());
            match what {
                "world_size" => world_size = Some(value.parse().map_err(|_| wrong())?),
                "controller" => controllers.push(value.parse().map_err(|_| wrong())?),
                "group" => {
                    let len: usize = value.parse().map_err(|_| wrong())?;
                    if behind.len() != len {
                        return Err("its answer is cut".to_owned());
                    }
                    let world_size = world_size.ok_or("its answer has no world_size")?;
                    if controllers.is_empty() {
                        return Err("its answer names no controller".to_owned());
                    }
                    return Ok(Self { name: behind.to_owned(), world_size, controllers });
                }
                _ => return Err(wrong()),
            }
            rest = behind;
        }
    }

    /// A controller on rank 0's own machine, as it is reached from elsewhere.
    fn seen_from_elsewhere(&mut self, rank_zero: IpAddr) {
        for controller in &mut self.controllers {
            if controller.ip().is_loopback() && !rank_zero.is_loopback() {
                controller.set_ip(rank_zero);
            }
        }
    }
}

/// What a rank found at the address that it was given.
pub(crate) enum FoundGroup {
    /// The controller itself is there.
    Controller,
    /// Rank 0, and what it says of its group.
    Invited(GroupInvitation),
}

/// Looks for rank 0 and the controller at one address, so long at most. An answer that is none may be that of another
/// program which is about to end, so it is asked for again.
pub(crate) fn find(
    controller: SocketAddr,
    rank_zero_port: u16,
    wait: Duration,
) -> Result<FoundGroup, BootstrapError> {
    let deadline = clock() + wait;
    let rank_zero = SocketAddr::new(controller.ip(), rank_zero_port);
    let mut pause = PAUSES[0];
    loop {
        let rank_zero_why = match ask(rank_zero, deadline) {
            Ok(invitation) => return Ok(FoundGroup::Invited(invitation)),
            Err(why) => why,
        };
        let controller_why = match connect(controller, deadline) {
            Ok(_) => return Ok(FoundGroup::Controller),
            Err(error) => error.to_string(),
        };
        if left(deadline) <= pause {
            let found =
                BootstrapError::NotFound { rank_zero, rank_zero_why, controller, controller_why };
            return Err(found);
        }
        thread::park_timeout(pause);
        pause = (2 * pause).min(PAUSES[1]);
    }
}

fn ask(rank_zero: SocketAddr, deadline: Instant) -> Result<GroupInvitation, String> {
    let mut peer = connect(rank_zero, deadline).map_err(|error| error.to_string())?;
    let deadline = deadline.min(clock() + ATTEMPT);
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let left = left(deadline);
        if left.is_zero() {
            return Err("it is accepted, but there is no answer".to_owned());
        }
        let read = peer.set_read_timeout(Some(left)).and_then(|()| peer.read(&mut part));
        match read {
            Ok(0) => break,
            Ok(len) => answer.extend_from_slice(&part[..len]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.to_string()),
        }
        if answer.len() > ANSWER_MAX {
            return Err(format!("its answer is longer than {ANSWER_MAX} bytes"));
        }
    }
    let mut invitation = GroupInvitation::read(&answer)?;
    invitation.seen_from_elsewhere(rank_zero.ip());
    Ok(invitation)
}

fn connect(to: SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
    // A timeout of zero is none.
    let wait = left(deadline).min(ATTEMPT).max(Duration::from_millis(1));
    TcpStream::connect_timeout(&to, wait)
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(clock())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invitation() -> GroupInvitation {
        let controllers = ["127.0.0.1:52200", "10.0.0.2:1"];
        let controllers = controllers.map(|at| at.parse().unwrap()).to_vec();
        GroupInvitation { name: "a job\nof two lines".to_owned(), world_size: 4, controllers }
    }

    #[test]
    fn an_answer_is_read_as_it_was_written_and_never_in_part() {
        let text = invitation().written();
        assert_eq!(GroupInvitation::read(text.as_bytes()), Ok(invitation()));
        for end in 0..text.len() {
            let read = GroupInvitation::read(&text.as_bytes()[..end]);
            assert!(read.is_err(), "{end}: {read:?}");
        }
        for (from, to, why) in [
            ("version 1", "version 2", "begins with \"inc rank 0, version 2\""),
            ("world_size 4", "world_size 65536", "wrong world_size"),
            ("world_size 4\n", "", "no world_size"),
            ("10.0.0.2:1", "10.0.0.2", "wrong controller"),
            ("controller", "driver", "wrong driver"),
            ("group 18", "group 18000", "is cut"),
            ("group 18", "group18", "no value"),
        ] {
            let error = GroupInvitation::read(text.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let none = "inc rank 0, version 1\nworld_size 4\ngroup 1\na";
        assert!(GroupInvitation::read(none.as_bytes()).unwrap_err().contains("no controller"));
        assert!(GroupInvitation::read(&[0xff; 9]).unwrap_err().contains("no text"));
    }

    #[test]
    fn a_controller_on_the_machine_of_rank_0_is_reached_there() {
        let mut seen = invitation();
        seen.seen_from_elsewhere("127.0.0.7".parse().unwrap());
        assert_eq!(seen, invitation());
        seen.seen_from_elsewhere("10.0.0.9".parse().unwrap());
        let seen: Vec<_> = seen.controllers.iter().map(ToString::to_string).collect();
        assert_eq!(seen, ["10.0.0.9:52200", "10.0.0.2:1"]);
    }

    #[test]
    fn who_answers_nothing_or_without_end_is_waited_for_within_the_bound() {
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = listen();
        let endless = listen();
        let port = |of: &TcpListener| of.local_addr().unwrap().port();
        let ports = [port(&silent), port(&endless)];
        thread::spawn(move || {
            while let Ok((mut peer, _)) = endless.accept() {
                // Until the one who asks has enough.
                let _ = peer.write_all(&[b' '; ANSWER_MAX << 8]);
            }
        });
        let nothing = SocketAddr::from(([127, 0, 0, 1], 1));
        for (port, why) in ports.into_iter().zip(["there is no answer", "longer than"]) {
            let found = find(nothing, port, Duration::from_millis(300));
            let Err(error) = found else { panic!("a group was found") };
            assert!(error.to_string().contains(why), "{error}");
            assert!(error.to_string().contains("127.0.0.1:1:"), "{error}");
        }
    }
}
