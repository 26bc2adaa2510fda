//! The signals that end a program, as something that can be waited for.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// SIGINT and SIGTERM, as something that can be waited for.
#[derive(Debug)]
pub struct Ends(SignalFd);

impl Ends {
    /// Watches for the signals; called before any thread starts, so that all of them inherit the mask.
    ///
    /// # Errors
    /// The system's.
    pub fn watch() -> nix::Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.thread_block()?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?))
    }

    /// Waits so long; whether a signal came.
    #[must_use]
    pub fn within(&self, most: Duration) -> bool {
        let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, timeout).is_ok_and(|ready| ready != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use nix::sys::signal::raise;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "what is tested is how long the wait takes")]
    fn timed(ends: &Ends, most: Duration) -> (bool, Duration) {
        let start = Instant::now();
        (ends.within(most), start.elapsed())
    }

    /// Each signal in a thread of its own: there it is blocked, and there it is sent.
    #[test]
    fn a_wait_is_over_by_a_signal_or_with_its_time() {
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            let thread = std::thread::spawn(move || {
                let ends = Ends::watch().expect("a descriptor");
                let (came, took) = timed(&ends, Duration::from_millis(60));
                assert!(!came && took >= Duration::from_millis(60), "no signal: {took:?}");
                assert!(!ends.within(Duration::ZERO));
                raise(signal).expect("a signal to this thread");
                let (came, took) = timed(&ends, Duration::MAX);
                assert!(came && took < Duration::from_secs(20), "{signal}: {took:?}");
            });
            assert!(thread.join().is_ok());
        }
    }
}
