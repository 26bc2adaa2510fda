//! Eventfds that interrupts count in.
//!
//! - owns: a descriptor. gives: the number of interrupts. must not: wait without a bound.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::read,
};

/// An eventfd for [`crate::PciInterrupts::enable`].
#[derive(Debug)]
pub struct InterruptSignal(OwnedFd);

impl InterruptSignal {
    /// Makes an eventfd that counts 0.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Returns the descriptor of the eventfd.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Waits for an interrupt, at most `bound`. Returns the number of interrupts since the last call, 0 if none came; a
    /// signal of the process may end the wait early.
    #[must_use]
    pub fn wait(&self, bound: Duration) -> u64 {
        let timeout = Timespec::try_from(bound).ok();
        let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], timeout.as_ref());
        let mut count = [0; 8];
        match read(&self.0, &mut count) {
            Ok(8) => u64::from_le_bytes(count),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_since_the_last_wait_are_counted() {
        let signal = InterruptSignal::new().unwrap();
        let raise = |count: u64| rustix::io::write(signal.fd(), &count.to_le_bytes()).unwrap();
        assert_eq!(signal.wait(Duration::ZERO), 0);
        raise(3);
        raise(0x0102_0304_0506);
        assert_eq!(signal.wait(Duration::from_secs(60)), 0x0102_0304_0509);
        assert_eq!(signal.wait(Duration::from_millis(1)), 0);
    }
}
