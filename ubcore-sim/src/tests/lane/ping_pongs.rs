//! Messages in ping-pong mode end in the same way as without it, whatever interrupts the mode.

use std::sync::Arc;

use udma_abi::cmd::{Access, Command, QueueState};
use udma_abi::doorbell::CqArm;
use udma_abi::sqe::{SqeFlags, SqeTargetKind};
use udma_abi::{CqeStatus, Opcode, PollOfOne, Sge, Sqe};
use urma_mem::sync::{AtomicBool, Ordering};

use super::super::{BenchSeg, on_seg};
use super::GOOD;
use super::leases::can_lease;
use super::talk::{AREA, PLACES, SeenEnd, SeenTalk, TOKEN, TalkSide, TalkWorld};
use crate::cfg::PingPongs;
use crate::exchange::PlainStep;
use crate::link::Rng;

/// Runs `act` with ping-pong mode and without: what was seen is the same.
fn alike(act: impl Fn(&mut TalkWorld)) -> SeenTalk {
    let [with, without] = [PingPongs::Soon, PingPongs::Never].map(|ping_pongs| {
        let mut world = TalkWorld::new(ping_pongs);
        world.turns(TURNS_BEFORE);
        let is_on = world.ping_pongs() != [0, 0];
        assert_eq!(is_on, ping_pongs == PingPongs::Soon);
        act(&mut world);
        world.seen()
    });
    assert_eq!(with, without);
    with
}

/// Turns before ping-pong mode begins.
const TURNS_BEFORE: usize = 6;

fn statuses(ends: &[SeenEnd]) -> Vec<CqeStatus> {
    ends.iter().map(|end| end.status).skip(TURNS_BEFORE).collect()
}

#[test]
fn programs_that_answer_each_other_have_one_ping_pong() {
    let mut world = TalkWorld::new(PingPongs::Usual);
    world.turns(40);
    assert_eq!(world.ping_pongs(), [0, 0], "their programs are not known to come back soon");
    world.turns(200);
    let (begun, given) = (world.ping_pongs(), world.0.each_ref().map(|side| side.given));
    assert_eq!(begun, [1, 1]);
    world.turns(100);
    let more = world.0.each_ref().map(|side| side.given);
    assert_eq!([more[0] - given[0], more[1] - given[1]], [100, 100], "each by the shortest way");
    assert_eq!(world.ping_pongs(), begun);
    assert_eq!(statuses(&world.0[0].sent).len() + TURNS_BEFORE, 340);
    let mut world = TalkWorld::new(PingPongs::Never);
    world.turns(240);
    assert_eq!((world.ping_pongs(), world.0[0].given), ([0, 0], 0));
}

/// The timer finds a request that waits for its acknowledgement, as without the mode.
#[test]
fn a_message_that_nothing_answers_has_its_timer() {
    let mut world = TalkWorld::new(PingPongs::Soon);
    world.turns(TURNS_BEFORE);
    let sent = world.0[0].b.now;
    world.0[1].receive(8);
    world.say(0, 8, |_, _| {});
    let due = world.0[0].b.dev.poll_deadline();
    // The error timeout of the jetty, 4.096 us << 17.
    assert!(due.is_some_and(|at| at <= sent + (4096 << 17)), "{due:?}");
}

#[test]
fn what_is_unlike_the_messages_before_ends_alike() {
    type Change = fn(&mut Sqe, &mut Sge);
    let refused = CqeStatus::RemAccessAbort;
    let cases: [(Change, CqeStatus); 9] = [
        (|_, _| {}, GOOD),
        (|sqe, _| sqe.token_value ^= 1, refused),
        (|sqe, _| sqe.token_en = false, refused),
        (|sqe, _| sqe.target_id += 1, CqeStatus::RemOperation),
        (|sqe, _| sqe.target_kind = SqeTargetKind::Jfr, CqeStatus::RemOperation),
        (|sqe, _| (sqe.opcode, sqe.imm) = (Opcode::SendImm, 0x0102_0304_0506_0708), GOOD),
        (|sqe, _| sqe.flags |= SqeFlags::SOLICITED | SqeFlags::FENCE, GOOD),
        (|_, piece| piece.len = 513, GOOD),
        (|_, piece| piece.len = 0, GOOD),
    ];
    for (change, status) in cases {
        let seen = alike(|world| {
            world.0[1].receive(600);
            world.say(0, 8, change);
            world.0[1].poll();
            world.turns(3);
        });
        let [[sent, _], _] = &seen.ends;
        assert_eq!(statuses(sent)[0], status);
    }
}

