//! Programs that poll in bursts: whether one still does, by whether polls take the messages of peers.
//!
//! Says after each pass of the background thread whether it rests, checks again, or ends the mode. Must not read a
//! clock, or let the peers of a steady poller send wake-ups for more than a few messages.

use std::time::Duration;

/// Findings of one pass of the thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PassFindings {
    /// A message, or other work, that no poll took.
    pub work: bool,
    /// A wake-up came since the last pass.
    pub rang: bool,
    /// The program polled since the last pass.
    pub polls: bool,
}

/// Next action of the thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextAction {
    /// The thread sleeps; peers send wake-ups.
    Rest,
    /// Check again after this time; peers send no wake-ups.
    Look(Duration),
    /// Leave the device to the pollers: they are steady.
    Leave,
}

/// State of one node, while its program polls in bursts.
///
/// While the thread rests, each message of a peer sends a wake-up. A wake-up is *vain* when polls took its message
/// before the thread could. One vain wake-up means little: the answer to the program's own request sends one too, and
/// the program polls for it. After `VAIN_WAKEUPS_MAX` in a row the thread stays awake, so that no peer sends one, and
/// checks at growing intervals whether a message is left waiting. A check that finds one proves a burst; checks up to
/// a tick apart that find none prove steady polls. So a steady poller that had no processor costs a few wake-ups and
/// checks, and a burst delays a message by at most one interval.
///
/// The thread itself may take the processor from a steady poller: then it finds the message that the poll would have
/// found a moment later, each time. So a check, and after `TAKEN_MAX` messages in a row each wake-up, first rests for
/// `GIVE_WAY` and counts as vain if the program polled meanwhile.
#[derive(Debug, Default)]
pub struct WakeupPolicy {
    /// Vain wake-ups in a row.
    vain: u32,
    /// Time until the next check; `None` while resting.
    look: Option<Duration>,
    /// Passes in a row that took a message although the program had polled since the one before.
    taken: u32,
    /// Whether there were so many that the thread has to check whether the program still polls.
    is_doubted: bool,
}

impl WakeupPolicy {
    /// Whether a pass that finds that the program polled should rest before it takes anything.
    #[must_use]
    pub fn gives_way(&self) -> bool {
        self.look.is_some() || self.is_doubted
    }

    /// Takes the findings of one pass of the thread; returns what the thread does next.
    #[must_use]
    pub fn on_pass(&mut self, found: PassFindings) -> NextAction {
        if found.work {
            let taken = if found.polls && !self.is_doubted { self.taken + 1 } else { 0 };
            *self = Self { taken, is_doubted: taken >= TAKEN_MAX, ..Self::default() };
            return NextAction::Rest;
        }
        self.look = match self.look {
            Some(distance) if found.polls => Some(2 * distance),
            Some(_) => None,
            None if found.rang && found.polls => {
                self.vain += 1;
                (self.vain >= VAIN_WAKEUPS_MAX).then_some(LOOK)
            }
            None => None,
        };
        match self.look {
            None => NextAction::Rest,
            Some(distance) if distance < LOOK_MAX => NextAction::Look(distance),
            Some(_) => {
                *self = Self::default();
                NextAction::Leave
            }
        }
    }
}

/// Vain wake-ups in a row after which the thread checks by itself.
pub const VAIN_WAKEUPS_MAX: u32 = 3;
/// Messages in a row that the thread takes before it gives way to a program that polls.
pub const TAKEN_MAX: u32 = 16;
/// Rest in which a program that polls shows it: longer than it takes to get the processor back.
pub const GIVE_WAY: Duration = Duration::from_micros(20);
/// Interval before the first check.
pub const LOOK: Duration = Duration::from_micros(50);
/// Interval from which on checks without a find prove steady polls.
pub const LOOK_MAX: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    const VAIN: PassFindings = PassFindings { work: false, rang: true, polls: true };
    const POLLED: PassFindings = PassFindings { rang: false, ..VAIN };
    const TAKEN: PassFindings = PassFindings { work: true, ..VAIN };

    #[test]
    fn a_program_in_bursts_is_rung_for_every_message() {
        let mut policy = WakeupPolicy::default();
        for _ in 0..1000 {
            // The answer to its own request, then the message.
            assert_eq!(policy.on_pass(VAIN), NextAction::Rest);
            assert_eq!(policy.on_pass(TAKEN), NextAction::Rest);
        }
    }

    #[test]
    fn a_steady_poller_costs_three_wakeups_and_a_few_looks() {
        let mut policy = WakeupPolicy::default();
        assert_eq!(policy.on_pass(VAIN), NextAction::Rest);
        assert_eq!(policy.on_pass(VAIN), NextAction::Rest);
        assert_eq!(policy.on_pass(VAIN), NextAction::Look(LOOK));
        let looks =
            (0..).map(|_| policy.on_pass(POLLED)).take_while(|next| *next != NextAction::Leave);
        assert_eq!(looks.take(100).count(), 4);
    }

    #[test]
    fn a_message_left_waiting_between_looks_brings_the_wakeups_back() {
        let mut policy = WakeupPolicy::default();
        for _ in 0..VAIN_WAKEUPS_MAX {
            let _ = policy.on_pass(VAIN);
        }
        assert_eq!(policy.on_pass(POLLED), NextAction::Look(2 * LOOK));
        assert_eq!(policy.on_pass(PassFindings { work: true, ..POLLED }), NextAction::Rest);
        assert_eq!(policy.on_pass(VAIN), NextAction::Rest);
    }

    #[test]
    fn after_messages_in_a_row_the_thread_gives_way_until_it_takes_one_again() {
        let mut policy = WakeupPolicy::default();
        for _ in 0..TAKEN_MAX {
            assert!(!policy.gives_way());
            assert_eq!(policy.on_pass(TAKEN), NextAction::Rest);
        }
        assert!(policy.gives_way());
        for next in [NextAction::Rest, NextAction::Rest, NextAction::Look(LOOK)] {
            assert_eq!(policy.on_pass(VAIN), next, "the program took them meanwhile");
            assert!(policy.gives_way());
        }
        assert_eq!(policy.on_pass(TAKEN), NextAction::Rest);
        for _ in 1..TAKEN_MAX {
            assert_eq!(policy.on_pass(TAKEN), NextAction::Rest);
            assert!(!policy.gives_way(), "they were left waiting");
        }
        assert_eq!(policy.on_pass(PassFindings { polls: false, ..TAKEN }), NextAction::Rest);
        assert!(!policy.gives_way(), "the program did not poll");
    }

    #[test]
    fn a_program_that_stops_polling_is_rung_again() {
        let mut policy = WakeupPolicy::default();
        for _ in 0..VAIN_WAKEUPS_MAX {
            let _ = policy.on_pass(VAIN);
        }
        assert_eq!(policy.on_pass(PassFindings { polls: false, ..POLLED }), NextAction::Rest);
    }
}
