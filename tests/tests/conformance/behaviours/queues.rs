//! Queues as objects: ids, queries, deletion, drops.

use urma_core::{
    CrStatus, Jetty, JettyCfg, JettyRecv, JettyState, Jfc, JfrCfg, JfsCfg, SendOp, Status,
};
use urma_tests::world::{Outcome, Setup, World, check, fail, next, plain_jfc, refused, same};

super::behaviours! {
    Good rm automatic_ids_start_after_the_reserved: "Ids given by the device are 1024 and up, of 20 bits, and distinct.";
    Good rm chosen_id_is_given: "A caller-chosen id is given, a well-known one too, and messages reach it.";
    Good rm deleted_id_is_free_again: "The id of a deleted queue may be chosen again.";
    Good rm query_shows_fill: "A query shows the state, posted receives and the threshold.";
    Good any new_queue_is_ready: "A new queue is in the state ready.";
    Good rm dropped_queue_is_deleted: "A dropped queue frees its id like a deleted one.";
    Good rm many_queues_work: "A hundred jetties of one context all carry messages.";
    Good any two_threads_post_on_two_queues: "Two threads, each with a jetty, post and poll at the same time.";
    Bad rm taken_id_is_refused: "An id that is in use is refused for jetty, JFR and group alike.";
    Bad rm id_beyond_20_bits_is_refused: "An id of more than 20 bits is refused.";
    Bad reliable delete_flushes_outstanding: "Deleting a jetty gives every outstanding send and receive its flushed completion.";
    Bad rm rx_threshold_beyond_depth_is_refused: "A receive threshold of more than the depth is refused.";
}

/// A jetty with its own receive half on one JFC.
pub(super) fn small_jetty(w: &World, id: u32, jfc: &Jfc) -> Result<Jetty, Status> {
    let recv = JettyRecv::Own { cfg: JfrCfg::new(w.setup.mode, 4), jfc };
    let cfg = JettyCfg { id, ..JettyCfg::new(JfsCfg::new(w.setup.mode, 4), jfc, recv) };
    w.b.half.ctx.create_jetty(&cfg)
}

fn automatic_ids_start_after_the_reserved(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let jfc = plain_jfc(&w.b.half.ctx, 16)?;
    let mut seen = vec![w.b.half.jetty.id().id];
    let mut keep = Vec::new();
    for _ in 0..20 {
        let jetty = small_jetty(&w, 0, &jfc)?;
        let id = jetty.id().id;
        check((1024..1 << 20).contains(&id), format!("id {id}"))?;
        check(!seen.contains(&id), format!("id {id} twice"))?;
        seen.push(id);
        keep.push(jetty);
    }
    Ok(())
}

fn chosen_id_is_given(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let mut jfc = plain_jfc(&w.b.half.ctx, 16)?;
    for id in [7, 1023, 2000, (1 << 20) - 1] {
        let mut jetty = small_jetty(&w, id, &jfc).map_err(|status| format!("{id}: {status}"))?;
        same("id", jetty.id().id, id)?;
        let target = w.a.half.ctx.import_jetty(&jetty.remote())?;
        jetty.post_recv(&[urma_core::RecvWr { dst: &[], user_ctx: 3 }])?;
        let (mine, _) = w.a.parts();
        mine.post_send(&[urma_core::SendWr::new(SendOp::Send { src: &[] }, &target, 1)])?;
        w.a.sent_ok(1)?;
        let done = next(&mut jfc, "receive completion")?;
        same("receive", (done.status, done.local_id), (CrStatus::Success, id))?;
    }
    Ok(())
}

fn deleted_id_is_free_again(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let jfc = plain_jfc(&w.b.half.ctx, 16)?;
    for _ in 0..5 {
        small_jetty(&w, 5000, &jfc)?.delete()?;
    }
    Ok(())
}

fn query_shows_fill(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for _ in 0..5 {
        w.b.recv(0, 8)?;
    }
    w.b.half.jetty.set_rx_threshold(2)?;
    let status = w.b.half.jetty.query()?;
    same("state", status.state, JettyState::Ready)?;
    same("receives", status.recv_pending, 5)?;
    same("threshold", status.rx_threshold, 2)?;
    w.a.send(0, 8)?;
    w.b.received_as(CrStatus::Success)?;
    same("receives after one message", w.b.half.jetty.query()?.recv_pending, 4)?;
    w.a.sent()?;
    same("sends", w.a.half.jetty.query()?.send_pending, 0)
}

fn new_queue_is_ready(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    same("state", w.a.half.jetty.query()?.state, JettyState::Ready)?;
    if setup.mode == urma_core::TransportMode::Rc {
        return Ok(());
    }
    let jfc = plain_jfc(&w.a.half.ctx, 16)?;
    let jfs = w.a.half.ctx.create_jfs(&JfsCfg::new(setup.mode, 4), &jfc)?;
    same("state of the JFS", jfs.query()?.state, JettyState::Ready)?;
    let jfr = w.a.half.ctx.create_jfr(&JfrCfg::new(setup.mode, 4), &jfc)?;
    same("state of the JFR", jfr.query()?.state, JettyState::Ready)
}

fn dropped_queue_is_deleted(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let jfc = plain_jfc(&w.b.half.ctx, 16)?;
    for _ in 0..3 {
        drop(small_jetty(&w, 6000, &jfc)?);
    }
    jfc.delete()?;
    Ok(())
}

