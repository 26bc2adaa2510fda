//! What ends sleeps.
//!
//! - owns: an eventfd. takes: wakes of any thread. gives: a descriptor that shows them. must not: wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// What adds one to an eventfd, as the system counts.
#[expect(clippy::host_endian_bytes, reason = "the system reads a number of this machine")]
const COUNT_ONE: [u8; 8] = 1_u64.to_ne_bytes();

/// Ends the sleep of a driver from another thread.
#[derive(Debug, Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)))
    }

    /// Wakes since this was asked before.
    #[cfg(test)]
    pub(crate) fn take(&self) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(&*self.0, &mut count).map_or(0, |_| u64::from_le_bytes(count))
    }

    /// All threads that sleep for the driver look at it; one that is about to looks once more.
    pub fn wake(&self) {
        // It fails when 2^64 - 1 wakes are pending: then it is awake.
        let _ = rustix::io::write(&*self.0, &COUNT_ONE);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
