//! A node that closes, and what its peer makes of it, in virtual time.
//!
//! Nodes that no queue uses any more, in virtual time.

use udma_abi::{
    CmdStatus, CqeStatus, Nanos, Opcode, Sqe,
    cmd::{Access, Mode},
    counters::Counter,
};
use urma_packet::{Body, Close, CloseReason, Packet, PacketHeader, TpOpcode, Tpn};

use super::world::{Kind, SENDER, World, step_exchange};
use crate::{
    endpoint::flow,
    exchange::Connecting,
    transport::{RtoCfg, TRANSMIT_MAX},
};

const MS: Nanos = 1_000_000;
const RW: Access = Access::READ.union(Access::WRITE);
/// An error timeout of 137 s: what ends before did not end by it.
const PATIENT: u8 = 25;

/// Node 0 writes to node 1, which has a queue without receives.
fn pair() -> World {
    let mut w = World::new(Kind::Packets);
    super::world::fill(&w.segment(0, 1, 4096, RW));
    let _there = w.segment(1, 2, 4096, RW);
    w.receiver(1, 2000);
    w.patience(0, PATIENT);
    w
}

impl World {
    /// Everything that node `n` sends now, kept from its peer.
    fn take_sent(&mut self, n: usize) -> Vec<Vec<u8>> {
        let (now, mut buf) = (self.now, vec![0; TRANSMIT_MAX]);
        let endpoint = &mut self.nodes[n].exchange.endpoint;
        let packets = std::iter::from_fn(|| {
            let sent = endpoint.poll_transmit(now, &mut buf)?;
            Some(buf[..sent.len].to_vec())
        });
        packets.collect()
    }

    /// Node `n` is stepped, and the other one not; what it sends.
    fn step_alone(&mut self, n: usize) -> Vec<Vec<u8>> {
        let now = self.now;
        let node = &mut self.nodes[n];
        node.exchange.take_mail_of(&node.core, now, SENDER);
        step_exchange(&mut node.exchange, &node.core, now);
        self.take_sent(n)
    }

    /// Node `n` closes: its last packets, as they leave.
    fn close(&mut self, n: usize) -> Vec<Vec<u8>> {
        self.nodes[n].exchange.close_peers();
        let packets = self.take_sent(n);
        self.stop(n);
        packets
    }

    /// Packets of the other node arrive at node `n`, without a step between them.
    fn arrive(&mut self, n: usize, packets: &[Vec<u8>]) {
        let (now, from) = (self.now, self.eid(1 - n));
        for packet in packets {
            self.nodes[n].on_datagram(now, from, packet);
        }
    }

    /// CLOSE as the peer of node 0 would send it, but for `change`.
    fn forged(&self, change: impl FnOnce(&mut PacketHeader, &mut Close)) -> Vec<u8> {
        let endpoint = &self.nodes[1].exchange.endpoint;
        let header = endpoint.close_packet(self.eid(0), CloseReason::Shutdown);
        let mut header = header.expect("an open TP");
        let Body::Close(mut close) = header.body else { panic!("{header:?}") };
        change(&mut header, &mut close);
        header.body = Body::Close(close);
        let mut bytes = vec![0; header.packet_len(0)];
        header.emit(&[], &flow(self.eid(1), self.eid(0)), &mut bytes).expect("a packet");
        bytes
    }
}

#[test]
fn a_closed_peer_ends_its_requests_at_once_and_once() {
    let mut w = pair();
    // One is refused for want of a receive, the others wait behind it.
    let seqs: Vec<_> =
        (0..20).map(|n| w.hand(0, &w.to_jetty(Opcode::SendImm, 2000, n), &[(1, 0, 64)])).collect();
    w.run_for(5 * MS);
    assert!(seqs.iter().all(|&seq| w.end_now(0, seq).is_none()));
    let last = w.close(1);
    w.arrive(0, &last);
    w.run_for(1_000);
    for seq in seqs {
        assert_eq!(w.end_now(0, seq), Some((CqeStatus::AckTimeout, 0)));
    }
    // The world asserts that none ends again.
    w.run_for(10_000 * MS);
}

