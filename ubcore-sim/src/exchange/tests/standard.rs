//! RC jetties that speak the standard opcodes, between two nodes.

use udma_abi::{CqeStatus, Opcode, Sqe, cmd::Access, counters::Counter};
use urma_packet::{
    Bth, IcrcFlow, Psn, ROCE_PORT, Tpn,
    roce::{Reth, RoceExt, RoceHeader, rc},
};

use super::world::{Node, SENDER, TOKEN, World, assert_filled, bytes, fill, sum, va};
use crate::endpoint::{Reception, flow};
use crate::ports::Route;

const ALL: Access = Access::READ.union(Access::WRITE).union(Access::ATOMIC);
const OK: CqeStatus = CqeStatus::Success;

fn world() -> World {
    World::standard([None; 2])
}

/// Segments 1 of both nodes: filled at node 0, empty at node 1.
fn with_memory(w: &mut World, access: Access) -> [urma_mem::Region; 2] {
    let here = w.segment(0, 1, 16_384, Access::LOCAL_ONLY);
    fill(&here);
    let there = w.segment(1, 1, 16_384, access);
    [here, there]
}

fn send_to_end(w: &mut World, sqe: &Sqe, sges: &[(u32, u64, usize)]) -> Option<(CqeStatus, u32)> {
    let seq = w.send(0, sqe, sges);
    w.end_of(0, seq)
}

fn status(w: &mut World, sqe: &Sqe, sges: &[(u32, u64, usize)]) -> Option<CqeStatus> {
    send_to_end(w, sqe, sges).map(|(status, _)| status)
}

fn node(w: &World, n: usize) -> &Node {
    &w.nodes[n]
}

/// Every operation, without losses and with them: each ends once, with the bytes in their places.
#[test]
fn every_operation_of_the_standard_is_carried_out_once() {
    for lose_every in [0, 5] {
        let mut w = world();
        w.lose_every = lose_every;
        let [here, there] = with_memory(&mut w, ALL);
        let write = w.to_memory(Opcode::Write, 1, 0);
        assert_eq!(send_to_end(&mut w, &write, &[(1, 0, 9_000)]), Some((OK, 9_000)));
        assert_filled(&there, 9_000);
        assert_eq!(bytes(&there)[9_000..], vec![0; 16_384 - 9_000]);
        there.write(0, &[7; 8_000]).unwrap();
        let read = w.to_memory(Opcode::Read, 1, 0);
        assert_eq!(send_to_end(&mut w, &read, &[(1, 100, 8_000)]), Some((OK, 8_000)));
        assert_eq!(bytes(&here)[100..8_100], [7; 8_000]);
        there.write(8, &40_u64.to_le_bytes()).unwrap();
        let add = Sqe { operand: 2, ..w.to_memory(Opcode::FetchAdd, 1, 8) };
        assert_eq!(send_to_end(&mut w, &add, &[(1, 0, 8)]), Some((OK, 8)));
        assert_eq!(here.load_u64(0).unwrap(), 40);
        let cas = Sqe { operand: 5, compare: 42, ..w.to_memory(Opcode::Cas, 1, 8) };
        assert_eq!(send_to_end(&mut w, &cas, &[(1, 0, 8)]), Some((OK, 8)));
        assert_eq!((here.load_u64(0).unwrap(), there.load_u64(8).unwrap()), (42, 5));
        for (opcode, code, imm) in
            [(Opcode::Send, 0, 0), (Opcode::SendImm, 1, 9), (Opcode::WriteImm, 3, 10)]
        {
            w.post(1, SENDER, 1, 12_000, 4_000);
            let sqe = Sqe {
                seg_token_value: TOKEN,
                ..Sqe { remote_va: va(1), seg_token_id: 1 << 8, ..w.to_jetty(opcode, SENDER, imm) }
            };
            assert_eq!(
                send_to_end(&mut w, &sqe, &[(1, 200, 3_000)]),
                Some((OK, 3_000)),
                "{opcode:?}"
            );
            let cqe = w.received(1).expect("a message");
            assert_eq!((cqe.status, cqe.opcode, cqe.imm, cqe.byte_cnt), (OK, code, imm, 3_000));
            assert_eq!((cqe.local_id, cqe.remote_id, cqe.rmt_eid), (SENDER, SENDER, w.eid(0)));
        }
        assert_eq!(bytes(&there)[12_000..15_000], bytes(&here)[200..3_200]);
        assert!(w.received(1).is_none());
        assert_eq!(w.counter(0, Counter::Retransmits) != 0, lose_every != 0);
    }
}

