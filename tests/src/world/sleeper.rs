//! Learning of completions by the descriptor alone: nothing is called between a post and the event.
//!
//! *Owns*: which events were taken and not used yet. *Takes*: a half whose JFCs are armed. *Gives*: completions, each
//! polled for after an event. *Must not*: poll, wait or arm while no event came.
#![expect(
    clippy::disallowed_methods,
    reason = "a test waits for other threads and must not wait forever"
)]

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use urma_core::{Arm, Completion};

use super::{Failure, Half, Outcome, limit};

/// One of the two JFCs of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Queue {
    Send,
    Recv,
}

/// A program that sleeps on the descriptor of its JFCE.
#[derive(Debug)]
pub(super) struct Sleeper {
    /// An event of the send side's JFC was taken, and one of the receive side's.
    taken: [bool; 2],
}

impl Sleeper {
    /// Arms both JFCs; they are armed from now on, but for the time in which an event is handled.
    pub(super) fn begin(half: &mut Half) -> Outcome<Self> {
        half.jfc.arm(Arm::Any)?;
        half.recv_jfc.arm(Arm::Any)?;
        Ok(Self { taken: [false; 2] })
    }

    /// Sleeps until the next completion of `queue` comes.
    pub(super) fn next(
        &mut self,
        half: &mut Half,
        queue: Queue,
        what: &str,
    ) -> Outcome<Completion> {
        let start = Instant::now();
        loop {
            while !std::mem::take(&mut self.taken[queue as usize]) {
                let left = limit().saturating_sub(start.elapsed());
                if !self.take_events(half, left)? {
                    return Err(Failure::new(format!("{what}: no event within {:?}", limit())));
                }
            }
            if let Some(done) = poll_and_arm(half, queue)? {
                return Ok(done);
            }
        }
    }

    /// Whether a completion of `queue` comes while nothing is called for a while.
    pub(super) fn quiet(&mut self, half: &mut Half, queue: Queue) -> Outcome<Option<Completion>> {
        std::thread::sleep(QUIET);
        self.take_events(half, Duration::ZERO)?;
        self.taken[queue as usize] = false;
        poll_and_arm(half, queue)
    }

    /// Sleeps until the descriptor is readable, and takes what is there. Whether it was readable in time.
    fn take_events(&mut self, half: &Half, left: Duration) -> Outcome<bool> {
        let left = Timespec::try_from(left).unwrap_or_default();
        let fd = half.jfce.fd();
        let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left));
        if ready.map_err(std::io::Error::from)? == 0 {
            return Ok(false);
        }
        let mut out = [0; 2];
        let count = half.jfce.wait(&mut out, Some(Duration::ZERO))?;
        for id in &out[..count] {
            let (at, jfc) = match *id == half.jfc.id() {
                true => (Queue::Send, &half.jfc),
                false => (Queue::Recv, &half.recv_jfc),
            };
            jfc.ack_events(1)?;
            self.taken[at as usize] = true;
        }
        Ok(true)
    }
}

/// After an event: one completion, if there is one, and the JFC is armed again.
fn poll_and_arm(half: &mut Half, queue: Queue) -> Outcome<Option<Completion>> {
    let jfc = match queue {
        Queue::Send => &mut half.jfc,
        Queue::Recv => &mut half.recv_jfc,
    };
    let done = jfc.poll_one()?;
    jfc.arm(Arm::Any)?;
    Ok(done)
}

/// How long nothing must happen for "nothing happens".
const QUIET: Duration = Duration::from_millis(15);
