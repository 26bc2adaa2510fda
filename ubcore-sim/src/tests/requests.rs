//! What each kind of request moves, and how it ends.

use udma_abi::cmd::Access;
use udma_abi::counters::Counter;
use udma_abi::sqe::SqeFlags;
use udma_abi::{CqeStatus, Opcode, Sqe, regs, rqe};
use urma_mem::Region;

use super::scene::{scene, scene_of};
use super::{on_seg, pair};

#[test]
fn one_write_goes_from_ring_to_peer_memory_and_completes() {
    let mut s = scene();
    let bytes = s.fill();
    let sqe = on_seg(Opcode::Write, s.tpn, &s.remote, 100);
    let cqe = s.complete(sqe, &[s.local.sge(3, 1000)]);
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
fn a_direct_entry_behind_others_waits_for_its_turn() {
    let change = |cfg: &mut crate::DeviceCfg| {
        cfg.direct_chunk = 1024;
        cfg.step_bytes = 1024;
    };
    let mut s = scene_of(super::pair_with(change), 4, 6);
    let bytes = s.fill();
    // Each post is one step: the third one ends the first request and begins the second.
    for (at, len) in [(0, 2500), (3000, 8)] {
        s.a.post(
            &mut s.jetty,
            on_seg(Opcode::Write, s.tpn, &s.remote, at),
            &[s.local.sge(at, len)],
        );
    }
    let direct = on_seg(Opcode::Write, s.tpn, &s.remote, 4000);
    s.a.post_direct(&mut s.jetty, direct, &[s.local.sge(4000, 8)]);
    for now in 1..10 {
        s.a.dev.step(now);
    }
    for entry_idx in 0..3 {
        let cqe = s.a.poll(&mut s.jfc).expect("a completion");
        assert_eq!((cqe.status, cqe.entry_idx), (CqeStatus::Success, entry_idx));
    }
    for (at, len) in [(0, 2500), (3000, 8), (4000, 8)] {
        assert_eq!(s.remote.bytes(at, len), bytes[at..at + len]);
    }
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
    let cqe = s.complete(sqe, &[s.local.sge(0, 7), s.local.sge(100, 0), s.local.sge(50, 90)]);
    assert_eq!((cqe.status, cqe.byte_cnt), (CqeStatus::Success, 97));
    assert_eq!(s.local.bytes(0, 7), bytes[5010..5017]);
    assert_eq!(s.local.bytes(50, 90), bytes[5017..5107]);
    let sqe = on_seg(Opcode::Write, s.tpn, &s.remote, 1 << 16);
    let pieces = [s.local.sge(1000, 100), s.local.sge(3000, 3), s.local.sge(2000, 2)];
    assert_eq!(s.complete(sqe, &pieces).byte_cnt, 105);
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
            let cqe = s.complete(sqe, &[s.local.sge(0, size)]);
            assert_eq!((cqe.status, cqe.byte_cnt), (CqeStatus::Success, size), "{opcode:?}");
            assert_eq!(s.remote.mem.load_u64(64).unwrap(), after, "{opcode:?}");
            let rest = if size == 4 { u64::MAX << 32 } else { 0 };
            assert_eq!(s.local.mem.load_u64(0).unwrap(), before | rest, "{opcode:?}");
        }
    }
    let sqe = on_seg(Opcode::FetchAdd, s.tpn, &s.remote, 61);
    assert_eq!(s.complete(sqe, &[s.local.sge(0, 8)]).status, CqeStatus::RemUnsupportedReq);
    let sqe = on_seg(Opcode::FetchAdd, s.tpn, &s.remote, 64);
    assert_eq!(s.complete(sqe, &[s.local.sge(0, 2)]).status, CqeStatus::LocLen);
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
    assert_eq!(s.complete(base, &[s.local.sge(0, 64)]).status, CqeStatus::Success);
    assert_eq!(s.remote.bytes(0, 64), bytes[..64]);
    assert_eq!(s.remote.mem.load_u64(4096).unwrap(), 77);
    let add = Sqe { opcode: Opcode::WriteAtomic, imm: 3, ..base };
    assert_eq!(s.complete(add, &[s.local.sge(64, 64)]).status, CqeStatus::Success);
    assert_eq!(s.remote.bytes(0, 64), bytes[64..128]);
    assert_eq!(s.remote.mem.load_u64(4096).unwrap(), 80);
    // The place of the notification is judged before the first byte of the write.
    let bad = Sqe { seg_token_value: 1, ..base };
    assert_eq!(s.complete(bad, &[s.local.sge(128, 64)]).status, CqeStatus::RemAccessAbort);
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
        let cqe = s.complete(sqe, &[s.local.sge(0, 8)]);
        assert_eq!(cqe.status, CqeStatus::RemAccessAbort, "{sqe:?}");
    }
    assert_eq!(s.a.dev.counter(Counter::AccessDenied), refused.len() as u64);
    let readable = s.b.alloc(4096);
    let readable = s.b.seg_of(readable, Access::READ);
    let write = on_seg(Opcode::Write, s.tpn, &readable, 0);
    assert_eq!(s.complete(write, &[s.local.sge(0, 8)]).status, CqeStatus::RemAccessAbort);
    let read = on_seg(Opcode::Read, s.tpn, &readable, 0);
    assert_eq!(s.complete(read, &[s.local.sge(0, 8)]).status, CqeStatus::Success);
    assert!(s.remote.bytes(0, 64).iter().all(|b| *b == 0));
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
        target_kind: udma_abi::sqe::SqeTargetKind::Jetty,
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

