//! Nodes that no queue uses any more, in virtual time.

use udma_abi::{
    CmdStatus, CqeStatus, Nanos, Opcode, Sqe,
    cmd::{Access, Mode},
};

use super::world::{Kind, World};
use crate::exchange::Connecting;

const SECOND: Nanos = 1_000_000_000;
const ALL: Access = Access::READ.union(Access::WRITE).union(Access::ATOMIC);

impl World {
    pub(super) fn connect(&mut self, n: usize) {
        let to = self.eid(1 - n);
        for _ in 0..1000 {
            let node = &mut self.nodes[n];
            match node.exchange.connect(&node.core, self.now, to, Mode::Rm) {
                Connecting::Pending => {
                    while node.core.tables.requests.pop().is_some() {
                        node.exchange.on_packet_peer(to);
                    }
                    self.run_for(1_000_000);
                }
                Connecting::Ready { tpn, .. } => {
                    self.tpn = tpn;
                    return;
                }
                Connecting::Failed(why) => panic!("{why}"),
            }
        }
        panic!("no path");
    }

    fn disconnect(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let done = node.exchange.disconnect(&node.core, self.now, self.tpn);
        assert_eq!(done, CmdStatus::Ok);
    }

    /// Nodes known, and TPs, at each end.
    pub(super) fn known(&self) -> [(usize, usize); 2] {
        [0, 1].map(|n| {
            let exchange = &self.nodes[n].exchange;
            (exchange.peers.len(), exchange.endpoint.tpns().count())
        })
    }

    /// Adds to the first word of the other node's segment.
    fn add(&mut self, n: usize, count: u64) {
        let sqe = Sqe { operand: count, ..self.to_memory(Opcode::FetchAdd, 2, 0) };
        let seq = self.send(n, &sqe, &[(1, 0, 8)]);
        assert_eq!(self.end_of(n, seq), Some((CqeStatus::Success, 8)));
    }
}

/// Two nodes that add to each other's words.
fn adding() -> (World, [urma_mem::Region; 2]) {
    let mut w = World::new(Kind::Packets);
    let words = [0, 1].map(|n| {
        let _results = w.segment(n, 1, 4096, ALL);
        w.segment(n, 2, 4096, ALL)
    });
    (w, words)
}

#[test]
fn the_last_user_gone_ends_the_tp_and_both_nodes_forget() {
    let (mut w, _) = adding();
    w.add(0, 1);
    w.run_for(5 * SECOND);
    assert_eq!(w.known(), [(1, 1), (1, 1)], "it has a user");
    w.disconnect(0);
    w.run_for(SECOND * 9 / 10);
    assert_eq!(w.known(), [(1, 1), (1, 1)], "it may come back at once");
    w.run_for(SECOND * 2 / 10);
    assert_eq!(w.known(), [(1, 0), (1, 0)], "closed by message");
    w.run_for(2 * SECOND);
    assert_eq!(w.known(), [(0, 0), (0, 0)]);
}

#[test]
fn a_forgotten_node_is_used_again_and_counts_exactly() {
    let (mut w, words) = adding();
    for round in 1..=4 {
        for _ in 0..5 {
            w.add(0, 1);
        }
        assert_eq!(words[1].load_u64(0).unwrap(), round * 5);
        w.disconnect(0);
        w.run_for(4 * SECOND);
        assert_eq!(w.known(), [(0, 0), (0, 0)]);
        w.connect(0);
    }
}

#[test]
fn a_close_that_was_lost_does_no_harm() {
    let (mut w, words) = adding();
    (0..5).for_each(|_| w.add(0, 1));
    w.run_for(SECOND / 100);
    w.disconnect(0);
    w.lose_every = 1;
    w.run_for(4 * SECOND);
    w.lose_every = 0;
    assert_eq!(w.known(), [(0, 0), (1, 1)], "the other end does not know yet");
    w.connect(0);
    (0..5).for_each(|_| w.add(0, 1));
    assert_eq!(words[1].load_u64(0).unwrap(), 10, "no addition is taken for an old one");
}

#[test]
fn who_still_has_users_makes_a_new_tp_and_counts_exactly() {
    let (mut w, words) = adding();
    let from_a = w.tpn;
    (0..3).for_each(|_| w.add(0, 1));
    w.connect(1);
    let from_b = w.tpn;
    (0..7).for_each(|_| w.add(1, 1));
    w.tpn = from_a;
    w.disconnect(0);
    w.run_for(4 * SECOND);
    assert_eq!(w.known(), [(0, 0), (1, 0)], "the node without users forgot");
    w.tpn = from_b;
    (0..7).for_each(|_| w.add(1, 1));
    assert_eq!(words[0].load_u64(0).unwrap(), 14);
    w.connect(0);
    (0..3).for_each(|_| w.add(0, 1));
    assert_eq!(words[1].load_u64(0).unwrap(), 6);
}

