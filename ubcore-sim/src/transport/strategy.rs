//! Retransmission strategies: which packets count as lost, and whether a receiver keeps what comes
//! beyond a gap.
//!
//! - owns: go-back-N and selective repeat. takes: acknowledgements already checked by the TP.
//! - gives: marks in the send window. must not: send, read a clock, know packet formats.

use std::fmt::Debug;

use super::send::{Fate, SendWindow};

/// Which strategy a TP uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub enum Strategy {
    /// A gap makes the sender start over from it; receivers keep nothing beyond a gap.
    GoBackN,
    /// Receivers keep what comes beyond a gap and say so; only what is missing is sent again.
    #[default]
    SelectiveRepeat,
}

/// News from the peer about the packets of this side.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckNews {
    /// First packet that the peer lacks; already applied to the window.
    pub(super) edge: u64,
    /// The peer saw a gap there and keeps nothing beyond it.
    pub(super) gap: bool,
    /// Order number of the latest transmission that this or an earlier answer proves received.
    pub(super) order_seen: u64,
}

/// Decides what is lost.
pub(super) trait Retransmission: Send + Debug {
    /// Whether this side keeps packets beyond a gap.
    fn keeps_out_of_order(&self) -> bool;

    /// Takes an acknowledgement: marks what is received and what is to be sent again.
    fn on_ack(&mut self, news: &AckNews, window: &mut SendWindow);

    /// No answer came in time.
    fn on_timeout(&mut self, window: &mut SendWindow);
}

/// Packets that may overtake another before it counts as lost.
const REORDER_PACKETS: u64 = 3;

pub(super) fn retransmission(strategy: Strategy) -> Box<dyn Retransmission> {
    match strategy {
        Strategy::GoBackN => Box::new(GoBackN),
        Strategy::SelectiveRepeat => Box::new(SelectiveRepeat::default()),
    }
}

/// Start over from the gap.
#[derive(Debug)]
pub(super) struct GoBackN;

impl Retransmission for GoBackN {
    fn keeps_out_of_order(&self) -> bool {
        false
    }

    fn on_ack(&mut self, news: &AckNews, window: &mut SendWindow) {
        // The peer says this once per gap, so each one is worth one start over.
        if news.gap {
            mark_all(window);
        }
    }

    fn on_timeout(&mut self, window: &mut SendWindow) {
        mark_all(window);
    }
}

/// Selective repeat: sends again only what is missing.
#[derive(Debug, Default)]
pub(super) struct SelectiveRepeat {
    /// Holes before this were looked at when `order_seen` was the same.
    order_done: u64,
}

impl Retransmission for SelectiveRepeat {
    fn keeps_out_of_order(&self) -> bool {
        true
    }

    fn on_ack(&mut self, news: &AckNews, window: &mut SendWindow) {
        if news.gap {
            // The peer keeps nothing beyond the gap (its pool is exhausted): only the gap is sure.
            window.mark_lost(news.edge);
        }
        if news.order_seen <= self.order_done {
            return;
        }
        self.order_done = news.order_seen;
        for seq in news.edge..window.unsent() {
            let slot = window.slot(seq);
            let overtaken = slot.order() + REORDER_PACKETS <= news.order_seen;
            if slot.fate() == Fate::InFlight && overtaken {
                window.mark_lost(seq);
            }
        }
    }

    fn on_timeout(&mut self, window: &mut SendWindow) {
        // One packet asks the peer what it has; the answer names the holes.
        window.mark_lost(window.una());
    }
}

fn mark_all(window: &mut SendWindow) {
    for seq in window.una()..window.unsent() {
        window.mark_lost(seq);
    }
}
