//! Completions that the device leaves to the driver: as if they came by the ring.

use udma_abi::{Cqe, CqeStatus};
use urma_core::{
    CrStatus, ImportedSegment, LocalSge, PostReason, RemoteAddr, Segment, SendOp, SendWr, WrFlags,
    ops::{AtomicDelta, CompletingQueue, JfcParts, LikeLast, QueueParts, TransferDelta},
};

use super::{
    Bench,
    again::segments,
    contexts, jfc_cfg, poll_all, signalled,
    toy::{Handed, Toy},
};
use crate::DriverCfg;

/// Depth of the queues.
const DEPTH: u32 = 8;

/// A device that carries everything out at once, and reports nothing of what differs only.
fn bench() -> Bench {
    let toy = Toy::new();
    toy.script(|s| (s.carries, s.reports_nothing) = (true, true));
    Bench::on(toy, DriverCfg::default())
}

/// Posts the request that others are like, whose completion the device would have written.
fn post_first(queue: &mut QueueParts, (local, remote): &(Segment, ImportedSegment), ctx: u64) {
    let src = [LocalSge { segment: local, addr: local.va(), len: 8 }];
    let dst = RemoteAddr { segment: remote, addr: remote.va() };
    let wr = SendWr { op: SendOp::Write { src: &src, dst }, ..signalled(ctx) };
    queue.send.as_mut().unwrap().post_send(&[wr]).unwrap();
}

/// Posts one like it, as urma-core does.
fn post(queue: &mut QueueParts, user_ctx: u64) -> usize {
    let moved = TransferDelta { local: 0, remote: 0, len: 24, user_ctx, is_signalled: true };
    let queue = queue.send.as_mut().unwrap();
    if queue.execute_repeat(user_ctx, 0, 0, 24, true) {
        return 1;
    }
    queue.try_repeat(LikeLast::Transfers(&[moved]))
}

/// The completion that a look takes, with its context and length.
fn look(jfc: &mut JfcParts, sender: &mut CompletingQueue) -> Option<(u64, u32)> {
    jfc.queue.take_done(sender).taken()
}

/// The device reports the request at `position` of the queue.
fn report(bench: &Bench, (jfc, queue): (&JfcParts, &QueueParts), position: u16) {
    let id = queue.id;
    let cqe = Cqe {
        status: CqeStatus::Success,
        entry_idx: position,
        local_id: id,
        user_data: bench.toy.cookie(id),
        ..Cqe::default()
    };
    bench.toy.complete(jfc.id, cqe);
}

#[test]
fn they_come_in_the_order_of_posting() {
    let bench = bench();
    let segments = segments(&bench);
    let mut jfc = bench.jfc(16);
    let mut jfs = bench.jfs(jfc.id, DEPTH);
    let mut position = 0;
    for round in 0..100 {
        let ctx = 10 * round;
        post_first(&mut jfs, &segments, ctx);
        report(&bench, (&jfc, &jfs), position);
        assert_eq!([1, 2].map(|n| post(&mut jfs, ctx + n)), [1; 2]);
        jfs.send.as_mut().unwrap().post_send(&[signalled(ctx + 3)]).unwrap();
        report(&bench, (&jfc, &jfs), position + 3);
        position += 4;
        let done = poll_all(&mut jfc);
        assert_eq!(contexts(&done), [0, 1, 2, 3].map(|n| ctx + n), "round {round}");
        let carried = done[1];
        assert_eq!((carried.status, carried.len), (CrStatus::Success, 24));
        let [first, second] =
            [done[0], carried].map(|one| (one.queue_ctx, one.local_id, one.flags));
        assert_eq!((first, second.0), (second, 0xC0));
    }
    let is_executed = |handed: &&Handed| matches!(handed, Handed::Unreported(_));
    assert_eq!(bench.toy.state().handed.iter().filter(is_executed).count(), 200);
}

