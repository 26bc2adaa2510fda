//! Running time: the time of a node without that in which it did not run.
//!
//! A process that was stopped, or had no processor, finds all its timers expired when it continues, and its peers'
//! answers unread. Such time counts for no timer: a peer that did not answer in it is not suspect. Must not read a
//! clock.

use udma_abi::Nanos;

use crate::ports::Deadline;

/// A step that is later than this after its deadline means that the node did not run, in ns. A thread of a busy
/// machine is late by a few scheduler slots of 3 to 4 ms.
const LATE_NS: Nanos = 10_000_000;

/// The clock of everything behind the device's `Serial`.
///
/// A device with nothing due may rest for any time.
///
/// If a rest ended late, it is not known when in the rest the process was stopped. So half of such a rest counts: the
/// timers that it waited for have the other half in which to receive what arrived, and to ask again. A peer that is
/// gone is found after twice its time at most, however late each step is.
#[derive(Debug, Default)]
pub(crate) struct RunningTime {
    /// Time of the latest step.
    latest: Nanos,
    /// Deadline of the next step; `None`: never.
    due: Deadline,
    /// Time in which the node did not run, in ns.
    lost: Nanos,
}

impl RunningTime {
    /// Returns the time for timers at `now`. It never goes back: a thread may have read its clock before the process
    /// was stopped, and step after another one that read it later.
    pub(crate) fn at(&mut self, now: Nanos) -> Nanos {
        if let Some(due) = self.due {
            let due = due.max(self.latest);
            if now > due.saturating_add(LATE_NS) {
                self.lost += now - (due - (due - self.latest) / 2);
            }
        }
        self.latest = self.latest.max(now);
        self.latest.saturating_sub(self.lost)
    }

    /// Whether a timer at `at` is due before the current deadline.
    pub(crate) fn is_before_due(&self, at: Nanos) -> bool {
        at != Nanos::MAX && self.due.is_none_or(|due| at.saturating_add(self.lost) < due)
    }

    /// Sets the deadline from the timers after a step; returns it as a time outside of the device.
    pub(crate) fn set_due(&mut self, deadline: Deadline) -> Deadline {
        self.due = deadline.map(|at| at.saturating_add(self.lost));
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn an_earlier_timer_is_known_by_the_time_that_counts() {
        let mut time = RunningTime::default();
        time.at(SECOND);
        assert!(time.is_before_due(5) && !time.is_before_due(Nanos::MAX), "nothing was due");
        time.set_due(Some(2 * SECOND));
        // Nine seconds do not count: what was due is due that much later.
        time.at(11 * SECOND);
        let due = time.set_due(Some(2 * SECOND)).unwrap();
        assert!(due > 2 * SECOND);
        assert!(time.is_before_due(2 * SECOND - 1) && !time.is_before_due(2 * SECOND));
    }

    #[test]
    fn time_after_a_missed_deadline_does_not_count() {
        let mut time = RunningTime::default();
        assert_eq!(time.at(SECOND), SECOND);
        assert_eq!(time.set_due(Some(SECOND + 500)), Some(SECOND + 500));
        // Stopped for ten seconds: no timer is due yet.
        assert_eq!(time.at(11 * SECOND), SECOND + 250);
        // What follows counts again.
        assert_eq!(time.at(11 * SECOND + 700), SECOND + 950);
        assert_eq!(time.set_due(Some(SECOND + 2000)), Some(11 * SECOND + 1750));
    }

    #[test]
    fn a_timer_ends_also_when_every_step_is_late() {
        let mut time = RunningTime::default();
        let (mut now, deadline) = (time.at(SECOND), 9 * SECOND);
        let mut steps = 0;
        while time.at(now) < deadline {
            now = time.set_due(Some(deadline)).expect("a deadline") + LATE_NS + 1;
            steps += 1;
        }
        assert!((2..40).contains(&steps) && now < 18 * SECOND, "{steps} steps, {now} ns");
    }

    #[test]
    fn a_clock_that_was_read_before_a_stop_does_not_turn_time_back() {
        let mut time = RunningTime::default();
        time.at(SECOND);
        time.set_due(Some(SECOND + 500));
        assert_eq!(time.at(11 * SECOND), SECOND + 250);
        // Of a thread that was stopped between its look at the clock and its step: a deadline that it
        // sets must not be over when the next thread comes.
        assert_eq!(time.at(SECOND + 100), SECOND + 250);
        assert_eq!(time.at(11 * SECOND + 1), SECOND + 251);
    }

    #[test]
    fn a_rest_with_nothing_due_and_small_delays_count() {
        let mut time = RunningTime::default();
        time.at(1);
        time.set_due(None);
        assert_eq!(time.at(100 * SECOND), 100 * SECOND);
        time.set_due(Some(200 * SECOND));
        assert_eq!(time.at(200 * SECOND + LATE_NS), 200 * SECOND + LATE_NS);
        // A deadline in the past says that there is work now.
        time.set_due(Some(0));
        assert_eq!(time.at(201 * SECOND + LATE_NS), 200 * SECOND + LATE_NS);
    }
}
