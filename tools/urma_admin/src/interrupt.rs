//! The wish to stop, as something to look at.
//!
//! *Owns*: SIGINT and SIGTERM of this process. *Gives*: whether one came.

use nix::sys::{
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};

/// Interrupts of this process.
#[derive(Debug)]
pub(crate) struct InterruptFlag(SignalFd);

impl InterruptFlag {
    /// Takes both signals away from their default action.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn watch() -> std::io::Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Self(SignalFd::with_flags(&set, flags)?))
    }

    /// Whether a signal has interrupted the process.
    pub(crate) fn came(&self) -> bool {
        matches!(self.0.read_signal(), Ok(Some(_)))
    }
}
