//! Paths to nodes: looked up, opened, counted, lost, and shown in reports.
//!
//! Has the users of each path, and makes the `NodePath`s that send queues use. Must not keep a path to a dead node
//! usable.

mod quiet;

use std::sync::Arc;

use udma_abi::{
    CmdStatus, CqeStatus, Nanos, RawEid,
    cmd::{Mode, TpPath},
    counters::Counter,
};
use urma_mem::Region;

use crate::{
    carrier::{Carrier, Loopback, RingPair},
    cfg::{DeviceCfg, RcWire},
    context::link::{DirectParts, NodePath, Reach},
    endpoint::{PeerTp, RouteCounts, RouteUse, TpEnd},
    engine::{core::DeviceCore, pull::Puller},
    exchange::{
        Connecting, Exchange, ExchangeParts,
        peers::peer::{Peer, UsedPath},
    },
    hooks::{self, Hook},
    ports::{HostRequest, Route, SameHostParts},
    share::NODE_INCARNATION,
    transport::Strategy,
};

impl Exchange {
    /// Called again for each step while pending.
    pub(crate) fn connect(
        &mut self,
        core: &DeviceCore,
        now: Nanos,
        eid: RawEid,
        mode: Mode,
    ) -> Connecting {
        if mode == Mode::Rc && core.tables.cfg.rc == RcWire::Roce {
            return self.connect_standard(core, now, eid);
        }
        // A node may have closed and come back before this one's host has reported it.
        if let Some(Carrier::Ring(ring)) =
            self.peers.get(&eid).and_then(|p| p.line.carrier.as_ref())
            && ring.is_cut()
        {
            self.on_peer_gone(core, now, eid);
        }
        if !self.peers.contains_key(&eid)
            && let Err(why) = self.look_for(core, now, eid)
        {
            return Connecting::Failed(why);
        }
        if let Some(why) = self.peers.get(&eid).and_then(|peer| peer.unreachable) {
            self.peers.remove(&eid);
            return Connecting::Failed(why);
        }
        self.open_path(core, now, eid, mode == Mode::Um)
    }

    /// Opens a path for packets of the standard opcodes: the node is not asked, it may be of any kind.
    fn connect_standard(&mut self, core: &DeviceCore, now: Nanos, eid: RawEid) -> Connecting {
        self.close_paths(core, now);
        let Self { endpoint, paths, .. } = self;
        let known = paths.iter_mut().find(|(_, path)| path.standard && path.eid == eid);
        if let Some((tpn, path)) = known {
            path.users += 1;
            return Connecting::Ready { tpn: *tpn, path: TpPath::Packets };
        }
        let tpn = endpoint.path_number(|tpn| paths.contains_key(&tpn));
        core.tables.links.insert(Arc::new(NodePath::new(tpn, eid, false, Reach::Standard)));
        let posted = Vec::new();
        let path = UsedPath { eid, users: 1, life: 0, posted, standard: true, dead: false };
        paths.insert(tpn, path);
        Connecting::Ready { tpn, path: TpPath::Packets }
    }

    fn look_for(&mut self, core: &DeviceCore, now: Nanos, eid: RawEid) -> Result<(), CmdStatus> {
        if !self.has_place(core, now, None) {
            return Err(CmdStatus::NoRoom);
        }
        let mut own = None;
        if eid == core.tables.cfg.eid {
            own = Some(Carrier::Loop(Loopback::default()));
        } else if core.tables.ask_host(HostRequest::FindPeer { eid }) {
            hooks::pass(Hook::DuringImport);
        } else {
            return Err(CmdStatus::NoRoom);
        }
        self.peers.insert(eid, Peer::since(now, eid, own));
        Ok(())
    }

