//! The device driven as a driver drives it: registers, rings, completions.

use udma_abi::{
    AsyncKind, CmdStatus, Cqe, CqeStatus, Eqe, Opcode, Sge, Sqe,
    cmd::{Access, Command, Mode, QueueFlags, QueueState},
    counters::Counter,
    doorbell::Arm,
    regs, rqe,
    sqe::SqeFlags,
};
use urma_mem::Region;

use super::{Bench, BenchJfc, BenchQueue, BenchSeg, event_at, on_seg, pair, pair_with};

/// Initiator `a` with a jetty, target `b` with a segment.
pub(super) struct Scene {
    pub(super) a: Bench,
    pub(super) b: Bench,
    pub(super) jfc: BenchJfc,
    pub(super) jetty: BenchQueue,
    pub(super) local: BenchSeg,
    pub(super) remote: BenchSeg,
    pub(super) tpn: u32,
}

fn scene() -> Scene {
    scene_of(pair(), 4, 6)
}

pub(super) fn scene_of((mut a, mut b): (Bench, Bench), jetty_log2: u8, jfc_log2: u8) -> Scene {
    let jfc = a.jfc(jfc_log2);
    let jetty = a.jetty(jetty_log2, &jfc, |_| {});
    let local = a.seg(1 << 20);
    let remote = b.seg(1 << 20);
    let tpn = a.connect(b.eid());
    Scene { a, b, jfc, jetty, local, remote, tpn }
}

impl Scene {
    pub(super) fn run(&mut self, sqe: Sqe, sges: &[Sge]) -> Cqe {
        self.a.post(&mut self.jetty, sqe, sges);
        for _ in 0..100 {
            if let Some(cqe) = self.a.poll(&mut self.jfc) {
                return cqe;
            }
            self.a.now += 1000;
            self.a.dev.step(self.a.now);
            self.b.dev.step(self.a.now);
        }
        panic!("no completion");
    }

