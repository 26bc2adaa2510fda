//! Guessed tokens: how many a node may try, and what goes on meanwhile.

use udma_abi::{
    CqeStatus, Nanos, Opcode, RawEid, Sqe,
    cmd::{Access, Mode},
    counters::Counter,
    sqe::SqeTargetKind,
};
use urma_packet::{RequestFlags, RequestHeader, ResponseStatus};

use super::hostile::{header, piece, piece_of};
use super::world::{self, Kind, TOKEN, World};
use crate::carrier::Carrier;
use crate::exchange::peers::peer::Peer;
use crate::exchange::target::guesses::FULL_NS;
use crate::limits;

const RW: Access = Access::READ.union(Access::WRITE).union(Access::ATOMIC);
const SECOND: Nanos = 1_000_000_000;
/// Guesses that are judged at once, and those of a second after them.
const AT_ONCE: u64 = 32;
const PER_SECOND: u64 = 4;

fn world() -> World {
    let mut w = World::new(Kind::Packets);
    let _here = w.segment(0, 1, 4096, RW);
    let _there = w.segment(1, 2, 4096, RW);
    w
}

/// A read of the guarded segment in the sequence of queue `of`.
fn read(w: &World, of: u32, token_value: u32) -> Sqe {
    Sqe {
        target_kind: SqeTargetKind::Jetty,
        target_id: of,
        token_value,
        ..w.to_memory(Opcode::Read, 2, 0)
    }
}

/// Guesses until no further one is judged at once.
fn use_up(w: &mut World) {
    for n in 0..AT_ONCE {
        let seq = w.send(0, &read(w, 3000, TOKEN ^ 1 << n), &[(1, 0, 8)]);
        w.run_for(20_000);
        assert_eq!(w.end_now(0, seq), Some((CqeStatus::RemAccessAbort, 0)), "guess {n}");
    }
}

#[test]
fn a_node_that_guesses_tokens_is_judged_a_few_times_a_second() {
    let mut w = world();
    let mut seqs = Vec::new();
    for second in 1..=10 {
        // Each in a sequence of its own, so that none waits for another.
        for n in 0..40 {
            let of = 3000 + second as u32 * 40 + n;
            seqs.push(w.hand(0, &read(&w, of, of), &[(1, 0, 8)]));
        }
        w.run_for(SECOND);
        let judged = w.counter(1, Counter::AccessDenied);
        let most = AT_ONCE + PER_SECOND * second + 1;
        assert!(judged <= most, "{judged} of at most {most} after {second} s");
    }
    for seq in seqs {
        let end = w.end_of(0, seq).expect("each request ends, once").0;
        let refused = [CqeStatus::RemAccessAbort, CqeStatus::RnrRetryExceeded];
        assert!(refused.contains(&end), "{end:?}");
    }
}

#[test]
fn one_wrong_token_after_another_is_refused_late_and_by_name() {
    let mut w = world();
    use_up(&mut w);
    for n in 0..8 {
        let seq = w.send(0, &read(&w, 3000, TOKEN ^ 1 << n), &[(1, 0, 8)]);
        w.run_for(20_000);
        assert_eq!(w.end_now(0, seq), None, "guess {n} comes too early");
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::RemAccessAbort, 0)), "guess {n}");
    }
    w.run_for(FULL_NS);
    use_up(&mut w);
}

#[test]
fn what_was_right_before_goes_on_at_full_speed() {
    let mut w = world();
    w.receiver(1, 2000);
    let right = |w: &World, of| read(w, of, TOKEN);
    let send = w.to_jetty(Opcode::Send, 2000, 0);
    for sqe in [right(&w, 4000), send] {
        w.post(1, 2000, 2, 0, 64);
        let seq = w.send(0, &sqe, &[(1, 0, 8)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 8)));
    }
    use_up(&mut w);
    let late = w.hand(0, &read(&w, 3000, 1), &[(1, 0, 8)]);
    for n in 0..200 {
        w.post(1, 2000, 2, 0, 64);
        for sqe in [right(&w, 4000 + n), send] {
            let seq = w.send(0, &sqe, &[(1, 0, 8)]);
            w.run_for(20_000);
            assert_eq!(w.end_now(0, seq), Some((CqeStatus::Success, 8)), "{n}");
            assert!(n != 0 || w.end_now(0, late).is_none(), "the guess waits");
        }
    }
    // A token that is shown for the first time waits as a guess does, and is right then.
    let new = w.segment(1, 3, 4096, RW);
    world::fill(&new);
    let seq = w.send(0, &w.to_memory(Opcode::Read, 3, 0), &[(1, 0, 8)]);
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 8)));
}

