//! Short messages end on the lane as on the long path, at both ends.

use udma_abi::cmd::{Access, Command, Mode, QueueFlags, QueueState};
use udma_abi::counters::Counter;
use udma_abi::sqe::{SqeFlags, SqeTargetKind};
use udma_abi::{Cqe, CqeStatus, Opcode, Sge, Sqe};

use urma_mem::Region;

use super::super::scene::{Scene, scene_of};
use super::super::{BenchJfc, BenchQueue, BenchSeg, eid, on_seg, pair_with};
use super::{AREA, GOOD};
use crate::cfg::ExpressLane;
use crate::exchange::PlainStep;
use crate::hooks::{self, Hook};

/// A jetty that sends, and one that receives.
pub(super) struct MessageScene {
    pub(super) s: Scene,
    pub(super) target: BenchQueue,
    pub(super) recv_jfc: BenchJfc,
    pub(super) there: BenchSeg,
}

/// Everything that both drivers can see of what was done.
#[derive(PartialEq, Eq, Debug)]
struct SeenMessages {
    sent: Vec<Cqe>,
    received: Vec<Cqe>,
    bytes: Vec<u8>,
    counts: Vec<u64>,
}

const TOKEN: u32 = 0x77;
/// Between two steps, in nanoseconds.
const STEP_NS: u64 = 100_000;
const STEPS: usize = 60;
const LATER: usize = 1000;

impl MessageScene {
    pub(super) fn new(lane: ExpressLane, depths: (u8, u8)) -> Self {
        let mut s = scene_of(pair_with(|cfg| cfg.lane = lane), 4, depths.0);
        s.fill();
        let recv_jfc = s.b.jfc(depths.1);
        let target = s.b.jetty(4, &recv_jfc, |args| args.flags |= QueueFlags::TOKEN);
        let there = s.b.seg(1 << 16);
        Self { s, target, recv_jfc, there }
    }

    pub(super) fn receive(&mut self, offset: u64, len: u32) {
        let sge = self.there.sge(offset, len);
        self.s.b.post_recv(&mut self.target, &[sge]);
    }

    pub(super) fn message(&self, opcode: Opcode) -> Sqe {
        Sqe {
            flags: SqeFlags::COMPLETE,
            tpn: self.s.tpn,
            token_en: true,
            token_value: TOKEN,
            target_kind: SqeTargetKind::Jetty,
            target_id: self.target.id,
            ..Sqe::new(opcode)
        }
    }

    pub(super) fn send(&mut self, change: impl FnOnce(&mut Sqe)) {
        let sge = self.s.local.sge(8, 8);
        self.send_from(sge, change);
    }

    fn send_from(&mut self, sge: Sge, change: impl FnOnce(&mut Sqe)) {
        let mut sqe = self.message(Opcode::Send);
        change(&mut sqe);
        self.s.a.post_direct(&mut self.s.jetty, sqe, &[sge]);
    }

    fn send_inline(&mut self, opcode: Opcode, words: &[u64], len: u16) {
        let flags = SqeFlags::COMPLETE | SqeFlags::INLINE;
        let sqe =
            Sqe { flags, inline_len: len, imm: 0x0102_0304_0506_0708, ..self.message(opcode) };
        let block = self.s.a.put(&mut self.s.jetty, sqe, words);
        self.s.a.write_direct(&self.s.jetty, &block);
    }

    fn step_both(&mut self) {
        self.s.a.now += STEP_NS;
        self.s.b.now = self.s.a.now;
        self.s.b.dev.step(self.s.a.now);
        self.s.a.dev.step(self.s.a.now);
    }

    /// Steps until nothing but messages waits: after a command everything takes the long path.
    fn rest(&mut self) {
        for _ in 0..3 {
            self.step_both();
        }
    }

    fn seen(&mut self, steps: usize) -> SeenMessages {
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        for _ in 0..steps {
            sent.extend(std::iter::from_fn(|| self.s.a.poll(&mut self.s.jfc)));
            received.extend(std::iter::from_fn(|| self.s.b.poll(&mut self.recv_jfc)));
            self.step_both();
        }
        let counters = [
            Counter::RingRequests,
            Counter::RingBytes,
            Counter::Completions,
            Counter::RnrSent,
            Counter::RnrReceived,
            Counter::DropMalformed,
            Counter::PeerLied,
            Counter::BadSqe,
        ];
        let both = counters.iter().flat_map(|c| [&self.s.a, &self.s.b].map(|n| n.dev.counter(*c)));
        SeenMessages { sent, received, bytes: self.there.bytes(0, AREA), counts: both.collect() }
    }
}