    pub(super) fn fill(&self) -> Vec<u8> {
        let bytes: Vec<u8> = (0..self.local.mem.len()).map(pattern).collect();
        self.local.mem.write(0, &bytes).unwrap();
        bytes
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a pattern of bytes")]
fn pattern(i: usize) -> u8 {
    (i * 7 + i / 251) as u8
}

#[test]
fn one_write_goes_from_ring_to_peer_memory_and_completes() {
    let mut s = scene();
    let bytes = s.fill();
    let sqe = on_seg(Opcode::Write, s.tpn, &s.remote, 100);
    let cqe = s.run(sqe, &[s.local.sge(3, 1000)]);
    assert_eq!(cqe.status, CqeStatus::Success);
    assert_eq!((cqe.byte_cnt, cqe.entry_idx, cqe.user_data), (1000, 0, 0xc00c_1e00));
    assert_eq!((cqe.local_id, cqe.is_jetty, cqe.recv), (s.jetty.id, true, false));
    assert_eq!(s.remote.bytes(100, 1000), bytes[3..1003]);
    assert_eq!(s.remote.bytes(0, 100), [0; 100]);
    assert_eq!(s.remote.bytes(1100, 100), [0; 100]);
    assert_eq!(s.a.dev.counter(Counter::DirectRequests), 1);
    assert_eq!(s.a.dev.counter(Counter::DirectBytes), 1000);
    assert_eq!(s.jetty.record.load_u32(rqe::record::SQ_CI).unwrap(), 1);
}

#[test]
fn a_direct_entry_and_inline_bytes_work_too() {
    let mut s = scene();
    let bytes = s.fill();
    let sqe = on_seg(Opcode::Write, s.tpn, &s.remote, 8);
    s.a.post_direct(&mut s.jetty, sqe, &[s.local.sge(0, 8)]);
    assert_eq!(s.a.poll(&mut s.jfc).unwrap().status, CqeStatus::Success);
    assert_eq!(s.remote.bytes(8, 8), bytes[..8]);
    let mut sqe = on_seg(Opcode::Write, s.tpn, &s.remote, 101);
    sqe.flags |= SqeFlags::INLINE;
    sqe.inline_len = 21;
    let words = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908, 0x14_1312_1110];
    s.a.put(&mut s.jetty, sqe, &words);
    s.a.ring(&s.jetty);
    assert_eq!(s.a.poll(&mut s.jfc).unwrap().byte_cnt, 21);
    assert_eq!(s.remote.bytes(101, 22), (0..21).chain([0]).collect::<Vec<u8>>());
}

#[test]
fn read_gathers_and_write_scatters() {
    let mut s = scene();
    let bytes = s.fill();
    s.remote.mem.write(0, &bytes[5000..9000]).unwrap();
    let sqe = on_seg(Opcode::Read, s.tpn, &s.remote, 10);
    let cqe = s.run(sqe, &[s.local.sge(0, 7), s.local.sge(100, 0), s.local.sge(50, 90)]);
    assert_eq!((cqe.status, cqe.byte_cnt), (CqeStatus::Success, 97));
    assert_eq!(s.local.bytes(0, 7), bytes[5010..5017]);
    assert_eq!(s.local.bytes(50, 90), bytes[5017..5107]);
    let sqe = on_seg(Opcode::Write, s.tpn, &s.remote, 1 << 16);
    let pieces = [s.local.sge(1000, 100), s.local.sge(3000, 3), s.local.sge(2000, 2)];
    assert_eq!(s.run(sqe, &pieces).byte_cnt, 105);
    let want = [&bytes[1000..1100], &bytes[3000..3003], &bytes[2000..2002]].concat();
    assert_eq!(s.remote.bytes(1 << 16, 105), want);
}

#[test]
fn atomics_of_both_sizes_return_what_was_there() {
    let mut s = scene();
    s.remote.mem.store_u64(64, 10).unwrap();
    let cases = [
        (Opcode::FetchAdd, 5, 0, 10, 15),
        (Opcode::FetchSub, 1, 0, 15, 14),
        (Opcode::Cas, 100, 13, 14, 14),
        (Opcode::Cas, 100, 14, 14, 100),
        (Opcode::Swap, 0xff, 0, 100, 0xff),
        (Opcode::FetchAnd, 0x0f, 0, 0xff, 0x0f),
        (Opcode::FetchOr, 0xf0, 0, 0x0f, 0xff),
        (Opcode::FetchXor, 0xff, 0, 0xff, 0),
    ];
    for (opcode, operand, compare, before, after) in cases {
        for size in [8, 4] {
            s.remote.mem.store_u64(64, before).unwrap();
            s.local.mem.store_u64(0, u64::MAX).unwrap();
            let sqe = Sqe { operand, compare, ..on_seg(opcode, s.tpn, &s.remote, 64) };
            let cqe = s.run(sqe, &[s.local.sge(0, size)]);
            assert_eq!((cqe.status, cqe.byte_cnt), (CqeStatus::Success, size), "{opcode:?}");
            assert_eq!(s.remote.mem.load_u64(64).unwrap(), after, "{opcode:?}");
            let rest = if size == 4 { u64::MAX << 32 } else { 0 };
            assert_eq!(s.local.mem.load_u64(0).unwrap(), before | rest, "{opcode:?}");
        }
    }
    let sqe = on_seg(Opcode::FetchAdd, s.tpn, &s.remote, 61);
    assert_eq!(s.run(sqe, &[s.local.sge(0, 8)]).status, CqeStatus::RemUnsupportedReq);
    let sqe = on_seg(Opcode::FetchAdd, s.tpn, &s.remote, 64);
    assert_eq!(s.run(sqe, &[s.local.sge(0, 2)]).status, CqeStatus::LocLen);
}

#[test]
fn notify_and_write_atomic_touch_both_places() {
    let mut s = scene();
    let bytes = s.fill();
    let base = Sqe {
        notify_token_id: s.remote.token_id,
        seg_token_value: s.remote.token,
        notify_va: s.remote.va + 4096,
        imm: 77,
        ..on_seg(Opcode::WriteNotify, s.tpn, &s.remote, 0)
    };
    assert_eq!(s.run(base, &[s.local.sge(0, 64)]).status, CqeStatus::Success);
    assert_eq!(s.remote.bytes(0, 64), bytes[..64]);
    assert_eq!(s.remote.mem.load_u64(4096).unwrap(), 77);
    let add = Sqe { opcode: Opcode::WriteAtomic, imm: 3, ..base };
    assert_eq!(s.run(add, &[s.local.sge(64, 64)]).status, CqeStatus::Success);
    assert_eq!(s.remote.bytes(0, 64), bytes[64..128]);
    assert_eq!(s.remote.mem.load_u64(4096).unwrap(), 80);
    // The place of the notification is judged before the first byte of the write.
    let bad = Sqe { seg_token_value: 1, ..base };
    assert_eq!(s.run(bad, &[s.local.sge(128, 64)]).status, CqeStatus::RemAccessAbort);
    assert_eq!(s.remote.bytes(0, 64), bytes[64..128]);
}

#[test]
fn what_is_not_granted_ends_with_its_status_and_moves_nothing() {
    let mut s = scene();
    s.fill();
    let good = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    let len = s.remote.mem.len() as u64;
    let refused = [
        Sqe { token_value: 1, ..good },
        Sqe { token_en: false, ..good },
        Sqe { remote_va: s.remote.va - 1, ..good },
        Sqe { remote_va: s.remote.va + len - 7, ..good },
        Sqe { remote_va: u64::MAX - 3, ..good },
        Sqe { seg_token_id: 9999 << 8, ..good },
        Sqe { seg_token_id: 0xfffff << 8, ..good },
    ];
    for sqe in refused {
        let cqe = s.run(sqe, &[s.local.sge(0, 8)]);
        assert_eq!(cqe.status, CqeStatus::RemAccessAbort, "{sqe:?}");
    }
    assert_eq!(s.a.dev.counter(Counter::AccessDenied), refused.len() as u64);
    let readable = s.b.alloc(4096);
    let readable = s.b.seg_of(readable, Access::READ);
    let write = on_seg(Opcode::Write, s.tpn, &readable, 0);
    assert_eq!(s.run(write, &[s.local.sge(0, 8)]).status, CqeStatus::RemAccessAbort);
    let read = on_seg(Opcode::Read, s.tpn, &readable, 0);
    assert_eq!(s.run(read, &[s.local.sge(0, 8)]).status, CqeStatus::Success);
    assert!(s.remote.bytes(0, 64).iter().all(|b| *b == 0));
}

#[test]
fn a_bad_local_piece_stops_the_queue_and_flushes_the_rest() {
    let (mut a, b) = pair();
    let events = a.async_events();
    let mut s = scene_of((a, b), 4, 6);
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    let bad = Sge { token_id: 999 << 8, ..s.local.sge(0, 8) };
    for sges in [[s.local.sge(0, 8)], [bad], [s.local.sge(0, 8)]] {
        let mut sqe = write;
        sqe.sge_num = 1;
        s.a.put(&mut s.jetty, sqe, &sges[0].to_words());
    }
    s.a.ring(&s.jetty);
    let ends: Vec<_> = std::iter::from_fn(|| s.a.poll(&mut s.jfc)).map(|c| c.status).collect();
    let want = [
        CqeStatus::Success,
        CqeStatus::LocAccess,
        CqeStatus::WrFlushErr,
        CqeStatus::WrFlushErrDone,
    ];
    assert_eq!(ends, want);
    let event = Eqe::Async { code: AsyncKind::JettyErr as u8, object: s.jetty.id };
    assert_eq!(event_at(&events, 0), Some(event));
    s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
    assert_eq!(s.a.poll(&mut s.jfc).unwrap().status, CqeStatus::WrFlushErr);
    assert_eq!(s.a.poll(&mut s.jfc), None, "one last completion per flush");
    for state in [QueueState::Reset, QueueState::Ready] {
        s.a.ok(Command::ModifyState { id: s.jetty.id, state });
    }
    assert_eq!(s.run(write, &[s.local.sge(0, 8)]).status, CqeStatus::Success);
}

#[test]
fn a_malformed_entry_is_counted_and_ends_with_loc_operation() {
    let mut s = scene();
    let mut sqe = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    sqe.sge_num = 200;
    s.a.put(&mut s.jetty, Sqe { sge_num: 1, ..sqe }, &s.local.sge(0, 8).to_words());
    let word = s.jetty.ring.load_u64(8).unwrap();
    s.jetty.ring.store_u64(8, word | 200 << 24).unwrap();
    s.a.ring(&s.jetty);
    assert_eq!(s.a.poll(&mut s.jfc).unwrap().status, CqeStatus::LocOperation);
    assert_eq!(s.a.dev.counter(Counter::BadSqe), 1);
    assert_eq!(s.a.poll(&mut s.jfc).unwrap().status, CqeStatus::WrFlushErrDone);
}

#[test]
fn unsignalled_streams_free_the_ring_and_full_completion_queues_stop_the_sender() {
    let mut s = scene_of(pair(), 4, 1);
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    let quiet = Sqe { flags: SqeFlags::empty(), ..write };
    for round in 1..=100u32 {
        s.a.post(&mut s.jetty, quiet, &[s.local.sge(0, 8)]);
        assert_eq!(s.jetty.record.load_u32(rqe::record::SQ_CI).unwrap(), round);
    }
    assert_eq!(s.a.poll(&mut s.jfc), None);
    for _ in 0..3 {
        s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
    }
    assert_eq!(s.jetty.record.load_u32(rqe::record::SQ_CI).unwrap(), 102);
    assert_eq!(s.a.dev.counter(Counter::CqFullStops), 1);
    for entry_idx in 100..103 {
        let cqe = s.a.poll(&mut s.jfc).expect("taking one lets the sender go on");
        assert_eq!((cqe.status, cqe.entry_idx), (CqeStatus::Success, entry_idx));
    }
}

#[test]
fn a_queue_keeps_one_slot_of_a_deep_roomy_completion_queue_and_gives_it_back() {
    for (jfc_log2, kept) in [(7, 1), (6, 0)] {
        let mut s = scene_of(pair(), 4, jfc_log2);
        let port = s.a.dev.jfcs().get(s.jfc.id).unwrap().port().unwrap();
        let signalled = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
        let sqe = Sqe { flags: SqeFlags::empty(), ..signalled };
        for _ in 0..20 {
            s.a.post(&mut s.jetty, sqe, &[s.local.sge(0, 8)]);
            assert_eq!(port.reserved(), kept, "never more than one");
        }
        assert_eq!(s.a.peek(&s.jfc), None);
        // A signalled request uses it up.
        assert_eq!(s.run(signalled, &[s.local.sge(0, 8)]).status, CqeStatus::Success);
        assert_eq!(port.reserved(), 0);
        // With half of the entries waiting for the consumer none is kept.
        for _ in 0..1 << (jfc_log2 - 1) {
            s.a.post(&mut s.jetty, signalled, &[s.local.sge(0, 8)]);
        }
        s.a.post(&mut s.jetty, sqe, &[s.local.sge(0, 8)]);
        assert_eq!(port.reserved(), 0);
        while s.a.poll(&mut s.jfc).is_some() {}
        // What stops the queue, and what ends it, gives it back.
        s.a.post(&mut s.jetty, sqe, &[s.local.sge(0, 8)]);
        assert_eq!(port.reserved(), kept);
        let id = s.jetty.id;
        s.a.ok(Command::ModifyState { id, state: QueueState::Suspended });
        assert_eq!(port.reserved(), 0);
        assert_eq!(s.a.poll(&mut s.jfc).unwrap().status, CqeStatus::WrSuspendDone);
        s.a.ok(Command::ModifyState { id, state: QueueState::Ready });
        s.a.post(&mut s.jetty, sqe, &[s.local.sge(0, 8)]);
        assert_eq!(port.reserved(), kept);
        s.a.ok(Command::DestroyQueue { id });
        assert_eq!(port.reserved(), 0);
    }
}

#[test]
fn withdrawn_segments_are_refused_and_bytes_stop() {
    let mut s = scene();
    s.fill();
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    assert_eq!(s.run(write, &[s.local.sge(0, 8)]).status, CqeStatus::Success);
    let token_id = s.remote.token_id;
    assert_eq!(s.b.command(Command::FreeTid { token_id }).status, CmdStatus::InUse);
    s.b.ok(Command::UnregisterSeg { token_id });
    assert_eq!(s.b.command(Command::UnregisterSeg { token_id }).status, CmdStatus::NotFound);
    s.remote.mem.zero(0, 64).unwrap();
    assert_eq!(s.run(write, &[s.local.sge(0, 8)]).status, CqeStatus::RemAccessAbort);
    assert_eq!(s.remote.bytes(0, 64), [0; 64]);
    s.b.ok(Command::FreeTid { token_id });
}

#[test]
fn a_large_write_is_stepped_in_chunks_and_stops_at_a_withdrawal() {
    let change = |cfg: &mut crate::DeviceCfg| {
        cfg.direct_chunk = 1024;
        cfg.step_bytes = 1024;
    };
    let mut s = scene_of(pair_with(change), 4, 6);
    let bytes = s.fill();
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    s.a.post(&mut s.jetty, write, &[s.local.sge(0, 10_000)]);
    assert_eq!(s.a.poll(&mut s.jfc), None);
    assert_eq!(s.remote.bytes(0, 1024), bytes[..1024]);
    assert_eq!(s.remote.bytes(1024, 1), [0]);
    assert_eq!(s.a.dev.poll_deadline(), Some(0));
    s.a.dev.step(1);
    assert_eq!(s.remote.bytes(1024, 1024), bytes[1024..2048]);
    s.b.ok(Command::UnregisterSeg { token_id: s.remote.token_id });
    s.a.dev.step(2);
    assert_eq!(s.a.poll(&mut s.jfc).unwrap().status, CqeStatus::RemAccessAbort);
    assert_eq!(s.remote.bytes(2048, 1024), [0; 1024]);
}

#[test]
fn an_armed_queue_fires_once_also_for_what_waits() {
    let (mut a, b) = pair();
    let (eqn, events) = a.eq();
    let mut jfc = a.jfc_on(4, eqn);
    let jetty = a.jetty(4, &jfc, |_| {});
    let spare = a.jfc(4);
    let mut s = scene_of((a, b), 4, 4);
    s.jetty = jetty;
    std::mem::swap(&mut s.jfc, &mut jfc);
    let _ = spare;
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
    assert_eq!(s.a.raises.count(), 0, "not armed");
    s.a.arm(&mut s.jfc, Arm::Any);
    assert_eq!(s.a.raises.count(), 1, "fires at once for what waits");
    assert_eq!(event_at(&events, 0), Some(Eqe::Completion { jfcn: s.jfc.id }));
    s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
    assert_eq!(s.a.raises.count(), 1, "one event per arm");
    while s.a.poll(&mut s.jfc).is_some() {}
    s.a.arm(&mut s.jfc, Arm::Solicited);
    s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
    assert_eq!(s.a.raises.count(), 1, "a plain success is not solicited");
    let bad = Sqe { token_value: 1, ..write };
    s.a.post(&mut s.jetty, bad, &[s.local.sge(0, 8)]);
    assert_eq!(s.a.raises.count(), 2, "every error counts as solicited");
}

#[test]
fn sends_and_writes_keep_their_order_and_an_error_reaches_the_receive_side() {
    let mut s = scene();
    let bytes = s.fill();
    let mut recv_jfc = s.b.jfc(6);
    let mut target = s.b.jetty(4, &recv_jfc, |_| {});
    s.b.post_recv(&mut target, &[s.remote.sge(4096, 100)]);
    let send = Sqe {
        flags: SqeFlags::COMPLETE,
        tpn: s.tpn,
        target_kind: udma_abi::sqe::TargetKind::Jetty,
        target_id: target.id,
        ..Sqe::new(Opcode::Send)
    };
    let write = Sqe {
        target_kind: send.target_kind,
        target_id: target.id,
        ..on_seg(Opcode::Write, s.tpn, &s.remote, 0)
    };
    let mut ends = Vec::new();
    s.a.post(&mut s.jetty, send, &[s.local.sge(0, 64)]);
    let elsewhere = Sqe { target_id: 9, remote_va: write.remote_va + 16, ..write };
    s.a.post(&mut s.jetty, elsewhere, &[s.local.sge(0, 8)]);
    assert_eq!(s.remote.bytes(16, 8), bytes[..8], "a write for another target passes");
    s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
    assert_eq!(s.remote.bytes(0, 8), [0; 8], "a write waits for the send before it");
    for step in 0..100 {
        s.b.dev.step(step * 1000);
        s.a.dev.step(step * 1000);
        ends.extend(s.a.poll(&mut s.jfc).map(|c| (c.status, c.byte_cnt)));
    }
    let done = |len| (CqeStatus::Success, len);
    assert_eq!(ends, [done(64), done(8), done(8)]);
    assert_eq!(s.remote.bytes(0, 8), bytes[..8]);
    assert_eq!(s.remote.bytes(4096, 64), bytes[..64]);
    let cqe = s.b.poll(&mut recv_jfc).unwrap();
    assert_eq!((cqe.recv, cqe.byte_cnt, cqe.remote_id), (true, 64, s.jetty.id));
    s.b.post_recv(&mut target, &[s.remote.sge(0, 8)]);
    s.b.post(&mut target, Sqe { tpn: 999, ..write }, &[s.remote.sge(0, 8)]);
    let mut ends: Vec<_> = std::iter::from_fn(|| s.b.poll(&mut recv_jfc)).collect();
    ends.sort_by_key(|c| c.recv);
    let ends: Vec<_> = ends.into_iter().map(|c| (c.recv, c.status)).collect();
    let want = [
        (false, CqeStatus::LocOperation),
        (false, CqeStatus::WrFlushErrDone),
        (true, CqeStatus::WrFlushErr),
    ];
    assert_eq!(ends, want);
}

#[cfg(feature = "planted-faults")]
#[test]
fn planted_faults_show() {
    use crate::device::PlantedFault;
    let with = |fault| scene_of(pair_with(move |cfg| cfg.fault = Some(fault)), 4, 6);
    let mut s = with(PlantedFault::TokenNotChecked);
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    let wrong = Sqe { token_value: 1, ..write };
    assert_eq!(s.run(wrong, &[s.local.sge(0, 8)]).status, CqeStatus::Success);
    let mut s = with(PlantedFault::BoundOffByOne);
    let beyond = on_seg(Opcode::Read, s.tpn, &s.remote, 1);
    let len = u32::try_from(s.remote.mem.len()).unwrap();
    assert_eq!(s.run(beyond, &[s.local.sge(0, len)]).status, CqeStatus::Success);
    let mut s = with(PlantedFault::AckBeforePlacement);
    s.fill();
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    s.local.mem.store_u64(0, 5).unwrap();
    assert_eq!(s.run(write, &[s.local.sge(0, 8)]).status, CqeStatus::Success);
    assert_eq!(s.remote.mem.load_u64(0).unwrap(), 0);
    for (fault, ends) in
        [(PlantedFault::CompletionDoubled, 8), (PlantedFault::CompletionDropped, 6)]
    {
        let mut s = with(fault);
        let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
        for _ in 0..7 {
            s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
        }
        assert_eq!(std::iter::from_fn(|| s.a.poll(&mut s.jfc)).count(), ends, "{fault:?}");
    }
}

#[test]
fn many_posters_share_a_completion_queue_and_lose_nothing() {
    const QUEUES: usize = 3;
    const EACH: u32 = 3000;
    let (mut a, mut b) = pair();
    let mut jfc = a.jfc(3);
    let queues: Vec<_> = (0..QUEUES).map(|_| a.jetty(5, &jfc, |_| {})).collect();
    let (local, remote) = (a.seg(4096), b.seg(4096));
    let tpn = a.connect(b.eid());
    let write = on_seg(Opcode::Write, tpn, &remote, 0);
    let ids: Vec<_> = queues.iter().map(|q| q.id).collect();
    let mut seen = [0u16; QUEUES];
    std::thread::scope(|scope| {
        for mut queue in queues {
            let (a, local) = (&a, &local);
            scope.spawn(move || {
                for _ in 0..EACH {
                    let ci = || queue.record.load_u32_acquire(rqe::record::SQ_CI).unwrap();
                    while queue.pi.wrapping_sub(ci()) >= 32 {
                        a.dev.step(0);
                        std::thread::yield_now();
                    }
                    a.post(&mut queue, write, &[local.sge(0, 8)]);
                }
            });
        }
        let mut left = QUEUES * EACH as usize;
        while left != 0 {
            let Some(cqe) = a.poll(&mut jfc) else {
                std::thread::yield_now();
                continue;
            };
            let index = ids.iter().position(|id| *id == cqe.local_id).unwrap();
            assert_eq!((cqe.status, cqe.entry_idx), (CqeStatus::Success, seen[index]));
            seen[index] += 1;
            left -= 1;
        }
    });
    assert_eq!(a.poll(&mut jfc), None);
}

#[test]
fn no_byte_is_placed_after_a_withdrawal_was_answered() {
    use urma_mem::sync::{AtomicBool, Ordering};
    let mut s = scene();
    let stop = AtomicBool::new(false);
    let mut placed = 0;
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    let value = s.local.mem.sub(0, 8).unwrap();
    value.store_u64(0, 1).unwrap();
    let Scene { a, b, jetty, local, remote, jfc, .. } = &mut s;
    std::thread::scope(|scope| {
        let (stop, a, local) = (&stop, &*a, &*local);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                a.post(jetty, write, &[local.sge(0, 4096)]);
                while a.poll(jfc).is_none() {}
            }
        });
        for _ in 0..300 {
            std::thread::yield_now();
            b.submit(Command::UnregisterSeg { token_id: remote.token_id });
            // Time stands still: the drain ends when the copy does, however slow this machine is.
            while b.response().is_none() {
                b.dev.step(b.now);
                std::thread::yield_now();
            }
            remote.mem.store_u64(0, 0).unwrap();
            for _ in 0..20 {
                placed |= remote.mem.load_u64(0).unwrap();
                std::thread::yield_now();
            }
            b.ok(Command::RegisterSeg(udma_abi::cmd::RegisterSeg {
                token_id: remote.token_id,
                iova: remote.iova,
                va: remote.va,
                len: remote.mem.len() as u64,
                access: Access::READ | Access::WRITE,
                token_value: Some(remote.token),
            }));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(placed, 0, "a byte was placed after the answer");
    assert!(s.a.dev.counter(Counter::DirectRequests) > 0, "the writer never got through");
}

#[test]
fn moderation_waits_for_a_count_or_a_period() {
    let (mut a, b) = pair();
    let (eqn, _events) = a.eq();
    let jfc = a.jfc_on(4, eqn);
    let jetty = a.jetty(4, &jfc, |_| {});
    let mut s = scene_of((a, b), 4, 4);
    (s.jetty, s.jfc) = (jetty, jfc);
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    s.a.ok(Command::ModifyJfc { jfcn: s.jfc.id, count: 2, period_us: 50 });
    s.a.arm(&mut s.jfc, Arm::Any);
    s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
    assert_eq!(s.a.raises.count(), 0, "one of two");
    s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
    assert_eq!(s.a.raises.count(), 1, "two");
    while s.a.poll(&mut s.jfc).is_some() {}
    s.a.arm(&mut s.jfc, Arm::Any);
    s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
    let due = s.a.dev.poll_deadline().expect("a timer runs");
    assert_eq!(due, s.a.now + 50_000);
    s.a.dev.step(due - 1);
    assert_eq!(s.a.raises.count(), 1);
    s.a.dev.step(due);
    assert_eq!(s.a.raises.count(), 2, "the period is over");
}

#[test]
fn suspended_and_reset_queues_give_every_request_its_end() {
    let mut s = scene();
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    let id = s.jetty.id;
    s.a.ok(Command::ModifyState { id, state: QueueState::Suspended });
    assert_eq!(s.a.poll(&mut s.jfc).unwrap().status, CqeStatus::WrSuspendDone);
    s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
    assert_eq!(s.a.poll(&mut s.jfc), None);
    s.a.ok(Command::ModifyState { id, state: QueueState::Ready });
    assert_eq!(s.a.poll(&mut s.jfc).unwrap().status, CqeStatus::Success);
    s.a.ok(Command::ModifyState { id, state: QueueState::Suspended });
    assert_eq!(s.a.poll(&mut s.jfc).unwrap().status, CqeStatus::WrSuspendDone);
    s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
    s.a.ok(Command::ModifyState { id, state: QueueState::Reset });
    assert_eq!(s.a.poll(&mut s.jfc).unwrap().status, CqeStatus::WrUnhandled);
    let answer = s.a.command(Command::ModifyState { id, state: QueueState::Suspended });
    assert_eq!(answer.status, CmdStatus::Invalid);
    s.a.ok(Command::ModifyState { id, state: QueueState::Error });
    assert_eq!(s.a.poll(&mut s.jfc).unwrap().status, CqeStatus::WrFlushErrDone);
    let answer = s.a.command(Command::ModifyState { id, state: QueueState::Ready });
    assert_eq!(answer.status, CmdStatus::Invalid);
}

#[test]
fn objects_in_use_are_kept_and_a_reset_forgets_all() {
    let mut s = scene();
    let jfcn = s.jfc.id;
    assert_eq!(s.a.command(Command::DestroyJfc { jfcn }).status, CmdStatus::InUse);
    s.a.ok(Command::DestroyQueue { id: s.jetty.id });
    assert_eq!(s.a.poll(&mut s.jfc), None, "an idle queue leaves without a word");
    s.a.ok(Command::DestroyJfc { jfcn });
    s.a.ring(&s.jetty);
    assert_eq!(s.a.dev.counter(Counter::BadDoorbell), 1);
    s.a.dev.write32(0, regs::CONTROL, regs::control::RESET);
    assert_eq!(s.a.dev.read(0, regs::CONTROL), 0);
    assert_eq!(s.a.dev.read(0, regs::STATUS), 0);
    s.a.start();
    let token_id = s.local.token_id;
    assert_eq!(s.a.command(Command::UnregisterSeg { token_id }).status, CmdStatus::NotFound);
}

#[test]
fn hostile_registers_are_counted_and_harmless() {
    let s = scene();
    let dev = &s.a.dev;
    let before = dev.counter(Counter::BadRegisterAccess);
    assert_eq!(dev.read(0, 0x9000), u64::MAX);
    dev.write32(0, 0x9000, 1);
    dev.write64(0, regs::BAR_LEN + 8, 1);
    dev.write_block(0, 64, &[0; 8]);
    assert_eq!(dev.counter(Counter::BadRegisterAccess) - before, 4);
    let page = regs::JETTY_PAGES + u64::from(s.jetty.id) * 4096;
    dev.write32(0, page + 0x80, 1000);
    dev.write32(0, page + 0x80, u32::MAX);
    dev.write64(0, regs::JFC_DB, u64::MAX);
    dev.write64(0, regs::EQ_CI, u64::MAX);
    assert!(dev.counter(Counter::BadDoorbell) >= 4);
}

#[test]
fn loopback_reaches_own_segments() {
    let mut s = scene();
    let bytes = s.fill();
    let own = s.a.connect(s.a.eid());
    let target = s.a.seg(8192);
    let write = on_seg(Opcode::Write, own, &target, 0);
    assert_eq!(s.run(write, &[s.local.sge(0, 5000)]).status, CqeStatus::Success);
    assert_eq!(target.bytes(0, 5000), bytes[..5000]);
    let private = Region::private(4096).unwrap();
    let private = s.a.seg_of(private, Access::READ | Access::WRITE);
    let write = on_seg(Opcode::Write, own, &private, 0);
    assert_eq!(s.run(write, &[s.local.sge(0, 500)]).status, CqeStatus::Success);
    assert_eq!(private.bytes(0, 500), bytes[..500]);
}

#[test]
fn rc_needs_its_pair_and_stops_at_any_error() {
    let (mut a, mut b) = pair();
    let mut jfc = a.jfc(6);
    let mut jetty = a.jetty(4, &jfc, |args| {
        args.mode = Mode::Rc;
        args.flags = QueueFlags::ERROR_SUSPEND;
    });
    let (local, remote) = (a.seg(4096), b.seg(4096));
    let tpn = a.connect(b.eid());
    let id = jetty.id;
    a.ok(Command::Bind { id, tpn, remote_id: 1024 });
    let again = a.command(Command::Bind { id, tpn, remote_id: 1024 });
    assert_eq!(again.status, CmdStatus::Exists);
    let write = on_seg(Opcode::Write, tpn, &remote, 0);
    a.post(&mut jetty, write, &[local.sge(0, 8)]);
    assert_eq!(a.poll(&mut jfc).unwrap().status, CqeStatus::Success);
    a.post(&mut jetty, Sqe { token_value: 1, ..write }, &[local.sge(0, 8)]);
    assert_eq!(a.poll(&mut jfc).unwrap().status, CqeStatus::RemAccessAbort);
    assert_eq!(a.poll(&mut jfc).unwrap().status, CqeStatus::WrSuspendDone);
    a.ok(Command::Unbind { id });
    a.ok(Command::ModifyState { id, state: QueueState::Ready });
    a.post(&mut jetty, write, &[local.sge(0, 8)]);
    assert_eq!(a.poll(&mut jfc).unwrap().status, CqeStatus::LocOperation);
}

#[test]
#[ignore = "measures; run with --release --ignored --nocapture"]
#[expect(clippy::disallowed_methods, reason = "a measurement reads a clock")]
fn measure_direct_requests() {
    let mut s = scene_of(pair(), 8, 8);
    for (name, opcode, len) in [
        ("write 8 B", Opcode::Write, 8),
        ("read 8 B", Opcode::Read, 8),
        ("fadd", Opcode::FetchAdd, 8),
        ("write 64 KiB", Opcode::Write, 65536),
    ] {
        let sqe = on_seg(opcode, s.tpn, &s.remote, 0);
        let sge = [s.local.sge(0, len)];
        let rounds = if len > 1000 { 20_000 } else { 1_000_000 };
        let page = regs::JETTY_PAGES + u64::from(s.jetty.id) * 4096;
        let mut posting = std::time::Duration::ZERO;
        let start = std::time::Instant::now();
        for _ in 0..rounds {
            let mut sqe = sqe;
            sqe.sge_num = 1;
            s.a.put(&mut s.jetty, sqe, &sge[0].to_words());
            s.a.dev.write32(0, page + 0x80, s.jetty.pi);
            assert!(s.a.poll(&mut s.jfc).is_some());
        }
        let whole = start.elapsed();
        for _ in 0..rounds / 128 {
            for _ in 0..128 {
                s.a.put(&mut s.jetty, Sqe { sge_num: 1, ..sqe }, &sge[0].to_words());
            }
            let start = std::time::Instant::now();
            s.a.dev.write32(0, page + 0x80, s.jetty.pi);
            posting += start.elapsed();
            while s.a.peek(&s.jfc).is_some() {
                s.jfc.ci += 1;
            }
            s.a.ring_jfc(&s.jfc, None);
        }
        let each = whole.as_nanos() / rounds;
        let chained = posting.as_nanos() / (rounds / 128 * 128);
        println!(
            "{name}: {each} ns each (post, doorbell, poll), {chained} ns in the device when chained"
        );
    }
}
