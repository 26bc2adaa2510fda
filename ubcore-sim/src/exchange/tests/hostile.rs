//! A peer that lies: pieces written straight into the responder.

use udma_abi::{CqeStatus, Opcode, cmd::Access, counters::Counter};
use urma_packet::{
    AtomicOp, AtomicOperands, BTH_LEN, Body, OperandSize, Packet, RequestFlags, RequestHeader,
    RequestOp, ResponseOp, ResponseStatus, TaOpcode,
};

use super::world::{Kind, SENDER, TOKEN, World, assert_filled, fill, step_exchange, sum, va};
use crate::carrier::piece::Payload;
use crate::endpoint::flow;
use crate::exchange::initiator::next_piece;
use crate::exchange::pair;
use crate::exchange::target::RequestFragment;
use crate::transport::TRANSMIT_MAX;
use udma_abi::cmd::Mode;

const RW: Access = Access::READ.union(Access::WRITE).union(Access::ATOMIC);

/// Gives node 1 a piece as if node 0 had sent it; the answers it caused.
pub(super) fn piece(w: &mut World, header: &RequestHeader, bytes: &[u8]) -> Vec<ResponseStatus> {
    let from = w.eid(0);
    piece_of(w, from, header, bytes)
}

/// Gives node 1 a piece as if `from`, a node that it knows, had sent it; returns the answers.
pub(super) fn piece_of(
    w: &mut World,
    from: udma_abi::RawEid,
    header: &RequestHeader,
    bytes: &[u8],
) -> Vec<ResponseStatus> {
    part(w, from, &RequestFragment { header, payload: Payload::Here, bytes })
}

pub(super) fn part(
    w: &mut World,
    from: udma_abi::RawEid,
    part: &RequestFragment<'_>,
) -> Vec<ResponseStatus> {
    let now = w.now;
    let node = &mut w.nodes[1];
    let crate::exchange::ExchangeParts { peers, mut work, .. } =
        node.exchange.split(&node.core, now);
    let peer = peers.get_mut(&from).unwrap();
    let source = peer.source();
    peer.responder.answers.clear();
    peer.responder.on_request(&mut work, &source, part);
    peer.responder.answers.iter().map(|answer| answer.status).collect()
}

pub(super) fn header(w: &World, opcode: Opcode, len: u32, tassn: u16) -> RequestHeader {
    let sqe = match opcode {
        Opcode::Send => w.to_jetty(opcode, 2000, 0),
        _ => w.to_memory(opcode, 2, 0),
    };
    let header = next_piece::header(&sqe, pair::initiator(SENDER, true), Mode::Rm, len).unwrap();
    RequestHeader { tassn, ..header }
}

fn world() -> World {
    let mut w = World::new(Kind::Ring);
    let _there = w.segment(1, 2, 4096, RW);
    w.receiver(1, 2000);
    w
}

#[test]
fn a_duplicate_is_answered_again_and_not_done_again() {
    let mut w = world();
    w.post(1, 2000, 2, 0, 64);
    w.post(1, 2000, 2, 0, 64);
    let send = header(&w, Opcode::Send, 4, 0);
    assert_eq!(piece(&mut w, &send, b"abcd"), [ResponseStatus::Ack]);
    assert_eq!(piece(&mut w, &send, b"abcd"), [ResponseStatus::Ack]);
    assert!(w.received(1).is_some());
    assert!(w.received(1).is_none(), "one completion");
    let later = header(&w, Opcode::Send, 4, 9);
    let expected = ResponseStatus::OutOfSequence { expected: 1 };
    assert_eq!(piece(&mut w, &later, b"abcd"), [expected]);
}

#[test]
fn an_atomic_is_answered_from_its_saved_result() {
    let mut w = world();
    let there = w.nodes[1].core.tables.segments.find(2 << 8).unwrap().region.clone();
    there.store_u64(0, 10).unwrap();
    let sqe = udma_abi::Sqe { operand: 5, ..w.to_memory(Opcode::FetchAdd, 2, 0) };
    let add = next_piece::header(&sqe, pair::initiator(SENDER, true), Mode::Rm, 8).unwrap();
    for _ in 0..3 {
        assert_eq!(piece(&mut w, &add, &[]), [ResponseStatus::Ack]);
        let peer = w.nodes[1].exchange.peers.values().next().unwrap();
        let urma_packet::ResponseBody::Atomic(value) = peer.responder.answers[0].body else {
            panic!()
        };
        assert_eq!(value.value, 10);
    }
    assert_eq!(there.load_u64(0).unwrap(), 15, "added once");
}

