//! Ways without users: each stays open for the requests that were posted before the last one left.
//!
//! *Owns*: when they are looked at. *Takes*: disconnects, what queues retired. *Gives*: closed ways.
//! *Must not*: wait for a queue.

use udma_abi::{CmdStatus, Nanos};

use super::state::Exchange;
use super::way::Posted;
use crate::engine::base::Base;

/// Longest time between two looks at a way that waits for a queue.
const LOOK_NS: Nanos = 1_000_000_000;

impl Exchange {
    /// One user less. After the last one the way closes (and its `Link` is removed) as soon as
    /// everything is retired that was posted before.
    pub(crate) fn disconnect(&mut self, base: &Base, now: Nanos, tpn: u32) -> CmdStatus {
        let Some(way) = self.ways.get_mut(&tpn).filter(|way| way.users != 0) else {
            return CmdStatus::NotFound;
        };
        way.users -= 1;
        if way.users == 0 {
            way.posted = self.senders.ids().filter_map(|id| Posted::of(base, id)).collect();
            self.closing.push(tpn);
            self.close_ways(base, now);
        }
        CmdStatus::Ok
    }

    /// Closes the ways that no user and no request holds any more.
    pub(super) fn close_ways(&mut self, base: &Base, now: Nanos) {
        if self.closing.is_empty() {
            return;
        }
        let Self { closing, ways, peers, .. } = self;
        closing.retain(|tpn| {
            let Some(way) = ways.get_mut(tpn).filter(|way| way.users == 0) else { return false };
            way.posted.retain(|posted| posted.is_left(base));
            let peer = peers.get_mut(&way.eid);
            let peer = peer
                .filter(|peer| way.posted.is_empty() || way.is_of_former_life(peer.incarnation));
            if let Some(peer) = peer {
                for entry in peer.ways.iter_mut().filter(|entry| **entry == Some(*tpn)) {
                    *entry = None;
                }
                if let Some(link) = base.tables.links.find(*tpn) {
                    link.end();
                }
                way.dead = true;
            }
            if !way.posted.is_empty() {
                return true;
            }
            ways.remove(tpn);
            base.tables.links.remove(*tpn);
            false
        });
        self.look_at = if self.closing.is_empty() { Nanos::MAX } else { now + LOOK_NS };
    }

    /// A send queue is gone, with everything posted to it.
    pub(super) fn forget_posted(&mut self, queue: u32) {
        for tpn in &self.closing {
            if let Some(way) = self.ways.get_mut(tpn) {
                way.posted.retain(|posted| posted.queue != queue);
            }
        }
    }
}
