//! The TP to one peer: its handshake, its windows, and datagrams outside of it.
//!
//! *Owns*: all state between this node and that one. *Takes*: pieces, packets of that node, time. *Gives*: packets
//! (unsealed), pieces in order. *Must not*: allocate per packet in a steady stream.

use std::collections::VecDeque;
use std::net::Ipv6Addr;

use udma_abi::{CmdStatus, Nanos, RawEid};
use urma_packet::{
    BTH_LEN, Body, DATA_OVERHEAD, ICRC_LEN, Mtu, Packet, PacketHeader, PathProbe, Psn,
    RefuseReason, RequestFlags, RequestHeader, Tpn, TransactionHeader, UmHeader,
};
use urma_recovery::AdamapSizes;

use super::routes::Routes;
use super::tp_routes::{TpMove, TpRoutes};
use crate::cfg::{DeviceCfg, PortMode};
use crate::fault::Faults;
use crate::ports::{RUN_BYTES, Route};
use crate::transport::{
    Agreed, CongestionChoice, Handshake, HandshakeState, KnittingPool, MtuChange, MtuFaults,
    OpenCfg, PathMtu, Piece, PushError, Received, Strategy, Tp, TpCfg, TpOpenError, TpStats,
    planted,
};

/// Most datagrams that wait for the link.
const DATAGRAMS_MAX: usize = 64;
/// Most probes of the peer that wait to be returned.
const ECHOES_MAX: usize = 4;

/// Most packets that wait to be sent for the first time, in runs of segmentation offload.
const RUNS_QUEUED: usize = 2;
/// Longest piece that may wait in any number, in bytes.
const QUEUED_ANYWAY: usize = 255;

/// The TP to one node.
#[derive(Debug)]
pub(crate) struct PeerTp {
    pub(super) handshake: Handshake,
    pub(super) tp: Option<Tp>,
    /// Route of handshake packets, and of the TP's packets unless [`Routes::of_tp`] says otherwise.
    pub(super) route: Route,
    /// Route of acknowledgements: that of the last accepted packet of the TP.
    pub(super) answers: Route,
    /// Route of the answer to a handshake packet: back to its source.
    pub(super) replies: Option<Route>,
    /// Congestion control of a TP, which its peer need not know.
    congestion: CongestionChoice,
    adamap: AdamapSizes,
    path_packets: u32,
    /// How packets use several ports.
    pub(super) mode: PortMode,
    /// The same for the TP that is open, or was last.
    pub(super) tp_route: Route,
    /// Routes to the peer; `None`: there is only one.
    pub(super) routes: Option<Box<Routes>>,
    /// Whether this node is the one whose attempt to move the TP stays when both make one.
    pub(super) is_leader: bool,
    /// Life of the peer that has these routes.
    pub(super) incarnation: u64,
    /// Planted faults, for tests.
    planted: Faults,
    /// Most payload bytes of a packet at this node, and the faults of its path MTUs.
    pub(super) mtu: (usize, MtuFaults),
    pub(super) moved: VecDeque<TpMove>,
    /// Payload bytes of a packet to the peer.
    pub(super) path: PathMtu,
    /// Probes of the peer to return, and the routes on which they came.
    echoes: VecDeque<(Route, PathProbe)>,
    ends: UmHeader,
    datagrams: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    /// Values that were counted already.
    counted: TpStats,
    error_logged: bool,
    /// Whether a packet of the peer was accepted since [`take_received`](super::TpEndpoint::take_received).
    pub(super) received: bool,
    /// When the peer last proved that it holds the TP.
    pub(super) proven_at: Nanos,
    /// Whether the last packet was one of the TP that others may follow in a run.
    begins_run: bool,
}