#[test]
fn pieces_outside_their_segment_are_refused_alike() {
    let cases: [fn(&mut Sge); 3] = [
        |piece| piece.va -= AREA as u64,
        |piece| piece.va += AREA as u64,
        |piece| piece.token_id += 256,
    ];
    for change in cases {
        let seen = alike(|world| {
            world.0[1].receive(64);
            world.say(0, 8, |_, piece| change(piece));
            world.0[1].poll();
        });
        assert_eq!(statuses(&seen.ends[0][0])[0], CqeStatus::LocAccess);
        let seen = alike(|world| {
            let mut piece = world.0[1].seg.sge(PLACES, 64);
            change(&mut piece);
            let TalkSide { b, jetty, .. } = &mut world.0[1];
            b.post_recv(jetty, &[piece]);
            world.say(0, 8, |_, _| {});
            world.0[1].poll();
        });
        assert_eq!(statuses(&seen.ends[0][0])[0], CqeStatus::RemOperation);
    }
}

#[test]
fn receives_of_other_memory_and_other_shapes_are_filled_alike() {
    let seen = alike(|world| {
        let TalkSide { b, jetty, .. } = &mut world.0[1];
        let other = b.seg(4096);
        let read_only = b.alloc(4096).read_only();
        let read_only = b.seg_of(read_only, Access::READ);
        b.post_recv(jetty, &[other.sge(8, 64)]);
        b.post_recv(jetty, &[other.sge(128, 3), other.sge(256, 61)]);
        b.post_recv(jetty, &[read_only.sge(0, 64)]);
        for _ in 0..3 {
            world.say(0, 8, |_, _| {});
            world.0[1].poll();
            world.0[0].receive(8);
            world.say(1, 8, |_, _| {});
            world.0[0].poll();
        }
    });
    assert_eq!(statuses(&seen.ends[0][0]), [GOOD, GOOD, CqeStatus::RemOperation]);
    // The receive is too short.
    let seen = alike(|world| {
        world.0[1].receive(7);
        world.say(0, 8, |_, _| {});
        world.0[1].poll();
    });
    assert_eq!(statuses(&seen.ends[0][0]), [CqeStatus::RemRespLen]);
}

/// What is withdrawn during ping-pong mode is not used by it.
#[test]
fn memory_that_was_withdrawn_is_not_used_by_a_ping_pong() {
    for side in [0, 1] {
        let seen = alike(|world| {
            world.0[1].receive(8);
            let token_id = world.0[side].seg.token_id;
            world.0[side].b.ok(Command::UnregisterSeg { token_id });
            world.say(0, 8, |_, _| {});
            world.0[1].poll();
        });
        let status = [CqeStatus::LocAccess, CqeStatus::RemOperation][side];
        assert_eq!(statuses(&seen.ends[0][0])[0], status);
    }
}

#[test]
fn a_queue_that_stops_in_a_ping_pong_ends_all_its_messages() {
    for (state, is_sender) in [(QueueState::Error, true), (QueueState::Error, false)] {
        alike(|world| {
            world.0[1].receive(8);
            world.say(0, 8, |_, _| {});
            let side = &mut world.0[usize::from(!is_sender)];
            side.b.ok(Command::ModifyState { id: side.jetty.id, state });
            world.0[1].poll();
        });
    }
    alike(|world| {
        world.0[0].receive(8);
        let side = &mut world.0[0];
        side.b.ok(Command::DestroyQueue { id: side.jetty.id });
        world.say(1, 8, |_, _| {});
        world.0[0].poll();
    });
}

