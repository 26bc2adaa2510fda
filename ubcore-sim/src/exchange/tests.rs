//! Scenarios between two nodes, over a ring in shared memory and over packets, in virtual time.

#![expect(clippy::cast_possible_truncation, reason = "lengths of tests are small")]

mod answers;
mod attack;
mod broken;
mod closing;
mod fences;
mod guesses;
mod held;
mod hostile;
mod names;
mod path_mtu;
mod places;
mod routes;
mod short;
mod standard;
mod targets;
mod world;

use udma_abi::{CqeStatus, Opcode, Sqe, cmd::Access, counters::Counter, sqe::SqeFlags};
use world::{Kind, World, on_both};

use crate::ports::HostRequest;

const RW: Access = Access::READ.union(Access::WRITE).union(Access::ATOMIC);

#[test]
fn a_message_arrives_in_pieces_and_completes_both_sides() {
    on_both(|w| {
        let len = 50_000;
        let from = w.segment(0, 1, len, RW);
        let to = w.segment(1, 2, len, RW);
        world::fill(&from);
        w.receiver(1, 2000);
        w.post(1, 2000, 2, 0, len);
        let seq = w.send(0, &w.to_jetty(Opcode::SendImm, 2000, 77), &[(1, 0, len)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, len as u32)));
        world::assert_filled(&to, len);
        let cqe = w.received(1).expect("a completion");
        assert_eq!((cqe.opcode, cqe.imm, cqe.byte_cnt), (1, 77, len as u32));
        assert_eq!((cqe.status, cqe.rmt_eid, cqe.local_id), (CqeStatus::Success, w.eid(0), 2000));
        assert!(w.received(1).is_none(), "once");
    });
}

#[test]
fn writes_reads_and_atomics_do_what_they_say() {
    on_both(|w| {
        let len = 40_000;
        let here = w.segment(0, 1, len, RW);
        let there = w.segment(1, 2, len, RW);
        world::fill(&here);
        let write = w.to_memory(Opcode::Write, 2, 0);
        let seq = w.send(0, &write, &[(1, 0, 10_000), (1, 10_000, len - 10_000)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, len as u32)));
        world::assert_filled(&there, len);

        here.zero(0, len).unwrap();
        let seq = w.send(0, &w.to_memory(Opcode::Read, 2, 0), &[(1, 0, len)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, len as u32)));
        world::assert_filled(&here, len);

        there.store_u64(8, 40).unwrap();
        let add = Sqe { operand: 2, ..w.to_memory(Opcode::FetchAdd, 2, 8) };
        let seq = w.send(0, &add, &[(1, 0, 8)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 8)));
        assert_eq!((here.load_u64(0).unwrap(), there.load_u64(8).unwrap()), (40, 42));
        let cas = Sqe { compare: 42, operand: 7, ..w.to_memory(Opcode::Cas, 2, 8) };
        let seq = w.send(0, &cas, &[(1, 16, 8)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 8)));
        assert_eq!((here.load_u64(16).unwrap(), there.load_u64(8).unwrap()), (42, 7));
        let seq = w.send(0, &Sqe::new(Opcode::FlushDma), &[]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 0)));
    });
}

#[test]
fn a_notification_and_an_immediate_follow_their_payload() {
    on_both(|w| {
        let here = w.segment(0, 1, 4096, RW);
        let there = w.segment(1, 2, 4096, RW);
        world::fill(&here);
        let notify = Sqe {
            notify_va: world::va(2) + 1024,
            notify_token_id: 2 << 8,
            seg_token_value: world::TOKEN,
            imm: 0xfeed,
            ..w.to_memory(Opcode::WriteNotify, 2, 0)
        };
        let seq = w.send(0, &notify, &[(1, 0, 500)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 500)));
        assert_eq!(there.load_u64(1024).unwrap(), 0xfeed);
        let again = Sqe { opcode: Opcode::WriteAtomic, imm: 3, ..notify };
        let seq = w.send(0, &again, &[(1, 0, 500)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 500)));
        assert_eq!(there.load_u64(1024).unwrap(), 0xfef0);
        let off = Sqe { notify_va: world::va(2) + 1025, ..notify };
        there.zero(0, 500).unwrap();
        let seq = w.send(0, &off, &[(1, 0, 500)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::RemUnsupportedReq, 0)));
        assert_eq!(there.load_u64(0).unwrap(), 0, "nothing moved before all checks");

        w.receiver(1, 2000);
        w.post(1, 2000, 2, 2048, 8);
        let imm = Sqe {
            remote_va: world::va(2),
            seg_token_id: 2 << 8,
            seg_token_value: world::TOKEN,
            ..w.to_jetty(Opcode::WriteImm, 2000, 9)
        };
        let seq = w.send(0, &imm, &[(1, 0, 500)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 500)));
        let cqe = w.received(1).expect("a completion");
        assert_eq!((cqe.opcode, cqe.imm, cqe.byte_cnt), (3, 9, 500));
        world::assert_filled(&there, 500);
    });
}