/// Runs `act` with the lane and without, after some messages of the same form; what was seen, which is the same.
fn alike(act: impl Fn(&mut MessageScene)) -> SeenMessages {
    alike_of((6, 6), STEPS, act)
}

fn alike_of(depths: (u8, u8), steps: usize, act: impl Fn(&mut MessageScene)) -> SeenMessages {
    let [on, off] = [ExpressLane::On, ExpressLane::Off].map(|lane| {
        let mut w = MessageScene::new(lane, depths);
        for at in 0..3 {
            w.receive(at * 64, 64);
            w.send(|_| {});
            w.step_both();
            assert_eq!(w.s.a.poll(&mut w.s.jfc).map(|cqe| cqe.status), Some(GOOD));
            assert_eq!(w.s.b.poll(&mut w.recv_jfc).map(|cqe| cqe.status), Some(GOOD));
        }
        act(&mut w);
        w.seen(steps)
    });
    assert_eq!(on, off);
    on
}

fn statuses(cqes: &[Cqe]) -> Vec<CqeStatus> {
    cqes.iter().map(|cqe| cqe.status).collect()
}

fn ends(seen: &SeenMessages, sent: &[CqeStatus], received: &[CqeStatus]) {
    assert_eq!(statuses(&seen.sent), sent);
    assert_eq!(statuses(&seen.received), received);
}

const TOO_LONG: CqeStatus = CqeStatus::LocLen;
const NOT_READY: CqeStatus = CqeStatus::RnrRetryExceeded;

#[test]
fn short_messages_of_all_kinds_are_alike() {
    let seen = alike(|w| {
        for at in 0..9 {
            w.receive(512 + at * 600, 600);
        }
        w.send(|_| {});
        w.send(|sqe| sqe.flags = SqeFlags::empty());
        w.send(|sqe| sqe.flags |= SqeFlags::SOLICITED | SqeFlags::COMP_ORDER);
        w.send(|sqe| (sqe.opcode, sqe.imm) = (Opcode::SendImm, 0x1122_3344_5566_7788));
        for len in [1, 20, 511, 512] {
            let sge = w.s.local.sge(3, len);
            w.send_from(sge, |_| {});
        }
        w.send_inline(Opcode::Send, &[0x1817_1615_1413_1211], 7);
        for _ in 0..3 {
            w.step_both();
        }
        for at in 0..4 {
            w.receive(512 + at * 600, 600);
        }
        w.send_inline(Opcode::SendImm, &[1, 2], 16);
        let (empty, long) = (w.s.local.sge(3, 0), w.s.local.sge(3, 513));
        w.send_from(empty, |_| {});
        w.send_from(long, |_| {});
        w.send(|sqe| sqe.flags |= SqeFlags::FENCE | SqeFlags::ORDER_STRONG);
    });
    ends(&seen, &[GOOD; 12], &[GOOD; 13]);
}

#[test]
fn many_messages_in_flight_are_alike() {
    let seen = alike_of((7, 7), STEPS, |w| {
        for round in 0..LATER as u64 {
            w.receive(512 + round % 7 * 8, 8);
            w.send(|sqe| sqe.flags.set(SqeFlags::COMPLETE, round % 5 == 0));
            if round % 3 == 0 {
                w.step_both();
                while w.s.a.poll(&mut w.s.jfc).is_some() {}
                while w.s.b.poll(&mut w.recv_jfc).is_some() {}
            }
        }
    });
    assert_eq!(seen.counts[..2], [LATER as u64 + 3, 0]);
}

#[test]
fn a_message_without_a_receive_is_sent_again() {
    let seen = alike(|w| {
        w.send(|_| {});
        w.send(|_| {});
        w.step_both();
        w.receive(512, 64);
        w.receive(600, 64);
    });
    ends(&seen, &[GOOD; 2], &[GOOD; 2]);
    ends(&alike(|w| w.send(|_| {})), &[NOT_READY], &[]);
    let seen = alike(|w| {
        w.send(|_| {});
        for _ in 0..STEPS {
            w.step_both();
        }
        // The number that the target waits for was not executed.
        w.receive(512, 64);
        w.send(|_| {});
    });
    ends(&seen, &[NOT_READY, GOOD], &[GOOD]);
}

