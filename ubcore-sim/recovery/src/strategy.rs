//! Strategies: which packets count as lost, and what a receiver records beyond a gap.
//!
//! - owns: the interface of the sending half; its implementations. takes: feedback already checked by the sender.
//! - gives: marks in the ledger. must not: send, read a clock, know packet formats.

mod adamap;
mod irn;
mod knit;
mod selective;

use std::fmt::Debug;

use udma_abi::Nanos;

use crate::{
    knitting::{
        AdamapCfg, AdamapRecord, BitmapRecord, KnitRecord, KnittingRecord, LossRecord, StrictRecord,
    },
    ledger::SendLedger,
    repair::RepairMark,
    report::{LossReport, TailMark},
};

pub use adamap::Adamap;
pub use irn::Irn;
pub use knit::Knit;
pub use selective::SelectiveRepeat;

/// How losses are repaired.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Recovery {
    /// A gap makes the sender start over from it; receivers keep nothing beyond a gap.
    GoBackN,
    /// Receivers keep what comes beyond a gap and acknowledge it by a bitmap that starts at the gap; what later
    /// packets overtook is sent again.
    SelectiveRepeat,
    /// As IRN does: each packet is acknowledged by itself; in recovery each hole is sent again once, further losses
    /// of it cost a timeout of that many thousandths of the round-trip time.
    Irn {
        /// Timeout in thousandths of the smoothed round-trip time.
        timeout_permille: u32,
    },
    /// Receivers keep what comes beyond a gap and report each loss once; repeated packets say which report they
    /// answer, so that what was lost again shows at once.
    Knitting {
        /// Copies of a repeated packet once no new packet waits.
        tail_copies: u8,
    },
    /// The Adamap design, with its faults: reports by node, a list for first repetitions and a table for others.
    Adamap(AdamapCfg),
}

impl Recovery {
    /// The sending half of the strategy.
    #[must_use]
    pub fn retransmission(self) -> Box<dyn Retransmission> {
        match self {
            Self::GoBackN => Box::new(GoBackN),
            Self::SelectiveRepeat => Box::new(SelectiveRepeat::default()),
            Self::Irn { timeout_permille } => Box::new(Irn::new(timeout_permille)),
            Self::Knitting { tail_copies } => Box::new(Knit::new(tail_copies)),
            Self::Adamap(cfg) => Box::new(Adamap::new(cfg.sender_timeout_ns)),
        }
    }

    /// The receiving half of a TP whose number is `tpn` (unique among those that share a pool).
    #[must_use]
    pub fn record(self, tpn: u32) -> Box<dyn LossRecord> {
        match self {
            Self::GoBackN => Box::new(StrictRecord::default()),
            Self::SelectiveRepeat => Box::new(KnittingRecord::new(tpn)),
            Self::Irn { .. } => Box::new(BitmapRecord::default()),
            Self::Knitting { .. } => Box::new(KnitRecord::new(tpn)),
            Self::Adamap(cfg) => Box::new(AdamapRecord::new(tpn, cfg)),
        }
    }
}

/// News from the peer about the packets of this side.
#[derive(Clone, Copy, Debug)]
pub struct AckNews {
    /// First packet that the peer lacks; already applied to the ledger.
    pub edge: u64,
    /// The peer saw a gap there and keeps nothing beyond it.
    pub gap: bool,
    /// Grows when this acknowledgement proves that a later transmission was received than those before did.
    pub order_seen: u64,
    /// The packet that caused the acknowledgement, if it is in the window.
    pub trigger: Option<u64>,
    /// Time of the acknowledgement.
    pub now: Nanos,
    /// Smoothed round-trip time, in ns.
    pub rtt: Option<Nanos>,
    /// Least round-trip time so far, in ns: that of the path, whatever the ends wait for.
    pub rtt_min: Option<Nanos>,
}

/// Decides what is lost: the sending half of a strategy.
pub trait Retransmission: Send + Debug {
    /// Takes an acknowledgement: marks what is to be sent again. Returns whether it learnt of a
    /// received packet that the ledger did not know of.
    fn on_ack(&mut self, news: &AckNews, ledger: &mut SendLedger) -> bool;

    /// The timer expired: no acknowledgement came in time.
    fn on_timeout(&mut self, ledger: &mut SendLedger);

    /// Takes a loss report whose runs lie within what was sent.
    fn on_report(&mut self, _report: &LossReport, _ledger: &mut SendLedger) {}

    /// Time passed: a deadline of its own may have.
    fn on_time(&mut self, _now: Nanos, _ledger: &mut SendLedger) {}

    /// How often a repeated packet is sent in a row.
    fn copies(&self, _ledger: &SendLedger) -> u8 {
        1
    }

    /// When [`Retransmission::on_time`] or [`Retransmission::poll_tail`] has something to do.
    fn poll_deadline(&self, _ledger: &SendLedger) -> Option<Nanos> {
        None
    }

    /// Repair packets are to follow what is sent last; the part of packets that the path is expected to lose.
    fn protect_tail(&mut self, _loss: f64) {}

    /// The repair packet to send now that nothing else can be sent; the mark comes when there is none any more.
    fn poll_repair(
        &mut self,
        _now: Nanos,
        _rtt: Option<Nanos>,
        _ledger: &SendLedger,
    ) -> Option<RepairMark> {
        None
    }

    /// The mark to send now that nothing else can be sent.
    fn poll_tail(
        &mut self,
        _now: Nanos,
        _rtt: Option<Nanos>,
        _ledger: &SendLedger,
    ) -> Option<TailMark> {
        None
    }
}

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
