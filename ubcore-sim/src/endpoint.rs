//! The transport endpoint of a node: the TPs to all peers, what they receive and send.
//!
//! *Owns*: each peer's TP and handshake, TPNs, the pool of loss records, answers to unknown nodes. *Takes*: datagrams
//! with their source, pieces, time. *Gives*: datagrams, arrivals ([`EndpointEvent`]), pieces in order, TPs that ended
//! ([`TpEnd`]). *Must not*: know queues or segments.

mod arrivals;
mod moves;
mod numbers;
mod peer_tp;
use urma_recovery::{DmaStats, PoolTraffic};
mod recent;
mod replies;
mod routes;
mod tp_routes;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Bound;

use udma_abi::{CmdStatus, EqeKind, Nanos, RawEid, counters::Counter};
use urma_mem::Region;
use urma_packet::{
    CloseReason, IcrcFlow, IcrcFront, PacketError, PacketHeader, ROCE_PORT, RequestHeader,
};

pub(crate) use arrivals::{EndpointEvent, Reception};
pub(crate) use moves::RouteUse;
pub(crate) use peer_tp::PeerTp;

use crate::cfg::{DeviceCfg, PortMode};
use crate::context::tables::Tables;
use crate::ports::{NodeAddr, RUN_BYTES, RUN_MAX, Route, Transmit};
use crate::transport::{Challenger, Doubt, KnittingPool, MtuChange, PoolError, PushError, TpStats};
use numbers::Numbers;
use recent::RecentDatagrams;
use replies::Replies;
pub(crate) use routes::RouteCounts;
use tp_routes::TpMove;

/// One of so many packets goes to a known node, when answers to unknown nodes wait as well.
const ANSWERS_IN_A_ROW: u64 = 8;

/// TPs of one node, by peer.
#[derive(Debug)]
pub(crate) struct TpEndpoint {
    cfg: DeviceCfg,
    tps: BTreeMap<RawEid, PeerTp>,
    numbers: Numbers,
    /// Checks that nodes receive at their addresses.
    challenger: Challenger,
    replies: Replies,
    /// Set when all TPs were closed and some peers have not been sent their CLOSE: that goes before any answer. A
    /// peer that first learns that its TP is unknown would connect to a node that is gone.
    owes_closes: bool,
    /// Recent datagrams of nodes, so that none counts twice.
    recent: RecentDatagrams,
    pool: KnittingPool,
    /// What the pool did when it was counted last.
    pool_counted: (PoolTraffic, DmaStats),
    ended: VecDeque<(RawEid, TpEnd)>,
    /// Peer whose packet was sent last: the next one in the order follows.
    last_sent: RawEid,
    /// Packets given to the link and not yet counted.
    transmitted: u64,
    /// Packets and runs given to the link.
    transmits: u64,
    /// Whether a peer has, or had, several routes.
    has_routes: bool,
    /// Flows of the last packets sent and received.
    flows: [LatestFlow; 2],
}

/// Cached ICRC state for both ends: most packets have the ends and the length of the packet before.
#[derive(Debug)]
struct LatestFlow {
    ends: (RawEid, RawEid),
    flow: IcrcFlow,
    front: Option<IcrcFront>,
}

impl LatestFlow {
    fn new(own: RawEid) -> Self {
        Self { ends: (own, own), flow: flow(own, own), front: None }
    }

    /// State for a packet of this length in bytes.
    fn of(&mut self, from: RawEid, to: RawEid, len: usize) -> Result<IcrcFront, PacketError> {
        if self.ends != (from, to) {
            *self = Self { ends: (from, to), flow: flow(from, to), front: None };
        }
        match self.front.filter(|front| front.packet_len() == len) {
            Some(front) => Ok(front),
            None => Ok(*self.front.insert(self.flow.of_len(len)?)),
        }
    }
}

/// What may follow a packet in its run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Followers {
    /// Nothing: it is the only one.
    None,
    /// Packets of the same TP.
    OfPeer,
}

/// Why a peer has no TP any more, or none yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TpEnd {
    /// It gave up, or the peer did not answer whether it holds it. `drained`: the peer was silent, and had
    /// acknowledged everything.
    Lost { drained: bool },
    /// Its packets no longer pass, since the path became too narrow for them: another one follows.
    Narrowed,
    /// The handshake failed, for this reason.
    NotOpened(CmdStatus),
}