#[test]
fn a_message_withdraws_a_segment_by_its_key() {
    let mut w = world();
    let _memory = with_memory(&mut w, ALL);
    let withdrawn = w.segment(1, 2, 4096, ALL);
    w.post(1, SENDER, 1, 0, 64);
    let sqe = Sqe {
        seg_token_id: 2 << 8,
        seg_token_value: TOKEN,
        ..w.to_jetty(Opcode::SendInvalidate, SENDER, 0)
    };
    assert_eq!(status(&mut w, &sqe, &[(1, 0, 8)]), Some(OK));
    let cqe = w.received(1).expect("a message");
    assert_eq!((cqe.opcode, cqe.imm), (2, 2 << 8 | u64::from(TOKEN) << 32));
    let write = w.to_memory(Opcode::Write, 2, 0);
    assert_eq!(status(&mut w, &write, &[(1, 0, 8)]), Some(CqeStatus::RemAccessAbort));
    assert_eq!(sum(&withdrawn), 0);
}

/// Token, bounds and rights: nothing is placed, the request fails, and so does what comes after it.
#[test]
fn what_a_key_does_not_cover_is_not_touched() {
    let cases: [(Opcode, Access, u64, u32); 7] = [
        (Opcode::Write, ALL, 16_384 - 7, TOKEN),
        (Opcode::Write, ALL, 0_u64.wrapping_sub(1), TOKEN),
        (Opcode::Write, ALL, 0, TOKEN ^ 1),
        (Opcode::Write, ALL, 0, TOKEN ^ 0x8000_0000),
        (Opcode::Write, Access::READ, 0, TOKEN),
        (Opcode::Read, Access::WRITE, 0, TOKEN),
        (Opcode::FetchAdd, Access::READ.union(Access::WRITE), 0, TOKEN),
    ];
    for (opcode, access, at, token) in cases {
        let mut w = world();
        let [here, there] = with_memory(&mut w, access);
        let before = bytes(&here);
        let sqe = w.to_memory(opcode, 1, 0);
        let remote_va = sqe.remote_va.wrapping_add(at);
        let sqe = Sqe { operand: 1, token_value: token, remote_va, ..sqe };
        let refused = status(&mut w, &sqe, &[(1, 0, 8)]);
        assert_eq!(refused, Some(CqeStatus::RemAccessAbort), "{opcode:?} at {at:#x}");
        assert_eq!((sum(&there), bytes(&here)), (0, before));
        let later = w.to_memory(Opcode::Write, 1, 0);
        assert_eq!(status(&mut w, &later, &[(1, 0, 8)]), Some(CqeStatus::WrFlushErr));
        assert_eq!(w.counter(1, Counter::AccessDenied), 1);
    }
}

/// A packet of a WRITE as node 0 would send it first.
fn forged(change: impl Fn(&mut RoceHeader)) -> RoceHeader {
    let mut bth = Bth::parse(&[rc::WRITE_ONLY, 0, 0xff, 0xff, 0, 0, 0, 0, 0x80, 0, 0, 0]).unwrap();
    (bth.dest, bth.psn) = (Tpn::new(SENDER).unwrap(), Psn::new(SENDER));
    let rkey = (1_u32 << 8).wrapping_add(TOKEN);
    let reth = Some(Reth { va: va(1), rkey, dma_len: 8 });
    let mut header = RoceHeader { bth, ext: RoceExt { reth, ..RoceExt::default() } };
    change(&mut header);
    header
}