/// A request that is not like the newest one goes as a whole, and its completion is as one of those that are.
#[test]
fn whole_blocks_come_in_the_order_of_posting() {
    use Handed::{BlockUnreported, Unreported, Whole};
    let bench = bench();
    bench.toy.script(|s| s.reports_no_blocks = true);
    let segments = segments(&bench);
    let mut jfc = bench.jfc(16);
    let mut jfs = bench.jfs(jfc.id, DEPTH);
    post_first(&mut jfs, &segments, 0);
    report(&bench, (&jfc, &jfs), 0);
    for round in 0..100 {
        let ctx = 10 * round;
        (1..4).for_each(|n| post_first(&mut jfs, &segments, ctx + n));
        assert_eq!(post(&mut jfs, ctx + 4), 1);
        let done = poll_all(&mut jfc);
        let first = if round == 0 { 0 } else { 1 };
        let wanted: Vec<_> = (first..5).map(|n| ctx + n).collect();
        assert_eq!(contexts(&done), wanted, "round {round}");
        let carried = done[usize::from(round == 0)];
        assert_eq!((carried.status, carried.len), (CrStatus::Success, 8));
    }
    let handed = bench.toy.state().handed.clone();
    assert_eq!(handed[..4], [Whole, BlockUnreported, BlockUnreported, BlockUnreported]);
    assert!(matches!(handed[4], Unreported(4)), "the newest one is the last block");
}

#[test]
fn a_queue_holds_no_more_whole_blocks_than_it_is_deep() {
    let bench = bench();
    bench.toy.script(|s| s.reports_no_blocks = true);
    let segments = segments(&bench);
    let mut jfc = bench.jfc(64);
    let mut jfs = bench.jfs(jfc.id, DEPTH);
    post_first(&mut jfs, &segments, 0);
    report(&bench, (&jfc, &jfs), 0);
    for round in 0..40 {
        assert_eq!(contexts(&poll_all(&mut jfc)).len(), if round == 0 { 1 } else { 8 });
        (0..u64::from(DEPTH)).for_each(|n| post_first(&mut jfs, &segments, n));
        let full = jfs.send.as_mut().unwrap().post_send(&[signalled(99)]).unwrap_err();
        assert_eq!(full.reason, PostReason::Full);
    }
}

/// A JFC whose program waits for events gets all of them by its ring, and an unsignalled request has no completion.
#[test]
fn whole_blocks_without_a_completion_are_not_passed_on() {
    let bench = bench();
    bench.toy.script(|s| s.reports_no_blocks = true);
    let (local, remote) = segments(&bench);
    let mut jfc = bench.jfc(16);
    let mut jfs = bench.jfs(jfc.id, DEPTH);
    let src = [LocalSge { segment: &local, addr: local.va(), len: 8 }];
    let dst = RemoteAddr { segment: &remote, addr: remote.va() };
    for ctx in 0..4 {
        let flags = WrFlags::empty();
        let wr = SendWr { op: SendOp::Write { src: &src, dst }, flags, ..signalled(ctx) };
        jfs.send.as_mut().unwrap().post_send(&[wr]).unwrap();
    }
    assert_eq!(bench.toy.state().handed, [Handed::Whole; 4]);
    assert_eq!(contexts(&poll_all(&mut jfc)), []);
}

/// What was read from the ring before a poll asked for it is behind what was carried out before it.
#[test]
fn they_come_before_what_was_read_later() {
    let bench = bench();
    let segments = segments(&bench);
    let mut jfc = bench.jfc(16);
    let (mut jfs, other) = (bench.jfs(jfc.id, DEPTH), bench.jfs(jfc.id, DEPTH));
    post_first(&mut jfs, &segments, 1);
    report(&bench, (&jfc, &jfs), 0);
    assert_eq!(post(&mut jfs, 2), 1);
    jfs.send.as_mut().unwrap().post_send(&[signalled(3)]).unwrap();
    report(&bench, (&jfc, &jfs), 2);
    // It empties the ring.
    other.control.delete().unwrap();
    assert_eq!(contexts(&poll_all(&mut jfc)), [1, 2, 3]);
}

