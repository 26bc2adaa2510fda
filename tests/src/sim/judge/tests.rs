//! What the judge refuses: for each rule, an observation that breaks it.

use urma_core::{Arm, JfcCfg, SendOp, SendWr};

use super::*;
use crate::sim::area::{Effect, WordOp};
use crate::sim::idle::{
    accepts, ask, deliver, done, in_world, pending, plan, post, receive, refuses, side, spoil,
    traffic,
};

const OK: CrStatus = CrStatus::Success;
const REFUSED: CrStatus = CrStatus::RemAccessAbort;
const MAIN: usize = Lane::Main as usize;

/// Node 0 polls these completions, one after another.
fn ends<const N: usize>(run: &mut Run<'_>, all: [Completion; N]) -> Result<(), String> {
    all.iter().try_for_each(|completion| run.on_request(0, completion))
}

fn with(fate: Fate) -> Pending {
    Pending { fate, ..pending(1) }
}

fn silent(number: u64) -> Pending {
    Pending { signalled: false, ..pending(number) }
}

fn write() -> Effect {
    Effect::Write { at: 200, bytes: vec![7; 20] }
}

#[test]
fn a_request_that_ends_wrongly_is_refused() {
    refuses(&[
        ("a completion of a jetty that is not", "of no jetty", |run| {
            post(run, [pending(1)]);
            ends(run, [Completion { queue_ctx: 7, ..done(1, OK) }])
        }),
        ("never posted", "request 1 completed and is not outstanding", |run| {
            ends(run, [done(1, OK)])
        }),
        ("twice", "request 1 completed and is not outstanding", |run| {
            post(run, [pending(1)]);
            ends(run, [done(1, OK), done(1, OK)])
        }),
        ("failed, and then again", "request 1 completed and is not outstanding", |run| {
            post(run, [Pending { doomed: true, ..pending(1) }]);
            ends(run, [done(1, CrStatus::WrFlush), done(1, CrStatus::WrFlush)])
        }),
        ("before an earlier one", "request 2 completed where 1 is next", |run| {
            post(run, [pending(1), pending(2)]);
            ends(run, [done(2, OK)])
        }),
        ("failed before an earlier one", "request 2 completed where 1 is next", |run| {
            post(run, [pending(1), Pending { doomed: true, ..pending(2) }]);
            ends(run, [done(2, CrStatus::WrFlush)])
        }),
        ("unsignalled", "unsignalled request 1 completed", |run| {
            post(run, [silent(1)]);
            ends(run, [done(1, OK)])
        }),
        ("a failure without cause", "request 1 of node 0 ended", |run| {
            post(run, [pending(1)]);
            ends(run, [done(1, CrStatus::AckTimeout)])
        }),
        ("a flush without cause", "request 1 of node 0 ended", |run| {
            post(run, [pending(1)]);
            ends(run, [done(1, CrStatus::WrFlush)])
        }),
        ("refused without cause", "request 1 of node 0 ended", |run| {
            post(run, [pending(1)]);
            ends(run, [done(1, REFUSED)])
        }),
        ("not refused", "request 1 of node 0 ended", |run| {
            post(run, [with(Fate::Refused)]);
            ends(run, [done(1, OK)])
        }),
        ("refused with another status", "request 1 of node 0 ended", |run| {
            post(run, [with(Fate::Refused)]);
            ends(run, [done(1, CrStatus::LocAccess)])
        }),
        ("neither of two ends", "request 1 of node 0 ended", |run| {
            post(run, [with(Fate::Either)]);
            ends(run, [done(1, CrStatus::AckTimeout)])
        }),
        ("silent, and had to be refused", "request 1 of node 0 ended", |run| {
            post(run, [Pending { signalled: false, ..with(Fate::Refused) }, pending(2)]);
            ends(run, [done(2, OK)])
        }),
    ]);
}

#[test]
fn a_flush_that_was_not_or_that_loses_requests_is_refused() {
    refuses(&[
        ("the end of a flush that was not", "completed and is not outstanding", |run| {
            ends(run, [done(0, CrStatus::WrFlushDone)])
        }),
        ("the end of a suspend that was not", "completed and is not outstanding", |run| {
            ends(run, [done(0, CrStatus::WrSuspendDone)])
        }),
        ("a second end of a flush", "completed and is not outstanding", |run| {
            side(run, Lane::Main).gait = Gait::Error;
            ends(run, [done(0, CrStatus::WrFlushDone), done(0, CrStatus::WrFlushDone)])
        }),
        ("a flush that ends nothing", "request 1 of node 0 was lost", |run| {
            side(run, Lane::Main).gait = Gait::Error;
            post(run, [pending(1)]);
            ends(run, [done(0, CrStatus::WrFlushDone)])
        }),
        ("a deletion that ends nothing", "request 2 of node 0 was lost", |run| {
            post(run, [silent(1), pending(2)]);
            run.retire_silent(0, Lane::Main)
        }),
    ]);
}