#[test]
fn a_write_with_immediate_shows_both_tokens_before_a_byte_moves() {
    on_both(|w| {
        let here = w.segment(0, 1, 4096, RW);
        let there = w.segment(1, 2, 4096, RW);
        world::fill(&here);
        w.receiver(1, 2000);
        w.post(1, 2000, 2, 2048, 8);
        let good = Sqe {
            remote_va: world::va(2),
            seg_token_id: 2 << 8,
            seg_token_value: world::TOKEN,
            ..w.to_jetty(Opcode::WriteImm, 2000, 9)
        };
        let bad = [
            Sqe { token_value: world::TOKEN + 1, ..good },
            Sqe { seg_token_value: world::TOKEN + 1, ..good },
            Sqe { token_en: false, ..good },
        ];
        for sqe in bad {
            let seq = w.send(0, &sqe, &[(1, 0, 500)]);
            assert_eq!(w.end_of(0, seq), Some((CqeStatus::RemAccessAbort, 0)), "{sqe:?}");
            assert_eq!(world::sum(&there), 0, "{sqe:?}");
            assert!(w.received(1).is_none());
        }
        let seq = w.send(0, &good, &[(1, 0, 500)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 500)));
        assert!(w.received(1).is_some(), "the receive was still there");
    });
}

#[test]
fn not_ready_is_tried_again_and_then_succeeds() {
    on_both(|w| {
        let _here = w.segment(0, 1, 4096, RW);
        let _there = w.segment(1, 2, 4096, RW);
        w.receiver(1, 2000);
        let seqs: Vec<_> = (0..5)
            .map(|n| w.hand(0, &w.to_jetty(Opcode::SendImm, 2000, n), &[(1, 0, 64)]))
            .collect();
        w.run_for(20_000);
        assert!(seqs.iter().all(|&seq| w.end_now(0, seq).is_none()));
        for _ in 0..5 {
            w.post(1, 2000, 2, 0, 64);
        }
        for (n, &seq) in seqs.iter().enumerate() {
            assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 64)), "{n}");
            let cqe = w.received(1).expect("a completion");
            assert_eq!(cqe.imm, n as u64, "in order");
        }
        assert!(w.received(1).is_none());
        assert!(w.counter(0, Counter::RnrReceived) > 0);
    });
}

/// A node that is stopped posts no receive. Its device answers first when it goes on.
#[test]
fn the_time_in_which_a_receiver_is_stopped_does_not_use_up_its_retries() {
    on_both(|w| {
        let _here = w.segment(0, 1, 4096, RW);
        let _there = w.segment(1, 2, 4096, RW);
        w.receiver(1, 2000);
        // 137 s.
        w.patience(0, 25);
        let seq = w.hand(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, 64)]);
        w.run_for(10_000_000);
        w.stop(1);
        w.run_for(6_000_000_000);
        w.go_on(1);
        let before = w.counter(0, Counter::RnrReceived);
        w.run_for(500_000_000);
        assert!(before > 0 && w.counter(0, Counter::RnrReceived) > before, "it is asked again");
        assert_eq!(w.end_now(0, seq), None);
        w.post(1, 2000, 2, 0, 64);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 64)));
    });
}