    fn open_path(
        &mut self,
        core: &DeviceCore,
        now: Nanos,
        eid: RawEid,
        unreliable: bool,
    ) -> Connecting {
        self.close_paths(core, now);
        let Self { peers, endpoint, paths, .. } = self;
        let Some(peer) = peers.get_mut(&eid) else { return Connecting::Pending };
        if let Some(why) = peer.open_failed.take() {
            peer.wanted_since = None;
            return Connecting::Failed(why);
        }
        let kind = match &peer.line.carrier {
            Some(Carrier::Loop(_)) => TpPath::Local,
            Some(Carrier::Ring(_)) => TpPath::SameHost,
            Some(Carrier::Packets(_)) => {
                // A closing path may lead to a life that is over: it has to be proven again like a new one.
                let is_open = |tpn| paths.get(&tpn).is_some_and(|path| path.users != 0);
                let is_open = !peer.is_shut && peer.paths[0].is_some_and(is_open);
                let is_new = !unreliable && !is_open;
                let since = is_new.then(|| *peer.wanted_since.get_or_insert(now));
                // A node that speaks the standard opcodes may have no TP: one is opened for the first request.
                let is_standard = |path: &UsedPath| path.standard && path.eid == eid;
                let is_lazy = unreliable || paths.values().any(is_standard);
                if !is_lazy && !endpoint.tp(eid).is_some_and(PeerTp::is_open) {
                    endpoint.open(now, eid);
                    return Connecting::Pending;
                }
                if !is_lazy && !endpoint.is_proven(now, eid, since) {
                    return Connecting::Pending;
                }
                TpPath::Packets
            }
            None => return Connecting::Pending,
        };
        if !unreliable {
            peer.wanted_since = None;
        }
        let entry = &mut peer.paths[usize::from(unreliable)];
        if entry.is_none() {
            hooks::pass(Hook::DuringImport);
        }
        let tpn =
            *entry.get_or_insert_with(|| endpoint.path_number(|tpn| paths.contains_key(&tpn)));
        let path = paths.entry(tpn).or_insert_with(|| {
            let reach = match (kind, &peer.direct) {
                (TpPath::Local, _) => Reach::Own,
                (TpPath::SameHost, Some(parts)) => Reach::Direct(parts.clone()),
                (TpPath::SameHost, None) | (TpPath::Packets, _) => Reach::Messages,
            };
            core.tables.links.insert(Arc::new(NodePath::new(tpn, eid, unreliable, reach)));
            UsedPath {
                eid,
                users: 0,
                life: peer.incarnation,
                posted: Vec::new(),
                standard: false,
                dead: false,
            }
        });
        path.users += 1;
        peer.used = true;
        Connecting::Ready { tpn, path: kind }
    }

    pub(crate) fn on_same_host_peer(
        &mut self,
        core: &DeviceCore,
        now: Nanos,
        eid: RawEid,
        parts: SameHostParts,
    ) {
        let known = self.peers.get(&eid).is_some_and(|peer| peer.line.carrier.is_some());
        if known {
            // It is another life of that node: the old one is over.
            self.lose(core, now, eid);
        } else if !self.peers.contains_key(&eid) && !self.has_place(core, now, None) {
            return;
        }
        let ring = RingPair::new(&parts, core.tables.cfg.ring_len, core.tables.cfg.incarnation);
        let mut peer = Peer::new(eid, None);
        peer.incarnation = parts.peer_node.load_u64(NODE_INCARNATION).unwrap_or(0);
        match ring {
            Some(ring) => peer.line.carrier = Some(Carrier::Ring(Box::new(ring))),
            None => {
                core.tables.count(Counter::PeerLied);
                peer.unreachable = Some(CmdStatus::Unreachable);
            }
        }
        let SameHostParts { peer_node, peer_arena, my_half, process, files, .. } = parts;
        let (node, arena, half) = (peer_node, peer_arena, my_half);
        let direct = DirectParts { node, arena, half, process, files };
        peer.responder.puller = Puller::new(&direct, &parts.peer_half);
        peer.direct = Some(direct);
        self.peer_halves.insert(eid, parts.peer_half);
        self.peers.insert(eid, peer);
    }

    pub(crate) fn on_packet_peer(&mut self, eid: RawEid) {
        if let Some(peer) = self.peers.get_mut(&eid).filter(|peer| peer.line.carrier.is_none()) {
            self.endpoint.add(eid);
            peer.line.carrier = Some(Carrier::Packets(eid));
            peer.unreachable = None;
        }
    }

