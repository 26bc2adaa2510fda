//! The places for other nodes: who gives one up when all are taken and one more node asks.
//!
//! *Owns*: the order in which places are given up, and what counts as one source of nodes. *Takes*: time, who has which
//! loopback address. *Gives*: room. *Must not*: take a place of a node that queues here use; answer a request twice
//! without a word to the node that loses its place.
//!
//! A node costs its sender nothing but an address: a process may have all of 127.0.0.0/8, a host all of an IPv6 /64. So
//! places are shared between sources, and a source is what costs more than an address: the user whose process has a
//! loopback address, an IPv4 /24, an IPv6 /64. Nothing is bounded while there is room. When there is none, the place goes
//!
//! 1. of a node that is idle: it loses nothing;
//! 2. of a node whose message is unfinished and does not go on, or whose TP broke off and did not come again;
//! 3. of the source with the most places, if it has more than [`SHARE`] and more than the one that asks: of its node
//!    that made no progress for the longest time, which gets a CLOSE, so that its requests
//!    end with an error instead of being executed twice.

use std::collections::BTreeMap;

use udma_abi::{Nanos, RawEid};
use urma_packet::CloseReason;

use crate::endpoint::{PeerTp, TpEndpoint};
use crate::engine::core::DeviceCore;
use crate::exchange::owners::PlaceOwner;
use crate::exchange::peers::peer::Peer;
use crate::exchange::{Exchange, ExchangeParts};
use crate::limits;

/// Places that no source loses to another one: an eighth of all.
const SHARE: usize = limits::PEERS / 8;
/// A message that makes no progress for so long does not keep a place, in nanoseconds.
const STALLED_NS: Nanos = 10_000_000_000;
/// Neither does a TP that broke off so long ago, in nanoseconds.
const BROKEN_NS: Nanos = 60_000_000_000;
/// A node that gives up its place, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct EvictedPeer {
    eid: RawEid,
    reason: CloseReason,
}

impl Peer {
    /// Whether it came by packets, and nothing here uses it or sends it requests.
    fn is_passive(&self, endpoint: &TpEndpoint) -> bool {
        let is_unused = self.paths == [None; 2] && self.wanted_since.is_none();
        is_unused && self.requester.is_quiet() && endpoint.tp(self.eid).is_some()
    }

    /// Whether it keeps its place only for something that makes no progress.
    fn is_stalled(&self, endpoint: &TpEndpoint, now: Nanos) -> bool {
        let waited = now.saturating_sub(self.responder.progress_at);
        let is_open = endpoint.tp(self.eid).is_some_and(PeerTp::is_open);
        if is_open {
            self.responder.has_unfinished() && waited >= STALLED_NS
        } else {
            waited >= BROKEN_NS
        }
    }
}

impl Exchange {
    /// Whether there is a place for one more node: `asking`, or one that this node's own program wants. If need be,
    /// another node gives up its place.
    pub(crate) fn has_place(
        &mut self,
        core: &DeviceCore,
        now: Nanos,
        asking: Option<RawEid>,
    ) -> bool {
        if self.peers.len() < limits::PEERS {
            return true;
        }
        let Some(victim) = self.victim(core, now, asking) else { return false };
        let ExchangeParts { peers, mut work, .. } = self.split(core, now);
        if let Some(peer) = peers.get_mut(&victim.eid) {
            peer.responder.drop_answers();
            peer.responder.forget_served(&mut work);
        }
        self.peers.remove(&victim.eid);
        self.endpoint.evict(victim.eid, victim.reason);
        true
    }

    fn victim(
        &mut self,
        core: &DeviceCore,
        now: Nanos,
        asking: Option<RawEid>,
    ) -> Option<EvictedPeer> {
        let idle = self.peers.values().filter_map(|peer| peer.idle_since(&self.endpoint, now));
        if let Some((_, eid)) = idle.min() {
            return Some(EvictedPeer { eid, reason: CloseReason::Idle });
        }
        let stalled = self
            .peers
            .values()
            .filter(|peer| peer.is_passive(&self.endpoint) && peer.is_stalled(&self.endpoint, now));
        let longest = stalled.map(|peer| (peer.responder.progress_at, peer.eid)).min();
        if let Some((_, eid)) = longest {
            return Some(EvictedPeer { eid, reason: CloseReason::Shutdown });
        }
        self.crowding(core, now, asking)
    }

    /// The node to evict from the source that has more than its share.
    fn crowding(
        &mut self,
        core: &DeviceCore,
        now: Nanos,
        asking: Option<RawEid>,
    ) -> Option<EvictedPeer> {
        self.owners.look(now, core.tables.cfg.loopback_owners);
        let Self { peers, endpoint, owners, .. } = self;
        let mut taken: BTreeMap<PlaceOwner, (usize, (Nanos, RawEid))> = BTreeMap::new();
        for peer in peers.values().filter(|peer| peer.is_passive(endpoint)) {
            let oldest = (peer.responder.progress_at, peer.eid);
            let entry = taken.entry(owners.source(peer.eid)).or_insert((0, oldest));
            *entry = (entry.0 + 1, entry.1.min(oldest));
        }
        let asking = asking.map_or(PlaceOwner::Own, |eid| owners.source(eid));
        let own = taken.get(&asking).map_or(0, |(count, _)| *count);
        let (most, (_, eid)) = taken.into_values().max_by_key(|(count, _)| *count)?;
        (most > SHARE && most > own + 1)
            .then_some(EvictedPeer { eid, reason: CloseReason::Shutdown })
    }
}
