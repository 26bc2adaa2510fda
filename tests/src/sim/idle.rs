//! A world without work, for tests that show the judge what must not be.
//!
//! *Owns*: the world, and what its first node posts to the second in the model's eyes. *Takes*: an
//! observation. *Gives*: the findings of the judge. *Must not*: post anything itself.

use std::sync::Arc;

use ubcore_sim::sim::Fabric;
use urma_core::{Completion, CompletionFlags, CrStatus, Eid, JettyId};

use super::area::Effect;
use super::book::{Fate, Message, Pending};
use super::node::{Lane, SLOT_LEN, SLOTS, area_offset};
use super::run::{FILL, Run};
use super::side::{Side, Traffic};
use super::{SimPlan, Weather, Work};

/// Gives the world an observation; returns the findings of the judge.
pub(super) type Observe = fn(&mut Run<'_>) -> Result<(), String>;

/// Two or three nodes on one host that have nothing to do.
pub(super) fn plan() -> SimPlan {
    let mut plan = SimPlan::new(1, Weather::SameHost, Work::All);
    (plan.requests, plan.lazy_ppm, plan.dry_ppm, plan.trouble_ppm) = (0, 0, 0, 0);
    (plan.fabric.stall_ppm, plan.fabric.sleep_ppm) = (0, 0);
    plan
}

/// Calls `observe` with a world of `plan`.
pub(super) fn in_world<T>(plan: &SimPlan, observe: impl FnOnce(&mut Run<'_>) -> T) -> T {
    let fabric = Fabric::new(plan.fabric.clone()).expect("memory");
    let mut world = Run::new(plan, &Arc::clone(&fabric)).expect("a world");
    observe(&mut world)
}

/// Checks that the judge refuses each observation, with these words.
pub(super) fn refuses(cases: &[(&str, &str, Observe)]) {
    for (what, words, observe) in cases {
        match in_world(&plan(), observe) {
            Ok(()) => panic!("{what}: accepted"),
            Err(text) => assert!(text.contains(words), "{what}: {text}"),
        }
    }
}

/// Checks that the judge accepts each observation.
pub(super) fn accepts(cases: &[(&str, Observe)]) {
    for (what, observe) in cases {
        assert_eq!(in_world(&plan(), observe), Ok(()), "{what}");
    }
}

/// Jetty `lane` of node 0.
pub(super) fn side<'a>(run: &'a mut Run<'_>, lane: Lane) -> &'a mut Side {
    &mut run.nodes[0].sides[lane as usize]
}

/// What the main jetty of node 0 has outstanding to node 1.
pub(super) fn traffic<'a>(run: &'a mut Run<'_>) -> &'a mut Traffic {
    &mut side(run, Lane::Main).traffic[1]
}

/// A signalled request to node 1 that succeeds.
pub(super) fn pending(number: u64) -> Pending {
    let (to, slot, fate) = (1, 0, Fate::Success);
    let (signalled, doomed, brings, is_lent) = (true, false, false, false);
    Pending { number, to, signalled, slot, fate, doomed, brings, is_lent, reads: None }
}

/// Node 0 posted these to its main jetty.
pub(super) fn post(run: &mut Run<'_>, requests: impl IntoIterator<Item = Pending>) {
    requests.into_iter().for_each(|pending| side(run, Lane::Main).requests.push(pending));
}

/// The completion of request `number` of a main jetty.
pub(super) fn done(number: u64, status: CrStatus) -> Completion {
    let queue_ctx = u64::from(Lane::Main.id());
    Completion { status, user_ctx: number, queue_ctx, ..Completion::default() }
}

/// Main jetty of node 0 asks for `effect` at node 1.
pub(super) fn ask(run: &mut Run<'_>, number: u64, effect: Effect) {
    traffic(run).area.push(number, effect);
}

/// Stores bytes into the area of the main jetty of node 0 at node 1, as no request does.
pub(super) fn spoil(run: &mut Run<'_>, offset: usize, bytes: &[u8]) {
    let program = run.program(1).expect("it lives");
    program.view.area.write(area_offset(0, Lane::Main) + offset, bytes).expect("inside");
}

/// `message` was sent by the main jetty of node 0, and is at node 1 in receive `slot`: what its
/// completion says.
pub(super) fn deliver(run: &mut Run<'_>, message: &Message, slot: usize) -> Completion {
    traffic(run).line.extend([message.clone()]);
    receive(run, Lane::Main, message, slot)
}

/// The same without having been sent, to and from jetties of `lane`.
pub(super) fn receive(run: &mut Run<'_>, lane: Lane, message: &Message, slot: usize) -> Completion {
    run.nodes[1].unposted[lane as usize].retain(|free| *free != slot);
    let local = &run.program(1).expect("it lives").view.local;
    let at = (SLOTS + slot) * SLOT_LEN;
    local.write(at, &[FILL; SLOT_LEN]).expect("inside");
    local.write(at, &message.bytes).expect("inside");
    let eid = Eid::from_bytes(ubcore_sim::sim::eid(0).0);
    let id = lane.id();
    Completion {
        opcode: message.opcode,
        flags: CompletionFlags::RECV,
        len: u32::try_from(message.len).expect("short"),
        user_ctx: slot as u64,
        queue_ctx: u64::from(id),
        remote: JettyId { eid, id, ..JettyId::default() },
        imm: message.imm,
        ..Completion::default()
    }
}
