//! Nodes that no queue here uses any more: their TP is closed, their state goes.
//!
//! *Owns*: how long a quiet node is kept. *Takes*: time. *Gives*: CLOSE, questions, room for others.
//! *Must not*: forget a sequence of which a request may be repeated.
//!
//! State of packets goes with live nodes that have something to do with this one, not with all that
//! ever had. Nodes on this host are known by their connection, which tells when they go.

use udma_abi::{Nanos, RawEid};
use urma_packet::{CloseReason, Tpn};

use super::guesses::FULL_NS;
use super::peer::Peer;
use super::state::Exchange;
use crate::carrier::Carrier;
use crate::limits;
use crate::transport::{Doubt, KnittingPool};

/// A TP is closed when its last local user is gone and nothing went over it for so long.
const IDLE_NS: Nanos = 1_000_000_000;
/// A TP that only its peer uses is asked about after so long without a packet.
const KEEP_NS: Nanos = 10_000_000_000;
/// A node whose TP broke off may repeat a request for so long: the longest error timeout, 4.096 us
/// << 31, is 8796 s.
const FORGET_NS: Nanos = 9_000_000_000_000;

/// What is due for a quiet node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    /// Nothing is due before the next look.
    Wait,
    /// Tell it, then forget it.
    Close,
    /// Ask whether it still holds the TP.
    Ask,
    /// Forget the peer: it keeps no TP, either.
    Forget,
}

impl Peer {
    /// No queue here uses the node, and nothing is under way in either direction.
    fn is_quiet(&self) -> bool {
        let Some(Carrier::Packets(packets)) = &self.line.carrier else { return false };
        self.ways == [None; 2]
            && self.wanted_since.is_none()
            && self.requester.is_quiet()
            && self.responder.is_quiet()
            && packets.is_quiet()
    }

    /// How long a quiet node is left alone, and what follows.
    fn patience(&self) -> (Nanos, Due) {
        let Some(Carrier::Packets(packets)) = &self.line.carrier else {
            return (Nanos::MAX, Due::Wait);
        };
        match (packets.is_open(), self.used) {
            (true, true) => (IDLE_NS, Due::Close),
            (true, false) => (KEEP_NS, Due::Ask),
            (false, _) if self.parted || self.responder.is_unused() => {
                (self.kept_ns(), Due::Forget)
            }
            (false, _) => (FORGET_NS, Due::Forget),
        }
    }

    /// How long a quiet node is known at least: one that guessed tokens has its burst again by then.
    fn kept_ns(&self) -> Nanos {
        if self.responder.has_guessed() { FULL_NS } else { IDLE_NS }
    }

    /// When something is due for a quiet node.
    pub(super) fn quiet_deadline(&self) -> Option<Nanos> {
        self.quiet_since.map(|since| since.saturating_add(self.patience().0))
    }

    /// Something came from the node.
    pub(super) fn on_received(&mut self) {
        self.quiet_since = None;
    }

    fn due(&mut self, now: Nanos) -> Due {
        if !self.is_quiet() {
            self.quiet_since = None;
            return Due::Wait;
        }
        let since = *self.quiet_since.get_or_insert(now);
        let (patience, due) = self.patience();
        if now.saturating_sub(since) < patience { Due::Wait } else { due }
    }

    /// Ends the TP and says so. Its number at this node.
    fn part(&mut self, pool: &mut KnittingPool) -> Option<Tpn> {
        let Some(Carrier::Packets(packets)) = &mut self.line.carrier else { return None };
        self.parted = true;
        packets.close(CloseReason::Idle, pool)
    }
}

impl Exchange {
    /// Looks after unused nodes.
    pub(super) fn part_with_quiet(&mut self, now: Nanos) {
        let mut forgotten: Option<RawEid> = None;
        for (eid, peer) in &mut self.peers {
            match peer.due(now) {
                Due::Wait => {}
                Due::Close => {
                    let tpn = peer.part(&mut self.pool);
                    self.numbers.tps.retain(|number, _| Some(*number) != tpn.map(Tpn::value));
                    peer.quiet_since = None;
                }
                Due::Ask => {
                    let nonce = self.numbers.random();
                    if let Some(packets) = peer.line.packets() {
                        packets.handshake.verify(now, Doubt::Idle, nonce);
                    }
                    peer.quiet_since = None;
                }
                // One of them in a round: there are more rounds.
                Due::Forget => forgotten = Some(*eid),
            }
        }
        if let Some(eid) = forgotten {
            self.forget(eid);
        }
    }

    /// Whether one more node may be known. If need be, the one that is idle longest gives its place:
    /// its TP is closed, and nothing is under way that could be repeated.
    pub(super) fn has_place(&mut self, now: Nanos) -> bool {
        if self.peers.len() < limits::PEERS {
            return true;
        }
        let idle = |peer: &Peer| {
            let (patience, _) = peer.patience();
            let since = peer.quiet_since.filter(|_| peer.is_quiet() && patience < FORGET_NS)?;
            (now.saturating_sub(since) >= peer.kept_ns()).then_some((since, peer.eid))
        };
        let Some((_, eid)) = self.peers.values().filter_map(idle).min() else { return false };
        if let Some(packets) = self.peers.get_mut(&eid).and_then(|peer| peer.line.packets()) {
            if let Some(close) = packets.handshake.close_packet(CloseReason::Idle) {
                self.replies.push(eid, close);
            }
            packets.drop_tp(&mut self.pool);
        }
        self.forget(eid);
        true
    }

    fn forget(&mut self, eid: RawEid) {
        self.peers.remove(&eid);
        self.numbers.tps.retain(|_, owner| *owner != eid);
    }
}
