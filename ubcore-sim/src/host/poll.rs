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

use super::descriptor::ForkGuarded;

/// Readiness of a descriptor that ends a wait. A hang-up always does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// Something to read, for as long as there is something.
    Read,
    /// Something to read, once for each time that something came.
    EndpointEvent,
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

    /// Waits for at most `timeout` (`None`: without limit) and replaces the content of `ready`.
    /// An interrupted wait returns with nothing.
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

    /// As [`Poll::wait`], for less than a millisecond, to which `epoll_wait` rounds up.
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
        Interest::EndpointEvent => flags(Interest::Read) | epoll::EventFlags::ET,
        Interest::HangUp => epoll::EventFlags::RDHUP,
    }
}

/// Longer waits end early, with nothing: older kernels count milliseconds in 32 bits.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// Ready descriptors taken from one wait; the rest come with the next wait.
const BATCH: usize = 32;
