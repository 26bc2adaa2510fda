//! Selective repeat by a bitmap of what was received beyond the gap.
//!
//! - owns: how far holes were examined. takes: acknowledgements. gives: marks on holes that later
//!   packets overtook.
//! - must not: examine the window for an acknowledgement that proves nothing new.

use crate::ledger::{Fate, SendLedger};
use crate::strategy::{AckNews, Retransmission};

/// Packets that may overtake another before it counts as lost.
const REORDER_PACKETS: u64 = 3;

/// Sends again only what is missing.
#[derive(Debug, Default)]
pub struct SelectiveRepeat {
    /// Holes before this were examined when `order_seen` was the same.
    order_done: u64,
}

impl Retransmission for SelectiveRepeat {
    fn on_ack(&mut self, news: &AckNews, ledger: &mut SendLedger) -> bool {
        if news.gap {
            // The peer keeps nothing beyond the gap (its pool is exhausted): only the gap is sure.
            ledger.mark_lost(news.edge);
        }
        if news.order_seen <= self.order_done {
            return false;
        }
        self.order_done = news.order_seen;
        for seq in news.edge..ledger.unsent() {
            if ledger.slot(seq).fate() == Fate::InFlight
                && ledger.is_overtaken(seq, REORDER_PACKETS)
            {
                ledger.mark_lost(seq);
            }
        }
        false
    }

    fn on_timeout(&mut self, ledger: &mut SendLedger) {
        // One packet asks the peer what it has; its acknowledgement names the holes.
        ledger.mark_lost(ledger.una());
    }
}
