//! Completions: order, exactly once, unsignalled streams, full queues, batches.

use urma_core::{CrStatus, JfcCfg, PostReason, SendFlags, SendOp, SendWr, WrFlags};
use urma_tests::world::{Outcome, Pause, Setup, World, check, fail, pattern, pause, same};

super::behaviours! {
    Good reliable completions_come_in_posting_order: "Requests of different kinds complete in posting order.";
    Good reliable completions_come_exactly_once: "Over many ring rounds every signalled request completes once.";
    Good reliable unsignalled_stream_flows: "A stream of unsignalled requests far longer than the queue flows without any completion.";
    Good reliable unsignalled_then_signalled: "The completion of a signalled request shows that all earlier unsignalled ones are done.";
    Good reliable out_of_order_completes_all_once: "A queue created for out-of-order completion completes every request once.";
    Good reliable out_of_order_keeps_asked_order: "In such a queue requests with COMP_ORDER complete in posting order.";
    Good any nop_completes: "A NOP completes in posting order.";
    Good reliable batch_is_posted_whole: "One post of many requests does all of them in order.";
    Good reliable full_send_jfc_loses_nothing: "With a full send-side JFC nothing is fetched; after polling every request completes once.";
    Good rm one_jfc_serves_both_sides: "Send and receive completions may share a JFC.";
    Bad reliable unsignalled_error_completes: "An unsignalled request that fails makes a completion.";
    Bad any batch_with_a_bad_request: "In a batch those before a bad request are done, its index is reported, those after are not.";
    Bad any send_queue_full: "Posting to a full send queue is refused as full, and no request is accepted.";
    Bad any batch_longer_than_the_queue: "A batch longer than the queue takes what fits and reports the index of the first that does not.";
    Good any poll_into_nothing: "A poll into an empty slice takes nothing.";
}

fn completions_come_in_posting_order(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for _ in 0..10 {
        for at in 0..4 {
            w.b.recv(at * 1024, 1024)?;
        }
        let order = [
            w.a.read(0, 100_000, 30_000)?,
            w.a.write(0, 4096, 8)?,
            w.a.send(0, 64)?,
            w.a.post(|kit| SendOp::FetchAdd {
                result: kit.sge(0, 8),
                target: kit.at(200_000),
                value: 1,
            })?,
            w.a.post(|_| SendOp::Nop)?,
            w.a.write(0, 40_000, 60_000)?,
            w.a.send(0, 1)?,
            w.a.read(0, 8, 1)?,
        ];
        for ctx in order {
            w.a.sent_ok(ctx)?;
        }
        w.b.received_as(CrStatus::Success)?;
        w.b.received_as(CrStatus::Success)?;
        // The two receives left over are used up, so that the next round finds room.
        for _ in 0..2 {
            let ctx = w.a.send(0, 1)?;
            w.a.sent_ok(ctx)?;
            w.b.received_as(CrStatus::Success)?;
        }
    }
    Ok(())
}

fn completions_come_exactly_once(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| {
        plan.send.depth = 16;
        plan.jfc_depth = 16;
    })?;
    let mut due = 0_u64;
    let mut posted = 0_u64;
    while posted < 1000 {
        for _ in 0..13 {
            posted += 1;
            let at = usize::try_from(posted % 100).unwrap_or(0) * 8;
            let (jetty, kit) = w.a.parts();
            let src = [kit.sge(at, 8)];
            let op = SendOp::Write { src: &src, dst: kit.at(at) };
            jetty.post_send(&[kit.wr(op, posted)])?;
        }
        while due < posted {
            due += 1;
            w.a.sent_ok(due)?;
        }
    }
    w.a.nothing_sent()
}

fn unsignalled_stream_flows(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| {
        plan.send.depth = 16;
        plan.jfc_depth = 16;
    })?;
    for step in 0..2000_u64 {
        w.a.mem().set_word(usize::try_from(step % 512).unwrap_or(0) * 8, step)?;
        let at = usize::try_from(step % 512).unwrap_or(0) * 8;
        write_when_there_is_room(&mut w, WrFlags::empty(), at)?;
    }
    let ctx = write_when_there_is_room(&mut w, WrFlags::COMPLETE | WrFlags::STRONG_ORDER, 0)?;
    w.a.sent_ok(ctx)?;
    w.a.nothing_sent()?;
    for index in 0..512_usize {
        let newest = w.a.mem().word(index * 8)?;
        same("the newest word", w.b.mem().word(index * 8)?, newest)?;
    }
    Ok(())
}