impl TpEndpoint {
    pub(crate) fn new(cfg: &DeviceCfg) -> Self {
        let mut numbers = Numbers::new(&cfg.seed);
        Self {
            cfg: cfg.clone(),
            tps: BTreeMap::new(),
            challenger: Challenger::new(numbers.key()),
            numbers,
            replies: Replies::default(),
            owes_closes: false,
            recent: RecentDatagrams::default(),
            pool: KnittingPool::new(),
            pool_counted: Default::default(),
            ended: VecDeque::new(),
            last_sent: RawEid::default(),
            transmitted: 0,
            transmits: 0,
            has_routes: false,
            flows: [LatestFlow::new(cfg.eid), LatestFlow::new(cfg.eid)],
        }
    }

    // Peers.

    /// Adds a peer, to which packets go from now on.
    pub(crate) fn add(&mut self, peer: RawEid) {
        let tp = PeerTp::new(&self.cfg, peer, self.numbers.state());
        self.tps.insert(peer, tp);
    }

    /// Removes the peer without a packet.
    pub(crate) fn remove(&mut self, peer: RawEid) {
        if let Some(mut tp) = self.tps.remove(&peer) {
            tp.drop_tp(&mut self.pool);
        }
        self.numbers.tps.retain(|_, owner| *owner != peer);
    }

    /// Removes the peer, and sends it a CLOSE.
    pub(crate) fn evict(&mut self, peer: RawEid, reason: CloseReason) {
        let route = self.tps.get(&peer).map(|tp| tp.route);
        if let Some((route, close)) = route.zip(self.close_packet(peer, reason)) {
            self.replies.push(route, close);
        }
        self.remove(peer);
    }

    /// The CLOSE for the TP to the peer.
    pub(crate) fn close_packet(&self, peer: RawEid, reason: CloseReason) -> Option<PacketHeader> {
        self.tps.get(&peer)?.handshake.close_packet(reason)
    }

    pub(crate) fn tp(&self, peer: RawEid) -> Option<&PeerTp> {
        self.tps.get(&peer)
    }

    /// Whether a packet of the peer was accepted since the last call.
    pub(crate) fn take_received(&mut self, peer: RawEid) -> bool {
        self.tps.get_mut(&peer).is_some_and(|tp| std::mem::take(&mut tp.received))
    }

    /// Whether packets are exchanged with any node.
    pub(crate) fn has_peers(&self) -> bool {
        !self.recent.is_empty() || !self.tps.is_empty()
    }

    // Opening, asking and closing.

    /// Starts a handshake with the peer unless there is one, or a TP. Returns whether it did.
    pub(crate) fn open(&mut self, now: Nanos, peer: RawEid) -> bool {
        let Some(tp) = self.tps.get_mut(&peer).filter(|tp| tp.may_open()) else { return false };
        tp.handshake.open(now, self.numbers.offer(peer))
    }

    /// Whether the peer has proven since then that it holds the TP; if not, it is asked. A peer that died without
    /// traffic leaves a TP here that only looks open.
    pub(crate) fn is_proven(&mut self, now: Nanos, peer: RawEid, since: Option<Nanos>) -> bool {
        let nonce = self.numbers.random();
        let (Some(since), Some(tp)) = (since, self.tps.get_mut(&peer)) else { return true };
        if tp.proven_at < since {
            tp.handshake.verify(now, Doubt::Idle, nonce);
        }
        tp.proven_at >= since
    }

    /// Asks a peer whose answer is long overdue, unless it has proven since then that it holds the TP. It may have
    /// given up its TP, and its report of that be lost: with nothing to send again, this node would not find out.
    pub(crate) fn doubt(&mut self, now: Nanos, peer: RawEid, since: Nanos) {
        if self.tps.get(&peer).is_some_and(|tp| tp.proven_at < since && tp.is_drained()) {
            self.ask(now, peer, Doubt::Hint);
        }
    }

    /// Asks the peer whether it still holds the TP.
    pub(crate) fn ask(&mut self, now: Nanos, peer: RawEid, doubt: Doubt) {
        if let Some(tp) = self.tps.get_mut(&peer) {
            tp.handshake.verify(now, doubt, self.numbers.random());
        }
    }

    /// Closes the TP to the peer, with a CLOSE.
    pub(crate) fn close(&mut self, peer: RawEid, reason: CloseReason) {
        let Self { tps, numbers, pool, .. } = self;
        if let Some(tp) = tps.get_mut(&peer) {
            tp.handshake.close(reason);
            drop_tp(tp, numbers, pool);
            tp.drop_rival(numbers);
        }
    }

