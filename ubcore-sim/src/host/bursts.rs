//! A program that polls in bursts: whether it still does, by who takes the messages of peers.
//!
//! *Owns*: the count of vain wake-ups, the distance of the looks. *Takes*: what each turn of the
//! background thread found. *Gives*: rest, look again, or the end of the bursts. *Must not*: read a
//! clock, or keep a steady poller's peers ringing for longer than a few messages.
//!
//! While the thread rests, each message of a peer sends a wake-up. A wake-up is *vain* when polls
//! took its message before the thread could. One vain wake-up means little: the answer to the
//! program's own request rings too, and the program polls for it. After [`VAIN_WAKEUPS_MAX`] in a
//! row the thread stays awake, so that no peer rings, and looks at growing distances whether a
//! message is left waiting. A look that finds one proves a burst; looks up to a tick that find none
//! prove steady polls. So a steady poller that was kept from its processor costs a few wake-ups and
//! looks, and a burst costs a message the distance of one look.

use std::time::Duration;

/// What a turn of the thread found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PassFindings {
    /// A message, or other work, that no poll had taken.
    pub work: bool,
    /// A wake-up came since the last turn.
    pub rang: bool,
    /// The program polled since the last turn.
    pub polls: bool,
}

/// What the thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextAction {
    /// The thread sleeps; peers send wake-ups.
    Rest,
    /// Look again after this time; peers do not ring.
    Look(Duration),
    /// Leave the device to the pollers: they are steady.
    Leave,
}

/// Of one node, while its program polls in bursts.
#[derive(Debug, Default)]
pub struct Bursts {
    /// Vain wake-ups in a row.
    vain: u32,
    /// Distance of the next look; `None` while resting.
    look: Option<Duration>,
}

impl Bursts {
    /// A turn found this.
    #[must_use]
    pub fn on_turn(&mut self, found: PassFindings) -> NextAction {
        if found.work {
            *self = Self::default();
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

/// Vain wake-ups in a row before the thread looks instead.
pub const VAIN_WAKEUPS_MAX: u32 = 3;
/// Distance of the first look.
pub const LOOK: Duration = Duration::from_micros(50);
/// Looks as far apart as this prove steady polls.
pub const LOOK_MAX: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    const VAIN: PassFindings = PassFindings { work: false, rang: true, polls: true };
    const POLLED: PassFindings = PassFindings { rang: false, ..VAIN };
    const TAKEN: PassFindings = PassFindings { work: true, ..VAIN };

    #[test]
    fn a_program_in_bursts_is_rung_for_every_message() {
        let mut bursts = Bursts::default();
        for _ in 0..1000 {
            // The answer to its own request, then the message.
            assert_eq!(bursts.on_turn(VAIN), NextAction::Rest);
            assert_eq!(bursts.on_turn(TAKEN), NextAction::Rest);
        }
    }

    #[test]
    fn a_steady_poller_costs_three_wakeups_and_a_few_looks() {
        let mut bursts = Bursts::default();
        assert_eq!(bursts.on_turn(VAIN), NextAction::Rest);
        assert_eq!(bursts.on_turn(VAIN), NextAction::Rest);
        assert_eq!(bursts.on_turn(VAIN), NextAction::Look(LOOK));
        let looks =
            (0..).map(|_| bursts.on_turn(POLLED)).take_while(|next| *next != NextAction::Leave);
        assert_eq!(looks.take(100).count(), 4);
    }

    #[test]
    fn a_message_left_waiting_between_looks_brings_the_wakeups_back() {
        let mut bursts = Bursts::default();
        for _ in 0..VAIN_WAKEUPS_MAX {
            let _ = bursts.on_turn(VAIN);
        }
        assert_eq!(bursts.on_turn(POLLED), NextAction::Look(2 * LOOK));
        assert_eq!(bursts.on_turn(PassFindings { work: true, ..POLLED }), NextAction::Rest);
        assert_eq!(bursts.on_turn(VAIN), NextAction::Rest);
    }

    #[test]
    fn a_program_that_stops_polling_is_rung_again() {
        let mut bursts = Bursts::default();
        for _ in 0..VAIN_WAKEUPS_MAX {
            let _ = bursts.on_turn(VAIN);
        }
        assert_eq!(bursts.on_turn(PassFindings { polls: false, ..POLLED }), NextAction::Rest);
    }
}
