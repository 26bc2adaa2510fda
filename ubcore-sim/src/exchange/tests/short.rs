//! Short messages of a peer that lies: entries written straight into its ring.

use udma_abi::{CqeStatus, Opcode, cmd::Access, counters::Counter};
use urma_packet::{RequestFlags, RequestHeader, SendForm, SendValues, TransactionHeader};

use super::hostile::header;
use super::world::{Kind, World};
use crate::carrier::piece::Payload;
use crate::carrier::{Carrier, RingPair};
use crate::engine::mail::ShortBody;

const RW: Access = Access::READ.union(Access::WRITE);

/// Node 1 has a receiver with some receives, and took a message of node 0.
fn world() -> World {
    let mut w = World::new(Kind::Ring);
    let _there = w.segment(1, 2, 4096, RW);
    w.receiver(1, 2000);
    for at in 0..6 {
        w.post(1, 2000, 2, at * 64, 64);
    }
    message(&mut w, 0);
    assert_eq!(taken(&mut w), [0]);
    w
}

fn ring(w: &mut World) -> &mut RingPair {
    let eid = w.eid(1);
    let peer = w.nodes[0].exchange.peers.get_mut(&eid).unwrap();
    let Some(Carrier::Ring(ring)) = &mut peer.line.carrier else { panic!() };
    ring
}

fn push(w: &mut World, header: &RequestHeader, bytes: &[u8]) {
    let header = TransactionHeader::Request(*header);
    ring(w).push(&header, Payload::Here, bytes).unwrap();
    ring(w).flush();
    w.run_for(1000);
}

/// A message of 4 bytes with this number.
fn message(w: &mut World, tassn: u16) {
    let send = header(w, Opcode::Send, 4, tassn);
    push(w, &send, b"abcd");
}

/// Indices of the receives that messages were taken into.
fn taken(w: &mut World) -> Vec<u16> {
    let cqes = std::iter::from_fn(|| w.received(1));
    cqes.inspect(|cqe| assert_eq!(cqe.status, CqeStatus::Success))
        .map(|cqe| cqe.entry_idx)
        .collect()
}

/// An entry in the form of the messages before, that says `length` and carries `len` bytes.
fn entry(w: &mut World, (tassn, length): (u16, u32), len: usize, acked: Option<u16>) {
    let form = SendForm::of(&header(w, Opcode::Send, 4, 0)).unwrap();
    let words = form.fill(&SendValues { tassn, length, imm: 0 });
    let body = ShortBody::Words([0x6161_6161; 2], len);
    ring(w).push_short((&words, form.header_len()), &body, acked).unwrap();
    ring(w).flush();
    w.run_for(1000);
}

#[test]
fn a_number_is_taken_once_and_in_its_turn() {
    let mut w = world();
    for (tassn, wanted) in [(1, vec![1]), (1, vec![]), (0, vec![]), (9, vec![]), (2, vec![2])] {
        message(&mut w, tassn);
        assert_eq!(taken(&mut w), wanted, "{tassn}");
    }
}

#[test]
fn a_message_that_begins_again_keeps_its_receive() {
    let mut w = world();
    let send = header(&w, Opcode::Send, 4, 1);
    push(&mut w, &RequestHeader { flags: RequestFlags::FIRST, ..send }, b"ab");
    assert!(taken(&mut w).is_empty());
    message(&mut w, 1);
    message(&mut w, 2);
    assert_eq!(taken(&mut w), [1, 2]);
}

#[test]
fn a_length_that_contradicts_the_entry_ends_the_peer() {
    for (length, len) in [(5, 4), (3, 4), (1 << 20, 4), (u32::MAX, 4)] {
        let mut w = world();
        entry(&mut w, (1, length), len, None);
        assert!(taken(&mut w).is_empty());
        assert_eq!(w.counter(1, Counter::PeerLied), 1, "{length}");
    }
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_ends_nothing() {
    let mut w = world();
    entry(&mut w, (1, 4), 4, Some(0));
    entry(&mut w, (2, 4), 4, Some(77));
    // A number that was taken before goes the long path.
    entry(&mut w, (2, 4), 4, Some(78));
    assert_eq!(taken(&mut w), [1, 2]);
    assert_eq!((w.counter(1, Counter::PeerLied), w.counter(1, Counter::DropMalformed)), (0, 3));
}
