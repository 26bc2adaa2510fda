//! Checks between an initiator and its target: each has a test that fails without it.

use std::sync::Arc;

use udma_abi::cmd::{Access, Command, CreateQueue, QueueFlags, QueueState, RegisterSeg};
use udma_abi::sqe::SqeTargetKind;
use udma_abi::{
    CqeStatus, Eqe, EqeKind, Opcode, Sqe, counters::Counter, doorbell::CqArm, eqe, regs,
};

use urma_mem::HeldMemory;

use super::scene::{Scene, scene, scene_of};
use super::{
    Bench, BenchQueue, BenchSeg, Sharing, event_at, on_seg, pair, pair_sharing, step_both,
};
use crate::DeviceCfg;
use crate::context::function::FunctionId;
use crate::context::segment::NewSegment;
use crate::context::tables::ASYNC_PENDING_MAX;
use crate::hooks::{self, Hook};
use crate::host::peer::KernelReads;
use crate::ports::SharedMemory;

/// Steps both nodes for a while.
fn step_times(s: &mut Scene, steps: u64) {
    for _ in 0..steps {
        step_both(&mut s.a, &s.b, 1000);
    }
}

/// Ends a registration and begins another one under its token id, of the same memory.
fn register_anew(node: &mut Bench, seg: &BenchSeg) {
    node.ok(Command::UnregisterSeg { token_id: seg.token_id });
    node.ok(Command::RegisterSeg(RegisterSeg {
        token_id: seg.token_id,
        iova: seg.iova,
        va: seg.va,
        len: seg.mem.len() as u64,
        access: Access::READ | Access::WRITE | Access::ATOMIC,
        token_value: Some(seg.token),
    }));
}

/// Withdraws a segment in the middle of the next copy from or to it.
fn withdraw_mid_copy(s: &Scene) {
    let (owner, token_id) = (Arc::clone(&s.b.dev), s.remote.token_id);
    hooks::at(Hook::CopyUnchecked, move || {
        assert!(owner.core.tables.segments.kill(token_id).is_some());
    });
}

#[test]
fn a_copy_during_which_its_segment_is_withdrawn_does_not_succeed() {
    for opcode in [Opcode::Write, Opcode::Read, Opcode::FetchAdd, Opcode::WriteNotify] {
        let mut s = scene();
        let notify = Sqe {
            notify_va: s.remote.va + 64,
            notify_token_id: s.remote.token_id,
            seg_token_value: s.remote.token,
            ..on_seg(opcode, s.tpn, &s.remote, 0)
        };
        withdraw_mid_copy(&s);
        let cqe = s.complete(notify, &[s.local.sge(0, 8)]);
        assert_eq!((cqe.status, cqe.byte_cnt), (CqeStatus::RemAccessAbort, 0), "{opcode:?}");
    }
}

#[test]
fn a_read_through_the_kernel_of_a_withdrawn_segment_delivers_nothing() {
    let pair = pair_sharing(Sharing::Pieces(&[]), KernelReads::Probe, |_| {});
    let mut s = scene_of(pair, 4, 6);
    let before = s.fill();
    s.remote.mem.write(0, &[0xEE; 100]).unwrap();
    withdraw_mid_copy(&s);
    let cqe = s.complete(on_seg(Opcode::Read, s.tpn, &s.remote, 0), &[s.local.sge(0, 100)]);
    assert_eq!((cqe.status, cqe.byte_cnt), (CqeStatus::RemAccessAbort, 0));
    assert_eq!(s.local.bytes(0, 100), [0; 100], "none of the bytes that came");
    assert_eq!(s.local.bytes(100, 100), before[100..200]);
    assert_eq!(s.a.dev.counter(Counter::KernelRequests), 0);
}

/// A request of 4,096 bytes that a step does 1,024 of.
fn in_chunks(sharing: Sharing, kernel_reads: KernelReads) -> Scene {
    let change = |cfg: &mut DeviceCfg| {
        cfg.direct_chunk = 1024;
        cfg.step_bytes = 1024;
    };
    scene_of(pair_sharing(sharing, kernel_reads, change), 4, 6)
}