#[test]
fn pieces_that_do_not_follow_each_other_end_the_message() {
    let mut w = world();
    let there = w.nodes[1].core.tables.segments.find(2 << 8).unwrap().region.clone();
    w.post(1, 2000, 2, 0, 4096);
    let whole = header(&w, Opcode::Send, 1000, 0);
    let part = |flags, at| {
        let mut part = whole;
        part.flags = flags;
        part.access.address = at;
        part
    };
    // A piece of nothing.
    let stray = part(RequestFlags::empty(), 256);
    assert_eq!(piece(&mut w, &stray, &[1; 256]), []);
    assert_eq!(w.counter(1, Counter::DropMalformed), 1);
    // A gap.
    assert_eq!(piece(&mut w, &part(RequestFlags::FIRST, 0), &[1; 256]), []);
    assert_eq!(
        piece(&mut w, &part(RequestFlags::empty(), 512), &[1; 256]),
        [ResponseStatus::Length]
    );
    assert_eq!(w.received(1).unwrap().status, CqeStatus::LocLen);
    // The rest of it has its answer already.
    assert_eq!(piece(&mut w, &part(RequestFlags::LAST, 768), &[1; 232]), []);
    // A write whose second piece names other memory, beyond the segment.
    let write = header(&w, Opcode::Write, 1000, 0);
    let mut first = write;
    first.flags = RequestFlags::FIRST;
    let mut second = write;
    second.flags = RequestFlags::LAST;
    second.access.address += 4096;
    there.zero(0, 4096).unwrap();
    assert_eq!(piece(&mut w, &first, &[0; 500]), []);
    assert_eq!(piece(&mut w, &second, &[7; 500]), [ResponseStatus::Length]);
    assert_eq!(sum(&there), 0);
}

#[test]
fn a_segment_that_goes_between_two_pieces_is_not_touched_again() {
    let mut w = world();
    let there = w.nodes[1].core.tables.segments.find(2 << 8).unwrap().region.clone();
    let mut first = header(&w, Opcode::Write, 1000, 0);
    first.flags = RequestFlags::FIRST;
    assert_eq!(piece(&mut w, &first, &[0; 500]), []);
    w.nodes[1].core.tables.segments.kill(2 << 8).unwrap();
    // Another registration under the same token id is not the same memory either.
    let _new = w.segment(1, 2, 4096, RW);
    let mut second = first;
    second.flags = RequestFlags::LAST;
    second.access.address += 500;
    assert_eq!(piece(&mut w, &second, &[9; 500]), [ResponseStatus::AccessAbort]);
    assert_eq!(sum(&there), 0);
}

#[test]
fn a_half_message_keeps_its_receive_for_the_next_attempt() {
    let mut w = world();
    w.post(1, 2000, 2, 0, 64);
    let mut first = header(&w, Opcode::Send, 64, 0);
    first.flags = RequestFlags::FIRST;
    assert_eq!(piece(&mut w, &first, &[1; 32]), []);
    let whole = header(&w, Opcode::Send, 64, 0);
    assert_eq!(piece(&mut w, &whole, &[2; 64]), [ResponseStatus::Ack]);
    assert_eq!(w.received(1).unwrap().status, CqeStatus::Success);
}

/// A piece whose bytes the peer says it placed itself.
fn placed(w: &mut World, header: &RequestHeader) -> Vec<ResponseStatus> {
    let from = w.eid(0);
    part(w, from, &RequestFragment { header, payload: Payload::Placed, bytes: &[] })
}

#[test]
fn a_message_brings_its_bytes_itself() {
    let mut w = world();
    w.post(1, 2000, 2, 0, 64);
    let send = header(&w, Opcode::Send, 64, 0);
    assert_eq!(placed(&mut w, &send), [ResponseStatus::Length]);
    assert_eq!(w.received(1).unwrap().status, CqeStatus::LocLen);
}

#[test]
fn every_piece_of_a_write_needs_its_targets_alive() {
    let cases = [("payload", 2, false), ("placed payload", 2, true), ("notification", 3, false)];
    for (name, withdrawn, is_placed) in cases {
        let mut w = world();
        let notified = w.segment(1, 3, 4096, RW);
        let sqe = udma_abi::Sqe {
            notify_va: va(3),
            notify_token_id: 3 << 8,
            seg_token_value: TOKEN,
            imm: 9,
            ..w.to_memory(Opcode::WriteNotify, 2, 0)
        };
        let whole = next_piece::header(&sqe, pair::initiator(SENDER, true), Mode::Rm, 64).unwrap();
        let first = RequestHeader { flags: RequestFlags::FIRST, ..whole };
        let mut last = RequestHeader { flags: RequestFlags::LAST, ..whole };
        let begun = if is_placed { 0 } else { 32 };
        last.access.address += begun;
        assert_eq!(piece(&mut w, &first, &[0; 32][..begun as usize]), [], "{name}");
        w.nodes[1].core.tables.segments.kill(withdrawn << 8).unwrap();
        let answers =
            if is_placed { placed(&mut w, &last) } else { piece(&mut w, &last, &[7; 32]) };
        assert_eq!(answers, [ResponseStatus::AccessAbort], "{name}");
        assert_eq!(sum(&notified), 0, "{name}");
    }
}