#[test]
fn a_queue_holds_no_more_of_them_than_it_is_deep() {
    let bench = bench();
    let segments = segments(&bench);
    let mut jfc = bench.jfc(64);
    let mut jfs = bench.jfs(jfc.id, DEPTH);
    post_first(&mut jfs, &segments, 0);
    report(&bench, (&jfc, &jfs), 0);
    assert_eq!(contexts(&poll_all(&mut jfc)), [0]);
    let mut out = [urma_core::Completion::default()];
    for round in 0..40 {
        for n in 0..u64::from(DEPTH) {
            assert_eq!(post(&mut jfs, n), 1, "round {round}");
        }
        assert_eq!(post(&mut jfs, 99), 0);
        let full = jfs.send.as_mut().unwrap().post_send(&[signalled(99)]).unwrap_err();
        assert_eq!(full.reason, PostReason::Full);
        assert_eq!((jfc.queue.poll(&mut out), out[0].user_ctx), (Ok(1), 0));
        assert_eq!(post(&mut jfs, 50), 1);
        assert_eq!(post(&mut jfs, 99), 0);
        let left = contexts(&poll_all(&mut jfc));
        assert_eq!(left, (1..u64::from(DEPTH)).chain([50]).collect::<Vec<_>>());
    }
}

/// Of requests without a completion no more are handed over than there is room for, and one that the device refuses takes
/// none.
#[test]
fn a_queue_holds_no_more_without_completions_than_it_is_deep() {
    let bench = bench();
    let segments = segments(&bench);
    let mut jfc = bench.jfc(64);
    let mut jfs = bench.jfs(jfc.id, DEPTH);
    let carry = |jfs: &mut QueueParts| jfs.send.as_mut().unwrap().execute_repeat(0, 0, 0, 8, false);
    assert!(!carry(&mut jfs), "there is no newest one");
    post_first(&mut jfs, &segments, 0);
    report(&bench, (&jfc, &jfs), 0);
    assert_eq!(contexts(&poll_all(&mut jfc)), [0]);
    bench.toy.script(|s| s.refuses_moved = true);
    assert!((0..20).all(|_| !carry(&mut jfs)));
    bench.toy.script(|s| s.refuses_moved = false);
    assert!((0..DEPTH).all(|_| carry(&mut jfs)));
    let handed = bench.toy.state().handed.len();
    assert!(!carry(&mut jfs));
    assert_eq!(bench.toy.state().handed.len(), handed, "the device is not asked");
    assert_eq!(post(&mut jfs, 9), 0);
    assert_eq!(contexts(&poll_all(&mut jfc)), []);
}

#[test]
fn a_device_that_failed_is_handed_nothing_without_a_completion() {
    let bench = bench();
    let segments = segments(&bench);
    let jfc = bench.jfc(64);
    let mut jfs = bench.jfs(jfc.id, DEPTH);
    post_first(&mut jfs, &segments, 0);
    assert!(jfs.send.as_mut().unwrap().execute_repeat(0, 0, 0, 8, false));
    bench.device.reset().unwrap();
    assert!(!jfs.send.as_mut().unwrap().execute_repeat(0, 0, 0, 8, false));
}

/// Only the newest request that was carried says what others are like, and the device is asked for no more than
/// there is room for.
#[test]
fn none_is_carried_without_a_grant() {
    let bench = bench();
    let segments = segments(&bench);
    let mut jfc = bench.jfc(64);
    let mut jfs = bench.jfs(jfc.id, DEPTH);
    let carry = |jfs: &mut QueueParts| jfs.send.as_mut().unwrap().execute_repeat(1, 0, 0, 8, true);
    assert!(!carry(&mut jfs), "there is no newest one");
    post_first(&mut jfs, &segments, 0);
    report(&bench, (&jfc, &jfs), 0);
    assert!(!carry(&mut jfs), "the first one like it is looked at");
    assert_eq!(contexts(&poll_all(&mut jfc)), [0]);
    assert_eq!(post(&mut jfs, 1), 1);
    let carried = (1..20).take_while(|_| carry(&mut jfs)).count();
    assert_eq!(carried, DEPTH as usize - 2, "none looks for the room of the first one");
    assert_eq!(contexts(&poll_all(&mut jfc)), [1; DEPTH as usize - 1]);
    assert_eq!(post(&mut jfs, 2), 1);
    let carried = (1..20).take_while(|_| carry(&mut jfs) && !poll_all(&mut jfc).is_empty());
    assert_eq!(carried.count(), 19, "what was polled has room again");
    jfs.send.as_mut().unwrap().post_send(&[signalled(3)]).unwrap();
    assert!(!carry(&mut jfs), "it is not the newest one any more");
}

