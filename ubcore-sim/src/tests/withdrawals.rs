//! What many threads and withdrawn segments must not break.

use std::sync::mpsc::channel;
use std::time::Duration;

use udma_abi::cmd::{Access, Command, QueueState};
use udma_abi::counters::Counter;
use udma_abi::sqe::{SqeFlags, SqeTargetKind};
use udma_abi::{CmdStatus, CqeStatus, Opcode, Sqe, rqe};

use super::scene::{Scene, scene, scene_of};
use super::{on_seg, pair, pair_with};
use crate::context::link::Reach;
use crate::hooks::{self, Hook};
use crate::share::{HALF_NAMES, HALF_SLOTS_USED};

#[test]
fn withdrawn_segments_are_refused_and_bytes_stop() {
    let mut s = scene();
    s.fill();
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    assert_eq!(s.complete(write, &[s.local.sge(0, 8)]).status, CqeStatus::Success);
    let token_id = s.remote.token_id;
    assert_eq!(s.b.command(Command::FreeTid { token_id }).status, CmdStatus::InUse);
    s.b.ok(Command::UnregisterSeg { token_id });
    assert_eq!(s.b.command(Command::UnregisterSeg { token_id }).status, CmdStatus::NotFound);
    s.remote.mem.zero(0, 64).unwrap();
    assert_eq!(s.complete(write, &[s.local.sge(0, 8)]).status, CqeStatus::RemAccessAbort);
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
                // As an empty poll of a driver does: queues that wait for a slot that was given back restart in a step.
                a.dev.step(0);
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
        // On a busy machine the writer may not have begun for a while.
        for _ in 0..10_000_000 {
            if a.dev.counter(Counter::DirectRequests) != 0 {
                break;
            }
            std::thread::yield_now();
        }
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

/// The second queue has another hazard slot than the first.
#[test]
fn a_withdrawal_waits_for_a_copy_of_whichever_queue() {
    const HANG: Duration = Duration::from_secs(30);
    for number in 0..2 {
        let mut s = scene();
        if number == 1 {
            s.jetty = s.a.jetty(4, &s.jfc, |_| {});
        }
        let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
        let ((copies, copying), (end, ended)) = (channel(), channel::<()>());
        let Scene { a, b, jetty, local, remote, .. } = &mut s;
        std::thread::scope(|scope| {
            let (a, local) = (&*a, &*local);
            scope.spawn(move || {
                hooks::at(Hook::CopyUnchecked, move || {
                    copies.send(()).unwrap();
                    let _ = ended.recv_timeout(HANG);
                });
                a.post(jetty, write, &[local.sge(0, 8)]);
            });
            copying.recv_timeout(HANG).expect("a copy");
            b.submit(Command::UnregisterSeg { token_id: remote.token_id });
            let is_early = (0..100).any(|_| {
                b.dev.step(b.now);
                b.response().is_some()
            });
            // First, so that a failure does not wait for the hang limit.
            end.send(()).unwrap();
            assert!(!is_early, "queue {number}: answered while its copy goes on");
        });
        s.b.dev.step(s.b.now);
        assert_eq!(s.b.response().map(|found| found.status), Some(CmdStatus::Ok));
        assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(CqeStatus::RemAccessAbort));
    }
}

#[test]
fn a_withdrawal_looks_at_no_more_slots_than_there_are() {
    let mut s = scene();
    let link = s.a.dev.core.tables.links.find(s.tpn).unwrap();
    let Reach::Direct(parts) = &link.reach else { panic!("a node on this host") };
    parts.half.store_u64(HALF_SLOTS_USED, u64::MAX).unwrap();
    s.b.ok(Command::UnregisterSeg { token_id: s.remote.token_id });
}

#[test]
fn bytes_of_a_flushed_message_are_taken_back_before_its_completion() {
    let mut s = scene();
    let link = s.a.dev.core.tables.links.find(s.tpn).unwrap();
    let Reach::Direct(parts) = &link.reach else { panic!("a node on this host") };
    let taken_back = || parts.half.load_u64(HALF_NAMES).unwrap();
    let send = Sqe {
        flags: SqeFlags::COMPLETE,
        tpn: s.tpn,
        target_kind: SqeTargetKind::Jetty,
        target_id: 9,
        ..Sqe::new(Opcode::Send)
    };
    s.a.post(&mut s.jetty, send, &[s.local.sge(0, 8192)]);
    assert_eq!((s.a.poll(&mut s.jfc), taken_back()), (None, 0));
    s.a.ok(Command::ModifyState { id: s.jetty.id, state: QueueState::Error });
    let ends: Vec<_> = std::iter::from_fn(|| s.a.poll(&mut s.jfc)).map(|cqe| cqe.status).collect();
    assert_eq!(ends, [CqeStatus::WrFlushErr, CqeStatus::WrFlushErrDone]);
    assert_eq!(
        taken_back(),
        2,
        "by the queue before it completes, then with what it had handed over"
    );
}
