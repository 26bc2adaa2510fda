//! One size of one test, on one side: what all eight tests share, also in a run without end.
//!
//! Has the bound of every wait, the message that the peer is finished, sample storage, and the signal that ends a
//! run. Must not print.

use std::time::Duration;

use hdrhistogram::Histogram;
use nix::sys::{
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};
use urma::{PathKind, Region};

use crate::{
    channel::Patience,
    cli::Spin,
    clock::RunningClock,
    error::RunError,
    layout::Layout,
    oob::{Oob, OobMessage},
    plan::{Plan, RunLength, Test},
    receive::Receiver,
    session::{PostedQueues, SessionObjects},
};

/// What one size gave, on one side.
#[derive(Clone, Debug, Default)]
pub(crate) struct SizeSamples {
    /// Nanoseconds of each round trip; latency tests by iterations only.
    pub(crate) samples: Vec<u32>,
    /// Messages completed, per jetty.
    pub(crate) messages: Vec<u64>,
    /// Nanoseconds until a jetty's last message completed.
    pub(crate) nanos: Vec<u64>,
    /// Nanoseconds per message in the best stretch of all jetties together.
    pub(crate) best_ns: Option<f64>,
    /// Number of messages received.
    pub(crate) received: u64,
    /// Distribution of latencies, where one was asked for.
    pub(crate) latency: Option<Histogram<u64>>,
}

impl SizeSamples {
    /// Messages of all jetties.
    pub(crate) fn total(&self) -> u64 {
        self.messages.iter().sum()
    }

    /// Time of the slowest jetty.
    pub(crate) fn longest_ns(&self) -> u64 {
        self.nanos.iter().copied().max().unwrap_or(0)
    }
}

/// Everything a test needs for one size.
pub(crate) struct Pass<'p, 'a> {
    /// Plan of the whole run.
    pub(crate) plan: &'p Plan,
    /// What is posted to and polled.
    pub(crate) ends: &'p mut PostedQueues,
    /// Segments and targets that requests name.
    pub(crate) objects: &'a SessionObjects,
    /// The receiving side of SEND.
    pub(crate) receiver: &'p mut Receiver<'a>,
    /// Connection to the peer for parameters and results.
    pub(crate) oob: &'p mut Oob,
    /// Places of messages in the memory.
    pub(crate) layout: Layout,
    /// Clock of the measurement.
    pub(crate) clock: RunningClock,
    /// Which of the sizes this is.
    pub(crate) index: u64,
    /// When this side sent its last beat, in nanoseconds of the clock.
    pub(crate) beat_ns: u64,
    /// Rows of an endless run, and the side that prints them.
    pub(crate) live: Option<(&'p mut Live, &'p mut dyn Periods)>,
}

impl Pass<'_, '_> {
    /// Returns the parameters of the test.
    pub(crate) fn test(&self) -> &Test {
        &self.plan.test
    }

    /// Returns the memory of this side.
    pub(crate) fn region(&self) -> &Region {
        self.objects.region()
    }

    /// Longest wait, as the user sets it.
    pub(crate) fn patience(&self) -> Patience {
        let bound = Duration::from_secs(u64::from(self.plan.wait_timeout_s));
        Patience::new(self.clock, bound)
    }

    /// How a write latency test waits.
    pub(crate) fn spin(&self) -> Spin {
        let by_path = match self.objects.path() {
            PathKind::Packets => Spin::Poll,
            PathKind::Local | PathKind::SameHost => Spin::Memory,
        };
        self.plan.spin.unwrap_or(by_path)
    }

    /// Sends a beat to the peer, which may be attending, if the last one was long ago. To be called
    /// wherever the time is known anyway.
    #[inline]
    pub(crate) fn beat(&mut self, now_ns: u64) -> Result<(), RunError> {
        if now_ns.saturating_sub(self.beat_ns) < BEAT_NS {
            return Ok(());
        }
        self.beat_ns = now_ns;
        Ok(self.oob.beat()?)
    }

    /// Whether the peer has said that it is finished.
    pub(crate) fn is_peer_finished(&mut self) -> Result<bool, RunError> {
        Ok(self.oob.has_word()?)
    }

