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
//!    that made no progress for the longest time, which is told that this one is closed for it, so that its requests
//!    end with an error instead of being executed twice.

use std::collections::BTreeMap;

use udma_abi::{Nanos, RawEid};
use urma_packet::CloseReason;

use super::peer::Peer;
use super::state::Exchange;
use crate::endpoint::{PeerTp, TpEndpoint};
use crate::engine::base::Base;
use crate::limits;

/// Places that no source loses to another one: an eighth.
const SHARE: usize = limits::PEERS / 8;
/// A message that does not go on for so long keeps no place from another node.
const STALLED_NS: Nanos = 10_000_000_000;
/// Nor does a TP that broke off so long ago.
const BROKEN_NS: Nanos = 60_000_000_000;
/// The owners of loopback addresses are looked up at most so often.
const OWNERS_NS: Nanos = 100_000_000;
/// User ids from here on are given out in blocks, one to each user who may have more (subuid(5)).
const SUBORDINATE: u32 = 100_000;
const SUBORDINATE_BLOCK: u32 = 65_536;

/// Who has more than one address at no cost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Source {
    /// This node's own program, and nodes that share memory with it.
    Own,
    /// A user of this host.
    User(u32),
    /// Nobody has the loopback address any more.
    Nobody,
    /// The hosts of an IPv4 /24.
    Net4([u8; 3]),
    /// The hosts of an IPv6 /64.
    Net6([u8; 8]),
}

/// The users whose processes have loopback addresses, as they were found last.
#[derive(Debug, Default)]
pub(super) struct LoopbackOwners {
    by_eid: BTreeMap<RawEid, u32>,
    looked_at: Option<Nanos>,
}

impl LoopbackOwners {
    fn look(&mut self, now: Nanos, find: fn() -> Vec<(RawEid, u32)>) {
        let is_fresh = self.looked_at.is_some_and(|at| now.saturating_sub(at) < OWNERS_NS);
        if !is_fresh {
            self.by_eid = find().into_iter().collect();
            self.looked_at = Some(now);
        }
    }

    fn source(&self, eid: RawEid) -> Source {
        let [a, b, c, d, e, f, g, h, rest @ ..] = eid.0;
        if (a, b, c, d, e, f, g, h) != (0, 0, 0, 0, 0, 0, 0, 0) || rest[..4] != [0, 0, 0xff, 0xff] {
            return Source::Net6([a, b, c, d, e, f, g, h]);
        }
        if rest[4] != 127 {
            return Source::Net4([rest[4], rest[5], rest[6]]);
        }
        self.by_eid.get(&eid).map_or(Source::Nobody, |uid| Source::User(user(*uid)))
    }
}

/// The user behind a user id: those of one block belong to one user.
fn user(uid: u32) -> u32 {
    let beyond = uid.checked_sub(SUBORDINATE);
    beyond.map_or(uid, |beyond| uid - beyond % SUBORDINATE_BLOCK)
}

/// Why a node gives its place up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Victim {
    eid: RawEid,
    reason: CloseReason,
}

impl Peer {
    /// Whether it came by packets, and nothing here uses it or asks it for anything.
    fn is_passive(&self, endpoint: &TpEndpoint) -> bool {
        let is_unused = self.paths == [None; 2] && self.wanted_since.is_none();
        is_unused && self.requester.is_quiet() && endpoint.tp(self.eid).is_some()
    }

    /// Whether it keeps a place for something that does not go on.
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
    /// Whether one more node may be known: `asking`, or one that this node's own program wants. If need be, another one
    /// gives its place up.
    pub(super) fn has_place(&mut self, base: &Base, now: Nanos, asking: Option<RawEid>) -> bool {
        if self.peers.len() < limits::PEERS {
            return true;
        }
        let Some(victim) = self.victim(base, now, asking) else { return false };
        let (peers, mut work, _) = self.split(base, now);
        if let Some(peer) = peers.get_mut(&victim.eid) {
            peer.responder.drop_answers();
            peer.responder.forget_served(&mut work);
        }
        self.peers.remove(&victim.eid);
        self.endpoint.evict(victim.eid, victim.reason);
        true
    }

    fn victim(&mut self, base: &Base, now: Nanos, asking: Option<RawEid>) -> Option<Victim> {
        let idle = self.peers.values().filter_map(|peer| peer.idle_since(&self.endpoint, now));
        if let Some((_, eid)) = idle.min() {
            return Some(Victim { eid, reason: CloseReason::Idle });
        }
        let stalled = self
            .peers
            .values()
            .filter(|peer| peer.is_passive(&self.endpoint) && peer.is_stalled(&self.endpoint, now));
        let longest = stalled.map(|peer| (peer.responder.progress_at, peer.eid)).min();
        if let Some((_, eid)) = longest {
            return Some(Victim { eid, reason: CloseReason::Shutdown });
        }
        self.crowding(base, now, asking)
    }

    /// The node to go of the source that takes more than its share.
    fn crowding(&mut self, base: &Base, now: Nanos, asking: Option<RawEid>) -> Option<Victim> {
        self.owners.look(now, base.tables.cfg.loopback_owners);
        let Self { peers, endpoint, owners, .. } = self;
        let mut taken: BTreeMap<Source, (usize, (Nanos, RawEid))> = BTreeMap::new();
        for peer in peers.values().filter(|peer| peer.is_passive(endpoint)) {
            let oldest = (peer.responder.progress_at, peer.eid);
            let entry = taken.entry(owners.source(peer.eid)).or_insert((0, oldest));
            *entry = (entry.0 + 1, entry.1.min(oldest));
        }
        let asking = asking.map_or(Source::Own, |eid| owners.source(eid));
        let own = taken.get(&asking).map_or(0, |(count, _)| *count);
        let (most, (_, eid)) = taken.into_values().max_by_key(|(count, _)| *count)?;
        (most > SHARE && most > own + 1).then_some(Victim { eid, reason: CloseReason::Shutdown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_what_costs_more_than_an_address() {
        let mut owners = LoopbackOwners::default();
        let v4 = |octets: [u8; 4]| {
            let mut eid = RawEid([0; 16]);
            eid.0[10..12].fill(0xff);
            eid.0[12..].copy_from_slice(&octets);
            eid
        };
        owners.look(0, || Vec::new());
        assert_eq!(owners.source(v4([127, 9, 0, 1])), Source::Nobody);
        owners.by_eid.insert(v4([127, 9, 0, 1]), 1000);
        owners.by_eid.insert(v4([127, 9, 0, 2]), 165_537);
        assert_eq!(owners.source(v4([127, 9, 0, 1])), Source::User(1000));
        assert_eq!(owners.source(v4([127, 9, 0, 2])), Source::User(165_536));
        assert_eq!(user(165_535), 100_000, "the block before");
        assert_eq!(owners.source(v4([10, 0, 1, 2])), Source::Net4([10, 0, 1]));
        let mut v6 = RawEid([7; 16]);
        assert_eq!(owners.source(v6), Source::Net6([7; 8]));
        v6.0[15] = 1;
        assert_eq!(owners.source(v6), Source::Net6([7; 8]), "one prefix");
        v6.0[7] = 1;
        assert_ne!(owners.source(v6), Source::Net6([7; 8]));
    }
}
