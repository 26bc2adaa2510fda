//! What a TP is made from and what it reports.
//!
//! - owns: plain values. takes: nothing. gives: the vocabulary of [`Tp`](super::Tp).
//! - must not: have behaviour beyond defaults.

use udma_abi::Nanos;
use urma_packet::{PacketError, Psn, Tpn};
use urma_recovery::{CongestionChoice, RtoCfg};

use crate::transport::strategy::Strategy;

/// What a TP is made from: the outcome of a handshake and local settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TpCfg {
    /// TPN at this node; unique among the TPs that share a knitting pool.
    pub(crate) local_tpn: Tpn,
    /// TPN at the peer.
    pub(crate) peer_tpn: Tpn,
    /// PSN of the first packet sent.
    pub(crate) tx_psn: Psn,
    /// PSN of the first packet expected.
    pub(crate) rx_psn: Psn,
    /// Packets in flight in each direction, 1 to 65536.
    pub(crate) window_packets: u32,
    /// How losses are repaired.
    pub(crate) strategy: Strategy,
    /// What bounds the packets on the path beside the window.
    pub(crate) congestion: CongestionChoice,
    /// Bounds of the retransmission timer.
    pub(crate) rto: RtoCfg,
    /// Packets received in order before an acknowledgement goes out.
    pub(crate) ack_every: u32,
    /// Longest time that one waits for more, in ns.
    pub(crate) ack_delay_ns: Nanos,
}

impl TpCfg {
    /// Acknowledge every 16 packets (a quarter of the window if that is less) or after 200 us,
    /// and time out as [`RtoCfg::default`] says.
    pub(crate) fn new(local_tpn: Tpn, peer_tpn: Tpn, tx_psn: Psn, rx_psn: Psn) -> Self {
        Self {
            local_tpn,
            peer_tpn,
            tx_psn,
            rx_psn,
            window_packets: 256,
            strategy: Strategy::default(),
            congestion: CongestionChoice::None,
            rto: RtoCfg::default(),
            ack_every: 16,
            ack_delay_ns: 200_000,
        }
    }
}

/// Why a TP gave up. It sends and accepts nothing more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum TpError {
    /// The peer did not acknowledge within the bounds of [`RtoCfg`].
    #[error("the peer did not acknowledge in time")]
    Timeout,
    /// Someone wrote to the knitting pool.
    #[error("the loss record in the knitting pool was corrupted")]
    PoolCorrupt,
    /// The peer's repair packets contradict its packets.
    #[error("repair packets of the peer contradict its packets")]
    BadRepair,
}

/// Why a piece was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum PushError {
    /// Every place of the window is in use; there will be room after acknowledgements.
    #[error("the send window is full")]
    WindowFull,
    /// Header and payload length contradict each other.
    #[error(transparent)]
    Header(#[from] PacketError),
    /// The TP gave up.
    #[error(transparent)]
    Failed(#[from] TpError),
}

/// What became of a received packet; the device counts by this.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Received {
    /// Next in order; pieces are ready.
    InOrder,
    /// Kept beyond a gap.
    OutOfOrder,
    /// Received before; dropped, and acknowledged again.
    Duplicate,
    /// Beyond a gap that this side keeps nothing beyond; dropped.
    DroppedBeyondGap,
    /// The knitting pool has no block left; dropped.
    DroppedNoBlock,
    /// Not in the window; dropped.
    OutsideWindow,
    /// An acknowledgement, new or not.
    Acknowledged,
    /// An acknowledgement of what was never sent, or older than the window; dropped.
    BadAck,
    /// Repeated or late, and in no list of losses; dropped.
    Unmatched,
    /// A loss report of what was never sent, or on a TP without reports; dropped.
    BadReport,
    /// A tail mark beyond the window, or on a TP without reports; dropped.
    BadTail,
    /// A packet that answers a loss report, on a TP without reports; dropped.
    BadRepeat,
    /// A repair packet of packets outside the window, or on a TP without reports; dropped.
    BadRepair,
    /// Neither data nor acknowledgement, or the TP has given up; dropped.
    NotAccepted,
}

/// Counts of one TP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TpStats {
    /// Data packets sent for the first time.
    pub(crate) sent: u64,
    /// Data packets sent again.
    pub(crate) sent_again: u64,
    /// Number of acknowledgements that were sent.
    pub(crate) acks_sent: u64,
    /// Number of times that the retransmission timer ran out.
    pub(crate) timeouts: u64,
    /// Number of repair packets that were sent.
    pub(crate) repairs_sent: u64,
    /// Packets that never came and were made from repair packets.
    pub(crate) repaired: u64,
}

impl TpStats {
    /// What was counted since `earlier`.
    pub(crate) const fn since(&self, earlier: &Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(earlier.sent),
            sent_again: self.sent_again.saturating_sub(earlier.sent_again),
            acks_sent: self.acks_sent.saturating_sub(earlier.acks_sent),
            timeouts: self.timeouts.saturating_sub(earlier.timeouts),
            repairs_sent: self.repairs_sent.saturating_sub(earlier.repairs_sent),
            repaired: self.repaired.saturating_sub(earlier.repaired),
        }
    }
}