#[test]
fn a_request_that_ends_as_it_may_is_accepted() {
    accepts(&[
        ("success after a silent one", |run| {
            post(run, [silent(1), pending(2)]);
            ends(run, [done(2, OK)])
        }),
        ("refused as it must be", |run| {
            post(run, [with(Fate::Refused)]);
            ends(run, [done(1, REFUSED)])
        }),
        ("either", |run| {
            post(run, [with(Fate::Either), Pending { fate: Fate::Either, ..pending(2) }]);
            ends(run, [done(1, OK), done(2, REFUSED)])
        }),
        ("doomed, with any status", |run| {
            let doomed = |number| Pending { doomed: true, ..pending(number) };
            post(run, [doomed(1), doomed(2)]);
            ends(run, [done(1, OK), done(2, CrStatus::AckTimeout)])
        }),
        ("silent before a flush", |run| {
            side(run, Lane::Main).gait = Gait::Error;
            post(run, [silent(1)]);
            ends(run, [done(0, CrStatus::WrFlushDone)])
        }),
        ("a suspend", |run| {
            let queue_ctx = u64::from(Lane::Restless.id());
            ends(run, [Completion { queue_ctx, ..done(0, CrStatus::WrSuspendDone) }])
        }),
        ("written as a prefix of the requests does", |run| {
            post(run, [pending(1), pending(2)]);
            ask(run, 2, write());
            ends(run, [done(1, OK)])
        }),
    ]);
}

#[test]
fn a_success_without_its_bytes_is_refused() {
    refuses(&[
        ("not placed", "area of Main of 0 at 1: byte 200", |run| {
            post(run, [pending(1)]);
            ask(run, 1, write());
            ends(run, [done(1, OK)])
        }),
        ("a silent one before it is not placed", "area of Main of 0 at 1: byte 200", |run| {
            post(run, [silent(1), pending(2)]);
            ask(run, 1, write());
            ends(run, [done(2, OK)])
        }),
        ("a word not changed", "area of Main of 0 at 1: byte 8", |run| {
            post(run, [pending(1)]);
            ask(run, 1, Effect::Word { word: 1, op: WordOp::Add(1) });
            ends(run, [done(1, OK)])
        }),
        ("a read that brought nothing", "request 1 brought wrong byte 2", |run| {
            post(run, [Pending { brings: true, ..pending(1) }]);
            ask(run, 1, Effect::Read(200..204));
            let local = &run.program(0).expect("it lives").view.local;
            local.write(0, &[0, 0, 9, 0]).expect("inside");
            ends(run, [done(1, OK)])
        }),
        ("an effect of what broke off, after a mark", "area of Main of 0 at 1: byte 200", |run| {
            traffic(run).phase = Phase::Marked(2);
            ask(run, 1, write());
            post(run, [pending(2)]);
            ends(run, [done(2, OK)])?;
            spoil(run, 200, &[7; 20]);
            run.check_all()
        }),
    ]);
    accepts(&[("an effect of what broke off, before a mark", |run| {
        traffic(run).phase = Phase::Marked(2);
        ask(run, 1, write());
        spoil(run, 200, &[7; 3]);
        post(run, [pending(2)]);
        ends(run, [done(2, OK)])?;
        run.check_all()
    })]);
}

#[test]
fn a_mark_settles_only_by_its_own_success() {
    let phase_after = |number, status| {
        in_world(&plan(), |run| {
            traffic(run).phase = Phase::Marked(2);
            let doomed = |number| Pending { doomed: true, ..pending(number) };
            post(run, [doomed(number)]);
            ends(run, [done(number, status)]).expect("it may");
            traffic(run).phase
        })
    };
    assert_eq!(phase_after(1, OK), Phase::Marked(2));
    assert_eq!(phase_after(2, CrStatus::WrFlush), Phase::Broken);
    assert_eq!(phase_after(2, OK), Phase::Open);
}

/// SEND with an immediate.
fn message(number: u64) -> Message {
    let (opcode, bytes) = (CrOpcode::SendImm, vec![0x30 + u8::try_from(number).unwrap_or(0); 16]);
    Message { number, opcode, bytes, len: 16, imm: 5 }
}