    pub(crate) fn on_no_peer(&mut self, eid: RawEid, why: CmdStatus) {
        if let Some(peer) = self.peers.get_mut(&eid).filter(|peer| peer.line.carrier.is_none()) {
            peer.unreachable = Some(why);
        }
    }

    pub(crate) fn on_peer_gone(&mut self, core: &DeviceCore, now: Nanos, eid: RawEid) {
        let on_host =
            self.peers.get(&eid).is_some_and(|p| matches!(p.line.carrier, Some(Carrier::Ring(_))));
        if on_host {
            core.tables.count(Counter::PeerDied);
            self.each_peer(core, now, |peer, work, inbox| {
                if peer.eid == eid {
                    peer.take_last_messages(work, inbox);
                }
            });
            self.lose(core, now, eid);
        }
    }

    /// The halves of all live same-host peers, to scan their hazard slots.
    pub(crate) fn peer_halves(&self) -> impl Iterator<Item = &Region> {
        self.peer_halves.values()
    }

    /// Ends the paths to a former life of the node at this EID: what was imported from it does not reach the new one,
    /// and the next import gets its own path.
    pub(crate) fn end_former_paths(&mut self, core: &DeviceCore, eid: RawEid) {
        let Some(peer) = self.peers.get_mut(&eid) else { return };
        let of_it = self.paths.iter_mut().filter(|(_, path)| path.eid == eid && !path.dead);
        for (tpn, path) in of_it.filter(|(_, path)| path.is_of_former_life(peer.incarnation)) {
            path.end(core, *tpn);
            for entry in peer.paths.iter_mut().filter(|entry| **entry == Some(*tpn)) {
                *entry = None;
            }
        }
    }

    /// Handles a node that is gone for good: its requests end, its paths are dead.
    fn lose(&mut self, core: &DeviceCore, now: Nanos, eid: RawEid) {
        let Some(mut peer) = self.peers.remove(&eid) else { return };
        self.peer_halves.remove(&eid);
        let lost = |path: &UsedPath| path.eid == eid && !path.standard;
        for (tpn, path) in self.paths.iter_mut().filter(|(_, path)| lost(path)) {
            path.end(core, *tpn);
        }
        self.endpoint.remove(eid);
        let ExchangeParts { mut work, .. } = self.split(core, now);
        peer.on_new_life(&mut work, 0);
    }

    /// Cuts off peers that violated the protocol, replaces failed TPs, and fails what waits for a refused handshake.
    pub(crate) fn look_after_peers(&mut self, core: &DeviceCore, now: Nanos) {
        let lied = self.peers.values().find(|peer| peer.line.is_cut_off).map(|peer| peer.eid);
        if let Some(eid) = lied {
            core.tables.count(Counter::PeerLied);
            self.lose(core, now, eid);
            let _ = core.tables.ask_host(HostRequest::Forget { eid });
        }
        self.endpoint.check_tps(&core.tables);
        while let Some((eid, end)) = self.endpoint.poll_ended() {
            let ExchangeParts { peers, mut work, .. } = self.split(core, now);
            let Some(peer) = peers.get_mut(&eid) else { continue };
            match end {
                TpEnd::Lost { drained } => {
                    // Without anything outstanding nothing can be repeated.
                    peer.parted = drained;
                    // Requests wait for another TP until their own error timeout.
                    peer.on_carrier_lost(&mut work);
                }
                TpEnd::Narrowed => peer.on_carrier_replaced(&mut work),
                TpEnd::NotOpened(why) => {
                    // The node closed: it may be there again when the next command comes.
                    if !peer.is_shut || peer.wanted_since.is_some() {
                        peer.open_failed = Some(why);
                    }
                    // A silent node may come back, and a full one have room again, unless it announced its close.
                    let may_return = matches!(why, CmdStatus::Timeout | CmdStatus::PeerFull);
                    if !may_return || peer.is_shut {
                        if !peer.requester.is_quiet() {
                            let _ =
                                core.tables.ask_host(HostRequest::AskWhy { eid, is_packets: true });
                        }
                        peer.requester.end_all(&peer.line, work.senders, CqeStatus::AckTimeout);
                    }
                }
            }
        }
        self.part_with_quiet(now);
    }
}