/// A poll that finds nothing sends the acknowledgement that is owed, and so does one of a program that comes back late.
#[test]
fn an_acknowledgement_waits_for_no_answer_that_does_not_come() {
    let mut world = TalkWorld::new(PingPongs::Soon);
    world.turns(TURNS_BEFORE);
    world.0[1].receive(8);
    world.say(0, 8, |_, _| {});
    world.0[1].poll();
    assert_eq!(world.0[1].received.len(), TURNS_BEFORE + 1);
    assert_eq!(world.0[0].poll(), 0, "it waits");
    world.0[1].poll_ring();
    assert_eq!(world.0[0].poll(), 1);
    // A program that comes back late still answers in ping-pong mode, and owes nothing for a while.
    world.turns(TURNS_BEFORE);
    world.0[1].receive(8);
    world.say(0, 8, |_, _| {});
    world.0[1].poll();
    world.0[1].b.now += 20_000_000;
    world.0[0].receive(8);
    world.say(1, 8, |_, _| {});
    assert_ne!(world.0[0].poll(), 0);
    world.0[1].receive(8);
    world.say(0, 8, |_, _| {});
    world.0[1].poll();
    assert_eq!(world.0[0].poll(), 1, "its acknowledgement went at once");
}

/// A request to another node, here to this one itself, is not retired: completions of the queue keep their order.
#[test]
fn a_ping_pong_begins_beside_no_other_request() {
    let mut world = TalkWorld::new(PingPongs::Soon);
    let TalkSide { b, jetty, .. } = &mut world.0[0];
    let own = b.connect(b.eid());
    let target = jetty.id;
    // Nothing receives it.
    world.0[0].send(target, 8, |sqe, _| sqe.tpn = own);
    world.turns(TURNS_BEFORE);
    assert_eq!(world.ping_pongs()[0], 0);
    world.0[0].receive(8);
    (0..200).for_each(|_| world.step_both());
    world.0[0].take();
    world.turns(TURNS_BEFORE);
    assert_eq!(world.ping_pongs()[0], 1);
}

/// A WRITE that is ordered with the messages stands behind the one that is on its way.
#[test]
fn a_write_waits_for_the_message_before_it() {
    let mut world = TalkWorld::new(PingPongs::Soon);
    world.turns(TURNS_BEFORE);
    world.0[1].receive(8);
    world.say(0, 8, |_, _| {});
    let (remote, target_id) = (world.0[1].seg.clone(), world.0[1].jetty.id);
    let TalkSide { b, jetty, seg, tpn, .. } = &mut world.0[0];
    let kind = SqeTargetKind::Jetty;
    let sqe = Sqe { target_kind: kind, target_id, ..on_seg(Opcode::Write, *tpn, &remote, 99) };
    b.post_direct(jetty, sqe, &[seg.sge(3, 8)]);
    let (before, there) = (seg.bytes(3, 8), |world: &TalkWorld| world.0[1].seg.bytes(99, 8));
    assert_ne!(there(&world), before, "it passed the message");
    (0..4).for_each(|_| world.step_both());
    assert_eq!(there(&world), before);
}

/// The request of ping-pong mode whose peer is silent ends once, when its time is over.
#[test]
fn a_message_that_is_never_answered_ends_once() {
    let ended = |ping_pongs: PingPongs| {
        let mut world = TalkWorld::new(ping_pongs);
        world.turns(TURNS_BEFORE);
        world.0[1].receive(8);
        world.say(0, 8, |_, _| {});
        let a = &mut world.0[0];
        let ends = (0..100_000).map(|_| {
            a.b.now += 1_000_000;
            a.b.dev.step_found(|| a.b.now, PlainStep::Poll);
            if a.b.dev.is_due(a.b.now) {
                a.b.dev.step(a.b.now);
            }
            (a.take(), a.b.now)
        });
        let found: Vec<_> = ends.filter(|(count, _)| *count != 0).collect();
        (found, statuses(&a.sent))
    };
    let (found, statuses) = ended(PingPongs::Soon);
    assert_eq!(statuses, [CqeStatus::AckTimeout]);
    assert_eq!(ended(PingPongs::Never), (found, statuses), "at the same time");
}

/// What another poll or an event waits for is written to the ring.
#[test]
fn a_completion_is_given_only_to_a_poll_that_nothing_goes_before() {
    let given = |of: fn(&mut TalkSide) -> (u32, u32)| {
        let mut world = TalkWorld::new(PingPongs::Soon);
        world.turns(TURNS_BEFORE);
        world.0[1].receive(8);
        world.say(0, 8, |_, _| {});
        let side = &mut world.0[1];
        let mut poll = PollOfOne { of: Some(of(side)), given: None };
        assert!(side.b.dev.take_entry(|| side.b.now, &mut poll));
        side.take();
        let came = side.received.len() - TURNS_BEFORE;
        assert_eq!(came + usize::from(poll.given.is_some()), 1, "one completion");
        poll.given.is_some()
    };
    assert!(given(|side| (side.jfc.id, side.jfc.ci)));
    assert!(!given(|side| {
        side.b.arm(&mut side.jfc, CqArm::Any);
        (side.jfc.id, side.jfc.ci)
    }));
    assert!(!given(|side| (side.jfc.id + 1, side.jfc.ci)), "another JFC");
    assert!(!given(|side| (side.jfc.id, side.jfc.ci - 1)), "an entry waits");
}

