//! States: suspend, error, reset, flush, and what peers see of them.

use urma_core::{
    Arm, Completion, CompletionFlags, CrStatus, JettyState, JfrCfg, JfsCfg, LocalSge, PostReason,
    RemoteAddr, SegmentAccess, SegmentCfg, SendFlags, SendOp, Status, TransportMode,
};
use urma_tests::world::{
    End, Memory, NO_MAPPING, Outcome, Pause, Setup, World, check, fail, limit, pause, plain_jfc,
    refused, same,
};

super::behaviours! {
    Good reliable suspended_jetty_resumes: "Requests of a suspended jetty wait and go on when it is ready again.";
    Good reliable reset_jetty_works_again: "After reset and ready a jetty carries requests as before.";
    Good reliable flush_takes_completions_in_order: "Flush takes the flushed completions of its queue in posting order; the last one marks the end.";
    Good reliable flush_takes_flushed_requests_only: "Flush takes no receives, and nothing of a queue while a completion from before the flush is not polled.";
    Bad reliable error_state_flushes_sends: "In the error state every outstanding send ends flushed, in order, then the flush is done.";
    Bad reliable error_state_flushes_receives: "In the error state every posted receive ends flushed.";
    Bad reliable post_in_error_state_ends_flushed: "What is posted in the error state ends flushed or is refused.";
    Bad reliable failed_request_moves_to_error: "After a failed request (RM: a local failure) the jetty is in the error state and later requests end flushed.";
    Bad reliable missing_source: "A request whose source is unregistered when it is fetched ends in a local access error.";
    Bad rm remote_error_leaves_rm_ready: "After a remote error an RM jetty stays ready and later requests succeed.";
    Bad reliable failed_request_suspends: "With suspend on error a failed request suspends its queue, the last completion marks the end, and the rest resumes.";
    Bad reliable reset_leaves_unhandled: "Requests that were not started when their jetty was reset end as unhandled.";
    Bad reliable send_to_a_reset_jetty: "A SEND to a jetty in reset ends in a remote operation error.";
    Bad reliable send_to_a_jetty_in_error: "A SEND to a jetty in the error state ends in an error.";
    Bad rm jfr_cannot_be_suspended: "Suspending a JFR is refused.";
    Bad rm wrong_transition_is_refused: "Changing a queue from error to ready, or from reset to suspended, is refused.";
}

fn suspended_jetty_resumes(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    w.a.half.jetty.modify(JettyState::Suspended)?;
    same("state", w.a.half.jetty.query()?.state, JettyState::Suspended)?;
    // The suspend itself may say that it is done.
    while let Some(done) = w.a.half.jfc.poll_one()? {
        same("completion of the suspend", done.status, CrStatus::WrSuspendDone)?;
    }
    let mut order = Vec::new();
    for index in 0..4 {
        w.a.mem().set_word(index * 8, 1)?;
        order.push(w.a.write(index * 8, index * 8, 8)?);
    }
    pause(Pause::Ticks);
    while let Some(done) = w.a.half.jfc.poll_one()? {
        same("completion of the suspend", done.status, CrStatus::WrSuspendDone)?;
    }
    for index in 0..4 {
        same("a word meanwhile", w.b.mem().word(index * 8)?, 0)?;
    }
    w.a.half.jetty.modify(JettyState::Ready)?;
    for ctx in order {
        w.a.sent_ok(ctx)?;
    }
    for index in 0..4 {
        same("a word", w.b.mem().word(index * 8)?, 1)?;
    }
    Ok(())
}

fn reset_jetty_works_again(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for _ in 0..3 {
        let ctx = w.a.write(0, 0, 8)?;
        w.a.sent_ok(ctx)?;
        reset(&w.a)?;
        same("state", w.a.half.jetty.query()?.state, JettyState::Reset)?;
        while w.a.half.jfc.poll_one()?.is_some() {}
        w.a.half.jetty.modify(JettyState::Ready)?;
        let recv = w.b.recv(0, 64)?;
        let ctx = w.a.send(0, 64)?;
        w.a.sent_ok(ctx)?;
        w.b.received_ok(recv)?;
    }
    Ok(())
}

/// Resets a running jetty from ERROR: C programs cannot do it otherwise.
fn reset(end: &End) -> Outcome {
    end.half.jetty.modify(JettyState::Error)?;
    end.half.jetty.modify(JettyState::Reset)?;
    Ok(())
}

/// `count` SENDs that wait because there are no receives.
fn stuck_sends(w: &mut World, count: usize) -> Outcome<Vec<u64>> {
    (0..count).map(|index| w.a.send(index * 8, 8)).collect()
}

