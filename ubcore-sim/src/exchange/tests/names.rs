//! Long messages of a node on this host, whose bytes the receiver reads where they lie.

use udma_abi::{CqeStatus, Opcode, Sqe, cmd::Access};
use urma_mem::{Region, hazard::Generation};
use urma_packet::{RequestFlags, RequestHeader, ResponseStatus};

use super::hostile::{header, part};
use super::world::{Kind, RING_LEN, World, assert_filled, bytes, fill, va};
use crate::carrier::piece::Payload;
use crate::context::segment::entry_offset;
use crate::engine::names::{NamedBytes, take_back};
use crate::exchange::target::RequestFragment;
use crate::hooks::{self, Hook};
use crate::share::{HALF_RING, HALF_TAKES};

const RW: Access = Access::READ.union(Access::WRITE);
const LEN: usize = 100_000;

/// Node 0 has a segment of `LEN` bytes whose first `shared` bytes lie in the arena, with bytes of their own there;
/// node 1 has a receiver with one receive of `LEN` bytes.
fn world(shared: usize) -> (World, Region, Region) {
    let mut w = World::new(Kind::Ring);
    let here = w.shared_segment(0, 1, LEN, (4096, shared));
    let there = w.segment(1, 2, LEN, RW);
    fill(&w.arena.sub(4096, shared).unwrap());
    w.receiver(1, 2000);
    w.post(1, 2000, 2, 0, LEN);
    (w, here, there)
}

fn all_of(region: &Region, byte: u8) -> bool {
    bytes(region).iter().all(|&at| at == byte)
}

#[test]
fn a_long_message_is_read_where_it_lies() {
    let (mut w, here, there) = world(LEN);
    here.write(0, &[9; LEN]).unwrap();
    let seq = w.send(0, &w.to_jetty(Opcode::SendImm, 2000, 7), &[(1, 0, LEN)]);
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, LEN as u32)));
    assert_filled(&there, LEN);
    let cqe = w.received(1).expect("a completion");
    assert_eq!((cqe.status, cqe.imm, cqe.byte_cnt), (CqeStatus::Success, 7, LEN as u32));
    assert!(w.received(1).is_none(), "once");
}

#[test]
fn a_message_of_which_a_part_is_not_shared_comes_with_its_bytes() {
    let (mut w, here, there) = world(LEN - 1);
    here.write(0, &[9; LEN]).unwrap();
    let seq = w.send(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, LEN)]);
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, LEN as u32)));
    assert!(all_of(&there, 9));
    assert_eq!(w.received(1).expect("a completion").byte_cnt, LEN as u32);
    assert!(w.received(1).is_none(), "the first attempt used no receive");
}

#[test]
fn a_request_that_was_flushed_is_not_read_any_more() {
    let (mut w, here, there) = world(LEN);
    // The later message comes with its bytes: its number is not the next one at the receiver.
    fill(&here);
    w.stop(1);
    let _flushed = w.send(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, LEN)]);
    w.purge(0);
    w.run_for(2_000);
    w.go_on(1);
    w.run_for(10_000_000);
    assert!(w.received(1).is_none(), "its program may have changed the bytes");
    let seq = w.send(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, 5000)]);
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 5000)));
    assert_eq!(w.received(1).expect("the receive was kept").byte_cnt, 5000);
    assert_filled(&there, 5000);
}

#[test]
fn a_request_that_timed_out_is_not_read_any_more() {
    let (mut w, ..) = world(LEN);
    w.stop(1);
    let seq = w.send(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, LEN)]);
    for _ in 0..10 {
        w.run_for(1_000_000_000);
    }
    assert_eq!(w.end_now(0, seq), Some((CqeStatus::AckTimeout, 0)));
    w.go_on(1);
    w.run_for(10_000_000);
    assert!(w.received(1).is_none());
}

#[test]
fn memory_that_was_withdrawn_is_not_read() {
    let (mut w, ..) = world(LEN);
    w.stop(1);
    let seq = w.send(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, LEN)]);
    w.nodes[0].core.tables.segments.kill(1 << 8).unwrap();
    w.go_on(1);
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::LocAccess, 0)));
    assert!(w.received(1).is_none());
}

#[test]
fn another_registration_of_the_same_number_is_not_read() {
    let (mut w, _, there) = world(LEN);
    w.stop(1);
    let seq = w.send(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, LEN)]);
    w.nodes[0].core.tables.segments.kill(1 << 8).unwrap();
    let other = w.shared_segment(0, 1, LEN, (4096, LEN));
    other.write(0, &[9; LEN]).unwrap();
    w.go_on(1);
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, LEN as u32)));
    assert!(all_of(&there, 9), "sent again from what the entry names now");
}

