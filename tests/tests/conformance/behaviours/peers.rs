//! Peers that close, come back, or are many.

use urma_core::{Completion, CrStatus, SendOp};
use urma_tests::world::{
    End, Host, Outcome, Pause, Plan, Setup, World, cfg, check, fail, pattern, pause, same, until,
};

super::behaviours! {
    Good rm_two_nodes three_nodes_talk: "One node exchanges messages with two others at the same time.";
    Good rm_two_nodes reopened_peer_is_reached: "A node that closed and opened again under its EID is reached by a new import.";
    Good rm_two_nodes idle_pair_wakes_up: "After both nodes were idle for a while a message is carried as before.";
    Good rm_two_nodes taken_message_succeeds_when_the_taker_closes: "A SEND whose message the receiver took before it closed ends with success.";
    Bad reliable_two_nodes closed_peer_ends_requests: "Requests to a peer that closed end with errors within the retry bound, one completion each.";
    Bad reliable_two_nodes peer_closes_under_traffic: "When a peer closes under traffic every posted request completes once.";
    Bad rm_two_nodes closed_peer_leaves_others_alone: "When one peer closes, requests to another go on.";
    Good reliable_two_nodes next_life_is_reached_beside_an_old_import: "A program that still holds an import of a node's earlier incarnation reaches the next one by a new import.";
    Bad rm_two_nodes old_import_does_not_reach_the_next_life: "What was imported from a node does not reach the node that later has its EID.";
}

fn three_nodes_talk(setup: Setup) -> Outcome {
    let (host_a, host_b) = Host::pair(setup)?;
    let host_c = Host::open(setup)?;
    let plan = Plan::new(setup.mode);
    let mut ab = World::between(setup, &plan, &host_a, &host_b)?;
    let mut ac = World::between(setup, &plan, &host_a, &host_c)?;
    for round in 0..20 {
        super::messages::one_send(&mut ab, round, 500)?;
        super::messages::one_send(&mut ac, round + 100, 500)?;
        let there = ab.a.write(0, 0, 500)?;
        let here = ac.a.write(0, 0, 500)?;
        ac.a.sent_ok(here)?;
        ab.a.sent_ok(there)?;
    }
    Ok(())
}

fn reopened_peer_is_reached(setup: Setup) -> Outcome {
    let (host_a, host_b) = Host::pair(setup)?;
    let eid = host_b.node().eid();
    let plan = Plan::new(setup.mode);
    let mut first = World::between(setup, &plan, &host_a, &host_b)?;
    super::messages::one_send(&mut first, 1, 100)?;
    drop(host_b);
    drop(first);
    let again = until("the EID to be free again", || {
        Ok(Host::open_as(setup, ubcore_sim::node::NodeCfg { eid: Some(eid), ..cfg(setup) }).ok())
    })?;
    let mut second = until("the path to the new node", || {
        Ok(World::between(setup, &plan, &host_a, &again).ok())
    })?;
    for round in 0..5 {
        super::messages::one_send(&mut second, round, 100)?;
    }
    Ok(())
}

fn idle_pair_wakes_up(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for round in 0..4 {
        for _ in 0..4 {
            pause(Pause::Ticks);
        }
        super::messages::one_send(&mut w, round, 300)?;
        let ctx = w.a.write(0, 0, 8)?;
        w.a.sent_ok(ctx)?;
    }
    Ok(())
}

/// Statuses by which a request ends when its peer is gone.
fn is_gone(status: CrStatus) -> bool {
    use CrStatus as S;
    matches!(
        status,
        S::AckTimeout | S::RemOperation | S::RemAccessAbort | S::RemUnsupportedReq | S::WrFlush
    )
}

/// The next completion of a request: an RC jetty goes to the error state meanwhile, and the end of
/// its flush is reported in between.
fn of_a_request(end: &mut End) -> Outcome<Completion> {
    loop {
        let done = end.sent()?;
        if done.status != CrStatus::WrFlushDone {
            return Ok(done);
        }
    }
}

fn closed_peer_ends_requests(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| plan.send.err_timeout = 14)?;
    let ctx = w.a.write(0, 0, 64)?;
    w.a.sent_ok(ctx)?;
    let World { mut a, b, .. } = w;
    drop(b);
    let mut order = Vec::new();
    for index in 0..4 {
        order.push(a.write(index * 8, index * 8, 8)?);
    }
    order.push(a.send(0, 8)?);
    for ctx in order {
        let done = of_a_request(&mut a)?;
        same("user context", done.user_ctx, ctx)?;
        check(is_gone(done.status), format!("a request to no node ended in {:?}", done.status))?;
    }
    Ok(())
}

