//! Both ends of a TP, and packets that wait for the NIC.
//!
//! - owns: sender, receiver, what waits for a line of the pool. takes: a path's numbers. gives: deadlines.
//! - must not: depend on the link.

use std::collections::VecDeque;

use urma_recovery::{
    AckPolicy, Arrival, Recovery, RtoCfg, SenderCfg, Sending, TpReceiver, TpSender,
};

use super::RunCfg;
use super::link::Forward;

/// Longest delay of an acknowledgement, in ns, as nodes have it.
const ACK_DELAY: u64 = 200_000;

/// What a message came to, before it takes effect.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    /// A packet was recorded so; whether it asks for an acknowledgement at once.
    Data { packet: Sending, arrival: Arrival, ask: bool },
    /// Anything else: only what the receiver has to say is left.
    Other,
}

/// Sender and receiver of one TP.
#[derive(Debug)]
pub(super) struct TpEnds {
    pub(super) sender: TpSender,
    pub(super) receiver: TpReceiver,
    /// Packets that were not given to the sender.
    pub(super) left: u64,
    /// Packets that it sends until the message has ended.
    pub(super) total: u64,
    /// It stands in the row of those that send.
    pub(super) in_row: bool,
    /// Earliest timer in the heap, in ps.
    pub(super) armed_at: u64,
    pub(super) feedbacks: u64,
    pub(super) repairs: u64,
    /// Packets of a group of the newest repair packet that arrived.
    pub(super) group_packets: u64,
    /// The message that waits for a line, and what it came to.
    pub(super) taken: Option<Taken>,
    /// Messages that arrived behind it.
    pub(super) waiting: VecDeque<Forward>,
}

impl TpEnds {
    /// Ends of a TP that sends `total` packets first.
    pub(super) fn new(cfg: &RunCfg, tp: u32, total: u64) -> Self {
        let rtt_ns = cfg.rtt_ps / 1000;
        let every = if matches!(cfg.recovery, Recovery::Irn { .. }) { 1 } else { 16 };
        let has_timers_of_nodes = cfg.cpu.is_some();
        let delay_ns =
            if has_timers_of_nodes { ACK_DELAY } else { (rtt_ns / 8).clamp(1, ACK_DELAY) };
        let policy = AckPolicy { every, delay_ns };
        let mut sender = TpSender::new(&SenderCfg {
            window_packets: cfg.window_packets,
            recovery: cfg.recovery,
            rto: match cfg.recovery {
                Recovery::Adamap(_) => rto(cfg.recovery, rtt_ns),
                _ if has_timers_of_nodes => RtoCfg { retries: 1000, ..RtoCfg::default() },
                _ => rto(cfg.recovery, rtt_ns),
            },
            congestion: cfg.congestion,
        });
        if let Some(loss) = cfg.expected_loss {
            sender.protect_tail(loss);
        }
        Self {
            sender,
            receiver: TpReceiver::new(cfg.recovery.record(tp), policy),
            left: total,
            total,
            in_row: true,
            armed_at: u64::MAX,
            feedbacks: 0,
            repairs: 0,
            group_packets: 0,
            taken: None,
            waiting: VecDeque::new(),
        }
    }

    /// Whether the peer has everything.
    pub(super) const fn is_done(&self) -> bool {
        self.left == 0 && self.sender.ledger().is_empty()
    }

    /// When a timer of either end expires, in ns. A sender that is about to send needs none for what is due now.
    pub(super) fn deadline(&self, now: u64) -> Option<u64> {
        let first = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let receiver = first(self.receiver.poll_deadline(), self.receiver.record_deadline());
        let sender = self.sender.poll_deadline().filter(|at| !self.in_row || *at > now);
        first(sender, receiver)
    }
}

/// The Adamap design has a timeout of its own, and no other.
const fn rto(recovery: Recovery, rtt_ns: u64) -> RtoCfg {
    if matches!(recovery, Recovery::Adamap(_)) {
        const NEVER: u64 = 1 << 50;
        return RtoCfg {
            initial_ns: NEVER,
            min_ns: NEVER,
            margin_ns: 0,
            max_ns: NEVER,
            retries: 1,
        };
    }
    // A round trip that never varies leaves no room for the repetition of a gap, which ends a round trip after the last
    // progress.
    let min_ns = if matches!(recovery, Recovery::GoBackN) { 2 * rtt_ns } else { rtt_ns / 8 + 1 };
    // Acknowledgements of the model are never late.
    let (initial_ns, max_ns) = (4 * rtt_ns, 8 * rtt_ns);
    RtoCfg { initial_ns, min_ns, margin_ns: 0, max_ns, retries: 1000 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_those_of_the_round_trip() {
        let of = |recovery| {
            let RtoCfg { initial_ns, min_ns, margin_ns, max_ns, retries } = rto(recovery, 8000);
            (initial_ns, min_ns, margin_ns, max_ns, retries)
        };
        assert_eq!(of(Recovery::GoBackN), (32_000, 16_000, 0, 64_000, 1000));
        assert_eq!(of(Recovery::SelectiveRepeat), (32_000, 1001, 0, 64_000, 1000));
        assert_eq!(of(Recovery::Irn { timeout_permille: 1200 }), (32_000, 1001, 0, 64_000, 1000));
        let never = 1 << 50;
        let adamap = urma_recovery::AdamapCfg {
            sizes: urma_recovery::AdamapSizes::default(),
            entry_timeout_ns: 1,
            entry_timeout_permille: 0,
            sender_timeout_ns: 1,
        };
        assert_eq!(of(Recovery::Adamap(adamap)), (never, never, 0, never, 1));
    }
}
