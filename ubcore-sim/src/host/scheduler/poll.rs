//! One epoll instance.
//!
//! *Owns*: the descriptor of the set. *Takes*: descriptors with a key of the caller's choice.
//! *Gives*: keys that are ready. *Must not*: own what it watches (a closed descriptor leaves by
//! itself).

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use crate::host::descriptor::ForkGuarded;

/// Readiness of a descriptor that ends a wait. A hang-up always does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// Something to read, for as long as there is something.
    Read,
    /// Something to read, once for each time that something came.
    EdgeTriggered,
    /// Ends the wait at a hang-up only.
    HangUp,
}

/// A set of watched descriptors.
#[derive(Debug)]
pub struct Poll {
    epoll: ForkGuarded,
}

/// What a wait found. Kept between waits, so that they do not allocate.
#[derive(Debug, Default)]
pub struct ReadyList {
    keys: Vec<u64>,
}

impl Poll {
    /// An empty set.
    ///
    /// # Errors
    /// Out of descriptors or memory.
    pub fn new() -> io::Result<Self> {
        let epoll = ForkGuarded::new(epoll::create(epoll::CreateFlags::CLOEXEC)?)?;
        Ok(Self { epoll })
    }

    /// Watches `fd` (level-triggered).
    ///
    /// # Errors
    /// The system's error, such as a descriptor watched already.
    pub fn add(&self, fd: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(key), flags(interest))?)
    }

    /// Changes what is watched about `fd`.
    ///
    /// # Errors
    /// The system's error, such as a descriptor that is not watched.
    pub fn modify(&self, fd: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(key), flags(interest))?)
    }

    /// Watches `fd` no longer.
    ///
    /// # Errors
    /// The system's error, such as a descriptor that is not watched.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits for at most `timeout` (`None`: without limit) and replaces the content of `ready`. An interrupted wait
    /// returns nothing.
    ///
    /// # Errors
    /// The system's error.
    pub fn wait(&self, ready: &mut ReadyList, timeout: Option<Duration>) -> io::Result<()> {
        ready.keys.clear();
        let timeout = timeout.map(|limit| timespec(limit.min(WAIT_MAX)));
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); BATCH];
        match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((events, _)) => {
                ready.keys.extend(events.iter().map(|event| {
                    // The kernel's struct is packed: copy, do not borrow.
                    let data = event.data;
                    data.u64()
                }));
                Ok(())
            }
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for less than a millisecond, to which [`Poll::wait`] would round up.
    ///
    /// # Errors
    /// The system's error.
    pub fn wait_briefly(&self, ready: &mut ReadyList, timeout: Duration) -> io::Result<()> {
        let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
        match poll(&mut fds, Some(&timespec(timeout.min(WAIT_MAX)))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => self.wait(ready, Some(Duration::ZERO)),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Poll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl ReadyList {
    /// The keys of what is ready.
    pub fn keys(&self) -> impl Iterator<Item = u64> + '_ {
        self.keys.iter().copied()
    }
}

fn timespec(limit: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    }
}

fn flags(interest: Interest) -> epoll::EventFlags {
    match interest {
        Interest::Read => epoll::EventFlags::IN | epoll::EventFlags::RDHUP,
        Interest::EdgeTriggered => flags(Interest::Read) | epoll::EventFlags::ET,
        Interest::HangUp => epoll::EventFlags::RDHUP,
    }
}

/// Longer waits end early, with nothing: older kernels count milliseconds in 32 bits.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// Ready descriptors taken from one wait; the rest come with the next wait.
const BATCH: usize = 32;

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::net::UnixStream, time::Instant};

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(30);

    fn found(poll: &Poll, limit: Duration) -> Vec<u64> {
        let mut ready = ReadyList { keys: vec![77] };
        poll.wait(&mut ready, Some(limit)).unwrap();
        ready.keys().collect()
    }

    #[test]
    fn what_ends_a_wait_is_what_was_asked_for() {
        let poll = Poll::new().unwrap();
        let mut far = Vec::new();
        let pairs: Vec<(UnixStream, u64)> =
            [Interest::Read, Interest::EdgeTriggered, Interest::HangUp]
                .into_iter()
                .zip(1..)
                .map(|(interest, key)| {
                    let (near, other) = UnixStream::pair().unwrap();
                    poll.add(&near, key, interest).unwrap();
                    assert!(poll.add(&near, key, interest).is_err(), "it is watched already");
                    far.push(other);
                    (near, key)
                })
                .collect();
        assert_eq!(found(&poll, SHORT), [0; 0]);
        for other in &mut far {
            other.write_all(b"x").unwrap();
        }
        let mut first = found(&poll, LONG);
        first.sort_unstable();
        assert_eq!(first, [1, 2], "a hang-up alone is waited for at the third");
        assert_eq!(found(&poll, LONG), [1], "the second has nothing new");
        far[1].write_all(b"y").unwrap();
        let mut again = found(&poll, LONG);
        again.sort_unstable();
        assert_eq!(again, [1, 2]);
        poll.remove(&pairs[0].0).unwrap();
        assert!(poll.remove(&pairs[0].0).is_err(), "it is watched no more");
        assert_eq!(found(&poll, SHORT), [0; 0]);
        drop(far.pop());
        assert_eq!(found(&poll, LONG), [3], "a hang-up");
        poll.remove(&pairs[2].0).unwrap();
        // Another key and another interest for the second.
        poll.modify(&pairs[1].0, 9, Interest::Read).unwrap();
        assert_eq!((found(&poll, LONG), found(&poll, LONG)), (vec![9], vec![9]));
        assert!(poll.modify(&pairs[0].0, 1, Interest::Read).is_err(), "it is not watched");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a wait takes its time at least")]
    fn a_wait_takes_its_time_or_ends_with_what_is_ready() {
        let poll = Poll::new().unwrap();
        let (near, mut other) = UnixStream::pair().unwrap();
        poll.add(&near, 5, Interest::Read).unwrap();
        let briefly = |limit| {
            let (start, mut ready) = (Instant::now(), ReadyList { keys: vec![77] });
            poll.wait_briefly(&mut ready, limit).unwrap();
            (ready.keys().collect::<Vec<_>>(), start.elapsed())
        };
        let start = Instant::now();
        assert_eq!(found(&poll, SHORT), [0; 0]);
        assert!(start.elapsed() >= SHORT);
        for limit in [Duration::from_micros(300), SHORT] {
            let (keys, took) = briefly(limit);
            assert!(keys.is_empty() && took >= limit, "{keys:?} {took:?}");
        }
        other.write_all(b"x").unwrap();
        let start = Instant::now();
        assert_eq!(found(&poll, Duration::MAX), [5]);
        assert_eq!(briefly(Duration::MAX).0, [5]);
        let mut ready = ReadyList::default();
        poll.wait(&mut ready, None).unwrap();
        assert_eq!(ready.keys().collect::<Vec<_>>(), [5]);
        assert!(start.elapsed() < LONG);
        assert_eq!(timespec(Duration::new(3, 7)), Timespec { tv_sec: 3, tv_nsec: 7 });
    }
}
