//! The door: connections that come, and those that are turned away.
//!
//! - owns: the listening socket, and connections that wait for their refusal. takes: connections. gives: each one to its service,
//!   or a reason to it. must not: keep a thread, or anything beyond a bound, for who is not let in; wait for one connection.
//!
//! Whose a connection is decides before anything is kept for it. A refusal is the answer to a client's first message, so it
//! is waited for, in this thread: strangers and users that may be clients have places of their own there, of which one user gets a
//! part. Who finds none is closed without a reason.

use std::{
    io,
    os::unix::net::{UnixListener, UnixStream},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use udma_vfio::user::refuse;

use crate::{
    client::ClientService,
    status::{ClientProcess, RefusalReason},
};

/// The listening socket, and those who wait for their refusal.
#[derive(Debug)]
pub(crate) struct Door {
    listener: UnixListener,
    waiting: Vec<TurnedAway>,
    log: RefusalLog,
}

/// A connection that is not served, until it asks and reads why.
#[derive(Debug)]
struct TurnedAway {
    socket: UnixStream,
    uid: u32,
    /// Its user may be a client.
    is_user: bool,
    errno: Errno,
    until: Instant,
}

impl Door {
    /// # Errors
    /// The system's.
    pub(crate) fn new(listener: UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let log = RefusalLog { since: Instant::now(), logged: 0, unlogged: 0 };
        Ok(Self { listener, waiting: Vec::new(), log })
    }

    /// Lets clients of `service` in, for ever.
    pub(crate) fn run(mut self, service: &Arc<ClientService>) -> ! {
        loop {
            if self.wait() {
                self.accept(service);
            }
            self.answer();
            self.log.log_rest();
        }
    }

    /// Waits until there is something to do; whether connections are to be accepted.
    fn wait(&self) -> bool {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.waiting.iter().map(|one| PollFd::new(&one.socket, PollFlags::IN)));
        let bound = self.next_look().and_then(|bound| Timespec::try_from(bound).ok());
        let _ = poll(&mut fds, bound.as_ref());
        fds.first().is_some_and(|listener| !listener.revents().is_empty())
    }

    /// Until who waits is looked at again: a bound ends, or the log has something to say. `None`: there is neither.
    fn next_look(&self) -> Option<Duration> {
        let is_idle = self.waiting.is_empty() && self.log.unlogged == 0;
        (!is_idle).then_some(LOOK)
    }

    /// Accepts connections that are there, a bounded number.
    fn accept(&mut self, service: &Arc<ClientService>) {
        for _ in 0..ACCEPTS {
            match self.listener.accept() {
                Ok((socket, _)) => self.judge(socket, service),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // Out of descriptors, say: those who are served go on.
                    tracing::warn!(%error, "a connection was not accepted");
                    std::thread::sleep(RETRY);
                    return;
                }
            }
        }
    }

    fn judge(&mut self, socket: UnixStream, service: &Arc<ClientService>) {
        let process = match getsockopt(&socket, PeerCredentials) {
            Ok(peer) => ClientProcess { uid: peer.uid(), pid: peer.pid() },
            Err(error) => {
                tracing::warn!(%error, "a client is refused: no credentials");
                return service.roster.count_refusal(RefusalReason::Resources);
            }
        };
        let is_user = service.users.allows(process.uid);
        let (reason, errno) = if !is_user {
            (RefusalReason::User, Errno::ACCESS)
        } else if let Some(place) = service.places.take(process.uid) {
            return service.serve(socket, process, place);
        } else {
            (RefusalReason::TooMany, Errno::USERS)
        };
        service.roster.count_refusal(reason);
        self.log.add(process, reason);
        self.turn_away((socket, process.uid), is_user, errno);
    }

    /// Answers a connection when it asks, if there is a place for it to wait.
    fn turn_away(&mut self, (socket, uid): (UnixStream, u32), is_user: bool, errno: Errno) {
        if !is_waiting(refuse(&socket, errno)) {
            return;
        }
        let same: Vec<u32> =
            self.waiting.iter().filter(|one| one.is_user == is_user).map(|one| one.uid).collect();
        let of_user = same.iter().filter(|other| **other == uid).count();
        if same.len() < WAITING_MAX && of_user < WAITING_OF_USER_MAX {
            let until = Instant::now() + REFUSAL_BOUND;
            self.waiting.push(TurnedAway { socket, uid, is_user, errno, until });
        }
    }

    fn answer(&mut self) {
        let now = Instant::now();
        self.waiting.retain(|one| is_waiting(refuse(&one.socket, one.errno)) && now < one.until);
    }
}