#[test]
fn who_only_serves_asks_and_forgets_the_dead_alone() {
    let (mut w, words) = adding();
    w.add(0, 1);
    w.run_for(60 * SECOND);
    assert_eq!(w.known(), [(1, 1), (1, 1)], "silent, not dead");
    w.add(0, 1);
    assert_eq!(words[1].load_u64(0).unwrap(), 2);
    w.run_for(SECOND / 100);
    w.stop(0);
    w.run_for(9 * SECOND);
    assert_eq!(w.known()[1], (1, 1));
    w.run_for(6 * SECOND);
    assert_eq!(w.known()[1], (0, 0));
}

#[test]
fn the_word_of_a_peer_that_gave_up_shows_that_it_lives() {
    let (mut w, _) = adding();
    w.add(0, 1);
    let there = w.tpn;
    w.connect(1);
    let sqe = Sqe { operand: 1, ..w.to_memory(Opcode::FetchAdd, 2, 0) };
    w.is_mute[0] = true;
    let theirs = w.hand(1, &sqe, &[(1, 0, 8)]);
    w.run_for(SECOND / 10);
    w.tpn = there;
    let seq = w.hand(0, &sqe, &[(1, 0, 8)]);
    while w.end_now(1, theirs).is_none() {
        w.run_for(SECOND / 1000);
    }
    assert_eq!(w.end_now(0, seq), None, "longer than the error timeout");
    w.is_mute[0] = false;
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 8)));
}

#[test]
fn an_answer_that_was_lost_with_its_tp_is_asked_for_again() {
    let (mut w, words) = adding();
    w.add(0, 1);
    let sqe = Sqe { operand: 1, ..w.to_memory(Opcode::FetchAdd, 2, 0) };
    let seq = w.hand(0, &sqe, &[(1, 0, 8)]);
    w.only_acks = true;
    // Node 1 gives up, and its CLOSE is lost as well.
    w.run_for(5 * SECOND / 2);
    assert_eq!(w.end_now(0, seq), None);
    w.only_acks = false;
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 8)));
    assert_eq!(words[1].load_u64(0).unwrap(), 2, "executed once");
}

#[test]
fn a_pair_that_broke_off_is_kept_as_long_as_a_request_may_be_repeated() {
    let (mut w, _) = adding();
    w.add(0, 1);
    // The answer of the next one is lost, and then everything.
    let sqe = Sqe { operand: 1, ..w.to_memory(Opcode::FetchAdd, 2, 0) };
    w.hand(0, &sqe, &[(1, 0, 8)]);
    w.run_for(1_000);
    w.stop(0);
    w.lose_every = 1;
    w.run_for(100 * SECOND);
    assert_eq!(w.known()[1], (1, 0), "its TP is over, its sequences are not");
    w.run_for(9_000 * SECOND);
    assert_eq!(w.known()[1], (0, 0));
}

#[test]
fn a_peer_whose_tp_gave_up_repeats_and_is_executed_once() {
    let (mut w, words) = adding();
    w.add(0, 1);
    let sqe = Sqe { operand: 1, ..w.to_memory(Opcode::FetchAdd, 2, 0) };
    // Nothing comes back: not the answer either. The requester gives up first.
    w.patience(0, 21);
    w.run_for(SECOND / 100);
    w.is_mute[1] = true;
    let seq = w.hand(0, &sqe, &[(1, 0, 8)]);
    w.run_for(5 * SECOND);
    assert_eq!(words[1].load_u64(0).unwrap(), 2);
    assert_eq!(w.known()[1], (1, 0), "the end of the TP is notified, not that of the request");
    w.is_mute[1] = false;
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 8)));
    assert_eq!(words[1].load_u64(0).unwrap(), 2, "executed twice");
}

#[test]
fn peers_are_known_up_to_the_limit_and_one_more_is_refused() {
    let (mut w, _) = adding();
    let now = w.now;
    let node = &mut w.nodes[0];
    let mut connect = |n: usize| {
        let mut eid = [7; 16];
        eid[8..].copy_from_slice(&(n as u64).to_be_bytes());
        node.exchange.connect(&node.core, now, udma_abi::RawEid(eid), Mode::Rm)
    };
    // One is known already.
    for n in 1..crate::limits::PEERS {
        assert_eq!(connect(n), Connecting::Pending, "{n}");
    }
    assert_eq!(connect(9999), Connecting::Failed(CmdStatus::NoRoom));
    assert_eq!(w.nodes[0].exchange.peers.len(), crate::limits::PEERS);
}
