//! Nodes that no queue here uses any more: when their TP is closed, their state dropped, their place given to
//! another.
//!
//! State for packet peers grows with the live nodes that deal with this one, not with all that ever did. Nodes on
//! this host are known by their connection, which shows when they are gone. Must not forget a sequence of which a
//! request may be repeated, nor wait for a queue: a path stays open for the requests posted before its last user
//! left.

use std::collections::BTreeMap;

use udma_abi::{CmdStatus, Nanos, RawEid};
use urma_packet::CloseReason;

use crate::{
    endpoint::{PeerTp, TpEndpoint},
    engine::core::DeviceCore,
    exchange::{
        Exchange, ExchangeParts,
        owners::PlaceOwner,
        peers::peer::{Peer, Posted},
        target::guesses::FULL_NS,
    },
    limits,
    transport::Doubt,
};

/// A TP is closed when its last local user is gone and nothing was sent on it for so long, in nanoseconds.
const IDLE_NS: Nanos = 1_000_000_000;
/// A TP that only its peer uses, or with a broken-off message, is verified after so long without a packet, in
/// nanoseconds.
const KEEP_NS: Nanos = 10_000_000_000;
/// A node whose TP broke off may repeat a request for so long, in nanoseconds: the longest error timeout, 4.096 us <<
/// 31, is 8796 s.
const FORGET_NS: Nanos = 9_000_000_000_000;

/// What to do about a quiet node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    /// Nothing before the next check.
    Wait,
    /// Send a CLOSE, then forget it.
    Close,
    /// Verify that it still holds the TP.
    Ask,
    /// Forget the peer: it has no TP either.
    Forget,
}

impl Peer {
    /// Whether no queue here uses the node, or the rest of one of its messages does not come, and nothing is
    /// outstanding that would show whether it is alive.
    fn is_quiet(&self, endpoint: &TpEndpoint) -> bool {
        let is_unused = self.paths == [None; 2] && self.wanted_since.is_none();
        (is_unused || self.responder.has_unfinished())
            && self.requester.is_quiet()
            && !self.responder.is_waiting()
            && endpoint.tp(self.eid).is_some_and(PeerTp::is_quiet)
    }

    /// How long a quiet node is left alone, and what follows.
    fn patience(&self, endpoint: &TpEndpoint) -> (Nanos, Due) {
        let Some(tp) = endpoint.tp(self.eid) else { return (Nanos::MAX, Due::Wait) };
        match (tp.is_open(), self.used) {
            (true, true) if !self.responder.has_unfinished() => (IDLE_NS, Due::Close),
            (true, _) => (KEEP_NS, Due::Ask),
            (false, _) if self.parted || self.responder.is_unused() => {
                (self.kept_ns(), Due::Forget)
            }
            (false, _) => (FORGET_NS, Due::Forget),
        }
    }

    /// How long a quiet node is remembered at least: if it guessed tokens, its budget is whole again by then.
    fn kept_ns(&self) -> Nanos {
        if self.responder.has_guessed() { FULL_NS } else { IDLE_NS }
    }

    /// Since when a node is idle that may give up its place: its TP is closed, and nothing is outstanding that could
    /// be repeated.
    pub(crate) fn idle_since(&self, endpoint: &TpEndpoint, now: Nanos) -> Option<(Nanos, RawEid)> {
        let (patience, _) = self.patience(endpoint);
        let is_done = self.is_quiet(endpoint) && !self.responder.has_unfinished();
        let since = self.quiet_since.filter(|_| is_done && patience < FORGET_NS)?;
        (now.saturating_sub(since) >= self.kept_ns()).then_some((since, self.eid))
    }

    /// When something has to be done about a quiet node.
    pub(crate) fn quiet_deadline(&self, endpoint: &TpEndpoint) -> Option<Nanos> {
        self.quiet_since.map(|since| since.saturating_add(self.patience(endpoint).0))
    }

    fn due(&mut self, endpoint: &mut TpEndpoint, now: Nanos) -> Due {
        if endpoint.take_received(self.eid) {
            self.quiet_since = None;
        }
        if !self.is_quiet(endpoint) {
            self.quiet_since = None;
            return Due::Wait;
        }
        let since = *self.quiet_since.get_or_insert(now);
        let (patience, due) = self.patience(endpoint);
        if now.saturating_sub(since) < patience { Due::Wait } else { due }
    }
}