/// When the mode has lasted long, its thread has shared part and queue by leases, which any other visit takes.
#[test]
fn a_long_ping_pong_is_leased_until_something_else_happens() {
    let leased = |world: &TalkWorld| {
        let dev = &world.0[0].b.dev;
        let queue = dev.core.queues.get(world.0[0].jetty.id).unwrap();
        [dev.is_shared_leased(), queue.send.is_leased()]
    };
    let mut world = TalkWorld::new(PingPongs::Usual);
    world.turns(200);
    assert_eq!((leased(&world), world.ping_pongs()), ([false; 2], [1, 1]));
    if !can_lease() {
        return;
    }
    world.turns(300);
    assert_eq!(leased(&world), [true; 2]);
    world.0[0].b.dev.step(world.0[0].b.now);
    assert!(!leased(&world)[0], "the step took it");
    // The next one takes twice as long.
    world.turns(400);
    assert_eq!(leased(&world), [false, true]);
    world.turns(300);
    assert_eq!(leased(&world), [true; 2]);
    world.turns(10);
    world.0[0].jetty = {
        let TalkSide { b, jfc, .. } = &mut world.0[0];
        b.jetty(8, jfc, |_| {})
    };
    assert_eq!(leased(&world), [false; 2], "a command, and another queue");
}