#[test]
fn planted_faults_show() {
    use super::pair_with;
    use crate::fault::PlantedFault;
    let with = |fault| scene_of(pair_with(move |cfg| cfg.fault = Some(fault)), 4, 6);
    let mut s = with(PlantedFault::TokenNotChecked);
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    let wrong = Sqe { token_value: 1, ..write };
    assert_eq!(s.complete(wrong, &[s.local.sge(0, 8)]).status, CqeStatus::Success);
    let mut s = with(PlantedFault::BoundOffByOne);
    let beyond = on_seg(Opcode::Read, s.tpn, &s.remote, 1);
    let len = u32::try_from(s.remote.mem.len()).unwrap();
    assert_eq!(s.complete(beyond, &[s.local.sge(0, len)]).status, CqeStatus::Success);
    let mut s = with(PlantedFault::AckBeforePlacement);
    s.fill();
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    s.local.mem.store_u64(0, 5).unwrap();
    assert_eq!(s.complete(write, &[s.local.sge(0, 8)]).status, CqeStatus::Success);
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
fn loopback_reaches_own_segments() {
    let mut s = scene();
    let bytes = s.fill();
    let own = s.a.connect(s.a.eid());
    let target = s.a.seg(8192);
    let write = on_seg(Opcode::Write, own, &target, 0);
    assert_eq!(s.complete(write, &[s.local.sge(0, 5000)]).status, CqeStatus::Success);
    assert_eq!(target.bytes(0, 5000), bytes[..5000]);
    let private = Region::private(4096).unwrap();
    let private = s.a.seg_of(private, Access::READ | Access::WRITE);
    let write = on_seg(Opcode::Write, own, &private, 0);
    assert_eq!(s.complete(write, &[s.local.sge(0, 500)]).status, CqeStatus::Success);
    assert_eq!(private.bytes(0, 500), bytes[..500]);
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
        let page = regs::JETTY_PAGES + u64::from(s.jetty.id) * udma_abi::doorbell::PAGE_LEN;
        let mut posting = std::time::Duration::ZERO;
        let start = std::time::Instant::now();
        for _ in 0..rounds {
            let mut sqe = sqe;
            sqe.sge_num = 1;
            s.a.put(&mut s.jetty, sqe, &sge[0].to_words());
            s.a.dev.write32(|| 0, s.a.dev.first_function(), (page + 0x80, s.jetty.pi));
            assert!(s.a.poll(&mut s.jfc).is_some());
        }
        let whole = start.elapsed();
        for _ in 0..rounds / 128 {
            for _ in 0..128 {
                s.a.put(&mut s.jetty, Sqe { sge_num: 1, ..sqe }, &sge[0].to_words());
            }
            let start = std::time::Instant::now();
            s.a.dev.write32(|| 0, s.a.dev.first_function(), (page + 0x80, s.jetty.pi));
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
