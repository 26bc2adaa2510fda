//! Which node may send to what: datagrams, connections, groups, shared receives; and losses on the link.

use udma_abi::{
    CqeStatus, Opcode, Sqe,
    cmd::{Access, Mode},
    counters::Counter,
    sqe::SqeTargetKind,
};

use super::world::{self, Kind, SENDER, TOKEN, World, fill, on_both};
use crate::exchange::SharedSide;

const RW: Access = Access::READ.union(Access::WRITE);

#[test]
fn a_datagram_without_a_receive_is_dropped_and_counted() {
    on_both(|w| {
        let _here = w.segment(0, 1, 4096, RW);
        let _there = w.segment(1, 2, 4096, RW);
        w.receiver_of(1, 2000, Mode::Um);
        w.sender_of(0, Mode::Um);
        for (n, wanted) in [(0, false), (1, true)] {
            if wanted {
                w.post(1, 2000, 2, 0, 64);
            }
            let seq = w.send(0, &w.to_jetty(Opcode::SendImm, 2000, n), &[(1, 0, 64)]);
            assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 64)));
            w.run_for(1_000_000);
            assert_eq!(w.received(1).map(|cqe| cqe.imm), wanted.then_some(n));
        }
        assert_eq!(w.counter(1, Counter::DropUm), 1);
    });
}

#[test]
fn a_datagram_longer_than_the_path_ends_with_a_length_error() {
    let mut w = World::with_mtus(Kind::Packets, [4096, 1024]);
    let _here = w.segment(0, 1, 4096, RW);
    let _there = w.segment(1, 2, 4096, RW);
    w.receiver_of(1, 2000, Mode::Um);
    w.sender_of(0, Mode::Um);
    for (len, end) in [(4096, (CqeStatus::LocLen, 0)), (1024, (CqeStatus::Success, 1024))] {
        w.post(1, 2000, 2, 0, 4096);
        let seq = w.send(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, len)]);
        assert_eq!(w.end_of(0, seq), Some(end), "{len} bytes");
    }
    w.run_for(1_000_000);
    assert_eq!(w.received(1).expect("the short one").byte_cnt, 1024);
    assert!(w.received(1).is_none(), "no part of the long one");
}

#[test]
fn modes_do_not_mix() {
    on_both(|w| {
        let _here = w.segment(0, 1, 4096, RW);
        let _there = w.segment(1, 2, 4096, RW);
        w.receiver_of(1, 2000, Mode::Um);
        w.post(1, 2000, 2, 0, 64);
        let seq = w.send(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, 64)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::RemUnsupportedReq, 0)));
        let jfr = Sqe { target_kind: SqeTargetKind::Jfr, ..w.to_jetty(Opcode::Send, 2000, 0) };
        let seq = w.send(0, &jfr, &[(1, 0, 64)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::RemOperation, 0)));
    });
}

#[test]
fn a_connection_takes_messages_of_its_peer_alone() {
    on_both(|w| {
        let _here = w.segment(0, 1, 4096, RW);
        let _there = w.segment(1, 2, 4096, RW);
        w.receiver_of(1, 2000, Mode::Rc);
        w.sender_of(0, Mode::Rc);
        w.post(1, 2000, 2, 0, 64);
        let send = w.to_jetty(Opcode::Send, 2000, 0);
        let seq = w.send(0, &send, &[(1, 0, 64)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::RemOperation, 0)), "not bound");
        let from = w.eid(0);
        for (remote, wanted) in
            [(SENDER + 1, CqeStatus::RemOperation), (SENDER, CqeStatus::Success)]
        {
            assert!(w.nodes[1].exchange.receives.bind(2000, Some((from, remote))));
            let seq = w.send(0, &send, &[(1, 0, 64)]);
            assert_eq!(w.end_of(0, seq).map(|end| end.0), Some(wanted));
        }
    });
}