/// A program that waits for each of its requests asks for no more room than one.
#[test]
fn a_queue_of_depth_1_is_granted_again_by_each_poll() {
    let bench = bench();
    let segments = segments(&bench);
    let mut jfc = bench.jfc(64);
    let mut jfs = bench.jfs(jfc.id, 1);
    let carry = |jfs: &mut QueueParts| jfs.send.as_mut().unwrap().execute_repeat(1, 0, 0, 8, true);
    post_first(&mut jfs, &segments, 0);
    report(&bench, (&jfc, &jfs), 0);
    assert_eq!(contexts(&poll_all(&mut jfc)), [0]);
    assert_eq!(post(&mut jfs, 1), 1);
    for round in 0..200 {
        assert!(!carry(&mut jfs), "the one before was not polled, round {round}");
        assert_eq!(post(&mut jfs, 9), 0);
        assert_eq!(contexts(&poll_all(&mut jfc)), [1]);
        assert_eq!(post(&mut jfs, 1), 1);
        assert_eq!(contexts(&poll_all(&mut jfc)), [1]);
        assert!([(); 3].iter().all(|()| carry(&mut jfs) && poll_all(&mut jfc).len() == 1));
        assert!(carry(&mut jfs));
    }
}

/// A whole block that was passed on grants nothing to requests like it, and uses up what was granted before.
#[test]
fn whole_blocks_grant_nothing() {
    let bench = bench();
    bench.toy.script(|script| script.reports_no_blocks = true);
    let segments = segments(&bench);
    let mut jfc = bench.jfc(64);
    let mut jfs = bench.jfs(jfc.id, DEPTH);
    let carry = |jfs: &mut QueueParts| jfs.send.as_mut().unwrap().execute_repeat(2, 0, 0, 8, true);
    post_first(&mut jfs, &segments, 0);
    report(&bench, (&jfc, &jfs), 0);
    for round in 0..20 {
        post_first(&mut jfs, &segments, 1);
        assert!(!carry(&mut jfs), "round {round}");
        assert_eq!(post(&mut jfs, 1), 1);
        let carried = (0..u64::from(2 * DEPTH)).take_while(|_| carry(&mut jfs)).count();
        let first = usize::from(round == 0);
        assert_eq!(carried, DEPTH as usize - 2 - first, "round {round}");
        assert_eq!(poll_all(&mut jfc).len(), DEPTH as usize, "round {round}");
    }
}

/// Nothing is handed to the device of a driver that gave it up.
#[test]
fn none_is_carried_by_a_device_that_failed() {
    let bench = bench();
    let segments = segments(&bench);
    let jfc = bench.jfc(64);
    let mut jfs = bench.jfs(jfc.id, DEPTH);
    post_first(&mut jfs, &segments, 0);
    assert_eq!([1, 2].map(|ctx| post(&mut jfs, ctx)), [1; 2]);
    bench.device.reset().unwrap();
    bench.toy.state().handed.clear();
    let send = jfs.send.as_mut().unwrap();
    assert!(!send.execute_repeat(3, 0, 0, 8, true));
    for is_signalled in [true, false] {
        let moved = TransferDelta { local: 0, remote: 0, len: 8, user_ctx: 3, is_signalled };
        assert_eq!(send.try_repeat(LikeLast::Transfers(&[moved])), 0);
    }
    assert_eq!(bench.toy.state().handed, []);
}

/// What was carried out is not pending, although its position is beyond the newest one that was rung for.
#[test]
fn none_of_them_is_pending() {
    let bench = bench();
    let segments = segments(&bench);
    let jfc = bench.jfc(64);
    let mut jfs = bench.jfs(jfc.id, DEPTH);
    post_first(&mut jfs, &segments, 0);
    assert_eq!(jfs.control.query().unwrap().send_pending, 1, "the record did not move");
    assert_eq!([1, 2].map(|ctx| post(&mut jfs, ctx)), [1; 2]);
    bench.toy.show_retired(jfs.id, 3);
    assert_eq!(jfs.control.query().unwrap().send_pending, 0);
}

