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

    /// Threads by name, with what the kernel counted of them.
    fn threads(of: &[(&str, bool, u64, u64)]) -> BTreeMap<OsString, ThreadTime> {
        let thread = |&(id, is_runnable, ran, waited): &(&str, bool, u64, u64)| {
            (OsString::from(id), ThreadTime { is_runnable, ran, waited })
        };
        of.iter().map(thread).collect()
    }

    #[test]
    fn a_server_is_starved_where_its_threads_waited_for_half_of_the_time() {
        let before = threads(&[("1", false, 10, 100), ("2", true, 20, 200)]);
        let passed = Duration::from_nanos(1000);
        for (now, starved) in [
            // Both sleep, or ran.
            (&[("1", false, 10, 100), ("2", false, 20, 200)][..], false),
            (&[("1", true, 11, 100), ("2", true, 21, 200)], false),
            // One is runnable, and nothing of it was counted.
            (&[("1", true, 10, 100), ("2", false, 20, 200)], false),
            (&[("1", false, 10, 100), ("2", true, 20, 200)], true),
            // What both waited is added up: 499 and 500 ns.
            (&[("1", false, 11, 300), ("2", true, 21, 499)], false),
            (&[("1", false, 11, 300), ("2", true, 21, 500)], true),
            (&[("1", false, 11, 600)], true),
            // Of a new thread nothing is known, and a count that went back is none.
            (&[("3", true, 0, 9000)], false),
            (&[("1", true, 11, 0), ("2", true, 21, 699)], false),
            (&[("1", true, 11, 0), ("2", true, 21, 700)], true),
            (&[], false),
        ] {
            assert_eq!(is_starved(&before, &threads(now), passed), starved, "{now:?}");
        }
    }

    #[test]
    fn a_thread_is_read_from_its_folder_whatever_its_name_is() {
        let folder = std::env::temp_dir().join(format!("urma-task-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let read = |counts: &str, stat: &str| {
            fs::write(folder.join("schedstat"), counts).unwrap();
            fs::write(folder.join("stat"), stat).unwrap();
            ThreadTime::of(&folder).map(|time| (time.is_runnable, time.ran, time.waited))
        };
        assert_eq!(read("12 34 5\n", "7 (a) R (b) S 1 2"), Some((false, 12, 34)));
        assert_eq!(read("0 1 2", "7 (a) S) R 1 2"), Some((true, 0, 1)));
        assert_eq!(read("12", "7 (a) R 1"), None);
        assert_eq!(read("12 x", "7 (a) R 1"), None);
        assert_eq!(read("12 34 5", "7"), None);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(ThreadTime::of(&folder), None);
    }

    /// This process serves itself here: its threads are seen, those of a process that is not there are not.
    #[test]
    fn the_threads_of_the_server_are_looked_at() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let own = ServerClock::of(&socket);
        assert_eq!(own.pid, i32::try_from(std::process::id()).ok());
        let found = own.look();
        assert!(found.keys().any(|id| id.to_str() == Some(&std::process::id().to_string())));
        for pid in [None, Some(i32::MAX)] {
            assert!(ServerClock { pid }.look().is_empty());
        }
    }
}