#[test]
fn retries_run_out_and_the_sequence_goes_on() {
    on_both(|w| {
        let _here = w.segment(0, 1, 4096, RW);
        let _there = w.segment(1, 2, 4096, RW);
        w.receiver(1, 2000);
        let first = w.hand(0, &w.to_jetty(Opcode::SendImm, 2000, 1), &[(1, 0, 64)]);
        let second = w.hand(0, &w.to_jetty(Opcode::SendImm, 2000, 2), &[(1, 0, 64)]);
        // Seven retries are the most: a receiver without a processor gets seconds, not 7 * 0.64 ms.
        w.run_for(3_900_000_000);
        assert_eq!(w.end_now(0, first), None);
        assert_eq!(w.end_of(0, first), Some((CqeStatus::RnrRetryExceeded, 0)));
        w.post(1, 2000, 2, 0, 64);
        assert_eq!(w.end_of(0, second), Some((CqeStatus::Success, 64)));
        assert_eq!(w.received(1).expect("a completion").imm, 2);
        w.post(1, 2000, 2, 0, 64);
        let third = w.send(0, &w.to_jetty(Opcode::SendImm, 2000, 3), &[(1, 0, 64)]);
        assert_eq!(w.end_of(0, third), Some((CqeStatus::Success, 64)));
        assert_eq!(w.received(1).expect("a completion").imm, 3);
    });
}

#[test]
fn token_bounds_and_length_are_refused_before_a_byte_moves() {
    on_both(|w| {
        let here = w.segment(0, 1, 8192, RW);
        let there = w.segment(1, 2, 4096, RW);
        world::fill(&here);
        let cases = [
            Sqe { token_value: world::TOKEN + 1, ..w.to_memory(Opcode::Write, 2, 0) },
            Sqe { token_en: false, ..w.to_memory(Opcode::Write, 2, 0) },
            w.to_memory(Opcode::Write, 2, 4096 - 63),
            w.to_memory(Opcode::Write, 3, 0),
            Sqe { remote_va: u64::MAX - 8, ..w.to_memory(Opcode::Write, 2, 0) },
        ];
        for (n, sqe) in cases.iter().enumerate() {
            let seq = w.send(0, sqe, &[(1, 0, 64)]);
            assert_eq!(w.end_of(0, seq), Some((CqeStatus::RemAccessAbort, 0)), "case {n}");
        }
        assert_eq!(world::sum(&there), 0);
        let seq = w.send(0, &w.to_memory(Opcode::Write, 2, 4096 - 64), &[(1, 0, 64)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 64)), "the last bytes fit");

        w.receiver(1, 2000);
        w.post(1, 2000, 2, 0, 63);
        w.post(1, 2000, 2, 0, 64);
        let seq = w.send(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, 64)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::RemRespLen, 0)));
        assert_eq!(w.received(1).expect("a completion").status, CqeStatus::LocLen);
        let wrong = Sqe { token_value: 1, ..w.to_jetty(Opcode::Send, 2000, 0) };
        let seq = w.send(0, &wrong, &[(1, 0, 64)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::RemAccessAbort, 0)));
        let seq = w.send(0, &w.to_jetty(Opcode::Send, 2001, 0), &[(1, 0, 64)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::RemOperation, 0)));
        let seq = w.send(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, 64)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 64)));
    });
}

#[test]
fn one_target_without_receives_stops_no_other() {
    on_both(|w| {
        let _here = w.segment(0, 1, 4096, RW);
        let _there = w.segment(1, 2, 4096, RW);
        let ids: Vec<u32> = (2000..2063).collect();
        for &id in &ids {
            w.receiver(1, id);
            if id != 2007 {
                w.post(1, id, 2, 0, 64);
            }
        }
        let seqs: Vec<_> = ids
            .iter()
            .map(|&id| (id, w.hand(0, &w.to_jetty(Opcode::Send, id, 0), &[(1, 0, 64)])))
            .collect();
        w.run_for(1_000_000);
        for (id, seq) in seqs {
            let end = w.end_now(0, seq);
            let wanted = if id == 2007 { None } else { Some((CqeStatus::Success, 64)) };
            assert_eq!(end, wanted, "{id}");
        }
    });
}

