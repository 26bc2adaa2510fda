//! Go-back-N: start over from the gap.
//!
//! - owns: nothing. takes: acknowledgements that say that there is a gap. gives: marks from the gap on.
//! - must not: select.

use crate::ledger::SendLedger;
use crate::strategy::{AckNews, Retransmission};

/// Start over from the gap.
#[derive(Debug)]
pub struct GoBackN;

impl Retransmission for GoBackN {
    fn on_ack(&mut self, news: &AckNews, ledger: &mut SendLedger) -> bool {
        // The peer says this once per gap, so each one is worth one start over.
        if news.gap {
            ledger.mark_all_lost(news.edge);
        }
        false
    }

    fn on_timeout(&mut self, ledger: &mut SendLedger) {
        ledger.mark_all_lost(ledger.una());
    }
}