#[test]
fn a_node_has_a_bounded_number_of_sequences() {
    let mut w = world();
    let write = header(&w, Opcode::Write, 0, 0);
    let of_queue = |number| RequestHeader { initiator: pair::initiator(number, true), ..write };
    for number in 0..1 << 16 {
        assert_eq!(piece(&mut w, &of_queue(number), &[]), [ResponseStatus::Ack], "{number}");
    }
    assert_eq!(piece(&mut w, &of_queue(1 << 16), &[]), [ResponseStatus::NoResources]);
    let next = RequestHeader { tassn: 1, ..of_queue(5) };
    assert_eq!(piece(&mut w, &next, &[]), [ResponseStatus::Ack], "a known one goes on");
}

#[test]
fn an_answer_of_the_round_before_is_no_answer() {
    let mut w = world();
    let write = header(&w, Opcode::Write, 8, 0);
    let refused = RequestHeader { token: None, ..write };
    let at = |write: RequestHeader, number: u32| RequestHeader {
        tassn: (number & 0xffff) as u16,
        ..write
    };
    assert_eq!(piece(&mut w, &at(refused, 0), &[1; 8]), [ResponseStatus::AccessAbort]);
    assert_eq!(piece(&mut w, &at(refused, 0), &[1; 8]), [ResponseStatus::AccessAbort], "kept");
    for number in 1..=1 << 16 {
        assert_eq!(piece(&mut w, &at(write, number), &[1; 8]), [ResponseStatus::Ack], "{number}");
    }
    // The number is that of the refused request, 65,536 requests later.
    assert_eq!(piece(&mut w, &at(write, 0), &[1; 8]), [ResponseStatus::Ack]);
}

#[test]
fn an_opcode_that_no_operation_has_is_no_write() {
    let mut w = World::new(Kind::Packets);
    fill(&w.segment(0, 1, 64, RW));
    let there = w.segment(1, 2, 4096, RW);
    let seq = w.hand(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, 64)]);
    let (now, from, node) = (w.now, w.eid(0), &mut w.nodes[0]);
    node.exchange.take_mail_of(&node.core, now, SENDER);
    step_exchange(&mut node.exchange, &node.core, now);
    let mut buf = vec![0; TRANSMIT_MAX];
    let len = node.exchange.endpoint.poll_transmit(now, &mut buf).unwrap().len;
    let packet = Packet::parse(&buf[..len]).unwrap();
    assert!(matches!(packet.header.body, Body::Request(_)), "{packet:?}");
    let is_known = |code: &u8| {
        TaOpcode::from_code(*code).is_ok()
            || AtomicOp::from_code(*code).is_ok()
            || ResponseOp::from_code(*code).is_ok()
    };
    let unknown: Vec<u8> = (0..=u8::MAX).filter(|code| !is_known(code)).collect();
    let dropped = w.counter(1, Counter::DropMalformed);
    for code in &unknown {
        buf[BTH_LEN] = *code;
        flow(from, w.eid(1)).seal(&mut buf[..len]).unwrap();
        let node = &mut w.nodes[1];
        node.on_datagram(now, from, &buf[..len]);
        step_exchange(&mut node.exchange, &node.core, now);
    }
    assert_eq!(sum(&there), 0, "nothing is placed");
    assert_eq!(w.counter(1, Counter::DropMalformed) - dropped, unknown.len() as u64);
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 64)), "sent again, as it was");
    assert_filled(&there, 64);
}

#[test]
fn an_atomic_that_the_device_does_not_do_changes_nothing() {
    let mut w = world();
    let there = w.nodes[1].core.tables.segments.find(2 << 8).unwrap().region.clone();
    let whole = header(&w, Opcode::Swap, 8, 0);
    let (b8, b16) = (OperandSize::B8, OperandSize::B16);
    let cases = [(AtomicOp::Store, b8), (AtomicOp::Load, b8), (AtomicOp::Swap, b16)];
    for (number, (op, size)) in cases.into_iter().enumerate() {
        let operand = if op == AtomicOp::Load { 0 } else { 7 };
        let operands = AtomicOperands { size, operand, compare: 0 };
        let mut asked = RequestHeader { tassn: number as u16, ..whole };
        asked.op = RequestOp::Atomic(op, operands);
        asked.access.length = size.bytes();
        assert_eq!(piece(&mut w, &asked, &[]), [ResponseStatus::Unsupported], "{op:?} {size:?}");
    }
    assert_eq!(sum(&there), 0);
}