#[test]
fn a_message_that_does_not_fit_fails_at_both_ends() {
    let seen = alike(|w| {
        w.receive(512, 7);
        w.receive(600, 8);
        w.send(|_| {});
        w.send(|_| {});
    });
    ends(&seen, &[CqeStatus::RemRespLen, GOOD], &[TOO_LONG, GOOD]);
    let seen = alike(|w| {
        let sges = [w.there.sge(512, 3), w.there.sge(600, 5)];
        w.s.b.post_recv(&mut w.target, &sges);
        w.send(|_| {});
    });
    ends(&seen, &[GOOD], &[GOOD]);
}

#[test]
fn what_a_message_shows_is_checked_each_time() {
    let refused = CqeStatus::RemAccessAbort;
    type Change = fn(&mut Sqe);
    let cases: [(Change, CqeStatus); 5] = [
        (|sqe| sqe.token_value ^= 1, refused),
        (|sqe| sqe.token_en = false, refused),
        (|sqe| sqe.target_id += 1, CqeStatus::RemOperation),
        (|sqe| sqe.target_kind = SqeTargetKind::Jfr, CqeStatus::RemOperation),
        (|sqe| sqe.target_kind = SqeTargetKind::Group, CqeStatus::RemOperation),
    ];
    for (change, status) in cases {
        let seen = alike(|w| {
            w.receive(512, 64);
            w.send(change);
            w.send(|_| {});
            w.send(change);
        });
        ends(&seen, &[status, GOOD, status], &[GOOD]);
    }
}

#[test]
fn a_receiver_that_changed_is_looked_at_again() {
    let seen = alike(|w| {
        w.receive(512, 64);
        w.s.b.ok(Command::ModifyState { id: w.target.id, state: QueueState::Error });
        w.rest();
        w.send(|_| {});
    });
    let flushed = [CqeStatus::WrFlushErr, CqeStatus::WrFlushErrDone];
    ends(&seen, &[CqeStatus::RemOperation], &flushed);
    let seen = alike(|w| {
        w.receive(512, 64);
        w.s.b.ok(Command::ModifyState { id: w.target.id, state: QueueState::Suspended });
        w.rest();
        w.send(|_| {});
    });
    ends(&seen, &[NOT_READY], &[CqeStatus::WrSuspendDone]);
    let seen = alike(|w| {
        w.s.b.ok(Command::DestroyQueue { id: w.target.id });
        w.rest();
        w.send(|_| {});
    });
    ends(&seen, &[CqeStatus::RemOperation], &[]);
}

#[test]
fn the_receive_is_checked_each_time() {
    let seen = alike(|w| {
        w.receive(512, 64);
        w.receive(600, 64);
        w.s.b.ok(Command::UnregisterSeg { token_id: w.there.token_id });
        w.rest();
        w.send(|_| {});
    });
    ends(&seen, &[CqeStatus::RemOperation], &[CqeStatus::LocAccess]);
    let cases: [fn(&MessageScene) -> Sge; 2] =
        [|w| Sge { va: w.there.va - 1, ..w.there.sge(0, 64) }, |w| w.there.sge((1 << 16) - 7, 64)];
    for piece in cases {
        let seen = alike(|w| {
            let piece = piece(w);
            w.s.b.post_recv(&mut w.target, &[piece]);
            w.send(|_| {});
        });
        ends(&seen, &[CqeStatus::RemOperation], &[CqeStatus::LocAccess]);
    }
    let seen = alike(|w| {
        let mem = w.s.b.alloc(4096).read_only();
        let pinned = w.s.b.seg_of(mem, Access::READ);
        w.s.b.post_recv(&mut w.target, &[pinned.sge(0, 64)]);
        w.send(|_| {});
    });
    ends(&seen, &[CqeStatus::RemOperation], &[CqeStatus::LocAccess]);
}

