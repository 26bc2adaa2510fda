//! Queues: rings that fill, states, events, and what they refuse.

use std::sync::Arc;

use udma_abi::cmd::{Command, Mode, QueueFlags, QueueState};
use udma_abi::counters::Counter;
use udma_abi::doorbell::CqArm;
use udma_abi::sqe::{BLOCK_WORDS, SqeFlags};
use udma_abi::{CmdStatus, CqeStatus, Eqe, EqeKind, Opcode, Sge, Sqe, regs, rqe};
use urma_mem::Region;
use urma_mem::sync::{AtomicBool, Ordering};

use super::scene::{Scene, scene, scene_of};
use super::{event_at, on_seg, pair};
use crate::device::Leases;

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
    let event = Eqe::Async { code: EqeKind::JettyErr as u8, object: s.jetty.id };
    assert_eq!(event_at(&events, 0), Some(event));
    s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
    assert_eq!(s.a.poll(&mut s.jfc).unwrap().status, CqeStatus::WrFlushErr);
    assert_eq!(s.a.poll(&mut s.jfc), None, "one last completion per flush");
    for state in [QueueState::Reset, QueueState::Ready] {
        s.a.ok(Command::ModifyState { id: s.jetty.id, state });
    }
    assert_eq!(s.complete(write, &[s.local.sge(0, 8)]).status, CqeStatus::Success);
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
        let port = s.a.dev.core.tables.jfcs.get(s.jfc.id).unwrap().port().unwrap();
        let signalled = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
        let sqe = Sqe { flags: SqeFlags::empty(), ..signalled };
        for _ in 0..20 {
            s.a.post(&mut s.jetty, sqe, &[s.local.sge(0, 8)]);
            assert_eq!(port.reserved(), kept, "never more than one");
        }
        assert_eq!(s.a.peek(&s.jfc), None);
        // A signalled request uses it up.
        assert_eq!(s.complete(signalled, &[s.local.sge(0, 8)]).status, CqeStatus::Success);
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

/// A WRITE of 8 bytes in the ring; its block.
fn put_write(s: &mut Scene) -> [u64; BLOCK_WORDS] {
    let sqe = Sqe { sge_num: 1, ..on_seg(Opcode::Write, s.tpn, &s.remote, 0) };
    let tail = s.local.sge(0, 8).to_words();
    s.a.put(&mut s.jetty, sqe, &tail)
}

