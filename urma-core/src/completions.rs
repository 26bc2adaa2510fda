//! A JFC with an event channel of its own: completions without a polling loop.
//!
//! *Owns*: both, and whether an event is asked for. *Takes*: how long to wait. *Gives*: one
//! completion after the other. *Must not*: share its channel, for a waiter on a shared one
//! takes the events of others; read a clock: the channel does.

use std::{
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use crate::{Arm, Completion, Context, Drain, Jfc, JfcCfg, Jfce, Refused, Status};

/// A JFC that can be waited on.
///
/// [`Completions::wait`] gives one, [`Completions::drain`] what came with it; each program of
/// `examples/` waits so.
///
/// The fields are dropped in order: the JFC before its channel.
#[derive(Debug)]
pub struct Completions {
    jfc: Jfc,
    jfce: Jfce,
    /// The JFC is armed, and its event was not taken.
    is_armed: bool,
}

impl Context {
    /// A completion queue with an event channel of its own.
    ///
    /// # Errors
    /// As [`Context::create_jfc`] and [`Context::create_jfce`].
    pub fn create_completions(&self, cfg: &JfcCfg) -> Result<Completions, Status> {
        let jfce = self.create_jfce()?;
        let jfc = self.create_jfc(cfg, Some(&jfce))?;
        Ok(Completions { jfc, jfce, is_armed: false })
    }
}

impl Completions {
    /// The JFC, to name where queues complete.
    #[must_use]
    pub fn jfc(&self) -> &Jfc {
        &self.jfc
    }

    /// Polls the JFC without waiting.
    ///
    /// # Errors
    /// `NoDevice`: the device failed.
    #[inline]
    pub fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Status> {
        self.jfc.poll(out)
    }

    /// Returns an iterator over what has completed, as [`Jfc::drain`] does.
    pub fn drain(&mut self) -> Drain<'_> {
        self.jfc.drain()
    }

    /// The next completion: at once if one is there, else sleeps for at most `timeout` (`None`:
    /// without limit). `Ok(None)`: none came, or a signal ended the wait.
    ///
    /// # Errors
    /// `NoDevice`: the device failed. The errors of [`Jfce::wait`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Completion>, Status> {
        for _ in 0..STALE_MAX {
            if let Some(completion) = self.poll_armed()? {
                return Ok(Some(completion));
            }
            if !self.take_event(timeout)? {
                return self.jfc.poll_one();
            }
        }
        self.await_entry(timeout)
    }

    /// Waits for a completion whose events preceded its entry: the thread that stores the entry lost its processor.
    /// Arming again would only raise another such event.
    #[cold]
    fn await_entry(&mut self, timeout: Option<Duration>) -> Result<Option<Completion>, Status> {
        let most = timeout.map_or(ENTRY_MAX, |timeout| timeout.min(ENTRY_MAX));
        for _ in 0..most.as_millis() / ENTRY_LOOK.as_millis() {
            if let Some(completion) = self.jfc.poll_one()? {
                return Ok(Some(completion));
            }
            // Nothing is armed, so the channel only waits.
            if self.take_event(Some(ENTRY_LOOK))? {
                break;
            }
        }
        self.poll_armed()
    }

    /// Deletes both; completions not polled are lost.
    ///
    /// # Errors
    /// `Again`: a queue completes here.
    pub fn delete(self) -> Result<(), Refused<Self>> {
        let Self { jfc, jfce, is_armed } = self;
        match jfc.delete() {
            // The channel has no other user: dropped with this call, it is deleted too.
            Ok(()) => Ok(()),
            Err(Refused { object, status }) => {
                Err(Refused::new(Self { jfc: *object, jfce, is_armed }, status))
            }
        }
    }

    /// The next completion; without one, an event is asked for. An arm fires at once when
    /// completions wait, so none slips through between the poll and the arm.
    pub(crate) fn poll_armed(&mut self) -> Result<Option<Completion>, Status> {
        let polled = self.jfc.poll_one()?;
        if polled.is_none() && !self.is_armed {
            self.jfc.arm(Arm::Any)?;
            self.is_armed = true;
        }
        Ok(polled)
    }

    /// Waits for the event of the armed JFC; returns whether it came within `timeout`. Its
    /// completions may have been polled meanwhile.
    pub(crate) fn take_event(&mut self, timeout: Option<Duration>) -> Result<bool, Status> {
        if self.jfce.wait(&mut [0], timeout)? == 0 {
            return Ok(false);
        }
        self.is_armed = false;
        self.jfc.ack_events(1)?;
        Ok(true)
    }
}

/// Readable exactly while an event is unconsumed; a waiter calls
/// [`Completions::wait`] with a timeout of zero until it gives `None`: that asks for the next one.
impl AsFd for Completions {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.jfce.fd()
    }
}

/// Most events in a row whose completions a poll or a flush took before; each arm makes at most one
/// event.
const STALE_MAX: usize = 8;
/// Time between looks for a completion that was announced.
const ENTRY_LOOK: Duration = Duration::from_millis(1);
/// Longest wait for one: on a busy machine a thread was seen without a processor for 0.4 s.
const ENTRY_MAX: Duration = Duration::from_secs(1);