#[test]
fn a_transfer_does_not_go_on_in_another_registration() {
    let nothing = Sharing::Pieces(&[]);
    for (opcode, sharing, kernel_reads) in [
        (Opcode::Write, Sharing::Whole, KernelReads::Off),
        (Opcode::Read, Sharing::Whole, KernelReads::Off),
        (Opcode::Read, nothing, KernelReads::Probe),
    ] {
        let mut s = in_chunks(sharing, kernel_reads);
        s.fill();
        let sqe = on_seg(opcode, s.tpn, &s.remote, 0);
        s.a.post(&mut s.jetty, sqe, &[s.local.sge(0, 4096)]);
        assert_eq!(s.a.poll(&mut s.jfc), None, "{opcode:?}: some bytes are left");
        register_anew(&mut s.b, &s.remote);
        s.remote.mem.zero(0, 4096).unwrap();
        step_times(&mut s, 10);
        let cqe = s.a.poll(&mut s.jfc).expect("a completion");
        assert_eq!((cqe.status, cqe.byte_cnt), (CqeStatus::RemAccessAbort, 0), "{opcode:?}");
        assert_eq!(s.remote.bytes(0, 4096), [0; 4096], "{opcode:?}");
    }
}

#[test]
fn a_transfer_within_a_node_does_not_go_on_in_another_registration() {
    let mut s = in_chunks(Sharing::Whole, KernelReads::Off);
    let own = s.a.seg(4096);
    let tpn = s.a.connect(s.a.eid());
    s.fill();
    s.a.post(&mut s.jetty, on_seg(Opcode::Write, tpn, &own, 0), &[s.local.sge(0, 4096)]);
    assert_eq!(s.a.poll(&mut s.jfc), None, "some bytes are left");
    // A command would step the transfer to its end: this is what another thread's command does.
    let region = s.a.dev.core.tables.segments.kill(own.token_id).unwrap().region.clone();
    let new = NewSegment {
        owner: FunctionId::FIRST,
        token_id: own.token_id,
        va: own.va,
        memory: HeldMemory::plain(&region),
        region,
        access: Access::WRITE,
        token: Some(own.token),
        shared: false,
    };
    s.a.dev.core.tables.segments.publish(new, &SharedMemory::default()).unwrap();
    own.mem.zero(0, 4096).unwrap();
    step_times(&mut s, 10);
    let cqe = s.a.poll(&mut s.jfc).expect("a completion");
    assert_eq!((cqe.status, cqe.byte_cnt), (CqeStatus::RemAccessAbort, 0));
    assert_eq!(own.bytes(0, 4096), [0; 4096]);
}

/// A jetty of the target with its receives and a completion queue, guarded by token 0x77.
fn target(s: &mut Scene, receives: u32) -> BenchQueue {
    let jfc = s.b.jfc(6);
    let guarded = |args: &mut CreateQueue| args.flags = QueueFlags::TOKEN;
    let mut target = s.b.jetty(4, &jfc, guarded);
    for _ in 0..receives {
        s.b.post_recv(&mut target, &[s.remote.sge(4096, 100)]);
    }
    target
}

#[test]
fn a_write_with_immediate_places_nothing_after_a_refusal() {
    let mut s = scene();
    s.fill();
    let to = target(&mut s, 8);
    let sqe = Sqe {
        target_kind: SqeTargetKind::Jetty,
        target_id: to.id,
        token_value: 0x77,
        seg_token_value: s.remote.token,
        ..on_seg(Opcode::WriteImm, s.tpn, &s.remote, 0)
    };
    for _ in 0..2 {
        assert_eq!(s.complete(sqe, &[s.local.sge(0, 100)]).status, CqeStatus::Success);
    }
    assert_eq!(s.a.dev.counter(Counter::DirectRequests), 1, "the second one's payload");
    s.b.ok(Command::ModifyState { id: to.id, state: QueueState::Error });
    assert_eq!(s.complete(sqe, &[s.local.sge(0, 100)]).status, CqeStatus::RemOperation);
    s.remote.mem.zero(0, 100).unwrap();
    assert_eq!(s.complete(sqe, &[s.local.sge(0, 100)]).status, CqeStatus::RemOperation);
    assert_eq!(s.remote.bytes(0, 100), [0; 100], "the target takes no message any more");
}

