//! Jetty groups: one name, several jetties.

use urma_core::{
    CrStatus, GroupCfg, HintPolicy, Jetty, JettyCfg, JettyGroup, JettyRecv, Jfc, JfrCfg, JfsCfg,
    RecvWr, SendOp, SendWr, Status, TargetJetty, Token, TokenPolicy,
};
use urma_tests::world::{Outcome, Setup, World, check, fail, next, plain_jfc, refused, same};

super::behaviours! {
    Good rm group_in_turn: "A round-robin group gives each of its members the same share of the messages.";
    Good rm group_by_hint: "A group by hint gives messages of one hint (not 0) to one member, and different hints to different ones.";
    Good rm group_behind_a_token: "A group with a token takes messages that show it.";
    Bad rm group_without_members: "A message to a group without members ends in an error.";
    Bad rm group_outlives_its_members: "A group with members cannot be deleted.";
    Bad rm group_has_a_limit: "A jetty beyond max_jetty_in_grp is refused, the last within is not.";
}

struct Members {
    group: JettyGroup,
    jetties: Vec<Jetty>,
    jfc: Jfc,
    target: TargetJetty,
}

fn members(w: &World, policy: HintPolicy, count: usize, token: TokenPolicy) -> Outcome<Members> {
    let ctx = &w.b.half.ctx;
    let group = ctx.create_group(&GroupCfg { id: 0, policy, token })?;
    let jfc = plain_jfc(ctx, 256)?;
    let mut jetties = Vec::new();
    for _ in 0..count {
        let cfg = JfrCfg { policy: token, ..JfrCfg::new(w.setup.mode, 64) };
        let recv = JettyRecv::Own { cfg, jfc: &jfc };
        let cfg = JettyCfg::new(JfsCfg::new(w.setup.mode, 4), &jfc, recv);
        let mut jetty = ctx.create_jetty(&JettyCfg { group: Some(&group), ..cfg })?;
        for _ in 0..40 {
            jetty.post_recv(&[RecvWr { dst: &[], user_ctx: 0 }])?;
        }
        jetties.push(jetty);
    }
    same("members", group.members(), count)?;
    let target = w.a.half.ctx.import_jetty(&group.remote())?;
    Ok(Members { group, jetties, jfc, target })
}

/// Sends one message with `hint`; the index of the member that got it.
fn send_one(w: &mut World, members: &mut Members, hint: u8) -> Outcome<usize> {
    let (jetty, _) = w.a.parts();
    let wr = SendWr::new(SendOp::Send { src: &[] }, &members.target, 1);
    jetty.post_send(&[SendWr { target_hint: hint, ..wr }])?;
    w.a.sent_ok(1)?;
    let done = next(&mut members.jfc, "receive completion")?;
    same("status", done.status, CrStatus::Success)?;
    let found = members.jetties.iter().position(|jetty| jetty.id().id == done.local_id);
    found.map_or_else(|| fail(format!("queue {} is no member", done.local_id)), Ok)
}

fn group_in_turn(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let mut group = members(&w, HintPolicy::RoundRobin, 3, TokenPolicy::None)?;
    let mut counts = [0; 3];
    for _ in 0..30 {
        counts[send_one(&mut w, &mut group, 0)?] += 1;
    }
    same("shares", counts, [10; 3])
}

fn group_by_hint(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let mut group = members(&w, HintPolicy::HashHint, 4, TokenPolicy::None)?;
    let mut used = [false; 4];
    for hint in 1..13 {
        let first = send_one(&mut w, &mut group, hint)?;
        used[first] = true;
        for _ in 0..2 {
            same("member of the same hint", send_one(&mut w, &mut group, hint)?, first)?;
        }
    }
    let count = used.iter().filter(|used| **used).count();
    check(count >= 2, format!("12 hints used {count} of 4 members"))
}

fn group_behind_a_token(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let token = TokenPolicy::PlainText(Token::new(0xcafe));
    let mut group = members(&w, HintPolicy::RoundRobin, 2, token)?;
    for _ in 0..4 {
        send_one(&mut w, &mut group, 0)?;
    }
    let mut wrong = group.group.remote();
    wrong.policy = TokenPolicy::PlainText(Token::new(0xcaff));
    let wrong = w.a.half.ctx.import_jetty(&wrong)?;
    let (jetty, _) = w.a.parts();
    jetty.post_send(&[SendWr::new(SendOp::Send { src: &[] }, &wrong, 9)])?;
    let done = w.a.sent()?;
    check(!done.status.is_success(), "a wrong token was taken")
}

fn group_without_members(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let group = members(&w, HintPolicy::RoundRobin, 0, TokenPolicy::None)?;
    let (jetty, _) = w.a.parts();
    jetty.post_send(&[SendWr::new(SendOp::Send { src: &[] }, &group.target, 9)])?;
    let done = w.a.sent()?;
    check(!done.status.is_success(), "a message to an empty group succeeded")
}

fn group_outlives_its_members(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let Members { group, jetties, .. } = members(&w, HintPolicy::RoundRobin, 1, TokenPolicy::None)?;
    let group = match group.delete() {
        Ok(()) => return fail("the group was deleted under its member"),
        Err(refused) => {
            same("status", refused.status, Status::Again)?;
            refused.object
        }
    };
    drop(jetties);
    group.delete()?;
    Ok(())
}

fn group_has_a_limit(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let max = w.b.half.ctx.attr().caps.max_jetty_in_grp as usize;
    check((1..=64).contains(&max), format!("max_jetty_in_grp is {max}"))?;
    let Members { group, jfc, jetties, .. } =
        members(&w, HintPolicy::RoundRobin, max, TokenPolicy::None)?;
    let recv = JettyRecv::Own { cfg: JfrCfg::new(setup.mode, 4), jfc: &jfc };
    let cfg = JettyCfg::new(JfsCfg::new(setup.mode, 4), &jfc, recv);
    let one_more = w.b.half.ctx.create_jetty(&JettyCfg { group: Some(&group), ..cfg });
    refused("one more", one_more, Status::NoMemory)?;
    same("members", jetties.len(), max)
}