#[test]
fn full_completion_queues_stop_both_ends() {
    let seen = alike_of((6, 2), 3, |w| {
        for at in 0..6 {
            w.receive(512 + at * 64, 64);
        }
        for _ in 0..6 {
            w.send(|_| {});
        }
        for _ in 0..3 {
            w.step_both();
        }
    });
    assert_eq!(seen.counts[7], 1, "the receiver was not ready");
    let seen = alike_of((2, 6), STEPS, |w| {
        for at in 0..6 {
            w.receive(512 + at * 64, 64);
        }
        for _ in 0..6 {
            w.send(|_| {});
        }
        for _ in 0..3 {
            w.step_both();
        }
        assert!(w.s.b.peek(&w.recv_jfc).is_some());
    });
    ends(&seen, &[GOOD; 6], &[GOOD; 6]);
}

#[test]
fn a_sender_that_is_not_ready_sends_nothing() {
    for (state, end) in [
        (QueueState::Suspended, CqeStatus::WrSuspendDone),
        (QueueState::Error, CqeStatus::WrFlushErrDone),
    ] {
        let seen = alike(|w| {
            w.receive(512, 64);
            w.s.a.ok(Command::ModifyState { id: w.s.jetty.id, state });
            w.rest();
            w.send(|_| {});
        });
        assert_eq!((seen.sent[0].status, seen.received.len()), (end, 0));
    }
}

/// Who may send is judged again after each change.
#[test]
fn a_queue_that_was_unbound_takes_no_message() {
    let seen = alike(|w| {
        bind(w);
        w.rest();
        w.receive(512, 64);
        w.receive(600, 64);
        w.send(|_| {});
        w.step_both();
        w.s.b.ok(Command::Unbind { id: w.target.id });
        w.rest();
        w.send(|_| {});
    });
    assert_eq!(statuses(&seen.received), [GOOD]);
    assert_eq!(statuses(&seen.sent)[..2], [GOOD, CqeStatus::RemOperation]);
}

/// What was flushed is no request of the queue's next life.
#[test]
fn messages_of_an_earlier_life_end_nothing() {
    let seen = alike(|w| {
        w.send(|_| {});
        w.s.a.ok(Command::ModifyState { id: w.s.jetty.id, state: QueueState::Error });
        w.rest();
        w.step_both();
        w.s.a.ok(Command::ModifyState { id: w.s.jetty.id, state: QueueState::Reset });
        w.rest();
        w.s.a.ok(Command::ModifyState { id: w.s.jetty.id, state: QueueState::Ready });
        w.rest();
        w.receive(512, 64);
        w.send(|_| {});
    });
    assert_eq!(seen.received.len(), 1);
}

#[test]
fn local_pieces_of_messages_are_checked_each_time() {
    let denied = CqeStatus::LocAccess;
    let seen = alike(|w| {
        w.receive(512, 64);
        w.s.a.ok(Command::UnregisterSeg { token_id: w.s.local.token_id });
        w.rest();
        w.send(|_| {});
    });
    ends(&seen, &[denied, CqeStatus::WrFlushErrDone], &[]);
    let seen = alike(|w| {
        w.receive(512, 64);
        let outside = w.s.local.sge((1 << 20) - 7, 8);
        w.send_from(outside, |_| {});
    });
    ends(&seen, &[denied, CqeStatus::WrFlushErrDone], &[]);
}

#[test]
fn a_message_waits_for_what_it_follows() {
    let seen = alike(|w| {
        for at in 0..4 {
            w.receive(512 + at * 64, 64);
        }
        // A read that goes by the ring: the fence waits for it.
        let all = Access::READ | Access::WRITE | Access::ATOMIC;
        let far = w.s.b.seg_of(Region::private(4096).unwrap(), all);
        w.rest();
        let read = on_seg(Opcode::FetchAdd, w.s.tpn, &far, 0);
        let sge = w.s.local.sge(64, 8);
        w.s.a.post(&mut w.s.jetty, read, &[sge]);
        let pushed = w.s.a.dev.counter(Counter::RingRequests);
        w.send(|sqe| sqe.flags |= SqeFlags::FENCE);
        assert_eq!(w.s.a.dev.counter(Counter::RingRequests), pushed);
        w.rest();
        // To another target, then strongly ordered.
        w.send(|sqe| sqe.target_id += 1);
        w.send(|sqe| sqe.flags |= SqeFlags::ORDER_STRONG);
        // A list, then one alone.
        for _ in 0..2 {
            let mut sqe = w.message(Opcode::Send);
            sqe.sge_num = 1;
            let piece = w.s.local.sge(16, 8).to_words();
            w.s.a.put(&mut w.s.jetty, sqe, &piece);
        }
        w.s.a.ring(&w.s.jetty);
        w.send(|_| {});
    });
    assert_eq!(seen.received.len(), 4);
}

