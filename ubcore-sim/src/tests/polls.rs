//! A poll steps nothing where a step would find nothing, and everything else is found.

use udma_abi::cmd::{Command, Mode, QueueState};
use udma_abi::counters::Counter;
use udma_abi::sqe::SqeTargetKind;
use udma_abi::{CqeStatus, Opcode, Sqe};

use super::scene::{Scene, scene, scene_of};
use super::{Bench, on_seg, pair, pair_with};
use crate::context::link::Reach;
use crate::exchange::PlainStep;
use crate::share::HALF_RING;

/// Steps both nodes until they have nothing to do.
fn finish(s: &mut Scene) {
    for _ in 0..100 {
        s.a.now += 1000;
        let busy = s.a.dev.step(s.a.now) | s.b.dev.step(s.a.now);
        if !busy && !is_found(&s.a) && !is_found(&s.b) {
            return;
        }
    }
    panic!("there is always something to do");
}

/// Steps a node as a poll does; returns whether there was something to step for. A poll while idle would not step.
fn is_found(node: &Bench) -> bool {
    let mut idle = node.idle.lock().unwrap();
    let held = idle.holds();
    idle.end();
    let raised = node.dev.sign().raised();
    let is_found = node.dev.step_or_begin(|| node.now, (PlainStep::Poll, (raised, &mut idle)));
    assert!(!(held && is_found), "the poll before began a idle, which went on");
    is_found
}

#[test]
fn a_poll_that_found_nothing_begins_an_idle_snapshot_which_an_input_ends() {
    let mut s = scene();
    finish(&mut s);
    assert!(!is_found(&s.a) && s.a.idle.lock().unwrap().holds());
    assert!(!is_found(&s.b) && s.b.idle.lock().unwrap().holds());
    let (send, piece) = (message(&s, 9), s.local.sge(0, 8));
    s.a.post(&mut s.jetty, send, &[piece]);
    assert!(!s.a.idle.lock().unwrap().holds(), "the post visited the shared part");
    assert!(!s.b.idle.lock().unwrap().holds(), "the peer wrote into the ring");
    finish(&mut s);
    assert!(s.b.idle.lock().unwrap().holds());
    s.b.submit(Command::Nop);
    assert!(!s.b.idle.lock().unwrap().holds(), "a command was rung");
}

fn message(s: &Scene, to: u32) -> Sqe {
    Sqe {
        target_kind: SqeTargetKind::Jetty,
        target_id: to,
        token_value: 0x77,
        ..on_seg(Opcode::Send, s.tpn, &s.remote, 0)
    }
}

#[test]
fn a_message_in_the_ring_is_found_and_its_answer_too() {
    let mut s = scene();
    let mut jfc = s.b.jfc(4);
    let mut target = s.b.jetty(4, &jfc, |_| {});
    let sge = s.remote.sge(0, 64);
    s.b.post_recv(&mut target, &[sge]);
    finish(&mut s);
    let (send, piece) = (message(&s, target.id), s.local.sge(0, 8));
    s.a.post(&mut s.jetty, send, &[piece]);
    assert!(is_found(&s.b), "the message");
    assert!(s.b.poll(&mut jfc).is_some());
    assert!(is_found(&s.a), "the answer");
    assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(CqeStatus::Success));
    finish(&mut s);
}

/// Polls that found nothing remember where the next piece comes: the place moves with each piece, back to the
/// start of the ring too.
#[test]
fn each_message_is_found_after_polls_that_found_nothing() {
    let mut s = scene();
    let mut jfc = s.b.jfc(4);
    let mut target = s.b.jetty(4, &jfc, |_| {});
    for round in 0..2000 {
        let sge = s.remote.sge(0, 64);
        s.b.post_recv(&mut target, &[sge]);
        finish(&mut s);
        assert!(!is_found(&s.a) && !is_found(&s.b), "round {round}: nothing");
        let (send, piece) = (message(&s, target.id), s.local.sge(0, 8));
        s.a.post(&mut s.jetty, send, &[piece]);
        assert!(is_found(&s.b), "round {round}: the message");
        assert!(s.b.poll(&mut jfc).is_some(), "round {round}");
        if !is_found(&s.a) {
            // An answer that waits for a message back goes with the next poll.
            assert!(is_found(&s.b), "round {round}: a held answer");
            assert!(is_found(&s.a), "round {round}: the answer");
        }
        assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(CqeStatus::Success));
    }
}

#[test]
fn a_queue_that_wants_another_step_is_found() {
    let change = |cfg: &mut crate::DeviceCfg| (cfg.direct_chunk, cfg.step_bytes) = (1024, 1024);
    let mut s = scene_of(pair_with(change), 4, 6);
    finish(&mut s);
    let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
    let piece = s.local.sge(0, 5000);
    s.a.post(&mut s.jetty, write, &[piece]);
    assert!(is_found(&s.a));
    finish(&mut s);
    assert!(s.a.poll(&mut s.jfc).is_some());
}