/// Only packets of the bound node are taken, from any port and with any Identification, if the ICRC is right.
#[test]
fn packets_of_others_change_nothing() {
    let mut w = world();
    let [_, there] = with_memory(&mut w, ALL);
    let (from, to) = (w.eid(0), w.eid(1));
    let third = udma_abi::RawEid([9; 16]);
    let give = |w: &mut World, header: RoceHeader, sealed: IcrcFlow, from, port| {
        let mut buf = [0; 128];
        let len = header.emit(&[7; 8], &sealed, &mut buf).unwrap();
        let now = w.now;
        let node = &mut w.nodes[1];
        let by = Reception::new(&node.core.tables, now, Route::direct(from));
        node.exchange.on_standard(&node.core, by, (port, &buf[..len]))
    };
    let good = flow(from, to);
    let plain = forged(|_| ());
    // From another node, to another jetty, sealed for another sender or port, and cut.
    assert!(give(&mut w, plain, flow(third, to), third, ROCE_PORT));
    let other = forged(|header| header.bth.dest = Tpn::new(SENDER + 1).unwrap());
    assert!(!give(&mut w, other, good, from, ROCE_PORT));
    assert!(!give(&mut w, plain, flow(third, to), from, ROCE_PORT));
    assert!(!give(&mut w, plain, good, from, 50_000));
    assert_eq!(sum(&there), 0);
    let counted = [Counter::DropUnproven, Counter::DropUnknownTp, Counter::DropIcrc];
    assert_eq!(counted.map(|counter| w.counter(1, counter)), [1, 1, 2]);
    // Another PSN than the first one: not executed.
    let early = forged(|header| header.bth.psn = Psn::new(SENDER + 1));
    assert!(give(&mut w, early, good, from, ROCE_PORT));
    assert_eq!(sum(&there), 0);
    assert!(give(&mut w, plain, good.with_ip_id(0xabcd), from, ROCE_PORT));
    assert_eq!(sum(&there), 7 * 8);
    assert!(node(&w, 1).exchange.has_work());
}

/// A SEND that comes twice takes one receive; the next message takes the next one.
#[test]
fn a_duplicate_takes_no_receive() {
    let mut w = world();
    let [_, there] = with_memory(&mut w, ALL);
    w.post(1, SENDER, 1, 0, 64);
    w.post(1, SENDER, 1, 64, 64);
    let send = w.to_jetty(Opcode::Send, SENDER, 0);
    // Every answer is lost until the request was sent again.
    w.is_mute[1] = true;
    let seq = w.send(0, &send, &[(1, 0, 8)]);
    w.run_for(200_000_000);
    assert!(w.counter(0, Counter::Retransmits) != 0);
    w.is_mute[1] = false;
    assert_eq!(w.end_of(0, seq).map(|(status, _)| status), Some(OK));
    assert!(w.received(1).is_some() && w.received(1).is_none());
    assert_eq!(node(&w, 1).exchange.receives.left(SENDER), Some(1));
    assert_eq!(status(&mut w, &send, &[(1, 8, 8)]), Some(OK));
    assert!(w.received(1).is_some() && w.received(1).is_none());
    assert_eq!(bytes(&there)[64..72], [9, 10, 11, 12, 13, 14, 15, 16]);
}

#[test]
fn a_message_without_a_receive_waits_and_one_that_may_not_fails() {
    let mut w = world();
    let _memory = with_memory(&mut w, ALL);
    let send = w.to_jetty(Opcode::Send, SENDER, 0);
    let seq = w.send(0, &send, &[(1, 0, 8)]);
    w.run_for(50_000_000);
    assert_eq!(w.end_now(0, seq), None);
    w.post(1, SENDER, 1, 0, 64);
    assert_eq!(w.end_of(0, seq).map(|(status, _)| status), Some(OK));
    assert!(w.received(1).is_some());
}

/// A peer that is silent, or that expects other PSNs: each request ends once, within the error timeout.
#[test]
fn without_an_answer_every_request_ends() {
    let other = Some([77, 78]);
    for (psns, is_mute) in [([None; 2], true), ([other, None], false)] {
        let mut w = World::standard(psns);
        let [_, there] = with_memory(&mut w, ALL);
        w.is_mute[1] = is_mute;
        let write = w.to_memory(Opcode::Write, 1, 0);
        let seqs = [0; 3].map(|_| w.send(0, &write, &[(1, 0, 8)]));
        let ends = seqs.map(|seq| w.end_of(0, seq).map(|(status, _)| status));
        let flushed = Some(CqeStatus::WrFlushErr);
        assert_eq!(ends, [Some(CqeStatus::AckTimeout), flushed, flushed]);
        assert_eq!(sum(&there) != 0, is_mute);
    }
}