    /// Drops the TP that the peer closed for this reason.
    pub(crate) fn drop_closed(&mut self, peer: RawEid, reason: CloseReason) {
        let Self { tps, numbers, pool, .. } = self;
        let Some(tp) = tps.get_mut(&peer) else { return };
        drop_tp(tp, numbers, pool);
        if matches!(reason, CloseReason::Idle | CloseReason::Shutdown) {
            tp.drop_rival(numbers);
        } else {
            tp.promote_rival();
        }
    }

    /// Closes all TPs, with a CLOSE to each peer: the node is about to close.
    pub(crate) fn close_all(&mut self, reason: CloseReason) {
        let Self { tps, numbers, pool, .. } = self;
        self.owes_closes = true;
        for tp in tps.values_mut() {
            tp.handshake.close(reason);
            drop_tp(tp, numbers, pool);
            tp.drop_rival(numbers);
        }
    }

    /// Whether each peer has acknowledged everything.
    pub(crate) fn is_drained(&self) -> bool {
        self.tps.values().all(PeerTp::is_drained)
    }

    /// Allocates a number for a path; `is_used` says which ones paths have.
    pub(crate) fn path_number(&mut self, is_used: impl Fn(u32) -> bool) -> u32 {
        self.numbers.tpn(is_used)
    }