/// A piece of node 0 that names `named`.
fn name(w: &mut World, header: &RequestHeader, named: NamedBytes) -> Vec<ResponseStatus> {
    let from = w.eid(0);
    part(w, from, &RequestFragment { header, payload: Payload::Named(named), bytes: &[] })
}

#[test]
fn wrong_names_move_nothing_and_use_no_receive() {
    let (mut w, _, there) = world(LEN);
    let life = w.nodes[0].core.tables.segments.find(1 << 8).unwrap().life;
    let good = NamedBytes { token_id: 1 << 8, len: 4096, va: va(1), life, epoch: 0 };
    let wrong = [
        NamedBytes { token_id: 2 << 8, ..good },
        NamedBytes { token_id: u32::MAX, ..good },
        NamedBytes { va: va(1) - 1, ..good },
        NamedBytes { va: va(1) + LEN as u64 - 4095, ..good },
        NamedBytes { va: u64::MAX, ..good },
        NamedBytes { life: life + 2, ..good },
        NamedBytes { life: 0, ..good },
    ];
    let send = header(&w, Opcode::Send, 4096, 0);
    for named in wrong {
        let again = ResponseStatus::OutOfSequence { expected: 0 };
        assert_eq!(name(&mut w, &send, named), [again], "{named:?}");
    }
    let long = NamedBytes { len: 65_537, ..good };
    let header_of_long = header(&w, Opcode::Send, 65_537, 0);
    let again = ResponseStatus::OutOfSequence { expected: 0 };
    assert_eq!(
        name(&mut w, &header_of_long, long),
        [again],
        "more than one announcement may cover"
    );
    assert!(all_of(&there, 0) && w.received(1).is_none());
    assert_eq!(name(&mut w, &send, good), [ResponseStatus::Ack]);
    assert_filled(&there, 4096);
    assert_eq!(w.received(1).expect("a completion").byte_cnt, 4096);
}

#[test]
fn a_name_that_is_taken_back_during_the_copy_counts_for_nothing() {
    let (mut w, ..) = world(LEN);
    let life = w.nodes[0].core.tables.segments.find(1 << 8).unwrap().life;
    let named = NamedBytes { token_id: 1 << 8, len: 4096, va: va(1), life, epoch: 0 };
    let send = header(&w, Opcode::Send, 4096, 0);
    let again = [ResponseStatus::OutOfSequence { expected: 0 }];
    let half = w.halves[0].clone();
    hooks::at(Hook::CopyUnchecked, move || take_back(&half));
    assert_eq!(name(&mut w, &send, named), again);
    let named = NamedBytes { epoch: 1, ..named };
    let table = w.nodes[0].core.tables.ports.node_region.clone();
    let generation = Generation::new(&table, entry_offset(1)).unwrap();
    hooks::at(Hook::CopyUnchecked, move || generation.kill().unwrap());
    assert_eq!(name(&mut w, &send, named), again, "withdrawn");
    assert!(w.received(1).is_none());
}

#[test]
fn an_extent_beyond_the_arena_is_not_read() {
    let (mut w, ..) = world(LEN);
    let end = w.arena.len();
    let _beyond = w.shared_segment(0, 3, LEN, (end - 1, LEN));
    let life = w.nodes[0].core.tables.segments.find(3 << 8).unwrap().life;
    let named = NamedBytes { token_id: 3 << 8, len: 4096, va: va(3), life, epoch: 0 };
    let send = header(&w, Opcode::Send, 4096, 0);
    assert_eq!(name(&mut w, &send, named), [ResponseStatus::NoResources]);
    assert_eq!(w.received(1).expect("the receive ends").status, CqeStatus::LocAccess);
}

/// Node 0 may write to `LEN` bytes of node 1, out of a segment that is not in its arena; the kernel may be asked.
fn readable_world() -> (World, Region, Region) {
    let mut w = World::of_readable_processes();
    let (here, there) = (w.segment(0, 1, LEN, RW), w.segment(1, 2, LEN, RW));
    fill(&here);
    w.receiver(1, 2000);
    w.post(1, 2000, 2, 0, LEN);
    (w, here, there)
}

/// Whether the ring of node 0 has the bytes of a long request: none of them is 0.
fn has_carried(w: &World) -> bool {
    let ring = w.halves[0].sub(HALF_RING, RING_LEN).unwrap();
    bytes(&ring).iter().filter(|byte| **byte != 0).count() > LEN / 2
}

