//! Datagrams that the network doubled.
//!
//! *Owns*: the numbers of the last datagrams of each node that reached a receive. *Takes*: numbers.
//! *Gives*: whether one came before. *Must not*: wait for any: datagrams may be lost, and come in any
//! order; change anything for a datagram that reached nothing.

use std::collections::BTreeMap;

use udma_abi::RawEid;
use urma_packet::Psn;

use crate::limits;

/// The last datagrams of all nodes.
#[derive(Debug, Default)]
pub(super) struct RecentDatagrams {
    nodes: BTreeMap<RawEid, NodeDatagrams>,
    /// Number of datagrams noted since the record began.
    count: u64,
}

/// The last datagrams of one node.
#[derive(Clone, Copy, Debug)]
struct NodeDatagrams {
    newest: Psn,
    /// Bit i: the one i before the newest came.
    seen: u64,
    /// Count at the last one.
    at: u64,
}

impl RecentDatagrams {
    /// Whether datagram `number` of the node came before. One further back than is remembered counts
    /// as new: a node that started again begins anywhere.
    pub(super) fn has(&self, from: RawEid, number: Psn) -> bool {
        let Some(node) = self.nodes.get(&from) else { return false };
        let back = node.newest.distance_from(number);
        (0..BITS).contains(&back) && node.seen & (1 << back) != 0
    }

    /// Whether no datagram reached a receive.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Datagram `number` of the node reached a receive.
    pub(super) fn note(&mut self, from: RawEid, number: Psn) {
        self.count += 1;
        if !self.nodes.contains_key(&from) && self.nodes.len() >= limits::PEERS {
            let oldest = self.nodes.iter().min_by_key(|(_, node)| node.at).map(|(eid, _)| *eid);
            oldest.and_then(|eid| self.nodes.remove(&eid));
        }
        let first = NodeDatagrams { newest: number, seen: 0, at: 0 };
        let node = self.nodes.entry(from).or_insert(first);
        let ahead = number.distance_from(node.newest);
        if ahead <= -BITS || ahead >= BITS {
            *node = first;
        } else if ahead > 0 {
            node.newest = number;
            node.seen <<= ahead;
        }
        // Between 0 and 63 now.
        node.seen |= 1 << node.newest.distance_from(number);
        node.at = self.count;
    }
}

const BITS: i32 = u64::BITS.cast_signed();

#[cfg(test)]
mod tests {
    use super::*;

    fn eid(n: usize) -> RawEid {
        let mut eid = [0; 16];
        eid[8..].copy_from_slice(&(n as u64).to_be_bytes());
        RawEid(eid)
    }

    /// Whether it is new; if so, it reaches a receive.
    fn is_new(recent: &mut RecentDatagrams, number: Psn) -> bool {
        let is_new = !recent.has(eid(1), number);
        if is_new {
            recent.note(eid(1), number);
        }
        is_new
    }

    #[test]
    fn each_counts_once_in_any_order_and_across_the_wrap() {
        let start = Psn::new(0xff_fffe);
        let mut recent = RecentDatagrams::default();
        let order = [0, 3, 1, 2, 63, 4, 90];
        for number in order {
            assert!(is_new(&mut recent, start.plus(number)), "{number}");
        }
        assert!([90, 63].into_iter().all(|number| !is_new(&mut recent, start.plus(number))));
        assert!(is_new(&mut recent, start.plus(5_000_000)), "another life of the node");
        assert!(is_new(&mut recent, start));
    }

    #[test]
    fn the_node_that_was_silent_longest_gives_its_place() {
        let mut recent = RecentDatagrams::default();
        let number = Psn::new(1);
        (0..limits::PEERS).for_each(|n| recent.note(eid(n), number));
        recent.note(eid(0), number.plus(1));
        recent.note(eid(limits::PEERS), number);
        assert!(!recent.has(eid(1), number));
        assert!([0, 2, limits::PEERS].into_iter().all(|n| recent.has(eid(n), number)));
    }
}