/// Whether the client has not asked yet.
fn is_waiting(refused: io::Result<()>) -> bool {
    refused.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Refusals in the log: one who is refused may come again without end.
#[derive(Debug)]
struct RefusalLog {
    since: Instant,
    logged: u32,
    unlogged: u64,
}

impl RefusalLog {
    fn add(&mut self, ClientProcess { uid, pid }: ClientProcess, reason: RefusalReason) {
        self.log_rest();
        if self.logged < LOGGED_MAX {
            self.logged += 1;
            tracing::warn!(uid, pid, reason = reason.name(), "a client is refused");
        } else {
            self.unlogged += 1;
        }
    }

    /// Once in a while, how many are not in it.
    fn log_rest(&mut self) {
        if self.since.elapsed() >= LOGGED_EVERY {
            if self.unlogged != 0 {
                tracing::warn!(more = self.unlogged, "clients were refused");
            }
            *self = Self { since: Instant::now(), logged: 0, unlogged: 0 };
        }
    }
}

/// Connections that wait for their refusal: of users that may be clients, and as many others.
const WAITING_MAX: usize = 16;
/// Of these, those of one user.
const WAITING_OF_USER_MAX: usize = 4;
/// How long a client that is refused has to ask.
const REFUSAL_BOUND: Duration = Duration::from_secs(2);
/// Between two looks at those who wait.
const LOOK: Duration = Duration::from_millis(100);
/// Connections that are accepted before those who wait are looked at.
const ACCEPTS: u32 = 64;
/// Pause after a connection that could not be accepted.
const RETRY: Duration = Duration::from_millis(100);
/// Refusals that the log names in [`LOGGED_EVERY`].
const LOGGED_MAX: u32 = 8;
const LOGGED_EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    /// Header of a version message, and what a reply is with an error.
    const VERSION: [u8; 16] = [7, 0, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const REFUSED: [u8; 16] = [7, 0, 1, 0, 16, 0, 0, 0, 0x21, 0, 0, 0, 13, 0, 0, 0];

    #[test]
    fn connections_wait_for_their_refusal_in_bounded_places() {
        let path = std::env::temp_dir().join(format!("ubcored-door-{}", std::process::id()));
        let mut door = Door::new(UnixListener::bind(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut clients = Vec::new();
        let mut come = |door: &mut Door, uid, is_user| {
            let (client, server) = UnixStream::pair().unwrap();
            door.turn_away((server, uid), is_user, Errno::ACCESS);
            clients.push(client);
            door.waiting.len()
        };
        let counts: Vec<_> = (0..6).map(|_| come(&mut door, 1, false)).collect();
        assert_eq!(counts, [1, 2, 3, 4, 4, 4], "of one user");
        assert_eq!((2..30).map(|uid| come(&mut door, uid, false)).max(), Some(16), "of all");
        assert_eq!(come(&mut door, 40, true), 17, "users have places of their own");
        let mut read = [0; 16];
        // It asks, and reads why; the others wait on.
        clients[0].write_all(&VERSION).unwrap();
        door.answer();
        clients[0].read_exact(&mut read).unwrap();
        assert_eq!((read, door.waiting.len()), (REFUSED, 16));
        // Who asked before needs no place, and who leaves gives it back.
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(&VERSION).unwrap();
        door.turn_away((server, 1), false, Errno::ACCESS);
        client.read_exact(&mut read).unwrap();
        assert_eq!((read, door.waiting.len()), (REFUSED, 16));
        drop(clients.split_off(3));
        door.answer();
        assert_eq!(door.waiting.len(), 2);
        for one in &mut door.waiting {
            one.until = Instant::now();
        }
        door.answer();
        assert!(door.waiting.is_empty());
    }

    #[test]
    fn who_waits_or_is_not_in_the_log_is_looked_at_again() {
        let path = std::env::temp_dir().join(format!("ubcored-look-{}", std::process::id()));
        let mut door = Door::new(UnixListener::bind(&path).unwrap()).unwrap();
        assert_eq!(door.next_look(), None, "nothing but a connection wakes it");
        let (client, server) = UnixStream::pair().unwrap();
        door.turn_away((server, 1), false, Errno::ACCESS);
        assert_eq!(door.next_look(), Some(LOOK));
        assert!(!door.wait(), "it comes back without a connection");
        drop(client);
        door.answer();
        assert_eq!(door.next_look(), None);
        door.log.unlogged = 1;
        assert_eq!(door.next_look(), Some(LOOK));
        door.log.unlogged = 0;
        let _client = UnixStream::connect(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(door.wait(), "a connection is there");
    }

    #[test]
    fn the_log_names_a_few_refusals_and_counts_the_others() {
        let mut log = RefusalLog { since: Instant::now(), logged: 0, unlogged: 0 };
        for pid in 0..100 {
            log.add(ClientProcess { uid: 1, pid }, RefusalReason::User);
        }
        assert_eq!((log.logged, log.unlogged), (8, 92));
        log.since = log.since.checked_sub(LOGGED_EVERY).unwrap();
        log.log_rest();
        assert_eq!((log.logged, log.unlogged), (0, 0));
    }
}