#[test]
fn a_doorbell_that_was_found_reaches_no_later_queue_with_the_number() {
    let mut s = scene();
    let id = s.jetty.id;
    let old = s.a.dev.find_queue(id, Leases::Seldom).unwrap();
    let block = put_write(&mut s);
    assert_eq!(s.a.dev.execute(&old, || 0, &block), None, "the first of its kind");
    s.a.dev.ring_queue(&old, || 0, s.jetty.pi);
    let block = put_write(&mut s);
    assert_eq!(s.a.dev.execute(&old, || 0, &block), Some(false), "nothing is left to do");
    for _ in 0..2 {
        assert_eq!(s.a.poll(&mut s.jfc).unwrap().status, CqeStatus::Success);
    }
    s.a.ok(Command::DestroyQueue { id });
    assert!(s.a.dev.find_queue(id, Leases::Seldom).is_none());
    s.jetty = s.a.jetty(4, &s.jfc, |args| args.id = id);
    let block = put_write(&mut s);
    s.a.dev.ring_direct(&old, || 0, &block);
    s.a.dev.ring_queue(&old, || 0, s.jetty.pi);
    assert_eq!(s.a.dev.counter(Counter::BadDoorbell), 2);
    assert_eq!(s.a.peek(&s.jfc), None);
    let new = s.a.dev.find_queue(id, Leases::Seldom).unwrap();
    s.a.dev.ring_queue(&new, || 0, s.jetty.pi);
    assert_eq!(s.a.poll(&mut s.jfc).unwrap().status, CqeStatus::Success);
    let block = put_write(&mut s);
    s.a.dev.ring_direct(&new, || 0, &[block[0] + 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(s.a.dev.counter(Counter::BadDoorbell), 3, "it is not the next entry");
    let with_first = |word: u64| {
        let mut block = block;
        block[0] ^= word;
        block
    };
    for other in [1, 1 << 31] {
        let is_taken = s.a.dev.execute(&new, || 0, &with_first(other));
        assert_eq!(is_taken, None, "it is not the next entry");
    }
    assert_eq!(s.a.dev.execute(&old, || 0, &block), None, "it is the next entry of another queue");
    assert_eq!(s.a.dev.counter(Counter::BadDoorbell), 4);
    assert_eq!(s.a.peek(&s.jfc), None);
    assert_eq!(s.a.dev.execute(&new, || 0, &block), Some(false));
}

#[test]
fn a_consumer_index_that_was_found_reaches_no_later_queue_with_the_number() {
    let (mut a, b) = pair();
    let jfcn = a.jfc(1).id;
    let old = a.dev.find_jfc(jfcn).unwrap();
    a.dev.write32(|| a.now, a.dev.first_function(), (regs::CONTROL, regs::control::RESET));
    assert!(a.dev.find_jfc(jfcn).is_none());
    a.start();
    let mut s = scene_of((a, b), 4, 1);
    assert_eq!(s.jfc.id, jfcn);
    for _ in 0..3 {
        put_write(&mut s);
        s.a.ring(&s.jetty);
    }
    let retired = |s: &Scene| s.jetty.record.load_u32(rqe::record::SQ_CI).unwrap();
    assert_eq!(retired(&s), 2, "the third waits for a slot");
    assert!(s.a.dev.consume(&old, || 0, 1));
    assert_eq!((retired(&s), s.a.dev.counter(Counter::BadDoorbell)), (2, 1));
    let new = s.a.dev.find_jfc(s.jfc.id).unwrap();
    assert!(s.a.dev.consume(&new, || 0, 3), "beyond what was written");
    assert_eq!((retired(&s), s.a.dev.counter(Counter::BadDoorbell)), (2, 2));
    assert!(s.a.dev.consume(&new, || 0, 1));
    assert_eq!((retired(&s), s.a.dev.counter(Counter::BadDoorbell)), (3, 2));
    assert!(!s.a.dev.consume(&new, || 0, 2), "nothing waits");
}

/// A scene whose JFC has an event queue, and the ring of the events.
fn scene_with_events() -> (Scene, Region) {
    let (mut a, b) = pair();
    let (eqn, events) = a.eq();
    let jfc = a.jfc_on(4, eqn);
    let jetty = a.jetty(4, &jfc, |_| {});
    let mut s = scene_of((a, b), 4, 4);
    (s.jetty, s.jfc) = (jetty, jfc);
    (s, events)
}

#[test]
fn an_armed_queue_fires_once_also_for_what_waits() {
    let (mut s, events) = scene_with_events();
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
    assert_eq!(s.a.raises.count(), 0, "not armed");
    s.a.arm(&mut s.jfc, CqArm::Any);
    assert_eq!(s.a.raises.count(), 1, "fires at once for what waits");
    assert_eq!(event_at(&events, 0), Some(Eqe::Completion { jfcn: s.jfc.id }));
    s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
    assert_eq!(s.a.raises.count(), 1, "one event per arm");
    while s.a.poll(&mut s.jfc).is_some() {}
    s.a.arm(&mut s.jfc, CqArm::Solicited);
    s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
    assert_eq!(s.a.raises.count(), 1, "a plain success is not solicited");
    let bad = Sqe { token_value: 1, ..write };
    s.a.post(&mut s.jetty, bad, &[s.local.sge(0, 8)]);
    assert_eq!(s.a.raises.count(), 2, "every error counts as solicited");
}

#[test]
fn moderation_waits_for_a_count_or_a_period() {
    let (mut s, _events) = scene_with_events();
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    s.a.ok(Command::ModifyJfc { jfcn: s.jfc.id, count: 2, period_us: 50 });
    s.a.arm(&mut s.jfc, CqArm::Any);
    s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
    assert_eq!(s.a.raises.count(), 0, "one of two");
    s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
    assert_eq!(s.a.raises.count(), 1, "two");
    while s.a.poll(&mut s.jfc).is_some() {}
    s.a.arm(&mut s.jfc, CqArm::Any);
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
    s.a.dev.write32(|| 0, s.a.dev.first_function(), (regs::CONTROL, regs::control::RESET));
    assert_eq!(s.a.dev.read(s.a.dev.first_function(), regs::CONTROL), 0);
    assert_eq!(s.a.dev.read(s.a.dev.first_function(), regs::STATUS), 0);
    s.a.start();
    let token_id = s.local.token_id;
    assert_eq!(s.a.command(Command::UnregisterSeg { token_id }).status, CmdStatus::NotFound);
}

#[test]
fn hostile_registers_are_counted_and_harmless() {
    let s = scene();
    let dev = &s.a.dev;
    let before = dev.counter(Counter::BadRegisterAccess);
    assert_eq!(dev.read(dev.first_function(), 0x9000), u64::MAX);
    dev.write32(|| 0, dev.first_function(), (0x9000, 1));
    dev.write64(|| 0, dev.first_function(), (regs::BAR_LEN + 8, 1));
    dev.write_block(|| 0, dev.first_function(), (64, &[0; 8]));
    assert_eq!(dev.counter(Counter::BadRegisterAccess) - before, 4);
    let page = regs::JETTY_PAGES + u64::from(s.jetty.id) * udma_abi::doorbell::PAGE_LEN;
    dev.write32(|| 0, dev.first_function(), (page + 0x80, 1000));
    dev.write32(|| 0, dev.first_function(), (page + 0x80, u32::MAX));
    dev.write64(|| 0, dev.first_function(), (regs::JFC_DB, u64::MAX));
    dev.write64(|| 0, dev.first_function(), (regs::EQ_CI, u64::MAX));
    assert!(dev.counter(Counter::BadDoorbell) >= 4);
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
    a.ok(Command::Bind { id, tpn, remote_id: 1024, psns: None });
    let again = a.command(Command::Bind { id, tpn, remote_id: 1024, psns: None });
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
fn a_consumer_index_beyond_what_was_written_counts_for_nothing() {
    let mut s = scene();
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    for beyond in [1, 5, 0x7f_ffff] {
        let before = s.a.dev.counter(Counter::BadDoorbell);
        s.jfc.ci += beyond;
        s.a.ring_jfc(&s.jfc, None);
        assert_eq!(s.a.dev.counter(Counter::BadDoorbell), before + 1, "{beyond}");
        s.jfc.ci -= beyond;
        assert_eq!(s.complete(write, &[s.local.sge(0, 8)]).status, CqeStatus::Success, "{beyond}");
    }
}

#[test]
fn an_arm_with_the_number_of_the_last_one_is_a_repetition() {
    let (mut s, _events) = scene_with_events();
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    s.a.arm(&mut s.jfc, CqArm::Any);
    for _ in 0..3 {
        s.a.post(&mut s.jetty, write, &[s.local.sge(0, 8)]);
        s.a.ring_jfc(&s.jfc, Some(CqArm::Any));
        assert_eq!(s.a.raises.count(), 1, "one event per arm");
    }
    s.a.arm(&mut s.jfc, CqArm::Any);
    assert_eq!(s.a.raises.count(), 2);
}

#[test]
fn requests_to_a_node_that_is_gone_move_nothing() {
    let mut s = scene();
    s.fill();
    for opcode in [Opcode::Write, Opcode::Read, Opcode::FetchAdd] {
        let sqe = Sqe { operand: 1, ..on_seg(opcode, s.tpn, &s.remote, 0) };
        assert_eq!(s.complete(sqe, &[s.local.sge(0, 8)]).status, CqeStatus::Success);
    }
    s.remote.mem.zero(0, 64).unwrap();
    s.a.dev.on_peer_gone(s.a.now, s.b.eid());
    let sqe = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    assert_eq!(s.complete(sqe, &[s.local.sge(0, 8)]).status, CqeStatus::AckTimeout);
    assert_eq!(s.remote.bytes(0, 64), [0; 64]);
}

#[test]
fn a_post_to_a_queue_in_error_is_flushed_while_another_thread_looks_at_the_queue() {
    let (mut a, b) = pair();
    let mut jfc = a.jfc(6);
    let mut jetty = a.jetty(5, &jfc, |_| {});
    let (tpn, seg) = (a.connect(b.eid()), a.seg(4096));
    a.ok(Command::ModifyState { id: jetty.id, state: QueueState::Error });
    assert_eq!(a.poll(&mut jfc).map(|cqe| cqe.status), Some(CqeStatus::WrFlushErrDone));
    let (looker, id) = (Arc::clone(&a.dev), jetty.id);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                looker.core.wake_send(id);
            }
        });
        let flushed = (0..20_000).all(|_| {
            a.post(&mut jetty, on_seg(Opcode::Write, tpn, &seg, 0), &[seg.sge(0, 8)]);
            let mut looks = 0..10_000_000;
            let cqe = looks.find_map(|_| a.poll(&mut jfc));
            cqe.is_some_and(|cqe| cqe.status == CqeStatus::WrFlushErr)
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(flushed, "a request has no completion");
    });
}
