//! Selective repeat as IRN does it (SIGCOMM 2018).
//!
//! - owns: whether the TP is in recovery, how far holes were sent again. takes: one acknowledgement per packet,
//!   each with the packet that caused it. gives: marks on holes below the highest packet that was received.
//! - must not: send a hole again before the timeout once it was.

use udma_abi::Nanos;

use crate::ledger::{Fate, SendLedger};
use crate::strategy::{AckNews, Retransmission};

/// Least timeout, in ns.
const LEAST_NS: Nanos = 100_000;
/// Timeout before the first round-trip time, in ns.
const INITIAL_NS: Nanos = 100_000_000;

/// One repetition per hole and recovery; what is lost again waits for a timeout.
#[derive(Debug)]
pub struct Irn {
    timeout_permille: u32,
    /// The packet after the last one that was sent when recovery began.
    recovery_end: Option<u64>,
    /// Holes before this were sent again in this recovery.
    again_end: u64,
    /// One past the highest packet received.
    received_end: u64,
    timeout_ns: Nanos,
}

impl Irn {
    /// With a timeout of `timeout_permille` thousandths of the round-trip time.
    #[must_use]
    pub const fn new(timeout_permille: u32) -> Self {
        Self {
            timeout_permille,
            recovery_end: None,
            again_end: 0,
            received_end: 0,
            timeout_ns: INITIAL_NS,
        }
    }

    fn enter(&mut self, ledger: &SendLedger) {
        self.recovery_end = Some(ledger.unsent());
        self.again_end = ledger.una();
    }

    /// Marks the holes that were not sent again in this recovery.
    fn mark_holes(&mut self, ledger: &mut SendLedger) {
        for seq in self.again_end.max(ledger.una())..self.received_end {
            ledger.mark_lost(seq);
        }
        self.again_end = self.again_end.max(self.received_end);
    }
}

impl Retransmission for Irn {
    fn on_ack(&mut self, news: &AckNews, ledger: &mut SendLedger) -> bool {
        if let Some(rtt) = news.rtt {
            let timeout_ns = rtt.saturating_mul(self.timeout_permille.into()) / 1000;
            self.timeout_ns = timeout_ns.max(LEAST_NS);
        }
        self.received_end = self.received_end.max(news.edge);
        if self.recovery_end.is_some_and(|end| news.edge >= end) {
            self.recovery_end = None;
        }
        let Some(seq) = news.trigger.filter(|&seq| seq > news.edge) else {
            return false;
        };
        let is_new = ledger.mark_sacked(seq).is_some();
        self.received_end = self.received_end.max(seq + 1);
        if self.recovery_end.is_none() {
            self.enter(ledger);
        }
        self.mark_holes(ledger);
        is_new
    }

    fn on_timeout(&mut self, ledger: &mut SendLedger) {
        self.enter(ledger);
        ledger.mark_lost(ledger.una());
        self.again_end = ledger.una() + 1;
    }

    fn on_time(&mut self, now: Nanos, ledger: &mut SendLedger) {
        if self.poll_deadline(ledger).is_some_and(|deadline| deadline <= now) {
            self.on_timeout(ledger);
        }
    }