/// A JFC holds no more of them than it is deep; what is posted beyond is the ring's.
#[test]
fn a_jfc_holds_no_more_of_them_than_it_is_deep() {
    let bench = bench();
    let segments = segments(&bench);
    let jfc = bench.jfc(4);
    let mut jfs = bench.jfs(jfc.id, DEPTH);
    post_first(&mut jfs, &segments, 0);
    assert_eq!([(); 6].map(|()| post(&mut jfs, 1)), [1; 6]);
    use Handed::{Moved, Unreported, Whole};
    let handed = std::mem::take(&mut bench.toy.state().handed);
    let carried = [1, 2, 3, 4].map(Unreported);
    assert_eq!(handed, [&[Whole], &carried[..], &[Moved(5), Moved(6)]].concat());
}

/// The device raises no event for what it does not report.
#[test]
fn a_jfc_with_events_has_none() {
    let bench = bench();
    let segments = segments(&bench);
    let events = bench.context.create_jfce().unwrap();
    let jfc = bench.context.create_jfc(&jfc_cfg(16), Some(&events)).unwrap();
    let mut jfs = bench.jfs(jfc.id, DEPTH);
    post_first(&mut jfs, &segments, 0);
    assert_eq!(post(&mut jfs, 1), 1);
    let handed = std::mem::take(&mut bench.toy.state().handed);
    assert_eq!(handed, [Handed::Whole, Handed::Moved(1)]);
}

#[test]
fn one_queue_has_them_until_it_is_gone_and_they_are_taken() {
    let bench = bench();
    let segments = segments(&bench);
    let mut jfc = bench.jfc(16);
    let (mut one, mut other) = (bench.jfs(jfc.id, DEPTH), bench.jfs(jfc.id, DEPTH));
    let mut handed_by_other = |bench: &Bench| {
        post_first(&mut other, &segments, 7);
        bench.toy.state().handed.clear();
        assert_eq!(post(&mut other, 8), 1);
        let handed = std::mem::take(&mut bench.toy.state().handed);
        matches!(handed[..], [Handed::Unreported(_)])
    };
    post_first(&mut one, &segments, 1);
    assert_eq!(post(&mut one, 2), 1);
    assert!(!handed_by_other(&bench), "it is the other one's");
    one.control.delete().unwrap();
    drop(one.send.take());
    assert!(!handed_by_other(&bench), "one waits");
    let done = poll_all(&mut jfc);
    assert_eq!((contexts(&done), done[0].local_id), (vec![2], one.id));
    assert!(handed_by_other(&bench));
    let mut sender = CompletingQueue { version: 1, local_id: one.id, ..CompletingQueue::default() };
    assert_eq!(look(&mut jfc, &mut sender), None, "it is of another queue than the one before");
    let done = poll_all(&mut jfc);
    assert_eq!(contexts(&done), [8]);
    assert!(done[0].local_id != one.id);
    assert!(handed_by_other(&bench));
    assert_eq!(look(&mut jfc, &mut sender), Some((8, 24)));
    assert_eq!(sender.local_id, done[0].local_id, "the sender is that of the completion");
}

/// A flush takes what is flushed, and nothing while completions of the queue wait that ended before.
#[test]
fn a_flush_waits_for_them() {
    let bench = bench();
    let segments = segments(&bench);
    let mut jfc = bench.jfc(16);
    let mut jfs = bench.jfs(jfc.id, DEPTH);
    post_first(&mut jfs, &segments, 1);
    report(&bench, (&jfc, &jfs), 0);
    assert_eq!(post(&mut jfs, 2), 1);
    assert_eq!(contexts(&poll_all(&mut jfc)), [1, 2]);
    assert_eq!(post(&mut jfs, 3), 1);
    jfs.send.as_mut().unwrap().post_send(&[signalled(4)]).unwrap();
    let (id, cookie) = (jfs.id, bench.toy.cookie(jfs.id));
    let status = CqeStatus::WrFlushErr;
    let flushed = Cqe { status, entry_idx: 3, local_id: id, user_data: cookie, ..Cqe::default() };
    bench.toy.complete(jfc.id, flushed);
    let mut out = [urma_core::Completion::default(); 4];
    assert_eq!(jfs.control.flush(&mut out), Ok(0));
    assert_eq!((jfc.queue.poll(&mut out[..1]), out[0].user_ctx), (Ok(1), 3));
    assert_eq!((jfs.control.flush(&mut out), out[0].user_ctx), (Ok(1), 4));
}