#[test]
fn no_segment_a_wrong_token_and_a_range_outside_look_the_same() {
    let cases = |w: &World| {
        let good = read(w, 3000, TOKEN);
        [
            ("no segment", Sqe { seg_token_id: 77 << 8, ..good }),
            ("wrong token", Sqe { token_value: TOKEN ^ 1, ..good }),
            ("no token", Sqe { token_en: false, ..good }),
            ("outside", Sqe { remote_va: good.remote_va + 4096, ..good }),
            ("before it", Sqe { remote_va: 0, ..good }),
            ("no right", Sqe { seg_token_id: 4 << 8, remote_va: world::va(4), ..good }),
        ]
    };
    let mut seen = Vec::new();
    for case in 0..6 {
        let mut w = world();
        let _no_right = w.segment(1, 4, 4096, Access::WRITE);
        let (name, sqe) = cases(&w)[case];
        let mut ends = Vec::new();
        for _ in 0..AT_ONCE + 6 {
            let (began, seq) = (w.now, w.send(0, &sqe, &[(1, 0, 8)]));
            while w.end_now(0, seq).is_none() {
                w.run_for(50_000);
            }
            ends.push((w.now - began, w.end_now(0, seq)));
        }
        seen.push((name, ends));
    }
    for (name, ends) in &seen {
        assert_eq!(*ends, seen[0].1, "{name} differs from: {}", seen[0].0);
    }
}

#[test]
fn a_wrong_token_of_a_queue_says_nothing_about_the_queue() {
    for state in ["ready", "another mode", "bound elsewhere", "failed", "without receives"] {
        let mut w = world();
        let mode = match state {
            "another mode" => Mode::Um,
            "bound elsewhere" => Mode::Rc,
            _ => Mode::Rm,
        };
        w.receiver_of(1, 2000, mode);
        if state != "without receives" {
            w.post(1, 2000, 2, 0, 64);
        }
        if state == "failed" {
            w.fail_receiver(1, 2000);
        }
        let mut send = header(&w, Opcode::Send, 8, 0);
        send.token = Some(urma_packet::TokenValue(TOKEN ^ 1));
        assert_eq!(piece(&mut w, &send, &[0; 8]), [ResponseStatus::AccessAbort], "{state}");
    }
}

/// Node 1 gets a node that it has never seen.
fn another(w: &mut World) -> RawEid {
    let mut eid = w.eid(0);
    eid.0[15] = 99;
    let exchange = &mut w.nodes[1].exchange;
    exchange.endpoint.add(eid);
    let carrier = Carrier::Packets(eid);
    exchange.peers.insert(eid, Peer::new(eid, Some(carrier)));
    eid
}

#[test]
fn guesses_of_one_node_hold_up_no_other_node() {
    let mut w = world();
    use_up(&mut w);
    let other = another(&mut w);
    let read = header(&w, Opcode::Read, 8, 0);
    assert_eq!(piece_of(&mut w, other, &read, &[]), [], "its data are being sent");
    let wrong = RequestHeader { tassn: 1, token: None, ..read };
    assert_eq!(piece_of(&mut w, other, &wrong, &[]), [ResponseStatus::AccessAbort]);
}

/// Whether the answer makes node 0 send this again.
fn waits(w: &mut World, header: &RequestHeader, bytes: &[u8]) -> bool {
    let answers = piece(w, header, bytes);
    matches!(answers[..], [ResponseStatus::ReceiverNotReady { .. }])
}

