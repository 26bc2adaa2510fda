//! Loss recovery and congestion control of a TP, in sequence numbers.
//!
//! - owns: which packets are in flight, what counts as lost, the loss record, timers, windows.
//! - takes: sequences that were queued, received or acknowledged; time.
//! - gives: the sequence to send next, acknowledgements and loss reports as values, deadlines.
//! - must not: hold payload, know PSNs or packet formats, read a clock, draw a random number.
//!
//! A [`TpSender`] and a [`TpReceiver`] are one direction of a TP. Window, round-trip estimate, timer and congestion
//! control are the same for every strategy; a strategy is the receiver's [`LossRecord`] and the sender's
//! [`Retransmission`]. Sequences count packets from 0 and do not wrap. Packets may take several routes, which have numbers
//! here.
#![forbid(unsafe_code)]

mod congestion;
mod knitting;
mod ledger;
mod receiver;
mod repair;
mod report;
mod sender;
mod spread;
mod strategy;
mod timer;

pub use congestion::{
    CongestionChoice, CongestionControl, Cubic, Delay, PACER_BURST_MAX, Pacer, PathNews,
    WINDOW_FIRST, WINDOW_MIN, WINDOW_MOST,
};
pub use knitting::{
    AdamapCfg, AdamapSizeError, AdamapSizes, Arrival, DmaCfg, DmaModel, DmaStats, KnitRecord,
    KnittingPool, KnittingRecord, LossError, LossRecord, NicUsage, PoolError, PoolTraffic,
    PoolUsage, RecordTraits,
};
pub use ledger::{Fate, LedgerSlot, SendLedger};
pub use receiver::{AckPolicy, TpReceiver};
pub use repair::{GROUP_PACKETS, GROUP_REPAIRS, REPAIR_RTT_MIN, RepairMark};
pub use report::{AckFeedback, DataMark, LossReport, LossRun, REPORT_RUNS, TailMark};
pub use sender::{NeverSent, SenderCfg, SenderStats, Sending, TpSender};
pub use spread::SPREAD_MAX;
pub use strategy::{
    AckNews, Adamap, GoBackN, Irn, Knit, Recovery, Retransmission, SelectiveRepeat,
};
pub use timer::{Exhausted, Expired, RtoCfg, RtoTimer, Waiting};
