//! The TP to one peer: its handshake, its windows, and datagrams outside it.
//!
//! *Owns*: what is between this node and that one. *Takes*: pieces, packets of that node, time.
//! *Gives*: packets (unsealed), pieces in order. *Must not*: allocate per packet in a steady stream.

use std::collections::VecDeque;

use udma_abi::{CmdStatus, Nanos, RawEid};
use urma_packet::{
    Body, Mtu, Packet, PacketHeader, Psn, RefuseReason, RequestFlags, RequestHeader, StrategyCaps,
    Tpn, TransactionHeader, UmHeader,
};

use crate::cfg::DeviceCfg;
use crate::transport::{
    Agreed, Handshake, HandshakeState, KnittingPool, OpenCfg, Piece, PushError, Received, Strategy,
    Tp, TpOpenError,
};

/// Datagrams that may wait for the link.
const DATAGRAMS_MAX: usize = 64;

/// The TP to one node.
#[derive(Debug)]
pub(crate) struct PeerTp {
    pub(super) handshake: Handshake,
    tp: Option<Tp>,
    /// Payload bytes of a packet.
    pub(crate) mtu: usize,
    ends: UmHeader,
    datagrams: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    /// Packets sent again that were counted already.
    again_counted: u64,
    error_logged: bool,
    /// A packet of the peer was accepted since [`take_received`](super::TpEndpoint::take_received).
    pub(super) received: bool,
    /// When the peer last proved that it holds the TP.
    pub(super) proven_at: Nanos,
}

