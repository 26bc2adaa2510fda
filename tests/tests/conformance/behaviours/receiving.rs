//! Receives: scatter, length, receiver not ready, shared JFRs.

use urma_core::{
    CrStatus, JettyCfg, JettyRecv, JfcFlags, JfrCfg, JfsCfg, LocalSge, PostReason, RecvWr, SendOp,
    SendWr, Status, TransportMode,
};
use urma_tests::world::{
    Outcome, Pause, Plan, Setup, World, check, fail, next, pattern, pause, plain_jfc, refused, same,
};

super::behaviours! {
    Good any recv_scatters: "A message fills the SGEs of its receive one after the other.";
    Good any recv_inline_payload: "With the inline flag of the JFC a small message may come in the completion itself.";
    Good reliable rnr_retry_succeeds: "A SEND without receive waits and succeeds when a receive comes within the retries.";
    Good reliable receives_of_a_full_jfc_wait: "With a full receive-side JFC messages wait; none is lost and no completion overwritten.";
    Good rm shared_jfr_serves_its_jetties: "Jetties that share a JFR consume its receives and complete as themselves.";
    Good rm_two_nodes jetty_without_receives_blocks_no_other: "A jetty that never posts a receive does not hold up others.";
    Good rm_two_nodes one_deaf_of_64_jetties: "Of 64 pairs of jetties one never receives: all messages of the others are done while its first still waits.";
    Bad reliable rnr_retry_exceeded: "A SEND without receive ends as receiver not ready when its retries are used up.";
    Bad reliable send_longer_than_the_receive: "A message longer than its receive ends in an error on both sides and nothing lies beyond the buffer.";
    Bad any post_recv_beyond_depth_is_refused: "Posting more receives than the queue holds is refused as full; those before count.";
    Bad rm post_recv_to_a_sharing_jetty_is_refused: "Posting a receive to a jetty that shares a JFR is refused.";
    Bad rm shared_jfr_outlives_its_jetties: "A JFR that jetties share cannot be deleted before them.";
}

fn recv_scatters(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let lens = [1, 600, 8, 100];
    let bytes = pattern(6, lens.iter().sum());
    w.a.mem().put(77, &bytes)?;
    let places = [1000, 9001, 40_000, 60_000];
    for (place, len) in places.into_iter().zip(lens) {
        w.b.mem().poison(place, len)?;
    }
    let (jetty, kit) = w.b.parts();
    let dst = [0, 1, 2, 3].map(|index| kit.sge(places[index], lens[index]));
    jetty.post_recv(&[RecvWr { dst: &dst, user_ctx: 5 }])?;
    let ctx = w.a.send(77, bytes.len())?;
    w.b.received_ok(5)?;
    w.a.sent_ok(ctx)?;
    let mut done = 0;
    for (place, len) in places.into_iter().zip(lens) {
        w.b.mem().placed(place, &bytes[done..done + len])?;
        done += len;
    }
    Ok(())
}

fn recv_inline_payload(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| plan.recv_jfc_flags = JfcFlags::INLINE)?;
    for len in [1, 8, 12, 13, 100] {
        let bytes = pattern(len as u64, len);
        w.a.mem().put(0, &bytes)?;
        w.b.mem().poison(4096, len)?;
        let recv = w.b.recv(4096, 200)?;
        let ctx = w.a.send(0, len)?;
        let done = w.b.received_ok(recv)?;
        w.a.sent_ok(ctx)?;
        same("length", done.len as usize, len)?;
        if done.payload.bytes().is_empty() {
            w.b.mem().placed(4096, &bytes)?;
        } else {
            check(len <= 12, "a long message came inline")?;
            same("payload", done.payload.bytes(), &bytes)?;
            w.b.mem().untouched(4096, len)?;
        }
    }
    Ok(())
}

/// Seven retries, 164 ms apart: the receiver may be away from its core for a second.
fn patient(plan: &mut Plan) {
    plan.recv.min_rnr_timer = 28;
}

fn rnr_retry_succeeds(setup: Setup) -> Outcome {
    let mut w = World::with(setup, patient)?;
    let bytes = pattern(3, 300);
    w.a.mem().put(0, &bytes)?;
    for _ in 0..2 {
        w.b.mem().poison(0, 300)?;
        let first = w.a.send(0, 300)?;
        let second = w.a.send(0, 300)?;
        w.a.nothing_sent()?;
        let recv = w.b.recv(0, 300)?;
        w.b.received_ok(recv)?;
        w.a.sent_ok(first)?;
        w.b.mem().placed(0, &bytes)?;
        w.b.mem().poison(0, 300)?;
        let recv = w.b.recv(0, 300)?;
        w.b.received_ok(recv)?;
        w.a.sent_ok(second)?;
        w.b.mem().placed(0, &bytes)?;
    }
    Ok(())
}

