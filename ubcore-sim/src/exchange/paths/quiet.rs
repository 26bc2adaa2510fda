//! Nodes that no queue here uses any more: their TP is closed, their state dropped.
//!
//! *Owns*: how long a quiet node is kept. *Takes*: time. *Gives*: CLOSE, questions, what may be dropped. *Must not*:
//! forget a sequence of which a request may be repeated.
//!
//! State for packet peers grows with the live nodes that deal with this one, not with all that ever did. Nodes on
//! this host are known by their connection, which shows when they are gone.

use udma_abi::{Nanos, RawEid};
use urma_packet::CloseReason;

use crate::endpoint::{PeerTp, TpEndpoint};
use crate::exchange::Exchange;
use crate::exchange::peers::peer::Peer;
use crate::exchange::target::guesses::FULL_NS;
use crate::transport::Doubt;

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