impl PeerTp {
    /// `state` names what this node knows of the pair: random, not 0.
    pub(super) fn new(cfg: &DeviceCfg, peer: RawEid, state: u32) -> Self {
        let mtu = Mtu::from_bytes(cfg.mtu as usize).unwrap_or(Mtu::B1024);
        let strategies = match cfg.strategy {
            Strategy::GoBackN => StrategyCaps::GO_BACK_N,
            Strategy::SelectiveRepeat => StrategyCaps::GO_BACK_N | StrategyCaps::SELECTIVE_REPEAT,
        };
        let open = OpenCfg {
            local_uasid: cfg.uasid,
            mtu,
            window_packets: cfg.window_packets.clamp(1, urma_packet::WINDOW_MAX),
            strategies,
            state,
            ..OpenCfg::new(cfg.eid.0, peer.0, cfg.incarnation)
        };
        let ends = UmHeader {
            source_eid: cfg.eid.0,
            dest_eid: peer.0,
            source_uasid: cfg.uasid,
            dest_uasid: 0,
        };
        Self {
            handshake: Handshake::new(open),
            tp: None,
            mtu: mtu.bytes(),
            ends,
            datagrams: VecDeque::new(),
            spare: Vec::new(),
            again_counted: 0,
            error_logged: false,
            received: false,
            proven_at: 0,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.tp.is_some()
    }

    /// There is no TP, nor a handshake for one.
    pub(super) fn may_open(&self) -> bool {
        let state = self.handshake.state();
        self.tp.is_none() && !matches!(state, HandshakeState::Connecting | HandshakeState::Open(_))
    }

    /// The peer has everything that was sent.
    pub(crate) fn is_drained(&self) -> bool {
        self.tp.as_ref().is_none_or(Tp::is_drained)
    }

    /// Nothing is in flight in either direction, as far as this side can see, and nothing was received that
    /// [`take_received`](super::TpEndpoint::take_received) did not report.
    pub(crate) fn is_quiet(&self) -> bool {
        let sends = self.tp.as_ref().is_some_and(Tp::has_transmit);
        self.is_drained()
            && !self.received
            && !sends
            && self.datagrams.is_empty()
            && self.handshake.poll_deadline().is_none()
    }

    /// Whether the peer was asked whether it holds the TP, and gave no answer.
    pub(super) fn is_silent(&self) -> bool {
        self.tp.is_some() && !matches!(self.handshake.state(), HandshakeState::Open(_))
    }

    /// The TP that a handshake agreed on.
    pub(super) fn on_opened(&mut self, now: Nanos, agreed: &Agreed) {
        self.proven_at = now;
        self.mtu = agreed.mtu.bytes();
        self.again_counted = 0;
        self.tp = Some(Tp::new(agreed.tp_cfg()));
    }

    /// The TP is no more; its number at this node.
    pub(super) fn drop_tp(&mut self, pool: &mut KnittingPool) -> Option<Tpn> {
        let mut tp = self.tp.take()?;
        tp.close(pool);
        Some(tp.cfg().local_tpn)
    }

    pub(super) fn on_packet(
        &mut self,
        now: Nanos,
        packet: &Packet<'_>,
        pool: &mut KnittingPool,
    ) -> Option<Received> {
        let received = self.tp.as_mut()?.on_packet(now, packet, pool);
        self.received |= matches!(received, Received::InOrder | Received::OutOfOrder);
        Some(received)
    }

    /// Why the handshake came to nothing, once.
    pub(super) fn take_open_error(&mut self) -> Option<CmdStatus> {
        let HandshakeState::Failed(error) = self.handshake.state() else {
            self.error_logged = false;
            return None;
        };
        if std::mem::replace(&mut self.error_logged, true) {
            return None;
        }
        Some(match error {
            TpOpenError::Timeout => CmdStatus::Timeout,
            TpOpenError::Refused(RefuseReason::Policy) => CmdStatus::Denied,
            TpOpenError::Refused(_) => CmdStatus::Unreachable,
        })
    }

    /// The TP gave up: the peer does not answer.
    pub(super) fn has_failed(&self) -> bool {
        self.tp.as_ref().is_some_and(|tp| tp.failed().is_some())
    }

    /// Whether a piece, or a message outside the TP, would be accepted now.
    pub(crate) fn has_room(&self, header: &TransactionHeader) -> bool {
        if datagram(header).is_some() {
            self.datagrams.len() < DATAGRAMS_MAX
        } else {
            self.tp.as_ref().is_some_and(Tp::has_room)
        }
    }

    /// Takes a piece to send.
    pub(super) fn push(
        &mut self,
        header: &TransactionHeader,
        bytes: &[u8],
    ) -> Result<(), PushError> {
        let tp = self.tp.as_mut().ok_or(PushError::WindowFull)?;
        tp.push(header, bytes.len(), &mut |room| room.copy_from_slice(bytes))
    }

    /// The next piece of the peer; `inbox` is its payload then.
    pub(super) fn pop(&mut self, inbox: &mut Vec<u8>) -> Option<TransactionHeader> {
        let tp = self.tp.as_mut()?;
        let Piece { header, mut payload } = tp.pop()?;
        std::mem::swap(inbox, &mut payload);
        tp.recycle(Piece { header, payload });
        Some(header)
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.tp.as_ref().is_some_and(Tp::has_transmit) || !self.datagrams.is_empty()
    }

    /// Message `number` of this node outside a TP, to that one.
    pub(super) fn push_datagram(
        &mut self,
        number: Psn,
        header: &RequestHeader,
        bytes: &[u8],
    ) -> Option<()> {
        let body = Body::UmSend(self.ends, *header);
        let header = PacketHeader::new(Tpn::from_low_bits(0), number, body);
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(header.packet_len(bytes.len()), 0);
        let frame = header.emit_headers(bytes.len(), &mut buffer).ok()?;
        buffer[frame.payload].copy_from_slice(bytes);
        self.datagrams.push_back(buffer);
        Some(())
    }

    /// The next packet, unsealed.
    pub(super) fn poll_transmit(
        &mut self,
        now: Nanos,
        buf: &mut [u8],
        pool: &KnittingPool,
    ) -> Option<usize> {
        if let Some(len) = self.handshake.poll_transmit(now, buf) {
            return Some(len);
        }
        if let Some(datagram) = self.datagrams.pop_front() {
            let len = datagram.len();
            buf.get_mut(..len)?.copy_from_slice(&datagram);
            self.spare.push(datagram);
            return Some(len);
        }
        self.tp.as_mut()?.poll_transmit(now, buf, pool)
    }

    /// Packets sent again since the last call.
    pub(super) fn take_sent_again(&mut self) -> u64 {
        let again = self.tp.as_ref().map_or(0, |tp| tp.stats().sent_again);
        again.saturating_sub(std::mem::replace(&mut self.again_counted, again))
    }

    pub(super) fn poll_deadline(&self) -> Option<Nanos> {
        // A TP that is over is to be noticed at once.
        let over = self.has_failed() || self.is_silent();
        let waiting = (over || !self.datagrams.is_empty()).then_some(0);
        let tp = self.tp.as_ref().and_then(Tp::poll_deadline);
        [waiting, tp, self.handshake.poll_deadline()].into_iter().flatten().min()
    }
}

/// The request that `header` is of, if it goes outside the TP.
pub(super) fn datagram(header: &TransactionHeader) -> Option<&RequestHeader> {
    let TransactionHeader::Request(request) = header else { return None };
    request.flags.contains(RequestFlags::DATAGRAM).then_some(request)
}
