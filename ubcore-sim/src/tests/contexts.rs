//! The model of the context cache in the device: what each request looks up, and that nothing else changes.

use udma_abi::{
    CqeStatus, Nanos, Opcode, Sqe, cmd::Command, counters::Counter, sqe::SqeTargetKind,
};

use super::scene::scene_of;
use super::{Bench, on_seg, pair, pair_with, step_both};
use crate::cfg::ContextModelMode;

fn counted() -> (Bench, Bench) {
    pair_with(|cfg| cfg.contexts = ContextModelMode::Count)
}

fn count(bench: &Bench, counter: Counter) -> u64 {
    bench.dev.counter(counter)
}

#[test]
fn each_request_looks_its_contexts_up_once() {
    let (mut a, mut b) = counted();
    let (mut a_jfc, mut b_jfc) = (a.jfc(4), b.jfc(4));
    let mut queue = a.jetty(4, &a_jfc, |_| {});
    let mut there = b.jetty(4, &b_jfc, |_| {});
    let (local, remote) = (a.seg(4096), b.seg(4096));
    let tpn = a.connect(b.eid());
    for round in 1..=3 {
        a.post(&mut queue, on_seg(Opcode::Write, tpn, &remote, 0), &[local.sge(0, 8)]);
        step_both(&mut a, &b, 1000);
        assert_eq!(a.poll(&mut a_jfc).map(|cqe| cqe.status), Some(CqeStatus::Success));
        // Queue, TP, JFC, segment, page; a direct request touches no context of the target.
        assert_eq!(count(&a, Counter::ContextAccesses), 5 * round);
        assert_eq!(count(&b, Counter::ContextAccesses), 0);
    }
    assert_eq!((count(&a, Counter::ContextL3Hits), count(&a, Counter::ContextL1Hits)), (5, 10));
    assert!(count(&a, Counter::ContextModelNs) > 500);
    b.post_recv(&mut there, &[remote.sge(0, 64)]);
    let target_kind = SqeTargetKind::Jetty;
    let message = Sqe { tpn, target_kind, target_id: there.id, ..Sqe::new(Opcode::Send) };
    a.post(&mut queue, message, &[local.sge(0, 8)]);
    for _ in 0..10 {
        step_both(&mut a, &b, 1000);
    }
    assert!(b.poll(&mut b_jfc).is_some());
    assert_eq!(count(&a, Counter::ContextAccesses), 20);
    // Queue, JFC, segment, page of the receive.
    assert_eq!(count(&b, Counter::ContextAccesses), 4);
}

/// A number that a program may ask for.
const NUMBER: u32 = 7;

#[test]
fn a_destroyed_object_leaves_the_model() {
    let (mut a, mut b) = counted();
    let mut jfc = a.jfc(4);
    let (local, remote) = (a.seg(4096), b.seg(4096));
    let tpn = a.connect(b.eid());
    for round in 1..=2 {
        let mut queue = a.jetty(4, &jfc, |args| args.id = NUMBER);
        assert_eq!(queue.id, NUMBER);
        a.post(&mut queue, on_seg(Opcode::Write, tpn, &remote, 0), &[local.sge(0, 8)]);
        step_both(&mut a, &b, 1000);
        assert!(a.poll(&mut jfc).is_some());
        a.ok32(Command::DestroyQueue { id: queue.id });
        // The second queue has the number of the first, and is another context.
        assert_eq!(count(&a, Counter::ContextL3Hits), 4 + round);
    }
}

#[test]
fn without_the_model_its_counters_stay_0() {
    let (mut a, mut b) = pair();
    let mut jfc = a.jfc(4);
    let mut queue = a.jetty(4, &jfc, |_| {});
    let (local, remote) = (a.seg(4096), b.seg(4096));
    let tpn = a.connect(b.eid());
    a.post(&mut queue, on_seg(Opcode::Write, tpn, &remote, 0), &[local.sge(0, 8)]);
    step_both(&mut a, &b, 1000);
    assert!(a.poll(&mut jfc).is_some());
    let contexts = Counter::ALL.iter().filter(|counter| counter.name().starts_with("context_"));
    assert_eq!(contexts.map(|counter| count(&a, *counter)).sum::<u64>(), 0);
}

/// The cache never decides rights: a model that keeps what was withdrawn, and says that everything is on the chip, admits
/// nothing.
#[test]
fn a_model_that_is_wrong_admits_nothing() {
    for mode in [ContextModelMode::Count, ContextModelMode::Time] {
        let mut s = scene_of(pair_with(|cfg| cfg.contexts = mode), 4, 6);
        s.a.dev.lie_about_contexts();
        s.b.dev.lie_about_contexts();
        s.fill();
        let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
        assert_eq!(s.complete(write, &[s.local.sge(0, 8)]).status, CqeStatus::Success);
        s.remote.mem.zero(0, 64).unwrap();
        s.b.ok(Command::UnregisterSeg { token_id: s.remote.token_id });
        assert_eq!(s.complete(write, &[s.local.sge(0, 8)]).status, CqeStatus::RemAccessAbort);
        assert_eq!(s.remote.bytes(0, 64), [0; 64]);
        s.a.ok(Command::UnregisterSeg { token_id: s.local.token_id });
        assert_eq!(s.complete(write, &[s.local.sge(0, 8)]).status, CqeStatus::LocAccess);
        assert!(count(&s.a, Counter::ContextAccesses) > 0, "the model was asked");
    }
}

#[test]
fn in_virtual_time_requests_and_messages_start_when_their_contexts_are_there() {
    let (mut a, mut b) = pair_with(|cfg| cfg.contexts = ContextModelMode::Time);
    let (mut a_jfc, mut b_jfc) = (a.jfc(4), b.jfc(4));
    let mut queue = a.jetty(4, &a_jfc, |_| {});
    let mut there = b.jetty(4, &b_jfc, |_| {});
    let (local, remote) = (a.seg(4096), b.seg(4096));
    let tpn = a.connect(b.eid());
    let go = |a: &mut Bench, b: &Bench, now: Nanos| {
        a.now = now;
        a.dev.set_virtual_time(now);
        b.dev.set_virtual_time(now);
        step_both(a, b, 0);
    };
    let mut times = Vec::new();
    for _ in 0..2 {
        let from = a.now;
        a.post(&mut queue, on_seg(Opcode::Write, tpn, &remote, 0), &[local.sge(0, 8)]);
        assert!(a.poll(&mut a_jfc).is_none(), "its contexts are not there");
        let ready_at = a.dev.poll_deadline().expect("the time at which they are");
        go(&mut a, &b, ready_at - 1);
        assert!(a.poll(&mut a_jfc).is_none());
        go(&mut a, &b, ready_at);
        assert_eq!(a.poll(&mut a_jfc).map(|cqe| cqe.status), Some(CqeStatus::Success));
        times.push(ready_at - from);
    }
    assert!(times[0] > 500 && times[1] == 4, "{times:?} ns");
    b.post_recv(&mut there, &[remote.sge(0, 64)]);
    let target_kind = SqeTargetKind::Jetty;
    let message = Sqe { tpn, target_kind, target_id: there.id, ..Sqe::new(Opcode::Send) };
    a.post(&mut queue, message, &[local.sge(0, 8)]);
    let sent_at = a.now + 4;
    go(&mut a, &b, sent_at);
    assert!(b.poll(&mut b_jfc).is_none(), "the contexts of the receive are not there");
    let ready_at = b.dev.poll_deadline().expect("the time at which they are");
    assert!(ready_at > sent_at + 500);
    go(&mut a, &b, ready_at);
    assert!(b.poll(&mut b_jfc).is_some());
}
