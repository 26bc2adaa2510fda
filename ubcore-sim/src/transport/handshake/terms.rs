//! What the handshake offers, agrees on and reports.
//!
//! - owns: plain values. takes: nothing. gives: the vocabulary of [`Handshake`](super::Handshake).
//! - must not: have behaviour beyond defaults and conversions.

use udma_abi::Nanos;
use urma_packet::{CloseReason, FurtherPorts, Mtu, Psn, RefuseReason, StrategyCaps, Tpn, WireEid};

use crate::transport::strategy::Strategy;
use crate::transport::tp::TpCfg;

/// What this node offers to every peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OpenCfg {
    /// EID of this node.
    pub(crate) local_eid: WireEid,
    /// EID of the peer.
    pub(crate) peer_eid: WireEid,
    /// UASID of this node.
    pub(crate) local_uasid: u32,
    /// Incarnation of this node: another one after every restart.
    pub(crate) incarnation: u64,
    /// Names what this node knows of the pair, not 0: another one after it forgot.
    pub(crate) state: u32,
    /// Largest payload of a packet that this side accepts.
    pub(crate) mtu: Mtu,
    /// Packets in flight, 1 to [`urma_packet::WINDOW_MAX`].
    pub(crate) window_packets: u32,
    /// Strategies that this node speaks.
    pub(crate) strategies: StrategyCaps,
    /// Time until the first CONNECT is repeated, in ns, at most; doubles every few times.
    pub(crate) retry_ns: Nanos,
    /// Longest time between two CONNECTs, in ns.
    pub(crate) retry_max_ns: Nanos,
    /// Repetitions before giving up.
    pub(crate) retries: u32,
    /// Further addresses of this node.
    pub(crate) ports: FurtherPorts,
}

impl OpenCfg {
    /// MTU 4096, 256 packets, both strategies; CONNECT three times each after 2.5 to 5, 5 to
    /// 10, 10 to 20, .. ms, 18 times: gives up after 0.9 s on average, 1.15 s at most.
    pub(crate) fn new(local_eid: WireEid, peer_eid: WireEid, incarnation: u64) -> Self {
        Self {
            local_eid,
            peer_eid,
            local_uasid: 0,
            incarnation,
            state: 1,
            mtu: Mtu::B4096,
            window_packets: 256,
            strategies: StrategyCaps::GO_BACK_N | StrategyCaps::SELECTIVE_REPEAT,
            retry_ns: 5_000_000,
            retry_max_ns: 200_000_000,
            retries: 18,
            ports: FurtherPorts::default(),
        }
    }
}

/// Fresh numbers of one attempt to make a TP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    /// TPN at this node, not 0, not used by another TP.
    pub(crate) tpn: Tpn,
    /// First PSN that this side sends; random.
    pub(crate) psn: Psn,
    /// Random; what answers must repeat.
    pub(crate) nonce: u64,
    /// Random; what a CLOSE of this node shows.
    pub(crate) close_key: u64,
}

/// What both ends hold once a TP is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Agreed {
    /// TPN at this node.
    pub(crate) local_tpn: Tpn,
    /// TPN at the peer.
    pub(crate) peer_tpn: Tpn,
    /// First PSN that this side sends.
    pub(crate) tx_psn: Psn,
    /// First PSN that the peer sends.
    pub(crate) rx_psn: Psn,
    /// The smaller of both path MTUs.
    pub(crate) mtu: Mtu,
    /// The smaller of both windows.
    pub(crate) window_packets: u32,
    /// Selective repeat when both speak it.
    pub(crate) strategy: Strategy,
    /// Incarnation of the peer.
    pub(crate) peer_incarnation: u64,
    /// What a CLOSE of the peer shows.
    pub(crate) peer_key: u64,
    /// What the peer calls its state of the pair.
    pub(crate) peer_state: u32,
    /// Further addresses of the peer, as it says.
    pub(crate) peer_ports: FurtherPorts,
}

impl Agreed {
    /// Settings of the TP, timers as [`TpCfg::new`] has them.
    pub(crate) fn tp_cfg(&self) -> TpCfg {
        TpCfg {
            window_packets: self.window_packets,
            strategy: self.strategy,
            ..TpCfg::new(self.local_tpn, self.peer_tpn, self.tx_psn, self.rx_psn)
        }
    }
}

/// Why no TP could be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum TpOpenError {
    /// The peer did not answer any CONNECT.
    #[error("the peer did not answer")]
    Timeout,
    /// The peer answered with REFUSE.
    #[error("the peer refused: {0:?}")]
    Refused(RefuseReason),
}

/// Where the TP to the peer stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandshakeState {
    /// No TP was opened yet.
    Idle,
    /// A CONNECT was sent and is not answered.
    Connecting,
    /// There is a TP.
    Open(Agreed),
    /// It was closed, by either side.
    Closed,
    /// It could not be opened.
    Failed(TpOpenError),
}

/// What a packet changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandshakeEvent {
    /// The packet changes nothing, or the attempt failed for good.
    Nothing,
    /// There is a TP with these terms. If there was one before, the peer started over, or held another
    /// TP with this side's end: that one is no more.
    Opened(Agreed),
    /// The peer closed the TP.
    Closed(CloseReason),
    /// The peer holds the TP: it answered the question of `verify`.
    Proven,
    /// A hint without proof says that the peer does not hold the TP: ask it.
    Doubted,
    /// Shows nothing that only the peer has, or answers nothing asked here; dropped.
    NotExpected,
}

/// Why the peer of an open TP is asked whether it still holds it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Doubt {
    /// A packet says so, without proof: silence changes nothing, the timers of the TP decide.
    Hint,
    /// The TP was idle: silence ends it.
    Idle,
}