/// A path to a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathLook {
    /// EID of the node at the other end.
    pub eid: RawEid,
    /// What carries requests: "local", "same-host", "packets", "asked for", "none".
    pub carrier: &'static str,
    /// TPN of the reliable path.
    pub reliable: Option<u32>,
    /// TPN of the unreliable path.
    pub unreliable: Option<u32>,
    /// Number of imports and bindings that use them.
    pub users: u32,
    /// Numbers of TPs over packets.
    pub tps: Vec<u32>,
    /// Payload bytes of packets to the node, as far as the path allows.
    pub mtu: Option<usize>,
    /// Smoothed round-trip time of the TP, in ns.
    pub rtt_ns: Option<u64>,
    /// Retransmission scheme of the TP, as both nodes agreed.
    pub recovery: Option<&'static str>,
    /// Congestion control of the TP.
    pub congestion: Option<&'static str>,
    /// Most packets in flight that it allows.
    pub congestion_window: Option<u64>,
    /// Routes between the ports of both nodes, the preferred one first; empty: there is only one.
    pub routes: Vec<RouteLook>,
    /// Number of requests begun and not answered.
    pub in_flight: usize,
    /// It violated the protocol, and is cut off.
    pub is_cut_off: bool,
}

/// A route to a node, where one of the two has several ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteLook {
    /// Port of this node: 0 is the one whose address is its EID.
    pub port: u8,
    /// Address of that port.
    pub from: RawEid,
    /// Address of the other node.
    pub to: RawEid,
    /// "used", "tried" or "idle".
    pub state: &'static str,
    /// Bytes of UDP payload sent on it.
    pub sent_bytes: u64,
    /// Bytes of UDP payload received on it, in accepted packets.
    pub received_bytes: u64,
    /// Number of times that it was left because it carried nothing.
    pub failures: u64,
}

fn routes_of(tp: &PeerTp, cfg: &DeviceCfg) -> Vec<RouteLook> {
    let look = |(route, used, counts): (Route, RouteUse, RouteCounts)| RouteLook {
        port: route.port,
        from: cfg.address(route.port),
        to: route.to,
        state: match used {
            RouteUse::Used => "used",
            RouteUse::Tried => "tried",
            RouteUse::Idle => "idle",
        },
        sent_bytes: counts.sent_bytes,
        received_bytes: counts.received_bytes,
        failures: counts.failures,
    };
    tp.routes().map(look).collect()
}

impl Exchange {
    /// Lists every node that this one knows.
    pub(crate) fn look(&self, cfg: &DeviceCfg) -> Vec<PathLook> {
        let peers = self.peers.values().map(|peer| {
            let users = peer.paths.iter().flatten();
            let users = users.filter_map(|tpn| self.paths.get(tpn)).map(|path| path.users).sum();
            let carrier = match (&peer.line.carrier, peer.unreachable) {
                (Some(Carrier::Loop(_)), _) => "local",
                (Some(Carrier::Ring(_)), _) => "same-host",
                (Some(Carrier::Packets(_)), _) => "packets",
                (None, None) => "asked for",
                (None, Some(_)) => "none",
            };
            let tps = self.endpoint.tpns().filter(|(_, eid)| *eid == peer.eid);
            let tp = self.endpoint.tp(peer.eid);
            PathLook {
                eid: peer.eid,
                carrier,
                reliable: peer.paths[0],
                unreliable: peer.paths[1],
                users,
                tps: tps.map(|(tpn, _)| tpn).collect(),
                mtu: tp.filter(|tp| tp.is_open()).map(PeerTp::payload_max),
                rtt_ns: tp.and_then(PeerTp::rtt),
                recovery: tp.and_then(PeerTp::strategy).map(Strategy::name),
                congestion: tp.and_then(PeerTp::congestion).map(|(kind, _)| kind.name()),
                congestion_window: tp.and_then(PeerTp::congestion).and_then(|(_, window)| window),
                routes: tp.map(|tp| routes_of(tp, cfg)).unwrap_or_default(),
                in_flight: peer.requester.in_flight(),
                is_cut_off: peer.line.is_cut_off,
            }
        });
        peers.collect()
    }
}