/// The completion queue has room for fewer than end: the others end as it is polled.
#[test]
fn receives_that_wait_for_their_end_are_found() {
    let mut s = scene();
    let mut jfc = s.b.jfc(2);
    let mut target = s.b.jetty(4, &jfc, |_| {});
    for _ in 0..8 {
        let sge = s.remote.sge(0, 64);
        s.b.post_recv(&mut target, &[sge]);
    }
    s.b.ok(Command::ModifyState { id: target.id, state: QueueState::Error });
    let mut ended = 0;
    for _ in 0..100 {
        while s.b.poll(&mut jfc).is_some() {
            ended += 1;
        }
        if ended < 8 {
            assert!(is_found(&s.b), "after {ended}");
        }
    }
    assert!(ended >= 8, "{ended}");
}

#[test]
fn a_command_that_waits_is_found() {
    let mut s = scene();
    let jfc = s.b.jfc(4);
    let target = s.b.jetty(4, &jfc, |_| {}).id;
    finish(&mut s);
    let (send, piece) = (message(&s, target), s.local.sge(0, 8));
    s.a.post(&mut s.jetty, send, &[piece]);
    s.a.submit(Command::Connect { eid: super::eid(9), mode: Mode::Rm });
    s.a.dev.step(s.a.now);
    s.a.dev.step(s.a.now);
    assert!(s.a.response().is_none(), "the node is looked for");
    assert!(is_found(&s.a));
}

/// The bounded step left a part of the pieces.
#[test]
fn what_a_bounded_step_left_is_found() {
    let mut s = scene();
    finish(&mut s);
    s.a.submit(Command::Nop);
    assert!(is_found(&s.a), "the step did something");
    assert!(s.a.response().is_some());
    assert!(!is_found(&s.a), "that step did nothing");
}

#[test]
fn a_post_sets_the_time_at_which_its_request_is_looked_at() {
    let mut s = scene();
    finish(&mut s);
    assert_eq!(s.a.dev.poll_deadline(), None);
    let (send, piece) = (message(&s, 9), s.local.sge(0, 8));
    s.a.post(&mut s.jetty, send, &[piece]);
    assert!(s.a.dev.poll_deadline().is_some_and(|at| at > s.a.now));
}

#[test]
fn a_peer_whose_ring_holds_nonsense_is_cut_off_by_polls() {
    let mut s = scene();
    finish(&mut s);
    let link = s.a.dev.core.tables.links.find(s.tpn).unwrap();
    let Reach::Direct(parts) = &link.reach else { panic!("a node on this host") };
    // Kind 9, 8 bytes.
    parts.half.store_u64(HALF_RING, 9 << 32 | 8).unwrap();
    (0..10).for_each(|_| {
        let _ = is_found(&s.b);
    });
    assert_eq!(s.b.dev.counter(Counter::PeerLied), 1);
}

/// A request that is behind 32 others on its way goes with the next poll, together with what was posted until then.
#[test]
fn many_requests_on_the_way_gather_the_next_ones_for_a_poll() {
    let mut s = scene_of(pair(), 8, 8);
    let mut jfc = s.b.jfc(8);
    let mut target = s.b.jetty(8, &jfc, |_| {});
    let sge = s.remote.sge(0, 64);
    (0..200).for_each(|_| s.b.post_recv(&mut target, &[sge]));
    let sent = |s: &Scene| s.a.dev.counter(Counter::RingRequests);
    let post = |s: &mut Scene, count: usize| {
        for _ in 0..count {
            let (send, pieces) = (message(s, target.id), [s.local.sge(0, 8), s.local.sge(8, 8)]);
            s.a.post(&mut s.jetty, send, &pieces);
        }
    };
    post(&mut s, 1);
    finish(&mut s);
    let first = sent(&s);
    post(&mut s, 32);
    assert_eq!(sent(&s) - first, 32, "each at once");
    assert!(!is_found(&s.a) && s.a.idle.lock().unwrap().holds());
    post(&mut s, 10);
    assert_eq!(sent(&s) - first, 32, "more than enough are on the way");
    assert!(!s.a.idle.lock().unwrap().holds(), "the next poll has to look");
    assert!(s.a.dev.is_due(s.a.now), "a thread that is about to sleep sees them");
    assert!(is_found(&s.a));
    assert_eq!(sent(&s) - first, 42, "a poll takes them all");
    post(&mut s, 31);
    assert_eq!(sent(&s) - first, 42, "further ones wait");
    post(&mut s, 1);
    assert_eq!(sent(&s) - first, 74, "so many go without a poll");
    post(&mut s, 118);
    let ends = std::iter::from_fn(|| {
        finish(&mut s);
        assert!(s.b.poll(&mut jfc).is_none_or(|cqe| cqe.status == CqeStatus::Success));
        s.a.poll(&mut s.jfc)
    });
    assert_eq!(ends.filter(|cqe| cqe.status == CqeStatus::Success).count(), 193);
}