fn flush_takes_completions_in_order(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let order = stuck_sends(&mut w, 5)?;
    let mut out = [Completion::default(); 32];
    let count = w.a.half.jetty.flush(&mut out)?;
    let statuses: Vec<_> = out[..count].iter().map(|done| (done.status, done.user_ctx)).collect();
    let mut wanted: Vec<_> = order.into_iter().map(|ctx| (CrStatus::WrFlush, ctx)).collect();
    wanted.push((CrStatus::WrFlushDone, 0));
    same("flushed", statuses, wanted)?;
    check(
        out[count - 1].flags.contains(CompletionFlags::FLUSH_ERR_DONE),
        "the last completion has no flag FLUSH_ERR_DONE",
    )?;
    same("state", w.a.half.jetty.query()?.state, JettyState::Error)
}

fn flush_takes_flushed_requests_only(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let mut out = [Completion::default(); 32];
    let receives = [w.a.recv(0, 64)?, w.a.recv(64, 64)?, w.a.recv(128, 64)?];
    for _ in 0..2 {
        let ctx = w.b.send(0, 64)?;
        w.b.sent_ok(ctx)?;
    }
    w.a.half.jfc.arm(Arm::Any)?;
    let ended = w.a.write(0, 0, 8)?;
    same("events", w.a.half.jfce.wait(&mut [0], Some(limit()))?, 1)?;
    let stuck = stuck_sends(&mut w, 2)?;
    same("taken before the poll", w.a.half.jetty.flush(&mut out)?, 0)?;
    w.a.sent_ok(ended)?;
    let count = w.a.half.jetty.flush(&mut out)?;
    let taken: Vec<_> = out[..count].iter().map(|done| (done.status, done.user_ctx)).collect();
    let flushed = stuck.into_iter().map(|ctx| (CrStatus::WrFlush, ctx));
    same("flushed", taken, flushed.chain([(CrStatus::WrFlushDone, 0)]).collect())?;
    for ctx in &receives[..2] {
        w.a.received_ok(*ctx)?;
    }
    same("unused receive", w.a.received_as(CrStatus::WrFlush)?.user_ctx, receives[2])?;
    Ok(w.a.half.jfc.ack_events(1)?)
}

fn error_state_flushes_sends(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let order = stuck_sends(&mut w, 5)?;
    w.a.half.jetty.modify(JettyState::Error)?;
    for ctx in order {
        let done = w.a.sent_as(CrStatus::WrFlush)?;
        same("user context", done.user_ctx, ctx)?;
    }
    w.a.sent_as(CrStatus::WrFlushDone)?;
    w.a.nothing_sent()
}

fn error_state_flushes_receives(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let order: Vec<u64> =
        (0..5).map(|index| w.b.recv(index * 8, 8)).collect::<Outcome<Vec<_>>>()?;
    w.b.half.jetty.modify(JettyState::Error)?;
    for ctx in order {
        let done = w.b.received_as(CrStatus::WrFlush)?;
        same("user context", done.user_ctx, ctx)?;
    }
    Ok(())
}

fn post_in_error_state_ends_flushed(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    w.a.half.jetty.modify(JettyState::Error)?;
    w.a.sent_as(CrStatus::WrFlushDone)?;
    match w.a.try_write(urma_core::WrFlags::COMPLETE, (0, 0, 8)) {
        Ok(ctx) => {
            let done = w.a.sent_as(CrStatus::WrFlush)?;
            same("user context", done.user_ctx, ctx)
        }
        Err(error) => same("reason", error.reason, PostReason::Device),
    }
}

/// A WRITE that its target refuses: beyond what is registered there.
pub(super) fn bad_write(w: &mut World) -> Outcome<u64> {
    let mut lie = w.b.half.seg.remote();
    lie.len += 4096;
    let imported = w.a.half.ctx.import_segment(&lie, SegmentAccess::REMOTE_ALL, NO_MAPPING)?;
    let ctx = w.a.fresh_ctx();
    let end = imported.va() + w.b.half.seg.len();
    let (jetty, kit) = w.a.parts();
    let src = [kit.sge(0, 8)];
    let dst = RemoteAddr { segment: &imported, addr: end };
    jetty.post_send(&[kit.wr(SendOp::Write { src: &src, dst }, ctx)])?;
    Ok(ctx)
}

/// A WRITE whose source is unregistered before the device fetches it: the queue is suspended
/// meanwhile.
pub(super) fn sourceless_write(w: &mut World) -> Outcome<u64> {
    let mem = Memory::new(4096)?;
    let cfg = SegmentCfg::new(SegmentAccess::LOCAL_ONLY);
    let seg = w.a.half.ctx.register(mem.region(), &cfg, None)?;
    w.a.half.jetty.modify(JettyState::Suspended)?;
    let ctx = w.a.fresh_ctx();
    let (jetty, kit) = w.a.parts();
    let src = [LocalSge { segment: &seg, addr: seg.va(), len: 8 }];
    jetty.post_send(&[kit.wr(SendOp::Write { src: &src, dst: kit.at(0) }, ctx)])?;
    seg.unregister()?;
    w.a.sent_as(CrStatus::WrSuspendDone)?;
    w.a.half.jetty.modify(JettyState::Ready)?;
    Ok(ctx)
}