/// WRITE of the 8 bytes at `at` to the same place, as soon as the queue has room.
fn write_when_there_is_room(w: &mut World, flags: WrFlags, at: usize) -> Outcome<u64> {
    urma_tests::world::until("room in the send queue", || match w.a.try_write(flags, (at, at, 8)) {
        Ok(ctx) => Ok(Some(ctx)),
        Err(error) if error.reason == PostReason::Full => Ok(None),
        Err(error) => Err(error.into()),
    })
}

fn unsignalled_then_signalled(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let bytes = pattern(1, 50 * 1000);
    w.a.mem().put(0, &bytes)?;
    w.b.mem().poison(65536, bytes.len())?;
    for index in 0..49 {
        w.a.try_write(WrFlags::empty(), (index * 1000, 65536 + index * 1000, 1000))?;
    }
    let ctx = w.a.write(49_000, 65536 + 49_000, 1000)?;
    w.a.sent_ok(ctx)?;
    w.b.mem().placed(65536, &bytes)?;
    w.a.nothing_sent()
}

fn out_of_order_completes_all_once(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| plan.send.flags = SendFlags::OUTORDER_COMP)?;
    for _ in 0..10 {
        let mut due = Vec::new();
        for index in 0..40 {
            due.push(match index % 3 {
                0 => w.a.read(0, 65536, 9000)?,
                1 => w.a.write(0, index * 8, 8)?,
                _ => w.a.post(|kit| SendOp::FetchAdd {
                    result: kit.sge(0, 8),
                    target: kit.at(100_000),
                    value: 1,
                })?,
            });
        }
        while !due.is_empty() {
            let done = w.a.sent_as(CrStatus::Success)?;
            let Some(index) = due.iter().position(|ctx| *ctx == done.user_ctx) else {
                return fail(format!("completion of {} twice or of nothing", done.user_ctx));
            };
            due.remove(index);
        }
    }
    w.a.nothing_sent()
}

fn out_of_order_keeps_asked_order(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| plan.send.flags = SendFlags::OUTORDER_COMP)?;
    for _ in 0..10 {
        let mut order = Vec::new();
        for index in 0..40 {
            let len = if index % 2 == 0 { 9000 } else { 8 };
            let flags = WrFlags::COMPLETE | WrFlags::COMP_ORDER;
            order.push(w.a.try_write(flags, (0, 65536, len))?);
        }
        for ctx in order {
            w.a.sent_ok(ctx)?;
        }
    }
    Ok(())
}

fn nop_completes(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for _ in 0..100 {
        let ctx = w.a.post(|_| SendOp::Nop)?;
        w.a.sent_ok(ctx)?;
    }
    Ok(())
}

fn batch_is_posted_whole(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let bytes = pattern(1, 32 * 500);
    w.a.mem().put(0, &bytes)?;
    w.b.mem().poison(65536, bytes.len())?;
    let (jetty, kit) = w.a.parts();
    let sges: Vec<_> = (0..32).map(|index| [kit.sge(index * 500, 500)]).collect();
    let batch: Vec<SendWr<'_>> = sges
        .iter()
        .enumerate()
        .map(|(index, src)| {
            let dst = kit.at(65536 + index * 500);
            kit.wr(SendOp::Write { src, dst }, index as u64)
        })
        .collect();
    jetty.post_send(&batch)?;
    for ctx in 0..32 {
        w.a.sent_ok(ctx)?;
    }
    w.b.mem().placed(65536, &bytes)
}

fn full_send_jfc_loses_nothing(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| plan.jfc_depth = 4)?;
    let mut order = Vec::new();
    for index in 0..48 {
        w.a.mem().set_word(index * 8, 1)?;
        order.push(w.a.write(index * 8, index * 8, 8)?);
    }
    for _ in 0..3 {
        pause(Pause::Ticks);
    }
    for index in 4..48 {
        same("a word before its turn", w.b.mem().word(index * 8)?, 0)?;
    }
    for ctx in order {
        w.a.sent_ok(ctx)?;
    }
    for index in 0..48 {
        same("a word", w.b.mem().word(index * 8)?, 1)?;
    }
    w.a.nothing_sent()
}

fn one_jfc_serves_both_sides(setup: Setup) -> Outcome {
    use urma_core::{JettyCfg, JettyRecv, JfrCfg, JfsCfg, RecvWr};
    let w = World::new(setup)?;
    let mut jfc = w.a.half.ctx.create_jfc(&JfcCfg::new(64), None)?;
    let recv = JettyRecv::Own { cfg: JfrCfg::new(setup.mode, 16), jfc: &jfc };
    let cfg = JettyCfg::new(JfsCfg::new(setup.mode, 16), &jfc, recv);
    let mut jetty = w.a.half.ctx.create_jetty(&cfg)?;
    let target = w.a.half.ctx.import_jetty(&jetty.remote())?;
    for round in 0..20 {
        jetty.post_recv(&[RecvWr { dst: &[], user_ctx: 1000 + round }])?;
        jetty.post_send(&[SendWr::new(SendOp::Send { src: &[] }, &target, round)])?;
        let mut seen = Vec::new();
        for _ in 0..2 {
            let done = urma_tests::world::next(&mut jfc, "completion")?;
            same("status", done.status, CrStatus::Success)?;
            same("side", done.is_recv(), done.user_ctx >= 1000)?;
            seen.push(done.user_ctx);
        }
        seen.sort_unstable();
        same("contexts", seen, vec![round, 1000 + round])?;
    }
    Ok(())
}

