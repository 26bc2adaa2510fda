//! Datagrams that arrive while the program polls: whether each one wakes the background thread.
//!
//! Has the number of vain wake-ups that are left. Must not read a clock, or wake the thread of a steady poller for
//! more than a few datagrams.

use std::time::Duration;

/// What the thread does while the program polls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextCheck {
    /// At the next tick; arrivals do not wake it.
    Tick,
    /// At the next arrival or tick.
    Arrival,
    /// After this time, or at the next arrival.
    Look(Duration),
}

/// State of one node with packet peers.
///
/// A program may post, poll until its request is complete, and then spin on its memory until a datagram of its peer
/// changes it. The acknowledgement of its own request arrives while it polls, so a wake-up that finds the program
/// polling (a *vain* one) does not prove steady polls. A datagram that the thread took in a pause proves that the
/// watch pays, and pays for `CREDIT` vain wake-ups; a pause alone, which a lost processor makes as well, for one. The
/// peer's datagram may follow the acknowledgement at once, while the last poll is recent: so the thread takes
/// datagrams at a vain wake-up too, and then checks whether the program stopped polling.
#[derive(Debug, Default)]
pub struct ArrivalWatch {
    /// Vain wake-ups that are left before arrivals are left to the polls; 0: they are.
    credit: u32,
    /// Whether the thread took a datagram since it last found the program polling.
    took: bool,
}

impl ArrivalWatch {
    /// Notes that a pass found the program polling, and no arrival woke the thread.
    pub fn on_polled(&mut self) -> NextCheck {
        self.took = false;
        if self.is_on() { NextCheck::Arrival } else { NextCheck::Tick }
    }

    /// Notes that a pass found the program polling, after an arrival woke the thread.
    pub fn on_vain_wakeup(&mut self) -> NextCheck {
        self.credit = self.credit.saturating_sub(1);
        if self.is_on() { NextCheck::Look(LOOK) } else { self.on_polled() }
    }

    /// Notes that the thread took a datagram.
    pub const fn on_taken(&mut self) {
        self.took = true;
    }

    /// Notes that a pass found the program paused.
    pub fn on_pause(&mut self) {
        self.credit = match std::mem::take(&mut self.took) {
            true => (self.credit + CREDIT).min(CREDIT_MAX),
            false => self.credit.max(1),
        };
    }

    /// Whether arrivals wake the thread while the program polls.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.credit > 0
    }
}

/// Vain wake-ups that a datagram pays for which the thread took in a pause.
pub const CREDIT: u32 = 2;
/// Vain wake-ups in a row after which arrivals are left to the polls, at the latest.
pub const CREDIT_MAX: u32 = 16;
/// From a vain wake-up to the check after it: a little more than makes a pause.
pub const LOOK: Duration = Duration::from_micros(22);

#[cfg(test)]
mod tests {
    use super::*;

    /// A tick found a pause.
    fn watched() -> ArrivalWatch {
        let mut watch = ArrivalWatch::default();
        watch.on_pause();
        watch
    }

    /// In a pause, the thread took a datagram.
    fn take(watch: &mut ArrivalWatch) {
        watch.on_taken();
        watch.on_pause();
    }

    #[test]
    fn a_program_that_polls_for_its_own_completion_is_woken_for_each_message() {
        let mut watch = watched();
        for _ in 0..1000 {
            take(&mut watch);
            // The acknowledgement of its own request.
            assert_eq!(watch.on_vain_wakeup(), NextCheck::Look(LOOK));
            assert_eq!(watch.on_polled(), NextCheck::Arrival);
        }
    }

    #[test]
    fn a_message_close_behind_the_acknowledgement_counts() {
        let mut watch = watched();
        take(&mut watch);
        for _ in 0..1000 {
            watch.on_taken();
            assert_eq!(watch.on_vain_wakeup(), NextCheck::Look(LOOK));
            watch.on_pause();
        }
        assert!(watch.is_on());
    }

    #[test]
    fn a_steady_poller_costs_one_wakeup_and_after_bursts_a_few() {
        let mut watch = watched();
        assert_eq!(watch.on_vain_wakeup(), NextCheck::Tick);
        assert_eq!(watch.on_polled(), NextCheck::Tick);
        for _ in 0..1000 {
            take(&mut watch);
        }
        let is_vain = |_: &u32| {
            watch.on_taken();
            let next = watch.on_vain_wakeup();
            watch.on_polled();
            next != NextCheck::Tick
        };
        assert_eq!((1..100).take_while(is_vain).count(), 15);
    }

    #[test]
    fn a_pause_now_and_then_does_not_prolong_it() {
        let mut watch = watched();
        for _ in 0..1000 {
            take(&mut watch);
        }
        // A poller that loses its processor for a while at every fourth datagram.
        let steps = (0..1000).take_while(|step| {
            watch.on_vain_wakeup();
            if step % 4 == 0 {
                take(&mut watch);
            }
            watch.on_polled() != NextCheck::Tick
        });
        assert_eq!(steps.count(), 30);
    }
}
