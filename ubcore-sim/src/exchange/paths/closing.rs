//! Closing of paths and of the node. A path without users stays open for the requests posted before the last user
//! left. When the node closes, each peer gets its responses, then a CLOSE.
//!
//! *Owns*: when closing paths are checked. *Takes*: disconnects, what queues retired. *Gives*: closed paths. *Must
//! not*: wait for a queue.

use udma_abi::{CmdStatus, Nanos};
use urma_packet::CloseReason;

use crate::engine::core::DeviceCore;
use crate::exchange::Exchange;
use crate::exchange::peers::path::Posted;
use crate::exchange::peers::peer::Peer;

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
