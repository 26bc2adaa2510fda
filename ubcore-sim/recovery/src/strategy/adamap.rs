//! The sending half of the Adamap design: sends again what is reported, starts over after a silence.
//!
//! - owns: when something was received last. takes: loss reports, time. gives: marks on what was reported.
//! - must not: guess that a packet was lost, other than by the silence.

use udma_abi::Nanos;

use crate::ledger::SendLedger;
use crate::report::LossReport;
use crate::strategy::{AckNews, Retransmission};

/// Transmissions of the oldest packet up to which later ones that arrive hold the TP's timer back.
const LOST_AGAIN_MAX: u16 = 4;

/// Sends again what reports name.
#[derive(Debug)]
pub struct Adamap {
    /// 0: no timeout but the TP's.
    timeout_ns: Nanos,
    received_at: Nanos,
    /// Transmissions that had left the path at the last acknowledgement.
    resolved: u64,
}

impl Adamap {
    /// Starts over after a silence of `timeout_ns`; 0: when the TP's timer says so.
    #[must_use]
    pub const fn new(timeout_ns: Nanos) -> Self {
        Self { timeout_ns, received_at: 0, resolved: 0 }
    }
}

impl Retransmission for Adamap {
    fn on_ack(&mut self, news: &AckNews, ledger: &mut SendLedger) -> bool {
        self.received_at = news.now;
        let resolved = ledger.spread.resolved();
        let arrives = resolved > std::mem::replace(&mut self.resolved, resolved);
        // The receiver reports what is lost while later packets arrive.
        arrives
            && ledger.has_unacknowledged()
            && ledger.slot(ledger.una()).transmissions() <= LOST_AGAIN_MAX
    }

    fn on_timeout(&mut self, ledger: &mut SendLedger) {
        // Each packet says the report that named it last: as a first transmission the receiver would not take it any more.
        ledger.mark_all_lost(ledger.una());
    }

    fn on_report(&mut self, report: &LossReport, ledger: &mut SendLedger) {
        for run in report.runs() {
            for seq in run.start..run.end() {
                ledger.mark_reported(seq, report.tier, report.ticket);
            }
        }
    }

    fn on_time(&mut self, now: Nanos, ledger: &mut SendLedger) {
        if self.poll_deadline(ledger).is_some_and(|deadline| deadline <= now) {
            self.received_at = now;
            self.on_timeout(ledger);
        }
    }

    fn poll_deadline(&self, ledger: &SendLedger) -> Option<Nanos> {
        if self.timeout_ns == 0 || ledger.has_sendable() || !ledger.has_unacknowledged() {
            return None;
        }
        let sent_at = ledger.slot(ledger.unsent() - 1).sent_at();
        Some(self.received_at.max(sent_at).saturating_add(self.timeout_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_counts_from_what_was_sent_or_received_last_and_starts_over() {
        let (mut adamap, mut ledger) = (Adamap::new(1000), SendLedger::new(8));
        assert_eq!(adamap.poll_deadline(&ledger), None, "nothing is out");
        ledger.push();
        assert_eq!(adamap.poll_deadline(&ledger), None, "it is about to send");
        ledger.push();
        ledger.send_next(7).expect("a packet");
        ledger.send_next(9).expect("a packet");
        assert_eq!(adamap.poll_deadline(&ledger), Some(1009));
        let news = AckNews {
            edge: 0,
            gap: false,
            order_seen: 0,
            trigger: None,
            now: 50,
            rtt: None,
            rtt_min: None,
        };
        assert!(!adamap.on_ack(&news, &mut ledger));
        assert_eq!(adamap.poll_deadline(&ledger), Some(1050));
        ledger.push();
        ledger.send_next(60).expect("a packet");
        assert_eq!(adamap.poll_deadline(&ledger), Some(1060));
        adamap.on_time(1059, &mut ledger);
        assert!(!ledger.has_lost());
        adamap.on_time(1060, &mut ledger);
        let again = std::iter::from_fn(|| ledger.send_next(1070));
        let again: Vec<_> = again.map(|(seq, slot)| (seq, slot.reported())).collect();
        assert_eq!(again, [(0, (0, 0)), (1, (0, 0)), (2, (0, 0))]);
        assert_eq!(adamap.poll_deadline(&ledger), Some(2070));
        let timer_alone = Adamap::new(0);
        assert_eq!(timer_alone.poll_deadline(&ledger), None);
    }
}