impl PeerTp {
    /// `state` is this node's number for its state of the pair: random, not 0.
    pub(super) fn new(cfg: &DeviceCfg, peer: RawEid, state: u32) -> Self {
        let mtu = Mtu::from_bytes(cfg.mtu as usize).unwrap_or(Mtu::B1024);
        // A tail mark without an answer makes no route suspect: a TP with several routes would wait on a dead one.
        // By a record of the Adamap design, what another route overtakes is lost.
        let needs_one = matches!(cfg.strategy, Strategy::Knitting | Strategy::Seed);
        let is_spread = needs_one && cfg.ports.get(0).is_some();
        let strategy = if is_spread { Strategy::SelectiveRepeat } else { cfg.strategy };
        let open = OpenCfg {
            local_uasid: cfg.uasid,
            mtu,
            window_packets: cfg.window_packets.clamp(1, urma_packet::WINDOW_MAX),
            strategies: strategy.offered(),
            state,
            ports: cfg.ports,
            ..OpenCfg::new(cfg.eid.0, peer.0, cfg.incarnation)
        };
        let planted = cfg.faults();
        let faults = MtuFaults {
            no_echo: planted.probe_believed(),
            never_shrinks: planted.mtu_never_shrinks(),
        };
        let ends = UmHeader {
            source_eid: cfg.eid.0,
            dest_eid: peer.0,
            // Each message has the UASID of its function.
            source_uasid: 0,
            dest_uasid: 0,
        };
        Self {
            handshake: Handshake::new(open),
            tp: None,
            route: Route::direct(peer),
            answers: Route::direct(peer),
            replies: None,
            congestion: cfg.congestion,
            adamap: cfg.adamap,
            path_packets: cfg.path_packets,
            mode: cfg.port_mode,
            tp_route: Route::direct(peer),
            routes: None,
            is_leader: cfg.eid < peer,
            incarnation: 0,
            mtu: (mtu.bytes(), faults),
            planted,
            moved: VecDeque::new(),
            path: path_to(peer, (mtu.bytes(), faults)),
            echoes: VecDeque::new(),
            ends,
            datagrams: VecDeque::new(),
            spare: Vec::new(),
            counted: TpStats::default(),
            error_logged: false,
            received: false,
            proven_at: 0,
            begins_run: false,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.tp.is_some()
    }

    /// Whether there is no TP, no handshake for one, and no unreported failure of one.
    pub(super) fn may_open(&self) -> bool {
        let is_free = match self.handshake.state() {
            HandshakeState::Connecting | HandshakeState::Open(_) => false,
            HandshakeState::Failed(_) => !self.has_open_error(),
            HandshakeState::Idle | HandshakeState::Closed => true,
        };
        self.tp.is_none() && is_free
    }

    /// Whether a handshake failed and [`PeerTp::take_open_error`] has not reported it.
    fn has_open_error(&self) -> bool {
        matches!(self.handshake.state(), HandshakeState::Failed(_)) && !self.error_logged
    }

    /// Whether the peer has everything that was sent.
    pub(crate) fn is_drained(&self) -> bool {
        self.tp.as_ref().is_none_or(Tp::is_drained)
    }

    /// Whether nothing is in flight in either direction, as far as this side can see, and nothing was received that
    /// [`take_received`](super::TpEndpoint::take_received) has not reported.
    pub(crate) fn is_quiet(&self) -> bool {
        let sends = self.tp.as_ref().is_some_and(Tp::has_transmit);
        self.is_drained()
            && !self.received
            && !sends
            && self.datagrams.is_empty()
            && self.handshake.poll_deadline().is_none()
            && self.routes.as_ref().is_none_or(|routes| routes.rival.is_none())
    }

    /// Whether the peer was asked whether it holds the TP, and gave no answer.
    pub(super) fn is_silent(&self) -> bool {
        self.tp.is_some() && !matches!(self.handshake.state(), HandshakeState::Open(_))
    }

    /// Opens the TP that a handshake agreed on.
    pub(super) fn on_opened(&mut self, now: Nanos, agreed: &Agreed) {
        self.proven_at = now;
        self.path.open(agreed.mtu.bytes());
        self.counted = TpStats::default();
        let Self { congestion, adamap, path_packets, .. } = *self;
        let cfg = TpCfg { congestion, adamap, path_packets, ..agreed.tp_cfg() };
        self.tp = Some(match self.planted.is_planted() {
            true => planted::tp(cfg, self.planted),
            false => Tp::new(cfg),
        });
    }

    /// Drops the TP; returns its number at this node.
    pub(super) fn drop_tp(&mut self, pool: &mut KnittingPool) -> Option<Tpn> {
        let mut tp = self.tp.take()?;
        self.path.close();
        self.echoes.clear();
        if let Some(routes) = &mut self.routes {
            routes.of_tp = None;
        }
        if !self.planted.blocks_kept() {
            tp.close(pool);
        }
        Some(tp.cfg().local_tpn)
    }

    pub(super) fn on_packet(
        &mut self,
        (now, route): (Nanos, Route),
        packet: &Packet<'_>,
        pool: &mut KnittingPool,
    ) -> Option<Received> {
        let received = self.tp.as_mut()?.on_packet(now, packet, pool);
        self.received |= matches!(received, Received::InOrder | Received::OutOfOrder);
        if let Some(routes) = &mut self.routes
            && let Received::InOrder | Received::OutOfOrder | Received::Duplicate = received
        {
            // What was received before came again: its acknowledgement may have been lost on its route.
            self.answers = route;
            routes.count_received(route, packet.header.packet_len(packet.payload.len()));
        }
        Some(received)
    }

    /// The error of the handshake, once.
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
            TpOpenError::Refused(RefuseReason::Resources) => CmdStatus::PeerFull,
            TpOpenError::Refused(_) => CmdStatus::Unreachable,
        })
    }

    /// Whether the TP gave up: the peer does not answer.
    pub(super) fn has_failed(&self) -> bool {
        self.tp.as_ref().is_some_and(|tp| tp.failed().is_some())
    }

    /// Whether a piece, or a message outside of the TP, would be accepted now.
    pub(crate) fn has_room(&self, header: &TransactionHeader) -> bool {
        if datagram(header).is_some() {
            self.datagrams.len() < DATAGRAMS_MAX
        } else {
            !self.path.is_first() && self.tp.as_ref().is_some_and(Tp::has_room) && !self.is_ahead()
        }
    }

    /// Whether as much waits as is sent at once: more would leave the caches before it is sent, and delay what
    /// arrives meanwhile.
    fn is_ahead(&self) -> bool {
        let most = RUNS_QUEUED * (RUN_BYTES / (self.path.payload() + DATA_OVERHEAD));
        self.tp.as_ref().is_some_and(|tp| tp.queued() >= most)
    }

    /// Takes a piece to send.
    pub(crate) fn push(
        &mut self,
        header: &TransactionHeader,
        bytes: &[u8],
    ) -> Result<(), PushError> {
        // Short pieces may join a packet, and those of responses have their own limit.
        if bytes.len() > QUEUED_ANYWAY && self.is_ahead() {
            return Err(PushError::WindowFull);
        }
        let tp = self.tp.as_mut().filter(|_| !self.path.is_first());
        let tp = tp.ok_or(PushError::WindowFull)?;
        tp.join_up_to(BTH_LEN + self.path.payload() + ICRC_LEN);
        tp.push(header, bytes.len(), &mut |room| room.copy_from_slice(bytes))
    }

    /// Sends a piece of a request as a packet of its own, whose bytes `fill` writes, or fails to; unlike
    /// [`PeerTp::push`] it joins no packet.
    pub(crate) fn push_packet<E: From<PushError>>(
        &mut self,
        header: &TransactionHeader,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let may_push = !self.path.is_first() && !self.is_ahead();
        let tp = self.tp.as_mut().filter(|_| may_push).ok_or(PushError::WindowFull)?;
        tp.push_packet(header, len, fill)
    }

    /// Returns the next piece from the peer, and puts its payload into `inbox`.
    pub(crate) fn pop(&mut self, inbox: &mut Vec<u8>) -> Option<TransactionHeader> {
        let tp = self.tp.as_mut()?;
        let Piece { header, mut payload } = tp.pop()?;
        std::mem::swap(inbox, &mut payload);
        tp.recycle(Piece { header, payload });
        Some(header)
    }

    /// Whether [`PeerTp::pop`] gives a piece.
    pub(super) fn has_pieces(&self) -> bool {
        self.tp.as_ref().is_some_and(Tp::has_pieces)
    }

    pub(super) fn is_waiting(&self) -> bool {
        let routes = self.routes.as_ref().and_then(|routes| routes.of_tp.as_ref());
        let asks = routes.is_some_and(TpRoutes::has_probe);
        let of_tp =
            |tp: &Tp| asks || tp.has_transmit() || self.path.has_probe() || !self.echoes.is_empty();
        self.tp.as_ref().is_some_and(of_tp) || !self.datagrams.is_empty()
    }

    /// Sends message `number` of this node to the peer outside of a TP.
    pub(super) fn push_datagram(
        &mut self,
        number: Psn,
        uasid: u32,
        (header, bytes): (&RequestHeader, &[u8]),
    ) -> Option<()> {
        let ends = UmHeader { source_uasid: uasid, ..self.ends };
        let body = Body::UmSend(ends, *header);
        let header = PacketHeader::new(Tpn::from_low_bits(0), number, body);
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(header.packet_len(bytes.len()), 0);
        let frame = header.emit_headers(bytes.len(), &mut buffer).ok()?;
        buffer[frame.payload].copy_from_slice(bytes);
        self.datagrams.push_back(buffer);
        Some(())
    }

    /// Writes the next packet, unsealed; also returns its route.
    pub(super) fn poll_transmit(
        &mut self,
        now: Nanos,
        buf: &mut [u8],
        random: (&mut KnittingPool, &mut dyn FnMut() -> u64),
    ) -> Option<(Route, usize)> {
        self.begins_run = false;
        let replies = self.replies.take().filter(|_| self.handshake.has_reply());
        if let Some(len) = self.handshake.poll_transmit(now, buf) {
            return Some((replies.unwrap_or(self.route), len));
        }
        if let Some(rival) = self.routes.as_mut().and_then(|routes| routes.rival.as_mut())
            && let Some(len) = rival.handshake.poll_transmit(now, buf)
        {
            return Some((rival.route, len));
        }
        let (route, len) = self.poll_own(now, buf, random)?;
        if let Some(routes) = &mut self.routes {
            routes.count_sent(route, len);
        }
        Some((route, len))
    }

    /// Writes another packet of the TP for the run that the packet before began ([`Tp::poll_follower`]).
    pub(super) fn poll_follower(
        &mut self,
        now: Nanos,
        buf: &mut [u8],
        size: usize,
    ) -> Option<usize> {
        let tp = self.tp.as_mut().filter(|_| self.begins_run)?;
        tp.poll_follower(now, buf, size)
    }

    /// Writes the next packet that does not belong to a handshake.
    fn poll_own(
        &mut self,
        now: Nanos,
        buf: &mut [u8],
        (pool, random): (&mut KnittingPool, &mut dyn FnMut() -> u64),
    ) -> Option<(Route, usize)> {
        if let Some(datagram) = self.datagrams.pop_front() {
            let len = datagram.len();
            buf.get_mut(..len)?.copy_from_slice(&datagram);
            self.spare.push(datagram);
            return Some((self.route, len));
        }
        let tp = self.tp.as_mut()?;
        let dest = tp.cfg().peer_tpn;
        if let Some((route, echo)) = self.echoes.pop_front() {
            return Some((route, emit_probe(dest, Body::ProbeEcho(echo), buf)?));
        }
        if let Some(probe) = self.path.poll(now, random) {
            return Some((self.route, emit_probe(dest, Body::Probe(probe), buf)?));
        }
        let of_tp = self.routes.as_mut().and_then(|routes| routes.of_tp.as_mut());
        if let Some((route, probe)) =
            of_tp.and_then(|of_tp| of_tp.poll_probe(now, self.path.payload(), random))
        {
            return Some((route, emit_probe(dest, Body::Probe(probe), buf)?));
        }
        let timeouts = tp.stats().timeouts;
        let len = tp.poll_transmit(now, buf, pool);
        if tp.take_long_lost() {
            self.path.on_loss(now);
        }
        let (sent, has_expired) = (tp.route_sent(), tp.stats().timeouts != timeouts);
        if has_expired {
            self.tend_tp(now);
        }
        let len = len?;
        // With several routes, each packet has its own.
        self.begins_run = self.routes.is_none() && self.tp.as_ref().is_some_and(Tp::begins_run);
        self.path.on_traffic(now);
        Some((self.on_sent(now, sent), len))
    }

    /// Chooses the route of a packet of the TP that is being sent, by its number there.
    fn on_sent(&mut self, now: Nanos, number: Option<u8>) -> Route {
        let payload = self.path.payload();
        let of_tp = self.routes.as_mut().and_then(|routes| routes.of_tp.as_mut());
        let Some(of_tp) = of_tp else { return self.route };
        if !self.path.is_first() {
            of_tp.on_traffic(now, payload);
        }
        number.map_or(self.answers, |number| of_tp.route(number))
    }

    // The path MTU.

    /// Payload bytes of the packets of a message except the last.
    pub(crate) fn payload_max(&self) -> usize {
        self.path.payload()
    }

    /// Most payload bytes of a message outside of the TP.
    pub(crate) fn datagram_max(&self) -> usize {
        self.path.datagram_max()
    }

    /// Takes a question of the peer whether a packet of this size arrives. If there are too many, the oldest is not
    /// answered.
    pub(super) fn on_probe(&mut self, route: Route, probe: PathProbe) {
        if self.echoes.len() == ECHOES_MAX {
            self.echoes.pop_front();
        }
        self.echoes.push_back((route, probe));
    }

    /// Takes an echo that came on this route. Returns whether it answers a probe that was sent there.
    pub(super) fn on_echo(&mut self, now: Nanos, route: Route, echo: &PathProbe) -> bool {
        if self.on_route_echo(now, route, echo) {
            return true;
        }
        let is_echo = self.route == route && self.path.on_echo(now, echo);
        // Longer packets may be too long for other routes.
        self.tend_tp(now);
        is_echo
    }

    /// Notes that the system refused a datagram: those to this peer have at most `ip_mtu` bytes including their
    /// headers.
    pub(super) fn on_too_long(&mut self, now: Nanos, ip_mtu: usize) {
        self.path.on_too_long(now, ip_mtu);
    }

    pub(super) fn on_time(&mut self, now: Nanos) {
        if self.tp.is_some() {
            self.path.on_time(now);
        }
    }

    /// Whether the packets of the TP no longer pass.
    pub(super) fn has_shrunk(&self) -> bool {
        self.path.has_shrunk()
    }

    /// The MTU that the system claims for the route although longer packets pass, in bytes of payload, once.
    pub(super) fn take_disproved_mtu(&mut self) -> Option<usize> {
        self.path.take_disproved()
    }

    pub(super) fn take_mtu_change(&mut self) -> Option<MtuChange> {
        self.path.take_change()
    }

    /// What the TP counted since the last call.
    pub(super) fn take_stats(&mut self) -> TpStats {
        let stats = self.tp.as_ref().map_or(self.counted, Tp::stats);
        stats.since(&std::mem::replace(&mut self.counted, stats))
    }

    pub(super) fn poll_deadline(&self) -> Option<Nanos> {
        // What has ended must be noticed at once.
        let over = self.has_failed() || self.is_silent() || self.has_open_error();
        let waiting = (over || !self.datagrams.is_empty()).then_some(0);
        let echo = (!self.echoes.is_empty()).then_some(0);
        let path = self.tp.as_ref().and_then(|_| self.path.poll_deadline());
        let tp = self.tp.as_ref().and_then(Tp::poll_deadline);
        let routes = self.routes_deadline();
        [waiting, echo, path, tp, routes, self.handshake.poll_deadline()]
            .into_iter()
            .flatten()
            .min()
    }
}

/// What is known of a path before the first packet.
pub(super) fn path_to(to: RawEid, (mtu, faults): (usize, MtuFaults)) -> PathMtu {
    PathMtu::new(mtu, Ipv6Addr::from(to.0).to_ipv4_mapped().is_some(), faults)
}

/// The request to which `header` belongs, if it is sent outside of the TP.
fn datagram(header: &TransactionHeader) -> Option<&RequestHeader> {
    let TransactionHeader::Request(request) = header else { return None };
    request.flags.contains(RequestFlags::DATAGRAM).then_some(request)
}

/// Writes a probe, whose padding is zeros, or the echo of one.
fn emit_probe(dest: Tpn, body: Body, buf: &mut [u8]) -> Option<usize> {
    let padding = if let Body::Probe(probe) = &body { probe.padding() } else { 0 };
    let header = PacketHeader::new(dest, Psn::new(0), body);
    let frame = header.emit_headers(padding, buf).ok()?;
    buf[frame.payload].fill(0);
    Some(frame.total)
}
