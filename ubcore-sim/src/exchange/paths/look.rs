//! Paths to nodes, as reports show them.
//!
//! *Gives*: plain values. *Must not*: change anything.

use udma_abi::RawEid;

use crate::carrier::Carrier;
use crate::cfg::DeviceCfg;
use crate::endpoint::{PeerTp, RouteCounts, RouteUse};
use crate::exchange::Exchange;
use crate::ports::Route;
use crate::transport::Strategy;

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
