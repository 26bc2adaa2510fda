//! Waiting in tests, by polls or asleep on a descriptor: the one room with a clock.
//!
//! Has the hang limit; says nothing about speed.
#![expect(
    clippy::disallowed_methods,
    reason = "a test waits for other threads and must not wait forever"
)]

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use urma_core::{Arm, Completion};

use super::{Failure, Half, Outcome};

/// When a test counts as hanging: 30 s, or `URMA_TEST_LIMIT_MS` milliseconds.
pub fn limit() -> Duration {
    static LIMIT: OnceLock<Duration> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let wanted = std::env::var("URMA_TEST_LIMIT_MS").ok().and_then(|text| text.parse().ok());
        Duration::from_millis(wanted.unwrap_or(30_000))
    })
}

/// How long nothing must happen for "nothing happens".
const QUIET: Duration = Duration::from_millis(15);
/// Looks in a row before the processor is given away.
const SPINS: u32 = 64;
/// Turns given away before resting: what takes longer waits for a timer, not for a core.
const TURNS: u32 = 16;
/// How long a rest is: other trials and the nodes' own threads run meanwhile.
const REST: Duration = Duration::from_micros(200);

/// Looks until there is something.
///
/// # Errors
/// What `look` says; nothing came within [`limit`].
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Outcome<Option<T>>) -> Outcome<T> {
    let start = Instant::now();
    let mut looks = 0_u32;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if start.elapsed() > limit() {
            return Err(Failure::new(format!("{what}: nothing within {:?}", limit())));
        }
        looks += 1;
        if looks >= SPINS * TURNS {
            std::thread::sleep(REST);
        } else if looks.is_multiple_of(SPINS) {
            std::thread::yield_now();
        }
    }
}

/// Looks for a short while, during which nothing may come.
///
/// # Errors
/// What `look` says; something came.
#[track_caller]
pub fn quiet<T: std::fmt::Debug>(
    what: &str,
    mut look: impl FnMut() -> Outcome<Option<T>>,
) -> Outcome {
    let start = Instant::now();
    while start.elapsed() < QUIET {
        if let Some(found) = look()? {
            return Err(Failure::new(format!("{what}: nothing was due, {found:?} came")));
        }
        std::thread::sleep(REST);
    }
    Ok(())
}

/// How long a test lets other threads go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pause {
    /// A few milliseconds: longer than a background tick.
    Ticks,
}

/// Lets other threads go on.
pub fn pause(how: Pause) {
    match how {
        Pause::Ticks => std::thread::sleep(Duration::from_millis(5)),
    }
}

/// One of the two JFCs of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Queue {
    Send,
    Recv,
}

/// A program that sleeps on the descriptor of its JFCE.
///
/// It learns of completions by that alone: nothing is polled, armed or waited for between a post and the event.
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
        std::thread::sleep(SLEEPER_QUIET);
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
const SLEEPER_QUIET: Duration = Duration::from_millis(15);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::fail;

    #[test]
    fn quiet_says_no_to_what_comes_at_first_or_later() {
        assert!(quiet::<u8>("x", || Ok(None)).is_ok());
        for due in [0, 3] {
            let mut looks = 0;
            let seen = quiet("x", || {
                looks += 1;
                Ok((looks > due).then_some(7))
            });
            let text = seen.expect_err("something came").to_string();
            assert!(text.contains("nothing was due, 7 came"), "{text}");
        }
        assert!(quiet::<u8>("x", || fail("broken")).is_err());
    }

    #[test]
    fn until_gives_what_came_and_what_failed() {
        let mut looks = 0;
        let seen = until("x", || {
            looks += 1;
            Ok((looks > 5).then_some(7))
        });
        assert_eq!(seen.expect("it came"), 7);
        assert!(until::<u8>("x", || fail("broken")).is_err());
    }
}