#[test]
fn every_bit_of_a_token_counts_for_every_request() {
    let mut s = scene();
    s.fill();
    let opcodes =
        [Opcode::Write, Opcode::Read, Opcode::WriteNotify, Opcode::WriteAtomic, Opcode::Cas];
    let more = [Opcode::Swap, Opcode::FetchAdd, Opcode::FetchSub, Opcode::FetchAnd];
    for opcode in opcodes.into_iter().chain(more).chain([Opcode::FetchOr, Opcode::FetchXor]) {
        let good = Sqe {
            notify_va: s.remote.va + 64,
            notify_token_id: s.remote.token_id,
            seg_token_value: s.remote.token,
            operand: 1,
            imm: 1,
            ..on_seg(opcode, s.tpn, &s.remote, 0)
        };
        s.remote.mem.zero(0, 128).unwrap();
        for bit in 0..32 {
            let token_value = good.token_value ^ 1 << bit;
            let cqe = s.complete(Sqe { token_value, ..good }, &[s.local.sge(0, 8)]);
            assert_eq!(cqe.status, CqeStatus::RemAccessAbort, "{opcode:?}, bit {bit}");
            if matches!(opcode, Opcode::WriteNotify | Opcode::WriteAtomic) {
                let seg_token_value = good.seg_token_value ^ 1 << bit;
                let cqe = s.complete(Sqe { seg_token_value, ..good }, &[s.local.sge(0, 8)]);
                assert_eq!(cqe.status, CqeStatus::RemAccessAbort, "{opcode:?}, bit {bit}");
            }
        }
        assert_eq!(s.remote.bytes(0, 128), [0; 128], "{opcode:?}");
        assert_eq!(s.complete(good, &[s.local.sge(0, 8)]).status, CqeStatus::Success, "{opcode:?}");
    }
}

#[test]
fn a_limit_event_comes_once_when_fewer_receives_are_left_than_asked_for() {
    let (a, mut b) = pair();
    let events = b.async_events();
    let mut s = scene_of((a, b), 4, 6);
    let to = target(&mut s, 4);
    s.b.ok(Command::ModifyRxThreshold { id: to.id, threshold: 2 });
    let send = Sqe {
        flags: udma_abi::sqe::SqeFlags::COMPLETE,
        tpn: s.tpn,
        target_kind: SqeTargetKind::Jetty,
        target_id: to.id,
        token_en: true,
        token_value: 0x77,
        ..Sqe::new(Opcode::Send)
    };
    let event = Eqe::Async { code: EqeKind::JettyLimit as u8, object: to.id };
    for (left, wanted) in [(3, None), (2, None), (1, Some(event)), (0, Some(event))] {
        assert_eq!(s.complete(send, &[s.local.sge(0, 8)]).status, CqeStatus::Success);
        assert_eq!(event_at(&events, 0), wanted, "{left} left");
    }
    assert_eq!(event_at(&events, 1), None, "once");
}

/// The consumer of event queue `eqn` took `ci` entries.
fn consumed(node: &Bench, eqn: u32, ci: u32) {
    let value = u64::from(eqn) << 32 | u64::from(ci);
    node.dev.write64(|| node.now, node.dev.first_function(), (regs::EQ_CI, value));
}

#[test]
fn a_completion_event_waits_for_room_in_its_event_queue() {
    let (mut a, b) = pair();
    let (eqn, events) = a.eq();
    let jfcs: Vec<_> = (0..3).map(|_| a.jfc_on(6, eqn)).collect();
    let queues: Vec<_> = jfcs.iter().map(|jfc| a.jetty(6, jfc, |_| {})).collect();
    let mut s = scene_of((a, b), 4, 4);
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    let fire = |s: &mut Scene, jfc: &mut super::BenchJfc, queue: &mut BenchQueue| {
        s.a.post(queue, write, &[s.local.sge(0, 8)]);
        s.a.arm(jfc, CqArm::Any);
        while s.a.poll(jfc).is_some() {}
    };
    let mut all: Vec<_> = jfcs.into_iter().zip(queues).collect();
    for _ in 0..16 {
        let (jfc, queue) = &mut all[0];
        fire(&mut s, jfc, queue);
    }
    for (jfc, queue) in &mut all[1..] {
        fire(&mut s, jfc, queue);
    }
    let ids: Vec<u32> = all.iter().map(|(jfc, _)| jfc.id).collect();
    let entry = |index: usize| Eqe::decode(events.load_block(index * eqe::EQE_LEN).unwrap());
    assert!((0..16).all(|index| entry(index) == Eqe::Completion { jfcn: ids[0] }));
    let mut late = Vec::new();
    for taken in 1..=2 {
        consumed(&s.a, eqn, taken);
        step_times(&mut s, 2);
        late.push(entry(taken as usize - 1));
    }
    late.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(late, [1, 2].map(|n| Eqe::Completion { jfcn: ids[n] }), "each waited");
    assert_eq!(s.a.raises.count(), 18);
}

