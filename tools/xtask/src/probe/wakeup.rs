//! Waking a thread that sleeps.
//!
//! *Owns*: the ping-pong of two threads over two eventfds. *Must not*: look at the word before it sleeps.

use std::os::fd::AsFd;

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::EventFd,
};

use super::{median, on_two_cores};
use crate::{
    clock::now,
    say::{Failure, TaskResult},
};

/// Round trips of one measurement.
const ROUND_TRIPS: usize = 20_000;
/// Longest wait for the other thread, in ms.
const BOUND_MS: u16 = 10_000;

/// Half a round trip of two threads that sleep in poll until the other writes, microseconds.
pub(super) fn eventfd_us() -> Result<f64, Failure> {
    let new = || EventFd::new().map_err(|error| Failure(format!("eventfd: {error}")));
    let (ping, pong) = (new()?, new()?);
    let answer = || {
        for _ in 0..ROUND_TRIPS {
            sleep(&ping)?;
            wake(&pong)?;
        }
        Ok(())
    };
    let ask = || {
        let mut samples = Vec::with_capacity(ROUND_TRIPS);
        for _ in 0..ROUND_TRIPS {
            let start = now();
            wake(&ping)?;
            sleep(&pong)?;
            samples.push(start.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
        Ok(median(samples))
    };
    on_two_cores(answer, ask)
}

fn wake(event: &EventFd) -> TaskResult {
    event.write(1).map(drop).map_err(|error| Failure(format!("writing an eventfd: {error}")))
}

fn sleep(event: &EventFd) -> TaskResult {
    let mut ready = [PollFd::new(event.as_fd(), PollFlags::POLLIN)];
    match poll(&mut ready, PollTimeout::from(BOUND_MS)) {
        Ok(0) => Err(Failure("the other thread does not wake this one".to_owned())),
        Ok(_) => event.read().map(drop).map_err(|error| Failure(format!("reading it: {error}"))),
        Err(error) => Err(Failure(format!("poll: {error}"))),
    }
}