fn unsignalled_error_completes(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let (jetty, kit) = w.a.parts();
    let good = [kit.sge(0, 8)];
    let op = SendOp::Write { src: &good, dst: kit.at(0) };
    jetty.post_send(&[kit.flagged(op, WrFlags::empty(), 5)])?;
    // An offset that only the owner finds wrong: its segment is gone.
    let gone = urma_tests::world::Memory::new(4096)?;
    let cfg = urma_core::SegmentCfg::new(urma_core::SegmentAccess::REMOTE_ALL);
    let seg = w.b.half.ctx.register(gone.region(), &cfg, None)?;
    let access = urma_core::SegmentAccess::REMOTE_ALL;
    let none = urma_tests::world::NO_MAPPING;
    let imported = w.a.half.ctx.import_segment(&seg.remote(), access, none)?;
    seg.unregister()?;
    let (jetty, kit) = w.a.parts();
    let src = [kit.sge(0, 8)];
    let dst = urma_core::RemoteAddr { segment: &imported, addr: imported.va() };
    jetty.post_send(&[kit.flagged(SendOp::Write { src: &src, dst }, WrFlags::empty(), 6)])?;
    let done = w.a.sent_as(CrStatus::RemAccessAbort)?;
    same("user context", done.user_ctx, 6)
}

fn batch_with_a_bad_request(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for index in 0..4 {
        w.b.recv(index * 64, 64)?;
    }
    let (jetty, kit) = w.a.parts();
    let good = [kit.sge(0, 8)];
    let bad = [kit.sge(256 << 10, 8)];
    let wr = |src, ctx| kit.wr(SendOp::Send { src }, ctx);
    let batch = [wr(&good, 0), wr(&good, 1), wr(&bad, 2), wr(&good, 3)];
    let error = match jetty.post_send(&batch) {
        Ok(()) => return fail("the batch was taken"),
        Err(error) => error,
    };
    same("index", error.index, 2)?;
    check(matches!(error.reason, PostReason::Invalid(_)), format!("{error}"))?;
    for ctx in 0..2 {
        w.a.sent_ok(ctx)?;
        w.b.received_as(CrStatus::Success)?;
    }
    w.a.nothing_sent()?;
    w.b.nothing_received()
}

fn send_queue_full(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| {
        plan.send.depth = 8;
        plan.jfc_depth = 4;
    })?;
    // There are no polls: at some time neither the JFC nor the queue has room.
    let mut taken = 0_u64;
    let error = loop {
        let (jetty, kit) = w.a.parts();
        match jetty.post_send(&[kit.wr(SendOp::Nop, taken)]) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        if taken > 100_000 {
            return fail("a queue of 8 with a JFC of 4 takes everything");
        }
    };
    same("refusal", (error.index, error.reason), (0, PostReason::Full))?;
    check(taken >= 8, format!("only {taken} requests were taken by a queue of 8"))?;
    for ctx in 0..taken {
        w.a.sent_ok(ctx)?;
    }
    w.a.nothing_sent()?;
    let ctx = w.a.post(|_| SendOp::Nop)?;
    w.a.sent_ok(ctx).map(|_| ())
}

fn batch_longer_than_the_queue(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| {
        plan.send.depth = 8;
        plan.jfc_depth = 4;
    })?;
    let (jetty, kit) = w.a.parts();
    let batch: Vec<SendWr<'_>> = (0..200).map(|ctx| kit.wr(SendOp::Nop, ctx)).collect();
    let error = match jetty.post_send(&batch) {
        Ok(()) => return fail("200 requests in a queue of 8"),
        Err(error) => error,
    };
    same("reason", error.reason, PostReason::Full)?;
    check(error.index >= 8, format!("only {} requests were taken", error.index))?;
    for ctx in 0..error.index as u64 {
        w.a.sent_ok(ctx)?;
    }
    w.a.nothing_sent()
}

fn poll_into_nothing(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let ctx = w.a.post(|_| SendOp::Nop)?;
    same("taken", w.a.half.jfc.poll(&mut [])?, 0)?;
    w.a.sent_ok(ctx).map(|_| ())
}