    fn poll_deadline(&self, ledger: &SendLedger) -> Option<Nanos> {
        let una = ledger.una();
        let is_out = ledger.is_sent(una) && ledger.slot(una).fate() == Fate::InFlight;
        is_out.then(|| ledger.slot(una).sent_at().saturating_add(self.timeout_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_is_a_part_of_the_round_trip_and_100_us_at_least() {
        for (rtt, timeout) in
            [(None, INITIAL_NS), (Some(10_000), 100_000), (Some(1_000_000), 1_200_000)]
        {
            let (mut irn, mut ledger) = (Irn::new(1200), SendLedger::new(8));
            let none = irn.poll_deadline(&ledger);
            assert_eq!(none, None, "nothing is out");
            ledger.push();
            ledger.send_next(7).expect("a packet");
            let news = AckNews {
                edge: 0,
                gap: false,
                order_seen: 0,
                trigger: None,
                now: 7,
                rtt,
                rtt_min: rtt,
            };
            irn.on_ack(&news, &mut ledger);
            assert_eq!(irn.poll_deadline(&ledger), Some(7 + timeout), "{rtt:?}");
            irn.on_time(7 + timeout - 1, &mut ledger);
            assert!(!ledger.has_lost());
            irn.on_time(7 + timeout, &mut ledger);
            assert!(ledger.has_lost() && irn.poll_deadline(&ledger).is_none());
        }
    }

    /// Holes below the highest packet that was received go again once; what is lost then waits for the timeout.
    #[test]
    fn a_hole_goes_again_once_in_a_recovery() {
        let (mut irn, mut ledger) = (Irn::new(1200), SendLedger::new(16));
        for _ in 0..10 {
            ledger.push();
            ledger.send_next(0).expect("a packet");
        }
        let mut acknowledge = |trigger, ledger: &mut SendLedger| {
            let news = AckNews {
                edge: 0,
                gap: false,
                order_seen: 0,
                trigger: Some(trigger),
                now: 1,
                rtt: None,
                rtt_min: None,
            };
            irn.on_ack(&news, ledger);
            std::iter::from_fn(|| ledger.send_next(2)).map(|(seq, _)| seq).collect::<Vec<_>>()
        };
        assert_eq!(acknowledge(3, &mut ledger), [0, 1, 2]);
        assert_eq!(acknowledge(5, &mut ledger), [4]);
        assert_eq!(acknowledge(6, &mut ledger), [], "all holes went again");
        assert_eq!(acknowledge(9, &mut ledger), [7, 8]);
    }

    /// The oldest packet goes again by itself after the timeout; a packet received behind it then repeats the others alone.
    #[test]
    fn a_timeout_repeats_the_oldest_packet_once() {
        let (mut irn, mut ledger) = (Irn::new(1200), SendLedger::new(16));
        for _ in 0..10 {
            ledger.push();
            ledger.send_next(0).expect("a packet");
        }
        let sent = |ledger: &mut SendLedger| {
            std::iter::from_fn(|| ledger.send_next(2)).map(|(seq, _)| seq).collect::<Vec<_>>()
        };
        irn.on_timeout(&mut ledger);
        assert_eq!(sent(&mut ledger), [0]);
        let mut acknowledge = |edge, trigger, ledger: &mut SendLedger| {
            ledger.advance(edge, |_, _| ());
            let news = AckNews {
                edge,
                gap: false,
                order_seen: 0,
                trigger: Some(trigger),
                now: 3,
                rtt: None,
                rtt_min: None,
            };
            irn.on_ack(&news, ledger);
            sent(ledger)
        };
        assert_eq!(acknowledge(0, 3, &mut ledger), [1, 2]);
        assert_eq!(acknowledge(0, 5, &mut ledger), [4]);
        // All that was out at its begin was received: the next gap begins another recovery.
        assert_eq!(acknowledge(10, 9, &mut ledger), []);
        (0..4).for_each(|_| ledger.push());
        assert_eq!(sent(&mut ledger), [10, 11, 12, 13]);
        assert_eq!(acknowledge(10, 12, &mut ledger), [10, 11]);
    }

    /// Sends so many packets, and all that is to be sent again after each acknowledgement.
    struct Exchange(Irn, SendLedger);

    impl Exchange {
        fn new(packets: u64) -> Self {
            let mut exchange = Self(Irn::new(1200), SendLedger::new(32));
            exchange.send(packets);
            exchange
        }

        fn send(&mut self, packets: u64) -> Vec<u64> {
            (0..packets).for_each(|_| self.1.push());
            std::iter::from_fn(|| self.1.send_next(2)).map(|(seq, _)| seq).collect()
        }

        fn acknowledge(&mut self, edge: u64, trigger: u64) -> Vec<u64> {
            self.1.advance(edge, |_, _| ());
            let (trigger, rtt) = (Some(trigger), None);
            let news =
                AckNews { edge, gap: false, order_seen: 0, trigger, now: 3, rtt, rtt_min: None };
            self.0.on_ack(&news, &mut self.1);
            self.send(0)
        }
    }

    /// Acknowledgements overtake each other: holes are those below the highest packet received, whichever came last.
    #[test]
    fn holes_lie_below_the_highest_packet_received() {
        let mut exchange = Exchange::new(10);
        assert_eq!(exchange.acknowledge(0, 9), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        exchange.0.on_timeout(&mut exchange.1);
        assert_eq!(exchange.send(0), [0]);
        assert_eq!(exchange.acknowledge(0, 5), [1, 2, 3, 4, 6, 7, 8]);
    }

    /// Packets beyond the end of a recovery went again in it; once it is over they may go again.
    #[test]
    fn a_recovery_is_over_when_all_that_was_out_at_its_begin_came() {
        for (edge, again) in [(9, vec![]), (10, vec![10, 11])] {
            let mut exchange = Exchange::new(10);
            assert_eq!(exchange.acknowledge(0, 1), [0]);
            assert_eq!(exchange.send(4), [10, 11, 12, 13]);
            assert_eq!(exchange.acknowledge(9, 13), [9, 10, 11, 12], "in the same recovery");
            assert_eq!(exchange.acknowledge(edge, 12), again, "{edge}");
        }
    }

    /// A receiver also answers a packet that it did not take.
    #[test]
    fn the_first_packet_that_is_missing_is_not_received_although_it_is_answered() {
        let mut exchange = Exchange::new(3);
        assert_eq!(exchange.acknowledge(0, 0), []);
        assert_eq!(exchange.1.slot(0).fate(), Fate::InFlight);
        exchange.0.on_timeout(&mut exchange.1);
        assert_eq!(exchange.send(0), [0]);
    }
}