/// A packet that comes between the end of the TPs and the CLOSE to each peer is answered after that: that a TP is unknown
/// would make the peer connect to a node that is gone.
#[test]
fn a_node_that_closes_sends_its_close_before_any_answer() {
    let mut w = pair();
    let seq = w.hand(0, &w.to_jetty(Opcode::SendImm, 2000, 0), &[(1, 0, 64)]);
    w.run_for(5 * MS);
    w.nodes[1].exchange.endpoint.close_all(CloseReason::Shutdown);
    let other = w.hand(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, 64)]);
    let late = w.step_alone(0);
    assert!(!late.is_empty(), "a packet for a TP that is over");
    w.arrive(1, &late);
    let last = w.take_sent(1);
    w.stop(1);
    w.arrive(0, &last);
    w.run_for(1_000);
    for seq in [seq, other] {
        assert_eq!(w.end_now(0, seq), Some((CqeStatus::AckTimeout, 0)));
    }
    let reason = |packet: &Vec<u8>| match Packet::parse(packet).expect("a packet").header.body {
        Body::Close(close) => Some(close.reason),
        _ => None,
    };
    let reasons: Vec<_> = last.iter().map(reason).collect();
    assert_eq!(reasons, [Some(CloseReason::Shutdown), Some(CloseReason::UnknownTp)]);
}

#[test]
fn a_response_before_the_close_ends_its_request_as_served() {
    let mut w = pair();
    w.run_for(MS);
    let seq = w.hand(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, 64)]);
    let request = w.step_alone(0);
    w.arrive(1, &request);
    let mut packets = w.step_alone(1);
    packets.extend(w.close(1));
    let kind = |bytes: &Vec<u8>| Packet::parse(bytes).expect("a packet").header.body.opcode();
    let mut kinds: Vec<_> = packets.iter().map(kind).collect();
    kinds.retain(|kind| ![TpOpcode::Ack, TpOpcode::Tail].contains(kind));
    assert_eq!((kinds, w.end_now(0, seq)), (vec![TpOpcode::DataResp, TpOpcode::Close], None));
    w.arrive(0, &packets);
    w.run_for(1_000);
    assert_eq!(w.end_now(0, seq), Some((CqeStatus::Success, 64)));
}

#[test]
fn a_node_does_not_close_before_its_responses_have_arrived() {
    let mut w = pair();
    let seq = w.hand(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, 64)]);
    w.is_mute[1] = true;
    w.run_for(MS);
    assert_eq!(w.end_now(0, seq), None);
    assert!(!w.nodes[1].exchange.is_answered(), "the response was lost");
    w.is_mute[1] = false;
    w.run_for(50 * MS);
    assert!(w.nodes[1].exchange.is_answered(), "it was sent again");
    let last = w.close(1);
    assert_eq!(last.len(), 1, "one CLOSE, and nothing else");
    w.arrive(0, &last);
    w.run_for(1_000);
    assert_eq!(w.end_now(0, seq), Some((CqeStatus::Success, 64)));
}

#[test]
fn a_receive_of_an_unfinished_message_is_used_by_the_next_one() {
    let mut w = World::new(Kind::Packets);
    let _here = w.segment(0, 1, 64 << 10, RW);
    let _there = w.segment(1, 2, 64 << 10, RW);
    w.receiver(1, 2000);
    w.post(1, 2000, 2, 0, 64 << 10);
    w.run_for(MS);
    w.hand(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, 64 << 10)]);
    let pieces = w.step_alone(0);
    w.arrive(1, &pieces[..4]);
    w.step_alone(1);
    let left = |w: &World| w.nodes[1].exchange.receives.left(2000);
    assert_eq!(left(&w), Some(0), "the message has begun");
    let last = w.close(0);
    w.arrive(1, &last);
    assert_eq!(left(&w), Some(1), "given back");
}

/// CLOSE packets with one wrong field each, of those that no third node receives.
#[test]
fn a_forged_close_ends_nothing_and_is_counted() {
    let mut w = pair();
    let seq = w.hand(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, 64)]);
    w.run_for(5 * MS);
    let other = |tpn: Tpn| Tpn::from_low_bits(tpn.value() ^ 1);
    let forged = [
        w.forged(|_, close| close.key ^= 1),
        w.forged(|_, close| close.key = 0),
        w.forged(|_, close| close.source_tpn = other(close.source_tpn)),
        w.forged(|header, _| header.dest = other(header.dest)),
    ];
    for (n, packet) in (1..).zip(&forged) {
        let before = w.counter(0, Counter::DropUnproven);
        w.arrive(0, std::slice::from_ref(packet));
        assert_eq!(w.counter(0, Counter::DropUnproven), before + 1, "{n}");
        w.run_for(5 * MS);
        assert_eq!(w.end_now(0, seq), None, "{n}");
    }
    w.post(1, 2000, 2, 0, 64);
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 64)));
    assert_eq!(forged[0].len(), w.forged(|_, _| ()).len());
    let right = w.forged(|_, _| ());
    w.arrive(0, &[right]);
    assert_eq!(w.known()[0].1, 0, "a right one ends the TP");
}