impl Exchange {
    /// Checks all unused nodes.
    pub(crate) fn part_with_quiet(&mut self, now: Nanos) {
        let mut forgotten: Option<RawEid> = None;
        let Self { peers, endpoint, .. } = self;
        for (eid, peer) in peers.iter_mut() {
            match peer.due(endpoint, now) {
                Due::Wait => {}
                Due::Close => {
                    peer.parted = true;
                    endpoint.close(*eid, CloseReason::Idle);
                    peer.quiet_since = None;
                }
                Due::Ask => {
                    endpoint.ask(now, *eid, Doubt::Idle);
                    peer.quiet_since = None;
                }
                // One of them per round: there are more rounds.
                Due::Forget => forgotten = Some(*eid),
            }
        }
        if let Some(eid) = forgotten {
            self.peers.remove(&eid);
            self.endpoint.remove(eid);
        }
    }
}

/// Longest time between two checks of a path that waits for a queue, in nanoseconds.
const LOOK_NS: Nanos = 1_000_000_000;

impl Exchange {
    /// Removes one user. After the last one the path closes (and its `NodePath` is removed) as soon as everything is
    /// retired that was posted before.
    pub(crate) fn disconnect(&mut self, core: &DeviceCore, now: Nanos, tpn: u32) -> CmdStatus {
        let Some(path) = self.paths.get_mut(&tpn).filter(|path| path.users != 0) else {
            return CmdStatus::NotFound;
        };
        path.users -= 1;
        if path.users == 0 {
            path.posted = self.senders.ids().filter_map(|id| Posted::of(core, id)).collect();
            self.closing.push(tpn);
            self.close_paths(core, now);
        }
        CmdStatus::Ok
    }

    /// Closes the paths that have no users and no outstanding requests.
    pub(crate) fn close_paths(&mut self, core: &DeviceCore, now: Nanos) {
        if self.closing.is_empty() {
            return;
        }
        let Self { closing, paths, peers, .. } = self;
        closing.retain(|tpn| {
            let Some(path) = paths.get_mut(tpn).filter(|path| path.users == 0) else {
                return false;
            };
            path.posted.retain(|posted| posted.is_left(core));
            if path.standard && path.posted.is_empty() {
                path.end(core, *tpn);
            }
            let peer = peers.get_mut(&path.eid).filter(|_| !path.standard);
            let peer = peer
                .filter(|peer| path.posted.is_empty() || path.is_of_former_life(peer.incarnation));
            if let Some(peer) = peer {
                for entry in peer.paths.iter_mut().filter(|entry| **entry == Some(*tpn)) {
                    *entry = None;
                }
                path.end(core, *tpn);
            }
            if !path.posted.is_empty() {
                return true;
            }
            paths.remove(tpn);
            core.tables.remove_link(*tpn);
            false
        });
        self.look_at = if self.closing.is_empty() { Nanos::MAX } else { now + LOOK_NS };
    }

    /// Whether each node that is reached by packets has received everything that this one sent and owes: a CLOSE that
    /// overtakes a response would end its request as timed out.
    pub(crate) fn is_answered(&self) -> bool {
        let is_sent = self.endpoint.is_drained() && !self.standard.has_work();
        is_sent && self.peers.values().all(|peer| !peer.responder.is_waiting())
    }

    /// Closes the node: its peers get nothing more than a CLOSE, which the endpoint sends.
    pub(crate) fn close_peers(&mut self) {
        self.peers.values_mut().for_each(Peer::on_own_close);
        self.endpoint.close_all(CloseReason::Shutdown);
    }

    /// Forgets the requests of a send queue that is gone.
    pub(crate) fn forget_posted(&mut self, queue: u32) {
        for tpn in &self.closing {
            if let Some(path) = self.paths.get_mut(tpn) {
                path.posted.retain(|posted| posted.queue != queue);
            }
        }
    }
}

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

    /// The node that gives up its place, if there is one.
    ///
    /// A node costs its sender nothing but an address: a process may have all of 127.0.0.0/8, a host all of an IPv6
    /// /64. So places are shared between sources, and a source is what costs more than an address: the user whose
    /// process has a loopback address, an IPv4 /24, an IPv6 /64. Nothing is bounded while there is room. When there
    /// is none, the place goes
    ///
    /// 1. of a node that is idle: it loses nothing;
    /// 2. of a node whose message is unfinished and does not go on, or whose TP broke off and did not come again;
    /// 3. of the source with the most places, if it has more than `SHARE` and more than the one that asks: of its node
    ///    that made no progress for the longest time, which gets a CLOSE, so that its requests end with an error
    ///    instead of being executed twice.
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