/// Uses two jetties that are bound to each other from now on.
fn bind(w: &mut MessageScene) {
    let a = w.s.a.jetty(4, &w.s.jfc, |args| args.mode = Mode::Rc);
    let b = w.s.b.jetty(4, &w.recv_jfc, |args| {
        (args.mode, args.flags) = (Mode::Rc, QueueFlags::TOKEN);
    });
    let back = w.s.b.connect(eid(1));
    w.s.a.ok(Command::Bind { id: a.id, tpn: w.s.tpn, remote_id: b.id, psns: None });
    w.s.b.ok(Command::Bind { id: b.id, tpn: back, remote_id: a.id, psns: None });
    (w.s.jetty, w.target) = (a, b);
}

#[test]
fn a_bound_queue_sends_to_its_peer_only() {
    let seen = alike(|w| {
        bind(w);
        w.rest();
        for at in 0..3 {
            w.receive(512 + at * 64, 64);
        }
        w.send(|_| {});
        w.step_both();
        w.send(|_| {});
        w.step_both();
        w.send(|sqe| sqe.target_id += 1);
    });
    let stopped = CqeStatus::LocOperation;
    ends(&seen, &[GOOD, GOOD, stopped, CqeStatus::WrFlushErrDone], &[GOOD; 2]);
}

#[test]
fn messages_to_a_node_that_is_gone_fail() {
    let seen = alike(|w| {
        w.send(|_| {});
        w.s.a.dev.on_peer_gone(w.s.a.now, eid(2));
        w.rest();
        w.send(|_| {});
    });
    ends(&seen, &[CqeStatus::AckTimeout; 2], &[]);
}

/// The bytes are in the receive before its completion.
#[test]
fn a_completion_follows_its_bytes() {
    let _ = alike(|w| {
        w.receive(512, 64);
        let memory = w.there.mem.clone();
        hooks::at(Hook::CqeBodyNoOwner, move || assert_eq!(memory.load_u64(512), Ok(0)));
        w.send(|_| {});
    });
}

/// Messages to and fro: each one carries the acknowledgement of the one before.
#[test]
fn messages_that_acknowledge_are_alike() {
    for lane in [ExpressLane::On, ExpressLane::Off] {
        let mut w = MessageScene::new(lane, (6, 6));
        let back = w.s.b.connect(eid(1));
        let here = w.s.a.seg(4096);
        let (mut at_a, mut at_b) = (0, 0usize);
        for round in 0..300u64 {
            w.receive(0, 64);
            w.s.a.post_recv(&mut w.s.jetty, &[here.sge(0, 64)]);
            w.send(|_| {});
            assert!(w.s.b.dev.step_found(|| 0, PlainStep::Poll));
            let came = std::iter::from_fn(|| w.s.b.poll(&mut w.recv_jfc)).inspect(|cqe| {
                assert_eq!(cqe.status, GOOD, "{round}");
                at_b += usize::from(!cqe.recv);
            });
            assert_eq!(came.filter(|cqe| cqe.recv).count(), 1, "{round}");
            let sqe = Sqe {
                target_id: w.s.jetty.id,
                tpn: back,
                token_en: false,
                ..w.message(Opcode::Send)
            };
            let piece = w.there.sge(0, 8);
            w.s.b.post_direct(&mut w.target, sqe, &[piece]);
            w.s.a.dev.step_found(|| 0, PlainStep::Poll);
            while let Some(cqe) = w.s.a.poll(&mut w.s.jfc) {
                assert_eq!(cqe.status, GOOD);
                at_a += 1;
            }
            while let Some(cqe) = w.s.b.poll(&mut w.recv_jfc) {
                assert_eq!(cqe.status, GOOD);
                at_b += 1;
            }
        }
        // What waits goes by the next polls.
        for _ in 0..3 {
            w.s.a.dev.step_found(|| 0, PlainStep::Poll);
            w.s.b.dev.step_found(|| 0, PlainStep::Poll);
        }
        at_a += std::iter::from_fn(|| w.s.a.poll(&mut w.s.jfc)).count();
        at_b += std::iter::from_fn(|| w.s.b.poll(&mut w.recv_jfc)).count();
        assert_eq!((at_a, at_b), (600, 300), "{lane:?}");
    }
}