#[test]
fn groups_pick_members_by_hint_or_in_turn() {
    on_both(|w| {
        let _here = w.segment(0, 1, 4096, RW);
        let _there = w.segment(1, 2, 4096, RW);
        for id in [2000, 2001, 2002] {
            w.receiver(1, id);
            for _ in 0..4 {
                w.post(1, id, 2, 0, 64);
            }
        }
        for (group, by_hint) in [(3000, true), (3001, false)] {
            w.nodes[1].exchange.receives.add_group(group, by_hint, Some(TOKEN));
            for id in [2000, 2001, 2002] {
                w.nodes[1].exchange.receives.join(group, id);
            }
        }
        let to_group = |w: &World, id, hint| Sqe {
            target_kind: SqeTargetKind::Group,
            target_hint: hint,
            ..w.to_jetty(Opcode::Send, id, 0)
        };
        let mut picked = Vec::new();
        for (group, hint) in [(3000, 2), (3000, 4), (3001, 0), (3001, 0), (3001, 0)] {
            let seq = w.send(0, &to_group(w, group, hint), &[(1, 0, 64)]);
            assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 64)));
            picked.push(w.received(1).unwrap().local_id);
        }
        assert_eq!(picked, [2002, 2001, 2000, 2001, 2002]);
        let wrong = Sqe { token_value: 1, ..to_group(w, 3001, 0) };
        let seq = w.send(0, &wrong, &[(1, 0, 64)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::RemAccessAbort, 0)));
    });
}

#[test]
fn jetties_share_receives_and_complete_as_themselves() {
    on_both(|w| {
        let _here = w.segment(0, 1, 4096, RW);
        let _there = w.segment(1, 2, 4096, RW);
        w.receiver(1, 2000);
        for id in [2001, 2002] {
            let port = Some(w.port(1));
            let (mode, cookie) = (Mode::Rm, u64::from(id));
            let side = SharedSide { id, mode, cookie, jfr: 2000, port, token: Some(TOKEN) };
            w.nodes[1].exchange.receives.add_shared(side);
            w.post(1, 2000, 2, 0, 64);
        }
        for (n, id) in [2002, 2001].into_iter().enumerate() {
            let seq = w.send(0, &w.to_jetty(Opcode::Send, id, 0), &[(1, 0, 64)]);
            assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 64)));
            let cqe = w.received(1).unwrap();
            assert_eq!((cqe.local_id, cqe.user_data), (id, u64::from(id)));
            assert_eq!(usize::from(cqe.entry_idx), n, "receives in order");
        }
    });
}

#[test]
fn a_lossy_link_loses_doubles_and_reorders_nothing() {
    let mut w = World::new(Kind::Packets);
    let len = 60_000;
    let here = w.segment(0, 1, len, RW);
    let there = w.segment(1, 2, len, RW);
    fill(&here);
    w.receiver(1, 2000);
    w.lose_every = 7;
    let write = w.hand(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, len)]);
    let mut seqs = Vec::new();
    for n in 0..30 {
        w.post(1, 2000, 2, 0, 64);
        seqs.push(w.hand(0, &w.to_jetty(Opcode::SendImm, 2000, n), &[(1, 0, 64)]));
    }
    assert_eq!(w.end_of(0, write), Some((CqeStatus::Success, len as u32)));
    for (n, seq) in seqs.into_iter().enumerate() {
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 64)));
        assert_eq!(w.received(1).unwrap().imm, n as u64);
    }
    assert!(w.received(1).is_none());
    assert!(w.counter(0, Counter::Retransmits) > 0);
    // The messages of 64 bytes landed at the start.
    let sent = world::bytes(&here);
    assert_eq!(world::bytes(&there)[64..], sent[64..]);
}

#[test]
fn a_corrupt_ring_cuts_the_peer_off() {
    let mut w = World::new(Kind::Ring);
    let _here = w.segment(0, 1, 4096, RW);
    let _there = w.segment(1, 2, 4096, RW);
    let eid = w.eid(0);
    let half = w.nodes[1].exchange.peer_halves.get(&eid).unwrap().clone();
    // The tail jumps by more than the ring holds.
    half.store_u64(crate::share::HALF_RING, 1 << 40).unwrap();
    w.run_for(10_000);
    assert_eq!(w.counter(1, Counter::PeerLied), 1);
    assert!(w.nodes[1].exchange.peers.is_empty());
}