#[test]
fn given_psns_are_those_of_both_sides() {
    let mut w = World::standard([Some([0xff_fffe, 5]), Some([5, 0xff_fffe])]);
    let [_, there] = with_memory(&mut w, ALL);
    let write = w.to_memory(Opcode::Write, 1, 0);
    assert_eq!(status(&mut w, &write, &[(1, 0, 9_000)]), Some(OK));
    assert_filled(&there, 9_000);
}

#[test]
fn what_the_standard_has_not_is_refused() {
    let mut w = world();
    let _memory = with_memory(&mut w, ALL);
    let swap = w.to_memory(Opcode::Swap, 1, 0);
    let short = w.to_memory(Opcode::FetchAdd, 1, 0);
    let wide = w.to_jetty(Opcode::SendImm, SENDER, 1 << 32);
    for (sqe, len) in [(swap, 8), (short, 4), (wide, 8)] {
        assert_eq!(status(&mut w, &sqe, &[(1, 0, len)]), Some(CqeStatus::UnsupportedOpcode));
    }
}

/// What a queue forgot has no end, and nothing ends twice; a receive in progress is flushed.
#[test]
fn a_queue_that_is_flushed_or_unbound_leaves_nothing_behind() {
    let mut w = world();
    let _memory = with_memory(&mut w, ALL);
    w.is_mute[1] = true;
    let write = w.to_memory(Opcode::Write, 1, 0);
    let forgotten = w.send(0, &write, &[(1, 0, 8)]);
    w.purge(0);
    w.run_for(2_000_000_000);
    assert_eq!(w.end_now(0, forgotten), None);
    let node = &mut w.nodes[0];
    assert!(node.exchange.bind(&node.core, SENDER, None));
    assert!(node.exchange.standard.is_empty());
}

/// Packets of the bound node that make no sense, in any order: no byte outside the granted segment changes,
/// no receive completes twice, and a new connection works.
#[test]
fn a_peer_that_sends_anything_reaches_nothing_else() {
    let mut rng = crate::link::Rng::new(5);
    let mut below = |limit: u64| rng.below(limit);
    for _ in 0..60 {
        let mut w = world();
        let [_, granted] = with_memory(&mut w, ALL);
        let other = w.segment(1, 2, 4096, Access::READ);
        for n in 0..8 {
            w.post(1, SENDER, 1, 1_024 * n, 1_024);
        }
        let sealed = flow(w.eid(0), w.eid(1));
        let mut psn = SENDER;
        for _ in 0..200 {
            let opcode = u8::try_from(below(0x20)).unwrap();
            let len = [0, 8, 1024, below(1025)][usize::try_from(below(4)).unwrap()];
            let mut bytes: Vec<u8> = (0..12 + 28 + len + 4).map(|_| below(256) as u8).collect();
            bytes[..12].copy_from_slice(&[opcode, 0, 0xff, 0xff, 0, 0, 0, 0, 0x80, 0, 0, 0]);
            bytes[5..8].copy_from_slice(&SENDER.to_be_bytes()[1..]);
            bytes[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
            let (tid, at) = (1 + below(2) as u32, below(20_000));
            bytes[12..20].copy_from_slice(&(va(tid) + at).to_be_bytes());
            bytes[20..24].copy_from_slice(&(tid << 8).wrapping_add(TOKEN).to_be_bytes());
            bytes[24..28].copy_from_slice(&[0, 0, below(8) as u8, 0]);
            sealed.seal(&mut bytes).unwrap();
            let now = w.now;
            let from = w.eid(0);
            let node = &mut w.nodes[1];
            let by = Reception::new(&node.core.tables, now, Route::direct(from));
            node.exchange.on_standard(&node.core, by, (ROCE_PORT, &bytes));
            psn += below(4).min(1) as u32;
        }
        w.run_for(10_000_000);
        assert_eq!(sum(&other), 0);
        let completions = std::iter::from_fn(|| w.received(1)).count();
        assert!(completions <= 8, "{completions} of 8 receives");
        assert!(granted.len() == 16_384);
    }
}