    /// Lists the TPNs of this node with the peers at their other ends.
    pub(crate) fn tpns(&self) -> impl Iterator<Item = (u32, RawEid)> + '_ {
        self.numbers.tps.iter().map(|(&tpn, &peer)| (tpn, peer))
    }

    // Pieces.

    /// Takes a message outside of the TP for the peer, from a function with this UASID.
    pub(crate) fn push_datagram(
        &mut self,
        peer: RawEid,
        uasid: u32,
        message: (&RequestHeader, &[u8]),
    ) -> Result<(), PushError> {
        let tp = self.tps.get_mut(&peer).ok_or(PushError::WindowFull)?;
        // If there is no room it is lost, as in the network.
        let _ = tp.push_datagram(self.numbers.datagram(), uasid, message);
        Ok(())
    }

    /// The TP to the peer, for pieces to it and from it.
    pub(crate) fn tp_mut(&mut self, peer: RawEid) -> Option<&mut PeerTp> {
        self.tps.get_mut(&peer)
    }

    // Progress.

    /// Handles the time; called before pieces are pushed.
    pub(crate) fn on_time(&mut self, now: Nanos) {
        let Self { tps, numbers, .. } = self;
        for (peer, tp) in tps {
            tp.on_time(now);
            if tp.routes.is_some() {
                tp.tend_routes(now, &mut |kept| numbers.offer_beside(*peer, kept));
            }
        }
    }

    /// Notes that the system refused a datagram to this address as too long: at most `ip_mtu` bytes pass, including
    /// the IP and UDP headers.
    pub(crate) fn on_too_long(&mut self, now: Nanos, to: NodeAddr, ip_mtu: usize) {
        let there = self.tps.values_mut().filter(|tp| tp.route.to == to);
        there.for_each(|tp| tp.on_too_long(now, ip_mtu));
    }

    /// Notes that the system sends nothing from this port to this address.
    pub(crate) fn on_cut(&mut self, now: Nanos, route: Route) {
        self.tps.values_mut().for_each(|tp| tp.on_cut(now, route));
    }

    /// Sets how packets use several ports.
    pub(crate) fn set_port_mode(&mut self, now: Nanos, mode: PortMode) {
        self.cfg.port_mode = mode;
        self.tps.values_mut().for_each(|tp| tp.set_mode(now, mode));
    }

    /// Checks for TPs that ended, and counts what was sent; [`TpEndpoint::poll_ended`] follows.
    pub(crate) fn check_tps(&mut self, tables: &Tables) {
        if self.transmitted != 0 {
            tables.counts.add(Counter::TxPackets, std::mem::take(&mut self.transmitted));
        }
        self.count_pool(tables);
        let Self { tps, numbers, pool, ended, .. } = self;
        for (peer, tp) in tps {
            let TpStats { sent_again, repairs_sent, repaired, .. } = tp.take_stats();
            tables.counts.add(Counter::Retransmits, sent_again);
            if repairs_sent + repaired > 0 {
                tables.counts.add(Counter::RepairsSent, repairs_sent);
                tables.counts.add(Counter::PacketsRepaired, repaired);
            }
            let not_opened = tp.take_open_error();
            let is_silent = tp.is_silent();
            while let Some(moved) = tp.take_moved() {
                report_move(tables, *peer, &moved);
            }
            if let Some(MtuChange { old, new }) = tp.take_mtu_change() {
                tracing::warn!(peer = %address(*peer), old, new, "the path MTU changed");
            }
            if let Some(said) = tp.take_disproved_mtu() {
                let peer = address(*peer);
                tracing::warn!(%peer, said, "longer packets pass than the system says: not believed (forged ICMP?)");
            }
            let end = if tp.has_shrunk() {
                tables.count(Counter::PathNarrowed);
                tracing::warn!(peer = %address(*peer), "packets are too long for the path by now");
                tp.handshake.close(CloseReason::Replaced);
                drop_tp(tp, numbers, pool);
                tp.promote_rival();
                TpEnd::Narrowed
            } else if is_silent || tp.has_failed() {
                let drained = is_silent && tp.is_drained();
                if !is_silent {
                    tables.count(Counter::PeerDied);
                    tp.handshake.close(CloseReason::Timeout);
                }
                drop_tp(tp, numbers, pool);
                tp.promote_rival();
                TpEnd::Lost { drained }
            } else if let Some(why) = not_opened {
                TpEnd::NotOpened(why)
            } else {
                continue;
            };
            ended.push_back((*peer, end));
        }
    }

    /// The next peer whose TP ended, or was not opened.
    pub(crate) fn poll_ended(&mut self) -> Option<(RawEid, TpEnd)> {
        self.ended.pop_front()
    }

    /// Writes the next packet to send to the front of `buf`; a run of packets if `buf` has [`RUN_BYTES`].
    pub(crate) fn poll_transmit(&mut self, now: Nanos, buf: &mut [u8]) -> Option<Transmit> {
        // Checking all nodes costs more than an answer: not before each of them.
        let found = if self.owes_closes || self.transmits.is_multiple_of(ANSWERS_IN_A_ROW) {
            let of_peer = self.poll_peers(now, buf);
            self.owes_closes &= of_peer.is_some();
            of_peer.or_else(|| self.poll_reply(buf))
        } else {
            self.poll_reply(buf).or_else(|| self.poll_peers(now, buf))
        };
        let (Route { port, to }, size, more) = found?;
        let own = self.cfg.address(port);
        let flow = &mut self.flows[0];
        seal(flow.of(own, to, size), buf.get_mut(..size)?)?;
        self.transmits += 1;
        let (mut len, mut packets) = (size, 1);
        if more == Followers::OfPeer
            && buf.len() >= RUN_BYTES
            && let Some(tp) = self.tps.get_mut(&self.last_sent)
        {
            while packets < RUN_MAX
                && let Some(room) = buf.get_mut(len..RUN_BYTES).filter(|room| room.len() >= size)
                && let Some(next) = tp.poll_follower(now, room, size)
                && seal(flow.of(own, to, next), &mut room[..next]).is_some()
            {
                len += next;
                packets += 1;
                if next < size {
                    break;
                }
            }
        }
        self.transmitted += packets as u64;
        Some(Transmit { to, port, source_port: ROCE_PORT, len, size })
    }

    fn poll_reply(&mut self, buf: &mut [u8]) -> Option<(Route, usize, Followers)> {
        let (route, len) = self.replies.poll(buf)?;
        Some((route, len, Followers::None))
    }

    fn poll_peers(&mut self, now: Nanos, buf: &mut [u8]) -> Option<(Route, usize, Followers)> {
        let Self { tps, numbers, pool, last_sent, .. } = self;
        let mut random = || numbers.random();
        let after = (Bound::Excluded(*last_sent), Bound::Unbounded);
        let up_to = (Bound::Unbounded, Bound::Included(*last_sent));
        let found = [after, up_to].into_iter().find_map(|range| {
            let mut peers = tps.range_mut(range);
            peers.find_map(|(peer, tp)| {
                Some((*peer, tp.poll_transmit(now, buf, (&mut *pool, &mut random))?))
            })
        })?;
        *last_sent = found.0;
        let (route, len) = found.1;
        Some((route, len, Followers::OfPeer))
    }

    /// Whether it has no peer and owes no answer.
    pub(crate) fn is_unused(&self) -> bool {
        self.tps.is_empty() && self.replies.is_empty()
    }

    /// Whether there are pieces for [`PeerTp::pop`].
    pub(crate) fn has_pieces(&self) -> bool {
        self.tps.values().any(PeerTp::has_pieces)
    }

    /// Whether an answer to a node without a TP waits to be sent.
    pub(crate) fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Whether there is something to send now.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.tps.is_empty() && self.tps.values().any(PeerTp::is_waiting)
    }

    pub(crate) fn poll_deadline(&self) -> Option<Nanos> {
        let replies = (!self.replies.is_empty()).then_some(0);
        self.tps.values().filter_map(PeerTp::poll_deadline).chain(replies).min()
    }

    // The knitting pool.

    /// Counts what the pool did since the last call.
    fn count_pool(&mut self, tables: &Tables) {
        let now = (self.pool.traffic(), self.pool.dma().stats());
        if now == self.pool_counted {
            return;
        }
        let (traffic, dma) = now;
        let (old_traffic, old_dma) = std::mem::replace(&mut self.pool_counted, now);
        for (counter, value, old) in [
            (Counter::KnitTaken, traffic.taken, old_traffic.taken),
            (Counter::KnitGiven, traffic.given, old_traffic.given),
            (Counter::KnitGrown, traffic.grown, old_traffic.grown),
            (Counter::KnitShrunk, traffic.shrunk, old_traffic.shrunk),
            (Counter::KnitReads, dma.reads, old_dma.reads),
            (Counter::KnitWrites, dma.writes, old_dma.writes),
            (Counter::KnitHits, dma.hits, old_dma.hits),
            (Counter::KnitMisses, dma.misses, old_dma.misses),
        ] {
            tables.counts.add(counter, value - old);
        }
    }

    pub(crate) fn pool_grow(&mut self, base: u64, memory: Region, block_log2: u8) -> CmdStatus {
        let blocks = u32::try_from(memory.len() as u64 >> block_log2.min(63)).unwrap_or(u32::MAX);
        status_of(self.pool.grow(base, memory, block_log2, blocks))
    }

    pub(crate) fn pool_shrink(&mut self, base: u64) -> CmdStatus {
        status_of(self.pool.shrink(base))
    }

    /// Block size in bytes, blocks, free blocks, most ever used.
    pub(crate) fn pool_usage(&self) -> [u64; 4] {
        let usage = self.pool.usage();
        [usage.block_bytes, usage.blocks, usage.free, usage.used_max]
    }
}

