//! Configuration, errors, results and counters of a TP.
//!
//! - owns: plain values. takes: nothing. gives: argument and result types of [`Tp`](super::Tp).
//! - must not: have behaviour beyond defaults.

use udma_abi::Nanos;
use urma_packet::{PacketError, Psn, Tpn};
use urma_recovery::{AdamapSizes, CongestionChoice, RtoCfg};

use crate::transport::strategy::Strategy;

/// Configuration of a TP: the result of its handshake, and local settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TpCfg {
    /// TPN at this node; unique among the TPs that share a knitting pool.
    pub(crate) local_tpn: Tpn,
    /// TPN at the peer.
    pub(crate) peer_tpn: Tpn,
    /// PSN of the first packet to send.
    pub(crate) tx_psn: Psn,
    /// PSN of the first packet to receive.
    pub(crate) rx_psn: Psn,
    /// Window of each direction in packets, from the oldest unacknowledged to the newest, 1 to 65536.
    pub(crate) window_packets: u32,
    /// Most packets on the path to the peer if there is no congestion control; at most the window.
    pub(crate) path_packets: u32,
    /// Strategy of loss recovery.
    pub(crate) strategy: Strategy,
    /// What the NIC holds of it with [`Strategy::Seed`].
    pub(crate) adamap: AdamapSizes,
    /// Congestion control, which also bounds the packets on the path.
    pub(crate) congestion: CongestionChoice,
    /// Bounds of the retransmission timer.
    pub(crate) rto: RtoCfg,
    /// Packets received in order before an acknowledgement is sent.
    pub(crate) ack_every: u32,
    /// Longest delay of an acknowledgement, in ns.
    pub(crate) ack_delay_ns: Nanos,
}

impl TpCfg {
    /// Acknowledges every 16 packets (a quarter of the window if that is less) or after 200 us, and times out as
    /// [`RtoCfg::default`] says.
    pub(crate) fn new(local_tpn: Tpn, peer_tpn: Tpn, tx_psn: Psn, rx_psn: Psn) -> Self {
        Self {
            local_tpn,
            peer_tpn,
            tx_psn,
            rx_psn,
            window_packets: 256,
            path_packets: u32::MAX,
            strategy: Strategy::default(),
            adamap: AdamapSizes::default(),
            congestion: CongestionChoice::None,
            rto: RtoCfg::default(),
            ack_every: 16,
            ack_delay_ns: 200_000,
        }
    }
}

/// Why a TP failed. It sends and accepts nothing more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum TpError {
    /// The peer did not acknowledge within the bounds of [`RtoCfg`].
    #[error("the peer did not acknowledge in time")]
    Timeout,
    /// The knitting pool was overwritten.
    #[error("the loss record in the knitting pool was corrupted")]
    PoolCorrupt,
    /// The peer's repair packets contradict its packets.
    #[error("repair packets of the peer contradict its packets")]
    BadRepair,
}

/// Why a piece was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum PushError {
    /// The window is full until more is acknowledged.
    #[error("the send window is full")]
    WindowFull,
    /// Header and payload length contradict each other.
    #[error(transparent)]
    Header(#[from] PacketError),
    /// The TP has failed.
    #[error(transparent)]
    Failed(#[from] TpError),
}

/// Outcome of a received packet, by which the device counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Received {
    /// In order; pieces are ready.
    InOrder,
    /// Beyond a gap; stored.
    OutOfOrder,
    /// A duplicate; dropped, and acknowledged again.
    Duplicate,
    /// Beyond a gap, where this side stores nothing; dropped.
    DroppedBeyondGap,
    /// No block left in the knitting pool; dropped.
    DroppedNoBlock,
    /// Outside the window; dropped.
    OutsideWindow,
    /// A valid acknowledgement, new or not.
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
    /// Of another kind, or the TP has failed; dropped.
    NotAccepted,
}

/// Counts of one TP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TpStats {
    /// Data packets sent for the first time.
    pub(crate) sent: u64,
    /// Number of data packets that were retransmitted.
    pub(crate) sent_again: u64,
    /// Number of acknowledgements that were sent.
    pub(crate) acks_sent: u64,
    /// Number of times that the retransmission timer expired.
    pub(crate) timeouts: u64,
    /// Number of repair packets that were sent.
    pub(crate) repairs_sent: u64,
    /// Lost packets that were rebuilt from repair packets.
    pub(crate) repaired: u64,
}

impl TpStats {
    /// Returns the difference to `earlier`.
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