/// Writes and messages of bytes that are nowhere but in the sender's process.
#[test]
fn bytes_outside_the_arena_are_read_by_the_kernel() {
    let (mut w, _here, there) = readable_world();
    for (opcode, at, len) in
        [(Opcode::Write, 0, LEN), (Opcode::Write, 3, 65_537), (Opcode::Write, 1, 8192)]
    {
        there.zero(0, LEN).unwrap();
        let seq = w.send(0, &w.to_memory(opcode, 2, at), &[(1, 0, len)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, len as u32)));
        let at = at as usize;
        assert_filled(&there.sub(at, LEN - at).unwrap(), len);
        assert!(all_of(&there.sub(at + len, LEN - at - len).unwrap(), 0), "nothing behind it");
    }
    there.zero(0, LEN).unwrap();
    let seq = w.send(0, &w.to_jetty(Opcode::SendImm, 2000, 7), &[(1, 0, LEN)]);
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, LEN as u32)));
    assert_filled(&there, LEN);
    assert_eq!(w.received(1).expect("a completion").byte_cnt, LEN as u32);
    assert!(!has_carried(&w), "the ring has names alone");
}

/// Bytes in the arena, where the kernel may not be asked.
#[test]
fn a_long_write_is_read_where_it_lies() {
    let (mut w, here, there) = world(LEN);
    here.write(0, &[9; LEN]).unwrap();
    let seq = w.send(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, LEN)]);
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, LEN as u32)));
    assert_filled(&there, LEN);
}

/// What a peer may not write it may not have pulled either: nothing of it is placed, and each refusal is that of a write
/// that brings its bytes.
#[test]
fn a_write_whose_bytes_are_named_needs_every_right() {
    let (mut w, _here, there) = readable_world();
    let token = w.to_memory(Opcode::Write, 2, 0);
    let token = Sqe { token_value: token.token_value ^ 1, ..token };
    let outside = w.to_memory(Opcode::Write, 2, 1);
    for refused in [token, outside] {
        let seq = w.send(0, &refused, &[(1, 0, LEN)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::RemAccessAbort, 0)));
    }
    let _read_only = w.segment(1, 4, LEN, Access::READ);
    let seq = w.send(0, &w.to_memory(Opcode::Write, 4, 0), &[(1, 0, LEN)]);
    assert_eq!(w.end_of(0, seq), Some((CqeStatus::RemAccessAbort, 0)));
    assert!(all_of(&there, 0));
}

/// A peer of which the kernel does not let this process read, or of a release that knows no such names, gets bytes.
#[test]
fn bytes_are_named_to_those_who_take_such_names() {
    for (takes, ring) in [(0, true), (1, true), (2, true), (3, false)] {
        let (mut w, _here, there) = readable_world();
        w.halves[1].store_u64(HALF_TAKES, takes).unwrap();
        let seq = w.send(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, LEN)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, LEN as u32)));
        assert_filled(&there, LEN);
        assert_eq!(has_carried(&w), ring, "{takes}");
    }
}

/// A source that its owner withdraws while it is read, and a write that was flushed before its turn.
#[test]
fn a_write_of_withdrawn_bytes_does_not_succeed() {
    let (mut w, ..) = readable_world();
    let table = w.nodes[0].core.tables.ports.node_region.clone();
    let generation = Generation::new(&table, entry_offset(1)).unwrap();
    hooks::at(Hook::CopyUnchecked, move || generation.kill().unwrap());
    let life = w.nodes[0].core.tables.segments.find(1 << 8).unwrap().life;
    let named = NamedBytes { token_id: 1 << 8, len: 64, va: va(1), life, epoch: 0 };
    let write = header(&w, Opcode::Write, 64, 0);
    assert_eq!(name(&mut w, &write, named), [ResponseStatus::OutOfSequence { expected: 0 }]);

    let (mut w, _here, there) = readable_world();
    w.stop(1);
    let _flushed = w.send(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, LEN)]);
    w.purge(0);
    w.run_for(2_000);
    w.go_on(1);
    w.run_for(10_000_000);
    assert!(all_of(&there, 0), "its program may have changed the bytes");
}

#[test]
fn only_messages_of_a_sequence_may_name_bytes() {
    let (mut w, ..) = world(LEN);
    let named = NamedBytes { token_id: 1 << 8, len: 64, va: va(1), life: 1, epoch: 0 };
    let mut datagram = header(&w, Opcode::Send, 64, 1);
    datagram.flags |= RequestFlags::DATAGRAM | RequestFlags::NO_TAACK;
    assert_eq!(name(&mut w, &datagram, named), []);
    assert!(w.received(1).is_none());
}

#[test]
fn a_name_survives_its_entry() {
    let named = NamedBytes { token_id: 0x1_2345, len: 64 << 10, va: u64::MAX, life: 7, epoch: 9 };
    assert_eq!(NamedBytes::decode(&named.encode()), Some(named));
    assert_eq!(NamedBytes::decode(&named.encode()[1..]), None);
}
