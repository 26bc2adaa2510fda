//! Messages that break off before they are complete, and what becomes of their receives.

use udma_abi::{CqeStatus, Nanos, Opcode, cmd::Access, counters::Counter};
use urma_packet::RequestFlags;

use super::hostile::{header, piece};
use super::world::{Kind, World, on_both};

const MS: Nanos = 1_000_000;
const RW: Access = Access::READ.union(Access::WRITE);
/// More than a ring or the window of a TP holds.
const LONG: usize = 400 << 10;

/// Receives of the queue that were posted, and that no message has.
fn left(w: &World) -> Option<u32> {
    w.nodes[1].exchange.receives.left(2000)
}

/// Node 0 is in the middle of a message to node 1, which has one receive.
fn begin(w: &mut World) -> u32 {
    let _here = w.segment(0, 1, LONG, RW);
    let _there = w.segment(1, 2, LONG, RW);
    w.receiver(1, 2000);
    w.post(1, 2000, 2, 0, LONG);
    let long = w.to_jetty(Opcode::SendImm, 2000, 1);
    let seq = w.hand(0, &long, &[(1, 0, LONG)]);
    for _ in 0..1_000 {
        w.run_for(500);
        if left(w) == Some(0) {
            break;
        }
    }
    assert_eq!((left(w), w.end_now(0, seq)), (Some(0), None), "it has begun, and is not complete");
    seq
}

#[test]
fn the_receive_of_a_message_whose_queue_was_stopped_is_given_back() {
    on_both(|w| {
        let old = begin(w);
        w.purge(0);
        w.run_for(MS);
        assert_eq!((left(w), w.end_now(0, old)), (Some(1), None));
        assert_eq!(w.counter(1, Counter::MessagesBroken), 1);
        assert_eq!(w.counter(1, Counter::DropMalformed), 0);
        let seq = w.send(0, &w.to_jetty(Opcode::SendImm, 2000, 2), &[(1, 0, LONG)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, LONG as u32)));
        assert_eq!(w.received(1).expect("a completion").imm, 2);
        assert!(w.received(1).is_none(), "nothing of the first one");
    });
}

#[test]
fn the_receive_of_a_message_that_cannot_be_read_any_more_is_given_back() {
    on_both(|w| {
        let seq = begin(w);
        assert!(w.nodes[0].core.tables.segments.kill(1 << 8).is_some());
        assert!(matches!(w.end_of(0, seq), Some((status, 0)) if status != CqeStatus::Success));
        w.run_for(MS);
        assert_eq!(left(w), Some(1));
    });
}

/// With and without a queue there that uses the sender's node, and would not notice its death either.
#[test]
fn the_receive_of_a_message_whose_node_died_is_given_back() {
    for is_used in [false, true] {
        let mut w = World::new(Kind::Packets);
        if is_used {
            let tpn = w.tpn;
            w.connect(1);
            w.tpn = tpn;
        }
        begin(&mut w);
        w.stop(0);
        w.run_for(20_000 * MS);
        assert_eq!(left(&w), Some(1), "used: {is_used}");
        assert_eq!(w.counter(1, Counter::MessagesBroken), 1);
    }
}

#[test]
fn a_node_that_only_stood_still_goes_on_with_its_message() {
    let mut w = World::new(Kind::Packets);
    let seq = begin(&mut w);
    w.stop(0);
    w.run_for(400 * MS);
    w.go_on(0);
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, LONG as u32)));
    assert_eq!(w.received(1).expect("a completion").imm, 1);
    assert!(w.received(1).is_none());
}

#[test]
fn a_message_that_broke_off_makes_no_handshake() {
    let mut w = World::new(Kind::Packets);
    begin(&mut w);
    w.stop(1);
    w.run_for(MS);
    // The window is full: nothing can be announced before the TP gives up.
    w.purge(0);
    w.run_for(5_000 * MS);
    let sent = w.sent;
    w.run_for(5_000 * MS);
    assert_eq!(w.sent, sent, "nothing is asked for");
}

#[test]
fn what_breaks_off_a_message_that_never_began_changes_nothing_and_is_counted() {
    let mut w = World::new(Kind::Ring);
    let _there = w.segment(1, 2, 4096, RW);
    w.receiver(1, 2000);
    w.post(1, 2000, 2, 0, 64);
    let message = header(&w, Opcode::Send, 8, 0);
    let mut first = message;
    first.flags.remove(RequestFlags::LAST);
    let mut last_word = message;
    last_word.flags.remove(RequestFlags::ONLY);
    last_word.access.address = 4;
    let of_another = urma_packet::RequestHeader { tassn: 1, ..last_word };
    let dropped = |w: &World| w.counter(1, Counter::DropMalformed);
    assert_eq!((piece(&mut w, &last_word, b""), dropped(&w)), (vec![], 1), "no such sequence");
    assert_eq!((piece(&mut w, &first, b"abcd"), left(&w)), (vec![], Some(0)));
    assert_eq!((piece(&mut w, &of_another, b""), left(&w)), (vec![], Some(0)));
    assert_eq!(dropped(&w), 2, "another number");
    assert_eq!((piece(&mut w, &last_word, b""), left(&w)), (vec![], Some(1)));
    assert_eq!((piece(&mut w, &last_word, b""), left(&w)), (vec![], Some(1)));
    assert_eq!(dropped(&w), 3, "it is over already");
}

/// A peer may do as it likes: begin a message, and put a read in its place.
#[test]
fn a_read_in_the_place_of_a_message_gives_its_receive_back() {
    let mut w = World::new(Kind::Ring);
    let _there = w.segment(1, 2, 4096, RW);
    w.receiver(1, 2000);
    w.post(1, 2000, 2, 0, 64);
    let mut first = header(&w, Opcode::Send, 8, 0);
    first.flags.remove(RequestFlags::LAST);
    let read = header(&w, Opcode::Read, 8, 0);
    let read = urma_packet::RequestHeader { target: first.target, ..read };
    assert_eq!((piece(&mut w, &first, b"abcd"), left(&w)), (vec![], Some(0)));
    let _ = piece(&mut w, &read, b"");
    assert_eq!(left(&w), Some(1));
}