/// Message 1 comes in at receive 3, as `change` makes it.
fn comes(run: &mut Run<'_>, change: impl FnOnce(&mut Completion)) -> Result<(), String> {
    let mut completion = deliver(run, &message(1), 3);
    change(&mut completion);
    run.on_message(1, &completion)
}

/// The bytes of receive 3 of node 1 from `offset` on.
fn overwrite(run: &mut Run<'_>, offset: usize) {
    let local = &run.program(1).expect("it lives").view.local;
    local.write((SLOTS + 3) * SLOT_LEN + offset, &[1]).expect("inside");
}

#[test]
fn a_completion_that_says_wrong_things_of_a_message_is_refused() {
    refuses(&[
        ("of no jetty", "a receive of no jetty", |run| comes(run, |c| c.queue_ctx = 7)),
        ("of another jetty", "receive 3 of Paired was not posted", |run| {
            comes(run, |c| c.queue_ctx = u64::from(Lane::Paired.id()))
        }),
        ("of another receive", "receive 4 of Main was not posted", |run| {
            comes(run, |c| c.user_ctx = 4)
        }),
        ("failed", "receive at node 1", |run| comes(run, |c| c.status = CrStatus::LocLen)),
        ("flushed", "receive at node 1", |run| comes(run, |c| c.status = CrStatus::WrFlush)),
        ("no receive", "receive at node 1", |run| {
            comes(run, |c| c.flags.remove(urma_core::CompletionFlags::RECV))
        }),
        ("the end of a flush that was not", "was not posted", |run| {
            comes(run, |c| (c.status, c.user_ctx) = (CrStatus::WrFlushDone, 4))
        }),
        ("a strange node", "a message of a stranger", |run| {
            comes(run, |c| c.remote.eid = urma_core::Eid::from_u32(9))
        }),
        ("the receiver itself", "next are []", |run| {
            comes(run, |c| c.remote.eid = urma_core::Eid::from_bytes(eid(1)))
        }),
        ("a jetty that is not", "a message of no jetty", |run| comes(run, |c| c.remote.id = 7)),
        ("another length", "it is of request None, next are [1]", |run| comes(run, |c| c.len = 15)),
        ("another kind", "it is of request None, next are [1]", |run| {
            comes(run, |c| c.opcode = CrOpcode::WriteImm)
        }),
        ("another immediate", "it is of request None, next are [1]", |run| {
            comes(run, |c| c.imm = 6)
        }),
    ]);
}

#[test]
fn a_message_that_is_not_the_next_one_is_refused() {
    refuses(&[
        ("another last byte", "it is of request None, next are [1]", |run| {
            let completion = deliver(run, &message(1), 3);
            overwrite(run, 15);
            run.on_message(1, &completion)
        }),
        ("a byte behind it", "it is of request None, next are [1]", |run| {
            let completion = deliver(run, &message(1), 3);
            overwrite(run, 16);
            run.on_message(1, &completion)
        }),
        ("never sent", "it is of request None, next are []", |run| {
            let completion = receive(run, Lane::Main, &message(1), 3);
            run.on_message(1, &completion)
        }),
        ("after a later one", "it is of request Some(2), next are [1]", |run| {
            let _first = deliver(run, &message(1), 3);
            let second = deliver(run, &message(2), 4);
            run.on_message(1, &second)
        }),
        ("one receive twice", "receive 3 of Main was not posted", |run| {
            let completion = deliver(run, &message(1), 3);
            run.on_message(1, &completion)?;
            run.on_message(1, &completion)
        }),
        ("twice", "it is of request None, next are []", |run| {
            comes(run, |_| ())?;
            let again = receive(run, Lane::Main, &message(1), 4);
            run.on_message(1, &again)
        }),
        ("a datagram twice", "no request sent it, or it came before", |run| {
            side(run, Lane::Datagrams).traffic[1].line.extend([message(1)]);
            for slot in [24, 25] {
                let completion = receive(run, Lane::Datagrams, &message(1), slot);
                run.on_message(1, &completion)?;
            }
            Ok(())
        }),
        ("before a write that was posted earlier", "area of Main of 0 at 1: byte 200", |run| {
            ask(run, 1, write());
            let second = deliver(run, &message(2), 4);
            run.on_message(1, &second)
        }),
    ]);
    accepts(&[
        ("in order", |run| {
            let (first, second) = (deliver(run, &message(1), 3), deliver(run, &message(2), 4));
            run.on_message(1, &first)?;
            run.on_message(1, &second)
        }),
        ("the rest of a pair that ended", |run| {
            run.nodes[1].sides[MAIN].is_lost = true;
            let done = |c: &mut Completion| (c.status, c.user_ctx) = (CrStatus::WrFlushDone, 4);
            comes(run, |c| c.status = CrStatus::WrFlush)?;
            comes(run, done)
        }),
    ]);
}