/// Steps of another thread at any time lose no message and double none.
#[test]
fn another_thread_steps_in_the_middle_of_ping_pongs() {
    let mut world = TalkWorld::new(PingPongs::Soon);
    let devices = world.0.each_ref().map(|side| Arc::clone(&side.b.dev));
    let is_over = AtomicBool::new(false);
    let turns = 3000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for dev in &devices {
                    dev.step(1_000_000);
                    std::thread::yield_now();
                }
            }
        });
        for turn in 0..turns {
            for side in [0, 1] {
                let other = 1 - side;
                world.0[other].receive(8);
                world.say(side, 8, |_, _| {});
                let wanted = turn + 1;
                while world.0[other].received.len() < wanted
                    || world.0[side].sent.len() + 1 < wanted
                {
                    world.0[other].poll();
                    world.0[side].poll();
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let begun = world.ping_pongs();
    let seen = world.seen();
    for [sent, received] in &seen.ends {
        let good = |ends: &[SeenEnd]| ends.iter().filter(|end| end.status == GOOD).count();
        assert_eq!([good(sent), good(received)], [turns; 2]);
        assert_eq!([sent.len(), received.len()], [turns; 2]);
    }
    assert!(begun[0] > 1, "{begun:?}");
}

/// An entry of another pass over the ring is no message.
#[test]
fn an_entry_of_another_pass_is_refused_alike() {
    let seen = alike(|world| {
        world.0[1].receive(8);
        let target_id = world.0[1].jetty.id;
        let TalkSide { b, jetty, seg, tpn, .. } = &mut world.0[0];
        let sqe = Sqe {
            flags: SqeFlags::COMPLETE,
            tpn: *tpn,
            token_en: true,
            token_value: TOKEN,
            target_kind: SqeTargetKind::Jetty,
            target_id,
            sge_num: 1,
            ..Sqe::new(Opcode::Send)
        };
        let mut block = b.put(jetty, sqe, &seg.sge(0, 8).to_words());
        block[0] ^= 1 << 31;
        b.write_direct(jetty, &block);
        world.0[1].poll();
    });
    assert_eq!(statuses(&seen.ends[0][0])[0], CqeStatus::LocOperation);
}

/// Another kind of request on the same queue, before the message is acknowledged and after.
#[test]
fn requests_beside_a_ping_pong_are_in_order() {
    let seen = alike(|world| {
        for round in 0..4 {
            world.0[1].receive(8);
            world.say(0, 8, |sqe, _| sqe.flags.set(SqeFlags::COMPLETE, round % 2 == 0));
            let remote = world.0[1].seg.clone();
            let TalkSide { b, jetty, seg, tpn, .. } = &mut world.0[0];
            let sqe = Sqe { flags: SqeFlags::COMPLETE, ..on_seg(Opcode::Write, *tpn, &remote, 99) };
            b.post_direct(jetty, sqe, &[seg.sge(3, 8)]);
            world.0[1].poll();
            world.turns(2);
        }
    });
    assert!(statuses(&seen.ends[0][0]).iter().all(|status| *status == GOOD));
}

/// An entry that cannot be a message of the mode: the peer is cut off, and the next message ends with an error.
#[test]
fn a_number_that_is_not_the_next_one_is_no_answer() {
    let mut world = TalkWorld::new(PingPongs::Soon);
    world.turns(TURNS_BEFORE);
    // Two messages in a row, of which the second waits for its receive: the first is no answer to the second.
    world.0[1].receive(8);
    world.say(0, 8, |_, _| {});
    world.say(0, 8, |_, _| {});
    world.0[1].poll();
    world.0[0].receive(8);
    world.say(1, 8, |_, _| {});
    world.0[0].poll();
    assert_eq!(world.0[0].sent.len(), TURNS_BEFORE + 1, "one of two was acknowledged");
    world.0[1].receive(8);
    let seen = world.seen();
    assert_eq!(statuses(&seen.ends[0][0]), [GOOD, GOOD]);
}

/// Many programs that do anything at any time.
#[test]
fn whatever_two_programs_do_ends_alike() {
    let run = |seed: u64, ping_pongs: PingPongs| {
        let mut world = TalkWorld::new(ping_pongs);
        let mut rng = Rng::new(seed);
        // Receives that no message has taken.
        let mut left = [0_i64; 2];
        for _ in 0..80 {
            let from = rng.index(2);
            let len = [1, 8, 8, 8, 64, 512, 513][rng.index(7)];
            match rng.below(20) {
                0..=9 => {
                    for _ in 0..=rng.below(4) {
                        world.turn(from, 8);
                    }
                }
                10 | 11 => {
                    world.0[1 - from].receive(600);
                    left[1 - from] += 1;
                }
                12..=14 if left[1 - from] > 0 => {
                    left[1 - from] -= 1;
                    let (kind, signalled) = (rng.below(4), rng.below(3) != 0);
                    world.say(from, len, |sqe, _| {
                        sqe.flags.set(SqeFlags::COMPLETE, signalled);
                        sqe.flags.set(SqeFlags::ORDER_STRONG, kind == 1);
                        sqe.flags.set(SqeFlags::SOLICITED, kind == 2);
                        if kind == 3 {
                            (sqe.opcode, sqe.imm) = (Opcode::SendImm, seed);
                        }
                    });
                }
                15 => {
                    world.0[from].poll();
                }
                16 => {
                    world.0[from].poll_ring();
                }
                17 => {
                    let target = world.0[1 - from].seg.clone();
                    let TalkSide { b, jetty, seg, tpn, .. } = &mut world.0[from];
                    let sqe = on_seg(Opcode::Write, *tpn, &target, rng.below(64) * 8);
                    let sqe = Sqe { flags: SqeFlags::COMPLETE, ..sqe };
                    b.post_direct(jetty, sqe, &[seg.sge(AREA as u64 / 2 - 64, 8)]);
                }
                18 => world.step_both(),
                _ => {
                    let side = &mut world.0[from];
                    side.seg = BenchSeg {
                        mem: side.seg.mem.clone(),
                        ..side.b.seg_of(side.seg.mem.clone(), ALL)
                    };
                }
            }
        }
        let ping_pongs = world.ping_pongs();
        (world.seen(), ping_pongs)
    };
    let mut begun = 0;
    for seed in 0..SEEDS {
        let (with, ping_pongs) = run(seed, PingPongs::Soon);
        let (without, _) = run(seed, PingPongs::Never);
        assert_eq!(with, without, "seed {seed}");
        begun += ping_pongs[0] + ping_pongs[1];
    }
    assert!(begun > SEEDS, "{begun} ping-pongs");
}

const ALL: Access = Access::READ.union(Access::WRITE).union(Access::ATOMIC);
const SEEDS: u64 = 60;