#[test]
fn an_old_import_does_not_reach_the_next_life_and_a_new_one_does() {
    let mut w = pair();
    let seq = w.send(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, 64)]);
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 64)));
    let (old, last) = (w.tpn, w.close(1));
    w.arrive(0, &last);
    w.run_for(MS);
    w.restart(1);
    let there = w.segment(1, 2, 4096, RW);
    // A TP stands before node 0 has a request, as when the next life opens it.
    w.connect(1);
    w.tpn = old;
    let late = w.send(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, 64)]);
    assert_eq!(w.end_of(0, late), Some((CqeStatus::AckTimeout, 0)));
    assert_eq!(super::world::sum(&there), 0);
    w.connect(0);
    assert_ne!(w.tpn, old, "a path of its own");
    let seq = w.send(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, 64)]);
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 64)));
}

#[test]
fn a_closed_peer_is_asked_nothing_by_itself() {
    let mut w = pair();
    w.hand(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, 64)]);
    w.run_for(5 * MS);
    let last = w.close(1);
    w.arrive(0, &last);
    assert!(w.step_alone(0).is_empty(), "no handshake without a request");
}

#[test]
fn a_later_request_tries_a_handshake_and_ends_with_it() {
    let mut w = pair();
    let last = w.close(1);
    w.arrive(0, &last);
    w.run_for(1_000);
    let late = w.hand(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, 64)]);
    w.run_for(MS);
    assert_eq!(w.end_now(0, late), None);
    w.run_for(1_200 * MS);
    assert_eq!(w.end_now(0, late), Some((CqeStatus::AckTimeout, 0)), "no node answered");
    // It closed in error, or another one took its place: a handshake succeeds.
    w.go_on(1);
    let seq = w.hand(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, 64)]);
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 64)));
}

/// A dead peer is known after so long at the latest: every try of a packet waits as long as one may.
fn longest() -> Nanos {
    let RtoCfg { retries, max_ns, .. } = RtoCfg::default();
    (Nanos::from(retries) + 1) * max_ns
}

/// Error timeout of 134 ms, less than the tries of a packet take.
const BRIEF: u8 = 15;

#[test]
fn a_dead_peer_ends_each_request_when_its_tries_are_used_up() {
    let mut w = pair();
    w.patience(0, BRIEF);
    // The round trip is measured, and shorter than the least wait: that one doubles.
    for _ in 0..4 {
        let seq = w.send(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, 64)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 64)));
    }
    w.run_for(5 * MS);
    w.stop(1);
    let seqs: Vec<_> = (0..20)
        .map(|n| match n % 2 {
            0 => w.hand(0, &w.to_jetty(Opcode::SendImm, 2000, n), &[(1, 0, 64)]),
            _ => w.hand(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, 4096)]),
        })
        .collect();
    let RtoCfg { retries, min_ns, max_ns, .. } = RtoCfg::default();
    let tries: Nanos = (0..=retries).map(|n| (min_ns << n).min(max_ns)).sum();
    assert!(tries <= longest());
    w.run_for(tries - MS);
    assert!(seqs.iter().all(|&seq| w.end_now(0, seq).is_none()), "it may come back");
    assert_eq!(w.counter(0, Counter::PeerDied), 0);
    w.run_for(2 * MS);
    for &seq in &seqs {
        assert_eq!(w.end_now(0, seq), Some((CqeStatus::AckTimeout, 0)));
    }
    assert_eq!(w.counter(0, Counter::PeerDied), 1);
    // No TP stands any more: a later request has its error timeout alone.
    let late = w.hand(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, 64)]);
    w.run_for((4096 << BRIEF) + MS);
    assert_eq!(w.end_now(0, late), Some((CqeStatus::AckTimeout, 0)));
    w.run_for(10_000 * MS);
}

#[test]
fn a_peer_that_dies_before_its_response_is_found_within_the_same_bound() {
    let mut w = pair();
    w.patience(0, BRIEF);
    w.run_for(5 * MS);
    // It acknowledges the packet, and its response is lost with it: no packet is sent again.
    w.only_acks = true;
    let seq = w.hand(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, 64)]);
    w.run_for(MS);
    w.stop(1);
    w.run_for(longest());
    assert_eq!(w.end_now(0, seq), Some((CqeStatus::AckTimeout, 0)));
    w.run_for(10_000 * MS);
}

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