/// They take two positions each, and are like the newest atomic that was carried.
#[test]
fn atomics_go_beside_the_ring_too() {
    let bench = bench();
    let (local, remote) = segments(&bench);
    let mut jfc = bench.jfc(4);
    let mut jfs = bench.jfs(jfc.id, 16);
    let queue = jfs.send.as_mut().unwrap();
    let result = LocalSge { segment: &local, addr: local.va(), len: 8 };
    let target = RemoteAddr { segment: &remote, addr: remote.va() };
    let op = SendOp::FetchAdd { result, target, value: 1 };
    let of = |user_ctx, is_signalled| {
        let transfer = TransferDelta { local: 0, remote: 0, len: 8, user_ctx, is_signalled };
        AtomicDelta { transfer, operand: 1, compare: 0 }
    };
    assert_eq!(queue.try_repeat(LikeLast::Atomic(&of(0, true))), 0, "there is none");
    queue.post_send(&[SendWr { op, ..signalled(1) }]).unwrap();
    let posted = [2, 3].map(|ctx| queue.try_repeat(LikeLast::Atomic(&of(ctx, true))));
    assert_eq!(posted, [1; 2]);
    assert_eq!(queue.try_repeat(LikeLast::Atomic(&of(4, false))), 1);
    // Two more have room.
    let posted = [5, 6, 7].map(|ctx| queue.try_repeat(LikeLast::Atomic(&of(ctx, true))));
    assert_eq!(posted, [1; 3]);
    // A list does not become the newest one, and what the device did not carry is none that others are like.
    bench.toy.script(|s| s.carries_moved_only = true);
    queue.post_send(&[SendWr { op, ..signalled(8) }]).unwrap();
    use Handed::{Rung, Whole, Word};
    let mut handed = std::mem::take(&mut bench.toy.state().handed);
    assert_eq!(handed, [Whole, Word(2), Word(4), Whole, Word(8), Word(10), Whole, Whole, Rung]);
    assert_eq!(contexts(&poll_all(&mut jfc)), [2, 3, 5, 6]);
    let queue = jfs.send.as_mut().unwrap();
    assert_eq!(queue.try_repeat(LikeLast::Atomic(&of(9, true))), 1);
    handed = std::mem::take(&mut bench.toy.state().handed);
    assert_eq!(handed, [Whole, Rung]);
}

/// A completion that a look takes is that which a poll would give; one in sixty-four is left to a poll.
#[test]
fn a_look_takes_what_a_poll_would() {
    let bench = bench();
    let segments = segments(&bench);
    let mut jfc = bench.jfc(16);
    let mut jfs = bench.jfs(jfc.id, DEPTH);
    let mut sender = CompletingQueue::default();
    assert_eq!(look(&mut jfc, &mut sender), None);
    post_first(&mut jfs, &segments, 0);
    report(&bench, (&jfc, &jfs), 0);
    assert_eq!(post(&mut jfs, 1), 1);
    assert_eq!(look(&mut jfc, &mut sender), None, "the one before it is not polled yet");
    let mut polled = poll_all(&mut jfc);
    assert_eq!(contexts(&polled), [0, 1]);
    let mut by_poll = 0;
    for ctx in 2..130 {
        assert_eq!(post(&mut jfs, ctx), 1);
        let Some(done) = look(&mut jfc, &mut sender) else {
            by_poll += 1;
            polled = poll_all(&mut jfc);
            assert_eq!(contexts(&polled), [ctx]);
            continue;
        };
        let one = polled[polled.len() - 1];
        assert_eq!(done, (ctx, 24));
        let sent_by = (sender.local_id, sender.queue_ctx, sender.flags);
        assert_eq!(sent_by, (one.local_id, one.queue_ctx, one.flags));
        assert_eq!(look(&mut jfc, &mut sender), None);
    }
    assert_eq!(by_poll, 2);
}