fn receives_of_a_full_jfc_wait(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| {
        plan.recv_jfc_depth = 4;
        patient(plan);
    })?;
    // Room is what the ring was rounded up to; far more messages than that.
    for index in 0..16 {
        w.b.recv(index * 64, 64)?;
    }
    for index in 0..16_usize {
        w.a.mem().set_word(index * 8, index as u64 + 1)?;
        w.a.send(index * 8, 8)?;
    }
    for _ in 0..3 {
        pause(Pause::Ticks);
    }
    for index in 0..16_usize {
        let done = w.b.received_as(CrStatus::Success)?;
        same("length", done.len, 8)?;
        same("the message", w.b.mem().word(index * 64)?, index as u64 + 1)?;
        w.a.sent_as(CrStatus::Success)?;
    }
    w.b.nothing_received()
}

fn shared_jfr_serves_its_jetties(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let ctx = std::sync::Arc::clone(&w.b.half.ctx);
    let mut jfc = plain_jfc(&ctx, 64)?;
    let mut jfr = ctx.create_jfr(&JfrCfg::new(setup.mode, 32), &jfc)?;
    let mut members = Vec::new();
    for number in 0..3 {
        let send = JfsCfg { user_ctx: number, ..JfsCfg::new(setup.mode, 4) };
        let recv = JettyRecv::Shared { jfr: &jfr, jfc: None };
        members.push(ctx.create_jetty(&JettyCfg::new(send, &jfc, recv))?);
    }
    let mut targets = Vec::new();
    for member in &members {
        targets.push(w.a.half.ctx.import_jetty(&member.remote())?);
    }
    for index in 0..12_u64 {
        let addr = w.b.half.seg.va() + index * 64;
        let dst = [LocalSge { segment: &w.b.half.seg, addr, len: 64 }];
        jfr.post_recv(&[RecvWr { dst: &dst, user_ctx: index }])?;
    }
    for index in 0..12_usize {
        let (jetty, kit) = w.a.parts();
        let src = [kit.sge(0, 8)];
        jetty.post_send(&[SendWr::new(SendOp::Send { src: &src }, &targets[index % 3], 1)])?;
        w.a.sent_as(CrStatus::Success)?;
        let done = next(&mut jfc, "receive completion")?;
        same("status", done.status, CrStatus::Success)?;
        same("receive", done.user_ctx, index as u64)?;
        same("jetty", done.local_id, members[index % 3].id().id)?;
        same("queue context", done.queue_ctx, (index % 3) as u64)?;
    }
    Ok(())
}

fn jetty_without_receives_blocks_no_other(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let ctx = std::sync::Arc::clone(&w.b.half.ctx);
    let jfc = plain_jfc(&ctx, 64)?;
    let recv = JettyRecv::Own { cfg: JfrCfg::new(setup.mode, 4), jfc: &jfc };
    let deaf = ctx.create_jetty(&JettyCfg::new(JfsCfg::new(setup.mode, 4), &jfc, recv))?;
    let deaf = w.a.half.ctx.import_jetty(&deaf.remote())?;
    let stuck_jfc = plain_jfc(&w.a.half.ctx, 64)?;
    let mut stuck = w.a.half.ctx.create_jfs(&JfsCfg::new(setup.mode, 32), &stuck_jfc)?;
    let src = [LocalSge { segment: &w.a.half.seg, addr: w.a.half.seg.va(), len: 4096 }];
    for index in 0..32 {
        stuck.post_send(&[SendWr::new(SendOp::Send { src: &src }, &deaf, index)])?;
    }
    for _ in 0..200 {
        let recv = w.b.recv(0, 8192)?;
        let send = w.a.send(8192, 5000)?;
        w.b.received_ok(recv)?;
        w.a.sent_ok(send)?;
        let write = w.a.write(0, 65536, 5000)?;
        w.a.sent_ok(write)?;
    }
    Ok(())
}

fn one_deaf_of_64_jetties(setup: Setup) -> Outcome {
    const PAIRS: usize = 64;
    const ROUNDS: usize = 4;
    let w = World::new(setup)?;
    let (here, there) = (&w.a.half, &w.b.half);
    let (mut sent, mut got) = (plain_jfc(&here.ctx, 1024)?, plain_jfc(&there.ctx, 1024)?);
    let mut deaf_sent = plain_jfc(&here.ctx, 16)?;
    let (mut senders, mut receivers, mut targets) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        // Timer 0 is the longest: the deaf one holds its sender for 4.6 s.
        let recv = JfrCfg { min_rnr_timer: 0, ..JfrCfg::new(setup.mode, 8) };
        let own = JettyRecv::Own { cfg: recv, jfc: &got };
        let cfg = JettyCfg::new(JfsCfg::new(setup.mode, 4), &got, own);
        let mut jetty = there.ctx.create_jetty(&cfg)?;
        let receives = if pair == 0 { 0 } else { ROUNDS };
        for _ in 0..receives {
            jetty.post_recv(&[RecvWr { dst: &[], user_ctx: pair as u64 }])?;
        }
        targets.push(here.ctx.import_jetty(&jetty.remote())?);
        receivers.push(jetty);
        let jfc = if pair == 0 { &deaf_sent } else { &sent };
        let send = JfsCfg { err_timeout: 21, ..JfsCfg::new(setup.mode, 8) };
        senders.push(here.ctx.create_jfs(&send, jfc)?);
    }
    for _ in 0..ROUNDS {
        for (pair, (sender, target)) in senders.iter_mut().zip(&targets).enumerate() {
            sender.post_send(&[SendWr::new(SendOp::Send { src: &[] }, target, pair as u64)])?;
        }
    }
    for _ in 0..(PAIRS - 1) * ROUNDS {
        same("status", next(&mut sent, "send completion")?.status, CrStatus::Success)?;
        same("status", next(&mut got, "receive completion")?.status, CrStatus::Success)?;
    }
    let early = deaf_sent.poll_one()?;
    check(early.is_none(), format!("the deaf jetty's sender was waited for: {early:?}"))
}

