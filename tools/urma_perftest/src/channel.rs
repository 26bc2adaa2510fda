//! A JFC, with or without events, and patience with a bound.
//!
//! *Owns*: polling, arming, the check of every status; the bound of every wait. *Takes*: a JFC.
//! *Gives*: completions that are successes. *Must not*: depend on what was posted.

use std::time::Duration;

use urma::{Arm, Completion, Context, CrStatus, Jfc, JfcCfg, Jfce};

use crate::{
    clock::{RunningClock, WaitDeadline},
    error::{RunError, api},
};

/// Completions taken by one poll.
pub(crate) const BATCH: usize = 64;

/// A completion queue of this program.
#[derive(Debug)]
pub(crate) struct CompletionChannel {
    pub(crate) jfc: Jfc,
    jfce: Option<Jfce>,
    event_wait: Duration,
    failures: Failures,
    /// Requests that failed and were counted.
    pub(crate) errors: u64,
    batch: [Completion; BATCH],
}

impl CompletionChannel {
    /// A JFC with the configuration `cfg`; with events, a JFCE of its own.
    pub(crate) fn open(
        context: &Context,
        cfg: &JfcCfg,
        (events, event_wait): (EventMode, Duration),
        failures: Failures,
    ) -> Result<Self, RunError> {
        let jfce = match events {
            EventMode::Off => None,
            EventMode::On => Some(context.create_jfce().map_err(api("creating a JFCE"))?),
        };
        let jfc = context.create_jfc(cfg, jfce.as_ref()).map_err(api("creating a JFC"))?;
        let batch = [Completion::default(); BATCH];
        Ok(Self { jfc, jfce, event_wait, failures, errors: 0, batch })
    }

    /// What is there; never waits. All of them are successes, unless failures are counted.
    #[inline]
    pub(crate) fn poll(&mut self) -> Result<&[Completion], RunError> {
        let count = self.jfc.poll(&mut self.batch).map_err(api("polling"))?;
        let got = self.batch.get(..count).unwrap_or(&[]);
        for completion in got {
            if completion.status != CrStatus::Success {
                if self.failures == Failures::Fatal {
                    return Err(RunError::failed(completion.status, completion.user_ctx));
                }
                self.errors += 1;
            }
        }
        Ok(got)
    }

    /// Completion number `at` of the newest poll, if it found so many.
    #[inline]
    pub(crate) fn taken(&self, at: usize) -> Option<&Completion> {
        self.batch.get(at)
    }

    /// With events: sleeps until one comes, or a moment. Without: returns at once. A sleep counts
    /// as many looks.
    pub(crate) fn rest(&mut self, patience: &mut Patience) -> Result<(), RunError> {
        let Some(jfce) = &self.jfce else { return Ok(()) };
        patience.looks |= LOOKS - 1;
        self.jfc.arm(Arm::Any).map_err(api("arming a JFC"))?;
        let mut ready = [0; 1];
        let count =
            jfce.wait(&mut ready, Some(self.event_wait)).map_err(api("waiting for an event"))?;
        let count = u32::try_from(count).unwrap_or(0);
        if count != 0 {
            self.jfc.ack_events(count).map_err(api("acknowledging an event"))?;
        }
        Ok(())
    }
}

/// What a failed request does to the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failures {
    /// A failed request ends the run.
    Fatal,
    /// A failed request is counted, and the run goes on.
    Counted,
}

/// Whether a channel sleeps on events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventMode {
    /// The channel polls and never sleeps.
    Off,
    /// The channel sleeps until an event comes.
    On,
}

/// Waits that end. Looks at the clock once in a while only, so that waiting costs nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    clock: RunningClock,
    bound: Duration,
    deadline: WaitDeadline,
    looks: u32,
    /// The deadline moves at the next look at the clock.
    is_renewed: bool,
}

/// Looks between two looks at the clock.
const LOOKS: u32 = 1 << 14;

impl Patience {
    /// Patience for `bound` without progress.
    pub(crate) fn new(clock: RunningClock, bound: Duration) -> Self {
        let deadline = WaitDeadline::after(&clock, bound);
        Self { clock, bound, deadline, looks: 0, is_renewed: false }
    }

    /// Counts the bound from now on: there was progress.
    #[inline]
    pub(crate) fn renew(&mut self) {
        self.is_renewed = true;
        self.looks = 0;
    }

    /// Counts the bound from now on without progress: nothing is due yet. Unlike
    /// [`renew`](Self::renew) it leaves the looks at the clock and at the peer where they are.
    #[inline]
    pub(crate) fn excuse(&mut self) {
        self.is_renewed = true;
    }

    /// One more look in vain: `true` once in a while, when it is time to see whether the peer
    /// still lives.
    ///
    /// # Errors
    /// The bound is over; `what` names the wait.
    #[inline]
    pub(crate) fn wait(&mut self, what: &str) -> Result<bool, RunError> {
        self.looks = self.looks.wrapping_add(1);
        if !self.looks.is_multiple_of(LOOKS) {
            return Ok(false);
        }
        self.look_up(what)
    }

    #[cold]
    fn look_up(&mut self, what: &str) -> Result<bool, RunError> {
        // Progress since the last look is dated to this one: the bound may be that much longer,
        // never shorter.
        if std::mem::take(&mut self.is_renewed) {
            self.deadline = WaitDeadline::after(&self.clock, self.bound);
        } else if self.deadline.is_over(&self.clock) {
            let bound = self.bound.as_secs();
            return Err(RunError::Request(format!("{what}: nothing happened for {bound} s")));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_millis(20);

    fn look(patience: &mut Patience) -> Result<bool, RunError> {
        (1..LOOKS).try_for_each(|_| patience.wait("a test").map(|is_look| assert!(!is_look)))?;
        patience.wait("a test")
    }

    #[test]
    fn progress_between_two_looks_at_the_clock_counts() {
        let mut patience = Patience::new(RunningClock::start(), BOUND);
        for _ in 0..3 {
            crate::clock::pause(BOUND * 2);
            patience.renew();
            assert!(look(&mut patience).expect("there was progress"));
        }
        crate::clock::pause(BOUND * 2);
        patience.excuse();
        assert!(look(&mut patience).expect("nothing was due"));
    }

    #[test]
    fn no_progress_ends_the_wait() {
        let mut patience = Patience::new(RunningClock::start(), BOUND);
        patience.renew();
        assert!(look(&mut patience).expect("there was progress"));
        crate::clock::pause(BOUND * 2);
        let over = look(&mut patience).expect_err("nothing happened");
        assert_eq!(over.to_string(), "a test: nothing happened for 0 s");
    }
}