fn many_queues_work(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let mut jfc = plain_jfc(&w.b.half.ctx, 256)?;
    let mut jetties = Vec::new();
    for _ in 0..100 {
        let mut jetty = small_jetty(&w, 0, &jfc)?;
        jetty.post_recv(&[urma_core::RecvWr { dst: &[], user_ctx: 3 }])?;
        let target = w.a.half.ctx.import_jetty(&jetty.remote())?;
        jetties.push((jetty, target));
    }
    let mut due = Vec::new();
    for (jetty, target) in jetties.iter().rev() {
        let (mine, _) = w.a.parts();
        mine.post_send(&[urma_core::SendWr::new(SendOp::Send { src: &[] }, target, 1)])?;
        w.a.sent_ok(1)?;
        due.push(jetty.id().id);
    }
    for id in due {
        let done = next(&mut jfc, "receive completion")?;
        same("receive", (done.status, done.local_id), (CrStatus::Success, id))?;
    }
    Ok(())
}

fn two_threads_post_on_two_queues(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let (a, b) = (&mut w.a, &mut w.b);
    if setup.mode == urma_core::TransportMode::Um {
        // UM drops what finds no receive, so only the send sides run.
        return two_threads_of_nops(a, b);
    }
    for end in [&mut *a, &mut *b] {
        // Neither is ever two messages ahead of the other: no SEND waits for a receive.
        for _ in 0..4 {
            end.recv(8192, 64)?;
        }
    }
    std::thread::scope(|scope| {
        let other = scope.spawn(move || two_hundred_messages(b));
        two_hundred_messages(a)?;
        other.join().map_err(|_| "the other thread panicked".to_owned())?
    })
}

/// 200 messages each way.
fn two_hundred_messages(end: &mut urma_tests::world::End) -> Outcome {
    for round in 0..200 {
        let send = end.send(0, 64)?;
        end.sent_ok(send).map_err(|f| f.during(round))?;
        end.received_as(CrStatus::Success).map_err(|f| f.during(round))?;
        end.recv(8192, 64)?;
    }
    Ok(())
}

fn two_threads_of_nops(a: &mut urma_tests::world::End, b: &mut urma_tests::world::End) -> Outcome {
    let go = |end: &mut urma_tests::world::End| -> Outcome {
        for _ in 0..500 {
            let ctx = end.post(|_| SendOp::Nop)?;
            end.sent_ok(ctx)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(move || go(b));
        go(a)?;
        other.join().map_err(|_| "the other thread panicked".to_owned())?
    })
}

fn taken_id_is_refused(setup: Setup) -> Outcome {
    use urma_core::{GroupCfg, HintPolicy, TokenPolicy};
    let w = World::new(setup)?;
    let jfc = plain_jfc(&w.b.half.ctx, 16)?;
    let taken = small_jetty(&w, 4242, &jfc)?;
    refused("a second jetty", small_jetty(&w, 4242, &jfc), Status::Exists)?;
    let cfg = JfrCfg { id: 4242, ..JfrCfg::new(setup.mode, 4) };
    refused("a JFR", w.b.half.ctx.create_jfr(&cfg, &jfc), Status::Exists)?;
    let cfg = JfrCfg { id: 4243, ..cfg };
    let _jfr = w.b.half.ctx.create_jfr(&cfg, &jfc)?;
    refused("a second JFR", w.b.half.ctx.create_jfr(&cfg, &jfc), Status::Exists)?;
    refused("a jetty for a JFR's id", small_jetty(&w, 4243, &jfc), Status::Exists)?;
    let id = w.b.half.jetty.id().id;
    refused("the id of the world's jetty", small_jetty(&w, id, &jfc), Status::Exists)?;
    let cfg = GroupCfg { id: 9, policy: HintPolicy::RoundRobin, token: TokenPolicy::None };
    let group = w.b.half.ctx.create_group(&cfg)?;
    refused("a second group", w.b.half.ctx.create_group(&cfg), Status::Exists)?;
    drop(group);
    same("state of the first", taken.query()?.state, JettyState::Ready)
}

fn id_beyond_20_bits_is_refused(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let jfc = plain_jfc(&w.b.half.ctx, 16)?;
    refused("id 1 << 20", small_jetty(&w, 1 << 20, &jfc), Status::Invalid)?;
    let cfg = JfrCfg { id: u32::MAX, ..JfrCfg::new(setup.mode, 4) };
    refused("id all ones", w.b.half.ctx.create_jfr(&cfg, &jfc), Status::Invalid)
}

fn delete_flushes_outstanding(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let World { a, .. } = w;
    let urma_tests::world::End { target, half, .. } = a;
    let urma_tests::world::Half { mut jetty, mut jfc, mut recv_jfc, seg, .. } = half;
    for ctx in 0..3 {
        jetty.post_recv(&[urma_core::RecvWr { dst: &[], user_ctx: 100 + ctx }])?;
    }
    // There are no receives: these wait for the receiver.
    let src = [urma_core::LocalSge { segment: &seg, addr: seg.va(), len: 8 }];
    for ctx in 0..5 {
        let wr = urma_core::SendWr::new(SendOp::Send { src: &src }, &target, ctx);
        jetty.post_send(&[wr])?;
    }
    if let Err(refused) = jetty.delete() {
        return fail(format!("the jetty was not deleted: {}", refused.status));
    }
    for ctx in 0..5 {
        let done = next(&mut jfc, "flushed send")?;
        same("send", (done.status, done.user_ctx), (CrStatus::WrFlush, ctx))?;
    }
    for ctx in 100..103 {
        let done = next(&mut recv_jfc, "flushed receive")?;
        same("receive", (done.status, done.user_ctx), (CrStatus::WrFlush, ctx))?;
    }
    Ok(())
}

fn rx_threshold_beyond_depth_is_refused(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    w.b.half.jetty.set_rx_threshold(64)?;
    refused("65 of 64", w.b.half.jetty.set_rx_threshold(65), Status::Invalid)
}
