//! Behaviour while this process is out of descriptors or memory.
//!
//! *Owns*: the count of such errors, whether one was logged, the pauses between two attempts to accept. *Takes*:
//! errors, time. *Gives*: the time of the next attempt. *Must not*: log a line for each error.

use std::{collections::BTreeMap, io};

use udma_abi::Nanos;

use crate::{host::descriptor::is_shortage, ports::Deadline};

/// Such errors of this process while it connected to peers.
#[derive(Debug, Default)]
pub(super) struct Shortages {
    count: u64,
    is_logged: bool,
}

impl Shortages {
    /// Counts `error` if it is a shortage, and logs the first one since the last pair was made. Returns whether it is
    /// one.
    pub(super) fn note(&mut self, what: &'static str, error: &io::Error) -> bool {
        if !is_shortage(error) {
            tracing::info!(%error, "{what}");
            return false;
        }
        self.count += 1;
        if !std::mem::replace(&mut self.is_logged, true) {
            tracing::warn!(%error, "{what}; until a pair is made, such errors are only counted");
        }
        true
    }

    /// Notes that a pair was made: a later shortage is a new one.
    pub(super) fn on_pair(&mut self) {
        self.is_logged = false;
    }

    /// Returns the number of failed attempts so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

/// How often bad connections came, by kind: any process of the host can make thousands of them per second, and a log
/// line for each would hide others.
#[derive(Debug, Default)]
pub(super) struct Noise(BTreeMap<&'static str, u64>);

impl Noise {
    /// Counts one more of a kind. Returns the number if it is worth a line: the first, second, fourth, eighth and so
    /// on.
    pub(super) fn count(&mut self, kind: &'static str) -> Option<u64> {
        let count = self.0.entry(kind).or_default();
        *count += 1;
        count.is_power_of_two().then_some(*count)
    }
}

/// Pauses between attempts, longer after each failure.
#[derive(Debug, Default)]
pub(super) struct RetryPause {
    until: Deadline,
    /// Length of the latest pause; 0: the latest attempt succeeded.
    len: Nanos,
}

impl RetryPause {
    /// Starts the next pause after a failed attempt, twice as long.
    pub(super) fn start(&mut self, now: Nanos) {
        self.len = (2 * self.len).clamp(PAUSE_MIN_NS, PAUSE_MAX_NS);
        self.until = Some(now + self.len);
    }

    /// Resets the pauses to the shortest after a success.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Whether a pause is over now; once for each pause.
    pub(super) fn is_over(&mut self, now: Nanos) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }

    /// Time of the next attempt.
    pub(super) fn until(&self) -> Deadline {
        self.until
    }
}

/// First pause in nanoseconds: 10 ms.
const PAUSE_MIN_NS: Nanos = 10_000_000;
/// Longest pause: connections wait at most so long once there are descriptors again.
const PAUSE_MAX_NS: Nanos = 500_000_000;

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn shortages_are_counted_and_the_first_since_a_pair_is_logged() {
        let mut shortages = Shortages::default();
        assert!(!shortages.note("accepting", &Errno::CONNRESET.into()));
        assert_eq!((shortages.count(), shortages.is_logged), (0, false));
        for count in 1..=3 {
            assert!(shortages.note("accepting", &Errno::MFILE.into()));
            assert_eq!((shortages.count(), shortages.is_logged), (count, true));
        }
        shortages.on_pair();
        assert_eq!((shortages.count(), shortages.is_logged), (3, false));
    }

    #[test]
    fn a_line_is_worth_twice_as_many_as_the_one_before() {
        let mut noise = Noise::default();
        let lines: Vec<u64> = (0..40).filter_map(|_| noise.count("a")).collect();
        assert_eq!(lines, [1, 2, 4, 8, 16, 32]);
        assert_eq!(
            (noise.count("b"), noise.count("b"), noise.count("b")),
            (Some(1), Some(2), None)
        );
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_again_after_a_success() {
        let mut pause = RetryPause::default();
        assert_eq!((pause.until(), pause.is_over(u64::MAX)), (None, false));
        let mut now = 5;
        for ms in [10, 20, 40, 80, 160, 320, 500, 500] {
            pause.start(now);
            assert_eq!(pause.until(), Some(now + ms * MS));
            assert!(!pause.is_over(now + ms * MS - 1));
            now += ms * MS;
            assert!(pause.is_over(now) && !pause.is_over(now), "once for each");
            assert_eq!(pause.until(), None);
        }
        pause.end();
        pause.start(now);
        assert_eq!(pause.until(), Some(now + 10 * MS));
        pause.end();
        assert_eq!((pause.until(), pause.is_over(u64::MAX)), (None, false));
    }
}
