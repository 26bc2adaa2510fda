//! A target that answers what was not asked: the request ends with an error, once, and no byte lands
//! beyond it.

use udma_abi::{CqeStatus, Opcode, Sqe, cmd::Access};
use urma_mem::Region;
use urma_packet::{AtomicValue, OperandSize, ResponseBody, ResponseHeader, ResponseStatus};

use super::world::{self, Kind, SENDER, World};
use crate::exchange::pair;

const RW: Access = Access::READ.union(Access::WRITE).union(Access::ATOMIC);

/// Node 0 with memory, and node 1, which does not run.
fn world() -> (World, Region) {
    let mut w = World::new(Kind::Ring);
    let here = w.segment(0, 1, 4 << 20, RW);
    w.stop(1);
    (w, here)
}

fn ack(tassn: u16, body: ResponseBody) -> ResponseHeader {
    let initiator = pair::initiator(SENDER, true);
    ResponseHeader { tassn, initiator, target: None, status: ResponseStatus::Ack, body }
}

/// Gives node 0 an answer as if node 1 had sent it.
fn answer(w: &mut World, header: &ResponseHeader, bytes: &[u8]) {
    let (from, now) = (w.eid(1), w.now);
    let node = &mut w.nodes[0];
    let crate::exchange::ExchangeParts { peers, mut work, .. } =
        node.exchange.split(&node.core, now);
    peers.get_mut(&from).unwrap().requester.on_response(&mut work, header, bytes);
    w.run_for(1_000);
}

const fn data(offset: u32, length: u32) -> ResponseBody {
    ResponseBody::ReadData { offset, length }
}

fn value(size: OperandSize) -> ResponseBody {
    ResponseBody::Atomic(AtomicValue { size, value: u128::MAX })
}

#[test]
fn an_answer_that_does_not_fit_its_request_ends_it_with_an_error() {
    let (read, add, write) = (Opcode::Read, Opcode::FetchAdd, Opcode::Write);
    let cases = [
        ("another length", read, data(0, 65), 64),
        ("a piece beyond the next one", read, data(8, 64), 8),
        ("more than the rest", read, data(0, 64), 72),
        ("a piece of nothing", read, data(0, 64), 0),
        ("no data", read, ResponseBody::None, 0),
        ("the result of an atomic", read, value(OperandSize::B8), 0),
        ("a result of another size", add, value(OperandSize::B4), 0),
        ("no result", add, ResponseBody::None, 0),
        ("data", add, data(0, 8), 8),
        ("a result", write, value(OperandSize::B8), 0),
        ("data", write, data(0, 64), 64),
    ];
    for (name, opcode, body, len) in cases {
        let (mut w, here) = world();
        let asked = if opcode == Opcode::FetchAdd { 8 } else { 64 };
        let seq = w.send(0, &w.to_memory(opcode, 2, 0), &[(1, 0, asked)]);
        answer(&mut w, &ack(0, body), &vec![7; len]);
        let end = w.end_now(0, seq);
        assert_eq!(end, Some((CqeStatus::RemOperation, 0)), "{opcode:?}: {name}");
        assert_eq!(world::sum(&here), 0, "{opcode:?}: {name}");
    }
}

#[test]
fn an_answer_to_nothing_ends_nothing() {
    let (mut w, _here) = world();
    let write = w.to_memory(Opcode::Write, 2, 0);
    // The ring holds a part of the first one.
    let seqs = [0, 1].map(|_| w.hand(0, &write, &[(1, 0, 4 << 20)]));
    w.run_for(2_000);
    for tassn in [1, 2, 0xffff] {
        answer(&mut w, &ack(tassn, ResponseBody::None), &[]);
        assert_eq!(seqs.map(|seq| w.end_now(0, seq)), [None; 2], "{tassn}");
    }
    answer(&mut w, &ack(0, ResponseBody::None), &[]);
    assert_eq!(w.end_now(0, seqs[0]), Some((CqeStatus::Success, 4 << 20)));
    assert_eq!(w.end_now(0, seqs[1]), None);
}

#[test]
fn a_second_answer_to_a_request_changes_nothing() {
    let (mut w, _here) = world();
    let write = w.to_memory(Opcode::Write, 2, 0);
    let seqs = [0, 1].map(|_| w.send(0, &write, &[(1, 0, 8)]));
    for _ in 0..2 {
        // The world panics at a second end of a request.
        answer(&mut w, &ack(1, ResponseBody::None), &[]);
        assert_eq!(seqs.map(|seq| w.end_now(0, seq)), [None, Some((CqeStatus::Success, 8))]);
    }
    let refused =
        ResponseHeader { status: ResponseStatus::AccessAbort, ..ack(1, ResponseBody::None) };
    answer(&mut w, &refused, &[]);
    answer(&mut w, &ack(0, ResponseBody::None), &[]);
    assert_eq!(w.end_now(0, seqs[0]), Some((CqeStatus::Success, 8)));
}

/// Node 0 posts writes over packets, which node 1 answers by one acknowledgement.
#[test]
fn one_acknowledgement_ends_every_write_that_it_answers() {
    let mut w = World::new(Kind::Packets);
    let _here = w.segment(0, 1, 64, RW);
    let _there = w.segment(1, 2, 64, RW);
    w.run_for(1_000_000);
    let write = w.to_memory(Opcode::Write, 2, 0);
    let seqs: Vec<u32> = (0..32).map(|_| w.hand(0, &write, &[(1, 0, 8)])).collect();

    let before = w.sent;
    w.run_for(1_000_000);
    let ends = seqs.iter().map(|seq| w.end_now(0, *seq));
    assert!(ends.into_iter().all(|end| end == Some((CqeStatus::Success, 8))));
    assert!(w.sent - before < 8, "{} packets", w.sent - before);
}

#[test]
fn a_target_that_waits_for_what_was_never_sent_ends_the_request() {
    let (mut w, _here) = world();
    let sqe: Sqe = w.to_memory(Opcode::Write, 2, 0);
    let seq = w.send(0, &sqe, &[(1, 0, 8)]);
    let status = ResponseStatus::OutOfSequence { expected: 100 };
    answer(&mut w, &ResponseHeader { status, ..ack(0, ResponseBody::None) }, &[]);
    assert_eq!(w.end_now(0, seq), Some((CqeStatus::RemOperation, 0)));
}
