//! How long a server has not answered: time in which it had no processor does not count.
//!
//! - owns: which process the server is. takes: what the kernel counts of its threads. gives: waits for a reply. must not:
//!   wait for ever for a server that says it is busy.
//!
//! Two hundred clients that poll leave a daemon a hundredth of a processor, or less. A reply that comes late then is no sign of a
//! server that hangs.
#![expect(clippy::disallowed_methods, reason = "the bound of a reply is real time")]

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

/// The process that serves a connection, by what the kernel counts of it.
#[derive(Debug)]
pub(crate) struct ServerClock {
    /// `None`: it is in another PID namespace.
    pid: Option<i32>,
}

impl ServerClock {
    pub(crate) fn of(socket: &UnixStream) -> Self {
        let peer = getsockopt(socket, PeerCredentials).ok();
        Self { pid: peer.map(|peer| peer.pid()).filter(|pid| *pid > 0) }
    }

    /// Waits until `socket` can be read, `bound` at most of time in which the server had a processor.
    ///
    /// # Errors
    /// `TimedOut`; the system's.
    pub(crate) fn await_reply(&self, socket: &UnixStream, bound: Duration) -> io::Result<()> {
        self.await_within(socket, bound, bound * STARVED_MAX)
    }

    /// Waits for a reply like [`ServerClock::await_reply`], for at most `most`, with or without a processor for the daemon.
    fn await_within(&self, socket: &UnixStream, bound: Duration, most: Duration) -> io::Result<()> {
        let begun = Instant::now();
        let slice = bound / SLICES;
        // The usual reply comes before anything is asked about the server.
        if is_readable(socket, slice)? {
            return Ok(());
        }
        let (mut counted, mut seen) = (slice, self.look());
        while counted < bound && begun.elapsed() < most {
            let slice_begun = Instant::now();
            if is_readable(socket, slice)? {
                return Ok(());
            }
            let now = self.look();
            if !is_starved(&seen, &now, slice_begun.elapsed()) {
                counted += slice;
            }
            seen = now;
        }
        // Both may have waited for a processor: the reply may be there.
        if is_readable(socket, Duration::ZERO)? {
            return Ok(());
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// The threads of the server, by their ids; none: the kernel does not say.
    fn look(&self) -> BTreeMap<OsString, ThreadTime> {
        let tasks = self.pid.and_then(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
        let tasks = tasks.into_iter().flatten().flatten();
        // A thread may end meanwhile.
        tasks.filter_map(|task| Some((task.file_name(), ThreadTime::of(&task.path())?))).collect()
    }
}

/// What the kernel counts of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ThreadTime {
    is_runnable: bool,
    /// Nanoseconds on a processor.
    ran: u64,
    /// Nanoseconds for which it was runnable and waited; it counts them when it runs.
    waited: u64,
}

impl ThreadTime {
    fn of(task: &Path) -> Option<Self> {
        let counts = fs::read_to_string(task.join("schedstat")).ok()?;
        let mut counts = counts.split(' ').map_while(|count| count.parse().ok());
        let (ran, waited) = (counts.next()?, counts.next()?);
        let stat = fs::read_to_string(task.join("stat")).ok()?;
        // The name of the thread may contain anything.
        let (_, state) = stat.rsplit_once(") ")?;
        Some(Self { is_runnable: state.starts_with('R'), ran, waited })
    }
}

/// Whether threads of a server had to wait for a processor in the time that `passed` between two looks.
fn is_starved(
    before: &BTreeMap<OsString, ThreadTime>,
    now: &BTreeMap<OsString, ThreadTime>,
    passed: Duration,
) -> bool {
    let mut waited = Duration::ZERO;
    for (id, now) in now {
        let Some(before) = before.get(id) else { continue };
        if now.is_runnable && now == before {
            // It has waited all the time, and waits on.
            return true;
        }
        waited += Duration::from_nanos(now.waited.saturating_sub(before.waited));
    }
    waited >= passed / 2
}

fn is_readable(socket: &UnixStream, bound: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(bound).ok();
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], timeout.as_ref()) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Parts of a bound, after each of which the server's threads are looked at.
const SLICES: u32 = 10;
/// Bounds that pass in all before a server without a processor is given up, too.
const STARVED_MAX: u32 = 24;

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Processes that leave others of this processor little, until they are dropped.
    struct Load(Vec<Child>);

    impl Drop for Load {
        fn drop(&mut self) {
            for child in &mut self.0 {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    fn shell(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn a_server_that_sleeps_is_given_up_at_its_bound_and_one_without_a_processor_is_not() {
        let (client, _server) = UnixStream::pair().unwrap();
        let (bound, most) = (Duration::from_millis(500), Duration::from_millis(2500));
        let sleeper = Load(vec![shell("exec sleep 60")]);
        let server = |load: &Load| ServerClock { pid: load.0[0].id().try_into().ok() };
        let begun = Instant::now();
        let error = server(&sleeper).await_within(&client, bound, most).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() < most, "{:?}", begun.elapsed());
        // All on one processor: the first one has a share of an eighth.
        let spin = "taskset -p -c 0 $$ >/dev/null 2>&1; while :; do :; done";
        let spinners = Load((0..8).map(|_| shell(spin)).collect());
        let begun = Instant::now();
        let error = server(&spinners).await_within(&client, bound, most).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "and not for ever");
        assert!(begun.elapsed() >= most, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_reply_that_comes_is_seen_whatever_the_server_is() {
        for pid in [None, Some(i32::MAX)] {
            let (client, server) = UnixStream::pair().unwrap();
            let clock = ServerClock { pid };
            let bound = Duration::from_millis(50);
            assert!(clock.await_reply(&client, bound).is_err());
            rustix::io::write(&server, &[1]).unwrap();
            clock.await_reply(&client, Duration::ZERO).unwrap();
        }
    }
}
