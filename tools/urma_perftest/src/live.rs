//! A run without end: rows meanwhile, and the wish to stop.
//!
//! *Owns*: the period, the signal that ends the run. *Takes*: progress. *Gives*: what to print, when.

use nix::sys::{
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};

use crate::error::RunError;

/// Receives the figures of each period of an endless run.
pub(crate) trait Periods {
    /// One is over: messages of `bytes` that completed in `nanos`.
    fn on_period(&mut self, bytes: u64, messages: u64, nanos: u64);
}

/// Interrupt and termination as something to look at. Made before any thread starts, so that all
/// threads inherit the mask.
#[derive(Debug)]
pub(crate) struct Interrupted {
    signals: SignalFd,
    /// One came: it stays known, a warm-up does not use it up.
    has_come: bool,
}

impl Interrupted {
    /// Takes SIGINT and SIGTERM away from their default action.
    pub(crate) fn watch() -> Result<Self, RunError> {
        let what = "watching for an interrupt";
        let system = |error: nix::Error| RunError::System { what, error: error.into() };
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.thread_block().map_err(system)?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&set, flags).map_err(system)?;
        Ok(Self { signals, has_come: false })
    }

    fn came(&mut self) -> bool {
        self.has_come |= matches!(self.signals.read_signal(), Ok(Some(_)));
        self.has_come
    }
}

/// Progress of an endless run.
#[derive(Debug)]
pub(crate) struct Live {
    interrupted: Interrupted,
    period_ns: u64,
    since_ns: u64,
    count: u64,
}

/// What happened in a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Period {
    /// Messages of the period.
    pub(crate) messages: u64,
    /// Length of the period in nanoseconds.
    pub(crate) nanos: u64,
    /// The user wants an end.
    pub(crate) is_last: bool,
}

/// How often an interrupt is looked for, nanoseconds.
const LOOK_NS: u64 = 50_000_000;

impl Live {
    /// Writes a row every `period_ms` milliseconds until the interrupt.
    pub(crate) fn new(interrupted: Interrupted, period_ms: u32) -> Self {
        let period_ns = u64::from(period_ms) * 1_000_000;
        Self { interrupted, period_ns, since_ns: 0, count: 0 }
    }

    /// The run starts at `now_ns`.
    pub(crate) fn start(&mut self, now_ns: u64) {
        (self.since_ns, self.count) = (now_ns, 0);
    }

    /// `count` messages are complete at `now_ns`: the period that ended, if one did.
    pub(crate) fn on_progress(&mut self, count: u64, now_ns: u64) -> Option<Period> {
        let nanos = now_ns.saturating_sub(self.since_ns);
        if nanos < self.period_ns.min(LOOK_NS) {
            return None;
        }
        let is_last = self.interrupted.came();
        if nanos < self.period_ns && !is_last {
            return None;
        }
        let messages = count - self.count;
        (self.since_ns, self.count) = (now_ns, count);
        Some(Period { messages, nanos, is_last })
    }
}
