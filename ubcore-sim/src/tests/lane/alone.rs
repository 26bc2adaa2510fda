//! A poll that waited for a message takes that one alone, and only where that is all there is to do.

use udma_abi::cmd::{Command, Mode};
use udma_abi::{Opcode, Sqe};

use super::super::{BenchSeg, eid};
use super::messages::MessageScene;
use crate::cfg::ExpressLane;
use crate::exchange::PlainStep;

/// Messages to and fro after which both programs are known to come back soon.
const ROUNDS: usize = 100;

/// Two nodes whose programs answer each message.
struct Talk {
    w: MessageScene,
    back: u32,
    here: BenchSeg,
}

impl Talk {
    fn new(lane: ExpressLane, rounds: usize) -> Self {
        let mut w = MessageScene::new(lane, (6, 6));
        let back = w.s.b.connect(eid(1));
        let here = w.s.a.seg(4096);
        let mut talk = Self { w, back, here };
        for round in 0..rounds {
            talk.ask(1);
            assert_eq!(talk.poll_b(), 1, "{round}");
            talk.answer();
            assert!(talk.poll_a() >= 1, "{round}");
        }
        // What was held goes.
        (0..3).for_each(|_| {
            talk.poll_b();
            talk.poll_a();
        });
        talk
    }

    fn ask(&mut self, count: usize) {
        for _ in 0..count {
            self.w.receive(0, 64);
            self.w.send(|_| {});
        }
    }

    fn answer(&mut self) {
        let Self { w, back, here } = self;
        w.s.a.post_recv(&mut w.s.jetty, &[here.sge(0, 64)]);
        let (target_id, tpn) = (w.s.jetty.id, *back);
        let sqe = Sqe { target_id, tpn, token_en: false, ..w.message(Opcode::Send) };
        let piece = w.there.sge(0, 8);
        w.s.b.post_direct(&mut w.target, sqe, &[piece]);
    }

    /// Messages that one poll of the receiver finds.
    fn poll_b(&mut self) -> usize {
        let Self { w, .. } = self;
        w.s.b.dev.step_found(|| 0, PlainStep::Poll);
        std::iter::from_fn(|| w.s.b.poll(&mut w.recv_jfc)).filter(|cqe| cqe.recv).count()
    }

    /// Messages that a poll of the receiver finds after an entry of the peer ended its idle snapshot. `None`: a step
    /// is due.
    fn take_b(&mut self) -> Option<usize> {
        let Self { w, .. } = self;
        let is_taken = w.s.b.dev.take_entry(|| 0, &mut udma_abi::PollOfOne::default());
        let came =
            std::iter::from_fn(|| w.s.b.poll(&mut w.recv_jfc)).filter(|cqe| cqe.recv).count();
        assert!(is_taken || came == 0, "nothing happened");
        is_taken.then_some(came)
    }

    /// Completions that one poll of the sender finds.
    fn poll_a(&mut self) -> usize {
        let Self { w, .. } = self;
        w.s.a.dev.step_found(|| 0, PlainStep::Poll);
        std::iter::from_fn(|| w.s.a.poll(&mut w.s.jfc)).count()
    }
}

#[test]
fn a_message_that_was_waited_for_comes_alone() {
    let mut talk = Talk::new(ExpressLane::On, ROUNDS);
    talk.ask(1);
    assert_eq!((talk.poll_b(), talk.poll_a()), (1, 0), "its acknowledgement waits");
    talk.answer();
    assert_eq!(talk.poll_a(), 2, "the answer brings it");
}

/// The first one leaves its acknowledgement: a step follows, which takes all others.
#[test]
fn of_several_messages_the_first_one_alone_comes_alone() {
    let mut talk = Talk::new(ExpressLane::On, ROUNDS);
    talk.ask(5);
    assert_eq!([talk.poll_b(), talk.poll_b()], [1, 4]);
}

#[test]
fn a_program_that_is_not_known_to_come_back_leaves_nothing() {
    let mut talk = Talk::new(ExpressLane::On, 3);
    talk.ask(2);
    assert_eq!((talk.poll_b(), talk.poll_a()), (2, 2));
}

#[test]
fn without_the_lane_nothing_comes_alone() {
    let mut talk = Talk::new(ExpressLane::Off, ROUNDS);
    talk.ask(2);
    assert_eq!(talk.poll_b(), 2);
}

#[test]
fn nothing_comes_alone_while_a_command_waits() {
    let mut talk = Talk::new(ExpressLane::On, ROUNDS);
    let b = &mut talk.w.s.b;
    b.submit(Command::Connect { eid: eid(9), mode: Mode::Rm });
    b.dev.step(b.now);
    assert!(b.response().is_none(), "the node is looked for");
    talk.ask(2);
    assert_eq!(talk.poll_b(), 2);
}

#[test]
fn the_entry_that_ends_an_idle_snapshot_is_taken_without_a_step() {
    let mut talk = Talk::new(ExpressLane::On, ROUNDS);
    talk.ask(2);
    assert_eq!((talk.take_b(), talk.poll_a()), (Some(1), 0), "its acknowledgement waits");
    assert_eq!(talk.take_b(), None, "the first one left its acknowledgement");
    assert_eq!(talk.poll_b(), 1);
}

#[test]
fn where_a_queue_waits_for_its_step_the_entry_is_left_to_that() {
    let mut talk = Talk::new(ExpressLane::On, ROUNDS);
    talk.ask(1);
    let b = &talk.w.s.b;
    b.dev.core.make_runnable(b.dev.core.queues.get(talk.w.target.id).unwrap());
    assert_eq!(talk.take_b(), None);
    assert_eq!(talk.poll_b(), 1);
}
