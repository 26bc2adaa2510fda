//! Ways to nodes, as a report shows them.
//!
//! *Gives*: plain values. *Must not*: change anything.

use udma_abi::RawEid;

use super::{peer::PeerSearch, state::Exchange};
use crate::carrier::Carrier;

/// A way to a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WayLook {
    /// EID of the node at the other end.
    pub eid: RawEid,
    /// What carries requests: "local", "same-host", "packets", "asked for", "none".
    pub path: &'static str,
    /// TPN of the reliable way.
    pub reliable: Option<u32>,
    /// TPN of the unreliable way.
    pub unreliable: Option<u32>,
    /// Imports and bindings that use them.
    pub users: u32,
    /// Numbers of TPs over packets.
    pub tps: Vec<u32>,
    /// Requests begun and not answered.
    pub under_way: usize,
    /// It sent what no peer may send, and is cut off.
    pub is_cut_off: bool,
}

impl Exchange {
    /// Every node that this one knows.
    pub(crate) fn look(&self) -> Vec<WayLook> {
        let peers = self.peers.values().map(|peer| {
            let users = peer.ways.iter().flatten();
            let users = users.filter_map(|tpn| self.ways.get(tpn)).map(|way| way.users).sum();
            let path = match (&peer.line.carrier, peer.found) {
                (Some(Carrier::Loop(_)), _) => "local",
                (Some(Carrier::Ring(_)), _) => "same-host",
                (Some(Carrier::Packets(_)), _) => "packets",
                (None, PeerSearch::Asked) => "asked for",
                (None, PeerSearch::Yes | PeerSearch::No(_)) => "none",
            };
            let tps = self.endpoint.tpns().filter(|(_, eid)| *eid == peer.eid);
            WayLook {
                eid: peer.eid,
                path,
                reliable: peer.ways[0],
                unreliable: peer.ways[1],
                users,
                tps: tps.map(|(tpn, _)| tpn).collect(),
                under_way: peer.requester.under_way(),
                is_cut_off: peer.line.is_cut_off,
            }
        });
        peers.collect()
    }
}