fn peer_closes_under_traffic(setup: Setup) -> Outcome {
    let w = World::with(setup, |plan| plan.send.err_timeout = 14)?;
    let World { mut a, b, .. } = w;
    let mut due = Vec::new();
    for _ in 0..16 {
        due.push(a.write(0, 65536, 60_000)?);
    }
    drop(b);
    for _ in 0..16 {
        due.push(a.write(0, 65536, 60_000)?);
    }
    for ctx in due {
        let done = of_a_request(&mut a)?;
        same("user context", done.user_ctx, ctx)?;
        check(
            done.status.is_success() || is_gone(done.status),
            format!("a request ended in {:?}", done.status),
        )?;
    }
    let mut rest = Vec::new();
    while let Some(done) = a.half.jfc.poll_one()? {
        rest.push(done.status);
    }
    check(
        rest.iter().all(|status| *status == CrStatus::WrFlushDone) && rest.len() <= 1,
        format!("after the last request came {rest:?}"),
    )
}

fn closed_peer_leaves_others_alone(setup: Setup) -> Outcome {
    let (host_a, host_b) = Host::pair(setup)?;
    let host_c = Host::open(setup)?;
    let plan = Plan::new(setup.mode);
    let mut ab = World::between(setup, &plan, &host_a, &host_b)?;
    let mut ac = World::between(setup, &plan, &host_a, &host_c)?;
    super::messages::one_send(&mut ab, 1, 500)?;
    super::messages::one_send(&mut ac, 1, 500)?;
    drop(host_b);
    let World { a: lonely, b, .. } = ab;
    drop(b);
    let _lonely = lonely;
    for round in 0..20 {
        super::messages::one_send(&mut ac, round, 500)?;
        let bytes = pattern(round, 3000);
        ac.a.mem().put(0, &bytes)?;
        ac.b.mem().poison(0, 3000)?;
        let ctx = ac.a.write(0, 0, 3000)?;
        ac.a.sent_ok(ctx)?;
        ac.b.mem().placed(0, &bytes)?;
    }
    Ok(())
}

fn old_import_does_not_reach_the_next_life(setup: Setup) -> Outcome {
    let (host_a, host_b) = Host::pair(setup)?;
    let eid = host_b.node().eid();
    let plan = Plan::new(setup.mode);
    let World { mut a, b, .. } = World::between(setup, &plan, &host_a, &host_b)?;
    let ctx = a.post(|_| SendOp::Nop)?;
    a.sent_ok(ctx)?;
    drop(b);
    drop(host_b);
    let again = until("the EID to be free again", || {
        Ok(Host::open_as(setup, ubcore_sim::node::NodeCfg { eid: Some(eid), ..cfg(setup) }).ok())
    })?;
    let fresh = plan.half(&again)?;
    fresh.mem.poison(0, 8)?;
    // The import is of the first life: nothing of it may reach the second.
    match a.write(0, 0, 8) {
        Ok(_) => {
            let done = a.sent()?;
            check(!done.status.is_success(), "a request of the first life succeeded")?;
            fresh.mem.untouched(0, 8)
        }
        Err(_) => fail("post refused a request that only the device can judge"),
    }
}

fn next_life_is_reached_beside_an_old_import(setup: Setup) -> Outcome {
    let (host_a, host_b) = Host::pair(setup)?;
    let eid = host_b.node().eid();
    let plan = Plan::new(setup.mode);
    let World { a: old, b, .. } = World::between(setup, &plan, &host_a, &host_b)?;
    drop(b);
    drop(host_b);
    let again = until("the EID to be free again", || {
        Ok(Host::open_as(setup, ubcore_sim::node::NodeCfg { eid: Some(eid), ..cfg(setup) }).ok())
    })?;
    let mut new = until("the path to the next life", || {
        Ok(World::between(setup, &plan, &host_a, &again).ok())
    })?;
    let ctx = new.a.write(0, 0, 8)?;
    new.a.sent_ok(ctx)?;
    super::messages::one_send(&mut new, 1, 100)?;
    drop(old);
    super::messages::one_send(&mut new, 2, 100)
}

fn taken_message_succeeds_when_the_taker_closes(setup: Setup) -> Outcome {
    for _ in 0..20 {
        let (host_a, host_b) = Host::pair(setup)?;
        let World { mut a, mut b, .. } =
            World::between(setup, &Plan::new(setup.mode), &host_a, &host_b)?;
        let recv = b.recv(0, 64)?;
        let ctx = a.send(0, 64)?;
        b.received_ok(recv)?;
        drop(b);
        drop(host_b);
        a.sent_ok(ctx)?;
    }
    Ok(())
}