#[test]
fn a_connected_peer_that_has_no_processor_is_waited_for() {
    // Six times the queue's error timeout, and once and a half.
    for (kind, starved) in [(Kind::Ring, 3_200_000_000), (Kind::Packets, 800_000_000)] {
        let mut w = World::new(kind);
        let _here = w.segment(0, 1, 4096, RW);
        let _there = w.segment(1, 2, 4096, RW);
        w.receiver(1, 2000);
        w.post(1, 2000, 2, 0, 64);
        w.stop(1);
        let seq = w.hand(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, 64)]);
        w.run_for(starved);
        assert_eq!(w.end_now(0, seq), None, "{kind:?}");
        w.go_on(1);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 64)), "{kind:?}");
        assert!(w.received(1).is_some());
        assert!(w.received(1).is_none(), "once");
    }
}

#[test]
fn a_dead_peer_ends_everything_within_the_bound() {
    for (kind, bound) in [(Kind::Ring, 4_100_000_000), (Kind::Packets, 2_200_000_000)] {
        let mut w = World::new(kind);
        let _here = w.segment(0, 1, 4096, RW);
        let _there = w.segment(1, 2, 4096, RW);
        w.receiver(1, 2000);
        w.post(1, 2000, 2, 0, 64);
        let seq = w.send(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, 64)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 64)));
        w.stop(1);
        let seqs: Vec<_> =
            (0..10).map(|_| w.hand(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, 64)])).collect();
        w.run_for(bound);
        for seq in seqs {
            assert_eq!(w.end_now(0, seq), Some((CqeStatus::AckTimeout, 0)), "{kind:?}");
        }
        // The user gets the reason.
        let asked = std::iter::from_fn(|| w.nodes[0].core.tables.requests.pop());
        let mut why = asked.filter_map(|request| match request {
            HostRequest::AskWhy { is_packets, .. } => Some(is_packets),
            HostRequest::FindPeer { .. } | HostRequest::Forget { .. } => None,
        });
        assert_eq!(why.next(), Some(matches!(kind, Kind::Packets)), "{kind:?}");
    }
}

#[test]
fn a_purged_queue_gets_no_end_and_the_next_life_works() {
    on_both(|w| {
        let _here = w.segment(0, 1, 4096, RW);
        let _there = w.segment(1, 2, 4096, RW);
        w.receiver(1, 2000);
        let old = w.hand(0, &w.to_jetty(Opcode::SendImm, 2000, 1), &[(1, 0, 64)]);
        w.run_for(5_000);
        w.purge(0);
        w.run_for(5_000_000);
        assert_eq!(w.end_now(0, old), None);
        w.post(1, 2000, 2, 0, 64);
        let seq = w.send(0, &w.to_jetty(Opcode::SendImm, 2000, 2), &[(1, 0, 64)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 64)));
        assert_eq!(w.received(1).expect("a completion").imm, 2);
        assert!(w.received(1).is_none());
    });
}

#[test]
fn an_error_state_flushes_receives_and_answers_senders() {
    on_both(|w| {
        let _here = w.segment(0, 1, 4096, RW);
        let _there = w.segment(1, 2, 4096, RW);
        w.receiver(1, 2000);
        w.post(1, 2000, 2, 0, 64);
        w.post(1, 2000, 2, 0, 64);
        w.fail_receiver(1, 2000);
        for _ in 0..2 {
            assert_eq!(w.received(1).expect("a flush").status, CqeStatus::WrFlushErr);
        }
        let seq = w.send(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, 64)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::RemOperation, 0)));
        w.post(1, 2000, 2, 0, 64);
        w.run_for(100_000);
        assert_eq!(w.received(1).expect("posted later").status, CqeStatus::WrFlushErr);
    });
}

#[test]
fn solicited_and_inline_fields_survive() {
    on_both(|w| {
        let here = w.segment(0, 1, 4096, RW);
        let _there = w.segment(1, 2, 4096, RW);
        here.write(0, b"hello").unwrap();
        w.receiver_inline(1, 2000);
        w.post(1, 2000, 2, 0, 64);
        let sqe = w.to_jetty(Opcode::Send, 2000, 0);
        let sqe = Sqe { flags: sqe.flags | SqeFlags::SOLICITED, ..sqe };
        let seq = w.send(0, &sqe, &[(1, 0, 5)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 5)));
        let cqe = w.received(1).expect("a completion");
        assert!(cqe.inline_en);
        assert_eq!(&cqe.inline[..5], b"hello");
    });
}