fn missing_source(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    w.b.mem().poison(0, 8)?;
    let bad = sourceless_write(&mut w)?;
    let done = w.a.sent_as(CrStatus::LocAccess)?;
    same("user context", done.user_ctx, bad)?;
    w.b.mem().untouched(0, 8)
}

fn failed_request_moves_to_error(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let (bad, status) = match setup.mode {
        TransportMode::Rc => (bad_write(&mut w)?, CrStatus::RemAccessAbort),
        TransportMode::Rm | TransportMode::Um => (sourceless_write(&mut w)?, CrStatus::LocAccess),
    };
    let done = w.a.sent_as(status)?;
    same("user context", done.user_ctx, bad)?;
    w.a.sent_as(CrStatus::WrFlushDone)?;
    same("state", w.a.half.jetty.query()?.state, JettyState::Error)?;
    let later = w.a.write(0, 0, 8)?;
    let done = w.a.sent_as(CrStatus::WrFlush)?;
    same("user context", done.user_ctx, later)
}

fn remote_error_leaves_rm_ready(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for _ in 0..3 {
        let bad = bad_write(&mut w)?;
        let good = w.a.write(0, 0, 8)?;
        let done = w.a.sent_as(CrStatus::RemAccessAbort)?;
        same("user context", done.user_ctx, bad)?;
        w.a.sent_ok(good)?;
        same("state", w.a.half.jetty.query()?.state, JettyState::Ready)?;
    }
    w.a.nothing_sent()
}

fn failed_request_suspends(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| plan.send.flags = SendFlags::ERROR_SUSPEND)?;
    let (bad, status) = match setup.mode {
        TransportMode::Rc => (bad_write(&mut w)?, CrStatus::RemAccessAbort),
        TransportMode::Rm | TransportMode::Um => (sourceless_write(&mut w)?, CrStatus::LocAccess),
    };
    let done = w.a.sent_as(status)?;
    same("user context", done.user_ctx, bad)?;
    let last = w.a.sent_as(CrStatus::WrSuspendDone)?;
    check(last.flags.contains(CompletionFlags::SUSPEND_DONE), "no flag SUSPEND_DONE")?;
    same("state", w.a.half.jetty.query()?.state, JettyState::Suspended)?;
    let ctx = w.a.write(0, 0, 8)?;
    w.a.nothing_sent()?;
    w.a.half.jetty.modify(JettyState::Ready)?;
    w.a.sent_ok(ctx).map(|_| ())
}

fn reset_leaves_unhandled(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    w.a.half.jetty.modify(JettyState::Suspended)?;
    while w.a.half.jfc.poll_one()?.is_some() {}
    let mut order = Vec::new();
    for _ in 0..3 {
        order.push(w.a.write(0, 0, 8)?);
    }
    w.a.half.jetty.modify(JettyState::Reset)?;
    for ctx in order {
        let mut done = w.a.sent()?;
        if done.status == CrStatus::WrSuspendDone {
            done = w.a.sent()?;
        }
        same("completion", (done.status, done.user_ctx), (CrStatus::WrUnhandled, ctx))?;
    }
    w.a.nothing_sent()
}

fn send_to_a_reset_jetty(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    reset(&w.b)?;
    w.a.send(0, 8)?;
    w.a.sent_as(CrStatus::RemOperation).map(|_| ())
}

fn send_to_a_jetty_in_error(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    w.b.half.jetty.modify(JettyState::Error)?;
    w.a.send(0, 8)?;
    let done = w.a.sent()?;
    check(
        matches!(done.status, CrStatus::RemOperation | CrStatus::RemUnsupportedReq),
        format!("{:?}", done.status),
    )
}

fn jfr_cannot_be_suspended(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let jfc = plain_jfc(&w.a.half.ctx, 16)?;
    let jfr = w.a.half.ctx.create_jfr(&JfrCfg::new(setup.mode, 4), &jfc)?;
    refused("suspending a JFR", jfr.modify(JettyState::Suspended), Status::Invalid)?;
    same("state", jfr.query()?.state, JettyState::Ready)
}

fn wrong_transition_is_refused(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let jfc = plain_jfc(&w.a.half.ctx, 16)?;
    let jfs = w.a.half.ctx.create_jfs(&JfsCfg::new(setup.mode, 4), &jfc)?;
    jfs.modify(JettyState::Error)?;
    refused("error to ready", jfs.modify(JettyState::Ready), Status::Invalid)?;
    refused("error to suspended", jfs.modify(JettyState::Suspended), Status::Invalid)?;
    jfs.modify(JettyState::Reset)?;
    refused("reset to suspended", jfs.modify(JettyState::Suspended), Status::Invalid)?;
    jfs.modify(JettyState::Ready)?;
    if jfs.query()?.state == JettyState::Ready { Ok(()) } else { fail("not ready again") }
}