    /// `count` messages are complete at `now_ns`: prints a row of an endless run when it is time.
    /// Whether the run is to end: the user wants it, or the peer is finished.
    pub(crate) fn on_progress(&mut self, count: u64, now_ns: u64) -> Result<bool, RunError> {
        let Some((live, audience)) = &mut self.live else { return Ok(false) };
        let Some(period) = live.on_progress(count, now_ns) else { return Ok(false) };
        audience.on_period(self.layout.size, period.messages, period.nanos);
        Ok(period.is_last || self.oob.has_word()?)
    }

    /// Iterations to run; `u64::MAX` by duration.
    pub(crate) fn iterations(&self) -> u64 {
        self.test().iterations().unwrap_or(u64::MAX)
    }

    /// When a run by duration ends, in nanoseconds of the clock; `u64::MAX` by iterations.
    pub(crate) fn end_ns(&self) -> u64 {
        match self.test().extent {
            RunLength::Iterations(_) | RunLength::Endless => u64::MAX,
            RunLength::Seconds(seconds) => self.clock.now_ns() + u64::from(seconds) * 1_000_000_000,
        }
    }

    /// Waits until the peer reports that it is finished, serving it meanwhile where that takes this
    /// side's calls: receives, and requests that come in packets. This side may see nothing of the
    /// peer's progress, so the peer's beats renew the bound.
    pub(crate) fn attend(&mut self) -> Result<(), RunError> {
        self.oob.expect_beats();
        let is_needed = self.test().has_receives() || self.objects.path() == PathKind::Packets;
        if !is_needed || self.test().events {
            return self.attend_asleep();
        }
        let size = self.layout.size;
        let mut look_ns = self.clock.now_ns();
        loop {
            for _ in 0..LOOKS {
                self.ends.sends.poll()?;
                self.receiver.poll(self.ends, size)?;
            }
            let now_ns = self.clock.now_ns();
            if now_ns.saturating_sub(look_ns) >= PEER_LOOK_NS {
                look_ns = now_ns;
                if self.oob.has_word()? {
                    return Ok(());
                }
                self.oob.check_beats()?;
            }
        }
    }

    /// Says that this side is finished, and serves the peer until it is finished too.
    pub(crate) fn finish(&mut self, point: u64) -> Result<(), RunError> {
        self.oob.say(&OobMessage::Meet(point))?;
        self.attend()?;
        Ok(self.oob.await_meet(point)?)
    }

    /// As [`Pass::attend`], sleeping between looks.
    fn attend_asleep(&mut self) -> Result<(), RunError> {
        while !self.oob.await_word(PEER_NAP)? {
            self.oob.check_beats()?;
            self.receiver.poll(self.ends, self.layout.size)?;
        }
        Ok(())
    }

    /// Takes messages that are still in transit: until `expected` came, or for 50 ms when
    /// their number is not known.
    pub(crate) fn drain(&mut self, expected: Option<u64>) -> Result<(), RunError> {
        let quiet_ns = self.clock.now_ns() + QUIET_NS;
        let mut patience = self.patience();
        loop {
            if self.receiver.poll(self.ends, self.layout.size)? != 0 {
                patience.renew();
            }
            match expected {
                Some(expected) if self.receiver.total() >= expected => return Ok(()),
                None if self.clock.now_ns() >= quiet_ns => return Ok(()),
                _ => {}
            }
            if patience.wait("waiting for messages in transit")? {
                self.oob.check()?;
                self.beat(self.clock.now_ns())?;
            }
        }
    }
}

/// Time between two beats, nanoseconds: half of the shortest `--wait-timeout`.
pub(crate) const BEAT_NS: u64 = 500_000_000;
/// Polls between two looks at the clock.
const LOOKS: u32 = 256;
/// Time between two looks at the connection to the peer.
const PEER_LOOK_NS: u64 = 20_000_000;
/// Sleep of a side that has nothing to do.
const PEER_NAP: Duration = Duration::from_millis(100);
/// Longest time that messages may be in transit after their sender reported its end.
const QUIET_NS: u64 = 50_000_000;

/// A sample as it is kept: at most 4.29 s.
pub(crate) fn sample(nanos: u64) -> u32 {
    u32::try_from(nanos).unwrap_or(u32::MAX)
}

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