#[test]
fn nothing_that_shows_a_token_goes_past_the_limit() {
    let mut w = world();
    w.receiver(1, 2000);
    w.post(1, 2000, 2, 0, 64);
    let anew = |header: RequestHeader, at: u32| {
        let mut header = header;
        header.initiator.id = urma_packet::JettyId::from_low_bits(at);
        RequestHeader { tassn: 0, ..header }
    };
    // A message begins rightly and shows another token with its end.
    let sqe = Sqe {
        notify_va: world::va(2) + 64,
        notify_token_id: 2 << 8,
        seg_token_value: TOKEN,
        ..w.to_memory(Opcode::WriteNotify, 2, 0)
    };
    let make = |sqe: &Sqe| {
        let initiator = crate::exchange::pair::initiator(7, true);
        crate::exchange::initiator::next_piece::header(sqe, initiator, Mode::Rm, 16).unwrap()
    };
    let mut first = make(&sqe);
    first.flags = RequestFlags::FIRST;
    assert_eq!(piece(&mut w, &first, &[1; 8]), []);
    let done = header(&w, Opcode::Read, 8, 0);
    assert_eq!(piece(&mut w, &done, &[]), []);
    use_up(&mut w);
    let mut last = make(&Sqe { seg_token_value: TOKEN ^ 1, ..sqe });
    last.flags = RequestFlags::LAST;
    last.access.address += 8;
    assert!(waits(&mut w, &last, &[1; 8]), "the end of a message");
    // A request of a number that was answered before, with another token.
    let mut again = done;
    again.token = Some(urma_packet::TokenValue(TOKEN ^ 1));
    assert!(waits(&mut w, &again, &[]), "a read once more");
    let send = anew(header(&w, Opcode::Send, 8, 0), 8);
    assert!(waits(&mut w, &send, &[1; 8]), "a token of a queue");
    let atomic = anew(make(&Sqe { token_value: 5, ..w.to_memory(Opcode::Read, 2, 0) }), 9);
    assert!(waits(&mut w, &atomic, &[]), "a token of a segment");
    assert_eq!(w.counter(1, Counter::AccessDenied), AT_ONCE);
}

#[test]
fn an_invalidation_is_a_guess_unless_its_token_was_right_before() {
    let mut w = world();
    w.receiver(1, 2000);
    let invalidate = |w: &World, token| Sqe {
        seg_token_id: 2 << 8,
        seg_token_value: token,
        ..w.to_jetty(Opcode::SendInvalidate, 2000, 0)
    };
    for n in 0..AT_ONCE {
        w.post(1, 2000, 2, 0, 64);
        let sqe = invalidate(&w, TOKEN ^ 1 << (n % 32));
        let seq = w.send(0, &sqe, &[(1, 0, 8)]);
        w.run_for(20_000);
        assert_eq!(w.end_now(0, seq), Some((CqeStatus::Success, 8)), "{n}");
    }
    w.post(1, 2000, 2, 0, 64);
    let seq = w.send(0, &invalidate(&w, TOKEN), &[(1, 0, 8)]);
    w.run_for(20_000);
    assert_eq!(w.end_now(0, seq), None, "it waits");
    assert!(w.nodes[1].core.tables.segments.find(2 << 8).unwrap().access == RW);
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 8)));
}

/// Each of its pieces once counted as a guess, so that no attempt of a long message came to its end.
#[test]
fn an_invalidation_of_many_pieces_is_one_guess() {
    let mut w = World::with_mtus(Kind::Packets, [256; 2]);
    let len = 256 * 2 * AT_ONCE as usize;
    let _here = w.segment(0, 1, len, RW);
    let _there = w.segment(1, 2, len, RW);
    w.receiver(1, 2000);
    w.post(1, 2000, 2, 0, len);
    let sqe = Sqe {
        seg_token_id: 2 << 8,
        seg_token_value: TOKEN ^ 1,
        ..w.to_jetty(Opcode::SendInvalidate, 2000, 0)
    };
    let seq = w.send(0, &sqe, &[(1, 0, len)]);
    w.run_for(SECOND / 10);
    assert_eq!(w.end_now(0, seq), Some((CqeStatus::Success, len as u32)));
}

#[test]
fn a_node_does_not_have_its_guesses_again_by_leaving() {
    let mut w = world();
    use_up(&mut w);
    let (tpn, now) = (w.tpn, w.now);
    let [a, _] = &mut w.nodes;
    a.exchange.disconnect(&a.core, now, tpn);
    // The TP closes after a second without use; a node that never guessed goes with it.
    w.run_for(FULL_NS / 2);
    assert_eq!(w.nodes[1].exchange.peers.len(), 1, "still known");
    let peers = &mut w.nodes[1].exchange.peers;
    let others: Vec<_> =
        (0..limits::PEERS as u64 - 1).map(|n| RawEid::from_words([n, 7])).collect();
    peers.extend(others.iter().map(|eid| (*eid, Peer::new(*eid, None))));
    let (now, node) = (w.now, &mut w.nodes[1]);
    assert!(
        !node.exchange.has_place(&node.core, now, None),
        "nor does it give its place to another"
    );
    w.nodes[1].exchange.peers.retain(|eid, _| !others.contains(eid));
    w.run_for(2 * FULL_NS);
    assert!(w.nodes[1].exchange.peers.is_empty());
}