/// Counts, reports and logs that a TP moved to another route.
fn report_move(tables: &Tables, peer: RawEid, moved: &TpMove) {
    let (count, kind, port) = if moved.is_back {
        (Counter::PortReturned, EqeKind::PortActive, moved.to.port)
    } else {
        (Counter::PortFailed, EqeKind::PortDown, moved.from.port)
    };
    tables.count(count);
    if moved.from.port != moved.to.port {
        tables.device_event(kind, port.into());
    }
    let (from, to) = (address(moved.from.to), address(moved.to.to));
    tracing::warn!(
        peer = %address(peer), from_port = moved.from.port, %from, to_port = moved.to.port, %to,
        "packets go another route"
    );
}

fn seal(front: Result<IcrcFront, PacketError>, packet: &mut [u8]) -> Option<()> {
    front.and_then(|front| front.seal(packet)).ok()
}

/// Drops the TP and frees its number.
fn drop_tp(tp: &mut PeerTp, numbers: &mut Numbers, pool: &mut KnittingPool) {
    if let Some(tpn) = tp.drop_tp(pool) {
        numbers.tps.remove(&tpn.value());
    }
}

fn status_of(done: Result<(), PoolError>) -> CmdStatus {
    match done {
        Ok(()) => CmdStatus::Ok,
        Err(PoolError::Exists(_)) => CmdStatus::Exists,
        Err(PoolError::NotFound(_)) => CmdStatus::NotFound,
        Err(PoolError::InUse) => CmdStatus::InUse,
        Err(_) => CmdStatus::Invalid,
    }
}

/// The IP address of an EID, for the log.
fn address(eid: RawEid) -> IpAddr {
    Ipv6Addr::from(eid.0).to_canonical()
}

/// Both ends of a packet in its ICRC: inside of a node, both ports are 4791.
pub(crate) fn flow(from: RawEid, to: RawEid) -> IcrcFlow {
    let end = |eid: RawEid| SocketAddr::new(IpAddr::V6(Ipv6Addr::from(eid.0)), ROCE_PORT);
    IcrcFlow::new(end(from), end(to))
}