#[test]
fn asynchronous_events_wait_for_room_and_keep_their_order() {
    let (mut a, _b) = pair();
    let events = a.async_events();
    for object in 0..40 {
        a.dev.core.tables.device_event(EqeKind::JettyErr, object);
    }
    for object in 0..40u32 {
        let words = events.load_block((object as usize % 16) * eqe::EQE_LEN).unwrap();
        let code = EqeKind::JettyErr as u8;
        assert_eq!(Eqe::decode(words), Eqe::Async { code, object });
        a.dev.write32(|| a.now, a.dev.first_function(), (regs::AEQ_CI, object + 1));
    }
}

#[test]
fn asynchronous_events_beyond_what_can_wait_are_dropped_and_counted() {
    let (a, _b) = pair();
    // The driver has set up no ring yet: all of them wait.
    for object in 0..3 + ASYNC_PENDING_MAX {
        a.dev.core.tables.device_event(EqeKind::JettyErr, u32::try_from(object).unwrap());
    }
    assert_eq!(a.dev.counter(Counter::AsyncDropped), 3);
}

#[test]
fn segments_that_share_a_place_in_a_cache_are_distinguished() {
    let mut s = scene();
    let bytes = s.fill();
    let more: Vec<_> = (0..16).map(|_| s.b.seg(4096)).collect();
    for round in 0..3 {
        for seg in &more {
            let cqe =
                s.complete(on_seg(Opcode::Write, s.tpn, seg, round * 8), &[s.local.sge(0, 8)]);
            assert_eq!(cqe.status, CqeStatus::Success, "{round}");
            assert_eq!(seg.bytes(0, 8), bytes[..8]);
        }
    }
}

#[test]
fn an_entry_that_changes_while_it_is_read_is_not_used() {
    let mut s = scene();
    s.fill();
    let new = s.b.alloc(4096);
    let (owner, token_id, token) = (Arc::clone(&s.b.dev), s.remote.token_id, s.remote.token);
    let va = s.remote.va;
    hooks::at(Hook::EntryRead, move || {
        owner.core.tables.segments.kill(token_id).unwrap();
        let access = Access::READ | Access::WRITE;
        let token = Some(token);
        let new = NewSegment {
            owner: FunctionId::FIRST,
            token_id,
            va,
            memory: HeldMemory::plain(&new),
            region: new,
            access,
            token,
            shared: false,
        };
        owner.core.tables.segments.publish(new, &SharedMemory::default()).unwrap();
    });
    let cqe = s.complete(on_seg(Opcode::Write, s.tpn, &s.remote, 0), &[s.local.sge(0, 8)]);
    assert_eq!(cqe.status, CqeStatus::RemAccessAbort);
    assert_eq!(s.remote.bytes(0, 8), [0; 8], "placed where the old one was");
}

#[test]
fn a_notification_to_a_misaligned_place_moves_no_payload() {
    let mut s = scene();
    s.fill();
    let notify = Sqe {
        notify_va: s.remote.va + 65,
        notify_token_id: s.remote.token_id,
        seg_token_value: s.remote.token,
        ..on_seg(Opcode::WriteNotify, s.tpn, &s.remote, 0)
    };
    let cqe = s.complete(notify, &[s.local.sge(0, 8)]);
    assert_eq!(cqe.status, CqeStatus::RemUnsupportedReq);
    assert_eq!(s.remote.bytes(0, 128), [0; 128]);
}