#[test]
fn bytes_behind_a_message_may_be_left_by_one_that_broke_off() {
    let observe = |plan: &crate::sim::SimPlan| {
        in_world(plan, |run| {
            let completion = deliver(run, &message(1), 3);
            overwrite(run, 16);
            run.on_message(1, &completion)
        })
    };
    let mut troubled = plan();
    troubled.trouble_ppm = 1;
    assert_eq!(observe(&troubled), Ok(()));
    assert_eq!(observe(&plan().with_kills()), Ok(()));
    assert!(observe(&plan()).is_err());
}

#[test]
fn memory_that_changes_by_itself_is_refused() {
    const WHERE: &str = "area of Main of 0 at 1: byte 300";
    refuses(&[
        ("where something is outstanding", "area of Main of 0 at 1", |run| {
            ask(run, 1, write());
            spoil(run, 300, &[7]);
            run.check_busy(0)
        }),
        ("where nothing is, in some turn", WHERE, |run| {
            spoil(run, 300, &[7]);
            let directions = run.nodes.len() * run.nodes.len() * Lane::WITH_AREA;
            (0..directions).try_for_each(|turn| run.check_busy(turn))
        }),
        ("at the end", WHERE, |run| {
            spoil(run, 300, &[7]);
            run.check_all()
        }),
        ("what may only be read", "node 1: what may only be read changed", |run| {
            let vault = &run.program(1).expect("it lives").view.vault;
            vault.write(crate::sim::node::SMALL_LEN - 1, &[1]).expect("inside");
            run.check_all()
        }),
    ]);
    accepts(&[("at a dead node", |run| {
        spoil(run, 300, &[7]);
        traffic(run).phase = Phase::Gone;
        run.check_all()
    })]);
}

/// Posts a request that the model does not record, and steps the world until it is complete.
fn complete(run: &mut Run<'_>) {
    let program = run.program(0).expect("it lives");
    let peer = program.view.peers[1].as_ref().expect("imported");
    let wr = SendWr::new(SendOp::Nop, &peer.targets[MAIN], 1);
    program.jetties[MAIN].post_send(&[wr]).expect("posted");
    (0..100).for_each(|_| _ = run.fabric.step_nodes());
}

fn arm(run: &mut Run<'_>) {
    run.program(0).expect("it lives").jfcs[0].arm(Arm::Any).expect("armed");
}

#[test]
fn an_event_too_many_too_late_or_of_nothing_is_refused() {
    refuses(&[
        ("not asked for", "an event of JFC 0, which is not armed", |run| {
            arm(run);
            complete(run);
            run.take_events(0)
        }),
        ("of a strange JFC", "a strange event", |run| {
            arm(run);
            complete(run);
            run.nodes[0].events[0].armed = true;
            let program = run.program(0).expect("it lives");
            let other = program.context.create_jfc(&JfcCfg::new(8), None).expect("a JFC");
            let old = std::mem::replace(&mut program.jfcs[0], other);
            let seen = run.take_events(0);
            run.program(0).expect("it lives").jfcs[0] = old;
            seen
        }),
        ("none", "node 0: the event of JFC 0 did not come", |run| {
            // The model believes that it asked.
            run.nodes[0].events[0].armed = true;
            post(run, [pending(1)]);
            complete(run);
            run.poll(0)?;
            run.take_events(0)?;
            run.fabric.run_until(2 * EVENT_NS, || false);
            run.take_events(0)
        }),
    ]);
    accepts(&[("asked for, and in time", |run| {
        run.arm(0, 1_000_000)?;
        post(run, [pending(1)]);
        complete(run);
        run.poll(0)?;
        run.fabric.run_until(2 * EVENT_NS, || false);
        run.take_events(0)
    })]);
}

#[test]
fn what_does_not_come_back_is_refused() {
    refuses(&[
        ("a receive", "node 0 has 0 receives of Main, not 1", |run| {
            let _lost = run.nodes[0].unposted[MAIN].pop();
            run.check_receives()
        }),
        ("objects of a program", "node 1 did not get everything back", |run| {
            let program = run.nodes[1].program.take();
            run.graves.extend(program);
            run.check_returned()
        }),
    ]);
    accepts(&[
        ("receives that are posted", |run| {
            let slot = run.nodes[0].unposted[MAIN].pop().expect("one");
            let program = run.program(0).expect("it lives");
            assert_eq!(program.post_receive(Lane::Main, slot, 0), Ok(true));
            run.check_receives()
        }),
        ("programs that end", |run| run.check_returned()),
    ]);
}
