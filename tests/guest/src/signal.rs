//! Eventfds that interrupts count in.
//!
//! *Owns*: waiting, always with a bound.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::read,
};

/// A new eventfd.
#[derive(Debug)]
pub(crate) struct Signal(OwnedFd);

impl Signal {
    pub(crate) fn new() -> Result<Self, String> {
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        made.map(Self).map_err(|error| format!("making an eventfd: {error}"))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Interrupts since the last call; waits for the first of them, at most `bound`.
    pub(crate) fn wait(&self, bound: Duration) -> u64 {
        let timeout = Timespec::try_from(bound).ok();
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        // A wait that was interrupted counts as one without an interrupt: the caller waits again or fails.
        let _ = poll(&mut fds, timeout.as_ref());
        let mut count = [0; 8];
        match read(&self.0, &mut count) {
            Ok(8) => u64::from_le_bytes(count),
            _ => 0,
        }
    }
}
