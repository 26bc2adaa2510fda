//! Duplicates of datagrams that the network doubled.
//!
//! *Owns*: the numbers of each node's recent datagrams that reached a receive. *Takes*: numbers. *Gives*: whether one
//! came before. *Must not*: wait for any: datagrams may be lost, and come in any order; change anything for a
//! datagram that reached nothing.

use std::collections::BTreeMap;

use udma_abi::RawEid;
use urma_packet::Psn;

use crate::limits;

/// Recent datagrams of all nodes.
#[derive(Debug, Default)]
pub(super) struct RecentDatagrams {
    nodes: BTreeMap<RawEid, NodeDatagrams>,
    /// Number of datagrams noted so far.
    count: u64,
}

/// Recent datagrams of one node, for two of its lives, the more recent first. A copy from the former life must not
/// drop the record of the current one.
#[derive(Clone, Copy, Debug, Default)]
struct NodeDatagrams {
    lives: [Option<NumberRun>; 2],
    /// Value of the count at the last one.
    at: u64,
}

/// Recent datagrams of a node with consecutive numbers.
#[derive(Clone, Copy, Debug)]
struct NumberRun {
    newest: Psn,
    /// Bit i: the datagram i before the newest came.
    seen: u64,
}

impl NumberRun {
    /// Distance of `number` from the newest one, if it is near enough to be of this life.
    fn ahead(&self, number: Psn) -> Option<i32> {
        let ahead = number.distance_from(self.newest);
        (1 - BITS..BITS).contains(&ahead).then_some(ahead)
    }

    fn has(&self, number: Psn) -> bool {
        self.ahead(number).is_some_and(|ahead| ahead <= 0 && self.seen & (1 << -ahead) != 0)
    }

    /// Notes `number`, which is near enough.
    fn note(&mut self, number: Psn) {
        let ahead = number.distance_from(self.newest);
        if ahead > 0 {
            self.newest = number;
            self.seen <<= ahead;
        }
        self.seen |= 1 << self.newest.distance_from(number);
    }
}

impl RecentDatagrams {
    /// Whether datagram `number` of the node came before. One further back than is remembered counts as new: a
    /// restarted node begins anywhere.
    pub(super) fn has(&self, from: RawEid, number: Psn) -> bool {
        let node = self.nodes.get(&from);
        node.is_some_and(|node| node.lives.iter().flatten().any(|life| life.has(number)))
    }

    /// Whether no datagram reached a receive.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Notes that datagram `number` of the node reached a receive.
    pub(super) fn note(&mut self, from: RawEid, number: Psn) {
        self.count += 1;
        if !self.nodes.contains_key(&from) && self.nodes.len() >= limits::PEERS {
            let oldest = self.nodes.iter().min_by_key(|(_, node)| node.at).map(|(eid, _)| *eid);
            oldest.and_then(|eid| self.nodes.remove(&eid));
        }
        let node = self.nodes.entry(from).or_default();
        node.at = self.count;
        let is_near =
            |life: &Option<NumberRun>| life.is_some_and(|life| life.ahead(number).is_some());
        match node.lives.iter().position(is_near) {
            Some(place) => node.lives[..=place].rotate_right(1),
            None => node.lives = [Some(NumberRun { newest: number, seen: 0 }), node.lives[0]],
        }
        if let Some(life) = &mut node.lives[0] {
            life.note(number);
        }
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
        assert!(!is_new(&mut recent, start.plus(90)) && !is_new(&mut recent, start.plus(63)));
        assert!(is_new(&mut recent, start));
    }

    #[test]
    fn a_copy_from_the_life_before_does_not_make_this_one_forgotten() {
        let mut recent = RecentDatagrams::default();
        let (before, now) = (Psn::new(7), Psn::new(4_000_000));
        assert!(is_new(&mut recent, before));
        assert!(is_new(&mut recent, now));
        // The network doubled both, and one more of the life before is late.
        assert!(!is_new(&mut recent, before));
        assert!(is_new(&mut recent, before.plus(1)));
        assert!(!is_new(&mut recent, now));
        // The third life takes the place of the one that was silent longer.
        assert!(is_new(&mut recent, now.plus(1)));
        assert!(is_new(&mut recent, Psn::new(9_000_000)));
        assert!(!is_new(&mut recent, now.plus(1)));
        assert!(is_new(&mut recent, before), "two lives are remembered");
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