fn rnr_retry_exceeded(setup: Setup) -> Outcome {
    for retries in [0, 2] {
        let mut w = World::with(setup, |plan| {
            plan.send.rnr_retry = retries;
            plan.recv.min_rnr_timer = 1;
        })?;
        let ctx = w.a.send(0, 100)?;
        let done = w.a.sent_as(CrStatus::RnrRetryExceeded)?;
        same("user context", done.user_ctx, ctx)?;
        w.b.nothing_received()?;
    }
    Ok(())
}

fn send_longer_than_the_receive(setup: Setup) -> Outcome {
    for (room, len) in [(64, 65), (0, 1), (100, 9000), (4096, 4097)] {
        let mut w = World::new(setup)?;
        w.a.mem().put(0, &pattern(1, len))?;
        w.b.mem().poison(4096 + room, 9000)?;
        let recv = w.b.recv(4096, room)?;
        let ctx = w.a.send(0, len)?;
        let sent = w.a.sent()?;
        same("user context of the send", sent.user_ctx, ctx)?;
        let step = format!("{len} bytes into {room}");
        same("status of the send", sent.status, CrStatus::RemRespLen)
            .map_err(|f| f.during(&step))?;
        let got = w.b.received_as(CrStatus::LocLen).map_err(|f| f.during(&step))?;
        same("user context of the receive", got.user_ctx, recv)?;
        // The guard before the room is the room itself here.
        let beyond = w.b.mem().take(4096 + room, 4096)?;
        check(beyond.iter().all(|byte| *byte == 0xa5), format!("{step}: bytes beyond the room"))?;
    }
    Ok(())
}

fn post_recv_beyond_depth_is_refused(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| plan.recv.depth = 8)?;
    let mut taken = 0;
    let error = loop {
        match w.b.try_recv(0, 8) {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
        if taken > 64 {
            return fail("64 receives in a queue of 8");
        }
    };
    same("reason", error.reason, PostReason::Full)?;
    check(taken >= 8, format!("only {taken} receives of 8 were taken"))?;
    for _ in 0..taken {
        w.a.send(0, 8)?;
        w.b.received_as(CrStatus::Success)?;
        if setup.mode != TransportMode::Um {
            w.a.sent_as(CrStatus::Success)?;
        }
    }
    w.b.recv(0, 8).map(|_| ())
}

fn post_recv_to_a_sharing_jetty_is_refused(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let jfc = plain_jfc(&w.a.half.ctx, 16)?;
    let jfr = w.a.half.ctx.create_jfr(&JfrCfg::new(setup.mode, 4), &jfc)?;
    let recv = JettyRecv::Shared { jfr: &jfr, jfc: None };
    let cfg = JettyCfg::new(JfsCfg::new(setup.mode, 4), &jfc, recv);
    let mut jetty = w.a.half.ctx.create_jetty(&cfg)?;
    let seen = jetty.post_recv(&[RecvWr { dst: &[], user_ctx: 1 }]);
    check(seen.is_err_and(|e| e.index == 0), "the receive was taken")?;
    refused("a threshold", jetty.set_rx_threshold(1), Status::Invalid)
}

fn shared_jfr_outlives_its_jetties(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let jfc = plain_jfc(&w.a.half.ctx, 16)?;
    let jfr = w.a.half.ctx.create_jfr(&JfrCfg::new(setup.mode, 4), &jfc)?;
    let recv = JettyRecv::Shared { jfr: &jfr, jfc: None };
    let cfg = JettyCfg::new(JfsCfg::new(setup.mode, 4), &jfc, recv);
    let jetty = w.a.half.ctx.create_jetty(&cfg)?;
    let jfr = match jfr.delete() {
        Ok(()) => return fail("the JFR was deleted under its jetty"),
        Err(refused) => {
            same("status", refused.status, Status::Again)?;
            refused.object
        }
    };
    jetty.delete()?;
    jfr.delete()?;
    Ok(())
}
