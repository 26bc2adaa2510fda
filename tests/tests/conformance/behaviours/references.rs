//! Reference rules: what may not be deleted, and what may not be mixed.

use std::sync::Arc;
use urma_core::{
    Arm, Context, JettyCfg, JettyRecv, JfcCfg, JfrCfg, JfsCfg, SegmentAccess, SegmentCfg, SendOp,
    Status,
};
use urma_tests::world::{
    Failure, Host, Memory, Outcome, Plan, Setup, World, check, fail, limit, plain_jfc, refused,
    same,
};

super::behaviours! {
    Good rm context_without_objects_goes: "A context whose objects are gone can be deleted and the device opened again.";
    Good rm two_contexts_share_a_device: "Two contexts of one device work side by side.";
    Bad rm context_with_live_objects_stays: "A context with live objects is not deleted.";
    Bad rm jfc_of_a_queue_stays: "A JFC where a queue completes is not deleted.";
    Bad rm jfce_of_a_jfc_stays: "A JFCE that a JFC uses is not deleted.";
    Bad rm jfc_with_open_events_stays: "A JFC with an event not acknowledged, one of two also, is not deleted.";
    Bad rm token_id_of_a_segment_stays: "A token id under which a segment lives is not freed.";
    Bad rm token_id_has_one_segment: "A second segment under a token id is refused while the first lives.";
    Bad rm objects_of_two_contexts_are_not_mixed: "Objects of two contexts in one call are refused.";
}

fn context_without_objects_goes(setup: Setup) -> Outcome {
    let Host { ctx, origin } = Host::open(setup)?;
    let Some(ctx) = Arc::into_inner(ctx) else { return fail("the context is shared") };
    let jfc = ctx.create_jfc(&JfcCfg::new(8), None)?;
    jfc.delete()?;
    ctx.delete()?;
    let again = origin.device(setup)?.open(0)?;
    plain_jfc(&again, 8)?.delete()?;
    Ok(again.delete()?)
}

fn two_contexts_share_a_device(setup: Setup) -> Outcome {
    let Host { ctx, origin } = Host::open(setup)?;
    drop(ctx);
    let device = origin.device(setup)?;
    let open = || Ok::<_, Failure>(Host { ctx: Arc::new(device.open(0)?), origin: origin.clone() });
    let (first, second) = (open()?, open()?);
    let plan = Plan::new(setup.mode);
    let mut across = World::between(setup, &plan, &first, &second)?;
    let mut within = World::between(setup, &plan, &second, &second)?;
    for round in 0..10 {
        super::messages::one_send(&mut across, round, 100)?;
        super::messages::one_send(&mut within, round, 100)?;
    }
    drop(across);
    let Some(ctx) = Arc::into_inner(first.ctx) else { return fail("the context is shared") };
    ctx.delete()?;
    super::messages::one_send(&mut within, 11, 100)
}

fn context_with_live_objects_stays(setup: Setup) -> Outcome {
    let Host { ctx, origin: _origin } = Host::open(setup)?;
    let Some(ctx) = Arc::into_inner(ctx) else { return fail("the context is shared") };
    let memory = Memory::new(4096)?;
    let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL);
    let (seg, jfc) = (ctx.register(memory.region(), &cfg, None)?, plain_jfc(&ctx, 8)?);
    let ctx = context_stays(ctx, "segment and JFC")?;
    seg.unregister()?;
    let ctx = context_stays(ctx, "JFC")?;
    jfc.delete()?;
    let jfce = ctx.create_jfce()?;
    let ctx = context_stays(ctx, "JFCE")?;
    jfce.delete()?;
    drop(jfce);
    Ok(ctx.delete()?)
}

/// Deletes a context that has live objects, in vain.
fn context_stays(ctx: Context, objects: &str) -> Outcome<Context> {
    match ctx.delete() {
        Ok(()) => fail(format!("the context was deleted under its {objects}")),
        Err(refused) => {
            same(&format!("status with a live {objects}"), refused.status, Status::Again)?;
            Ok(*refused.object)
        }
    }
}

fn jfc_of_a_queue_stays(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let jfc = plain_jfc(&w.a.half.ctx, 8)?;
    let jfs = w.a.half.ctx.create_jfs(&JfsCfg::new(setup.mode, 4), &jfc)?;
    let jfc = match jfc.delete() {
        Ok(()) => return fail("the JFC was deleted under its queue"),
        Err(refused) => {
            same("status", refused.status, Status::Again)?;
            refused.object
        }
    };
    jfs.delete()?;
    Ok(jfc.delete()?)
}

fn jfce_of_a_jfc_stays(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let jfce = w.a.half.ctx.create_jfce()?;
    let jfc = w.a.half.ctx.create_jfc(&JfcCfg::new(8), Some(&jfce))?;
    refused("deleting the JFCE", jfce.delete(), Status::Fail)?;
    jfc.delete()?;
    Ok(jfce.delete()?)
}

fn jfc_with_open_events_stays(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let ctx = &w.a.half.ctx;
    let jfce = ctx.create_jfce()?;
    let mut jfc = ctx.create_jfc(&JfcCfg::new(8), Some(&jfce))?;
    let mut jfs = ctx.create_jfs(&JfsCfg::new(setup.mode, 4), &jfc)?;
    jfc.arm(Arm::Any)?;
    jfs.post_send(&[urma_core::SendWr::new(SendOp::Nop, &w.a.target, 1)])?;
    same("events", jfce.wait(&mut [0; 2], Some(limit()))?, 1)?;
    jfc.arm(Arm::Any)?;
    jfs.post_send(&[urma_core::SendWr::new(SendOp::Nop, &w.a.target, 2)])?;
    same("events", jfce.wait(&mut [0; 2], Some(limit()))?, 1)?;
    jfs.delete()?;
    jfc.ack_events(1)?;
    let jfc = match jfc.delete() {
        Ok(()) => return fail("the JFC was deleted with an open event"),
        Err(refused) => {
            same("status", refused.status, Status::Again)?;
            refused.object
        }
    };
    jfc.ack_events(1)?;
    Ok(jfc.delete()?)
}

fn token_id_of_a_segment_stays(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let ctx = &w.a.half.ctx;
    let memory = Memory::new(4096)?;
    let lease = ctx.alloc_token_id()?;
    let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL);
    let seg = ctx.register(memory.region(), &cfg, Some(&lease))?;
    same("token id", seg.token_id(), lease.id())?;
    let lease = match lease.free() {
        Ok(()) => return fail("the token id was freed under its segment"),
        Err(refused) => {
            same("status", refused.status, Status::Invalid)?;
            refused.object
        }
    };
    seg.unregister()?;
    Ok(lease.free()?)
}

fn token_id_has_one_segment(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let ctx = &w.a.half.ctx;
    let (first, second) = (Memory::new(4096)?, Memory::new(4096)?);
    let lease = ctx.alloc_token_id()?;
    let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL);
    let seg = ctx.register(first.region(), &cfg, Some(&lease))?;
    let more = ctx.register(second.region(), &cfg, Some(&lease));
    refused("a second segment", more, Status::Exists)?;
    seg.unregister()?;
    let seg = ctx.register(second.region(), &cfg, Some(&lease))?;
    check(seg.token_id() == lease.id(), "another token id")
}

fn objects_of_two_contexts_are_not_mixed(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let other = Host::open(setup)?;
    let jfc = plain_jfc(&other.ctx, 8)?;
    let ctx = Arc::clone(&w.a.half.ctx);
    let jfs = ctx.create_jfs(&JfsCfg::new(setup.mode, 4), &jfc);
    refused("a JFS on a foreign JFC", jfs, Status::Invalid)?;
    let jfr = ctx.create_jfr(&JfrCfg::new(setup.mode, 4), &jfc);
    refused("a JFR on a foreign JFC", jfr, Status::Invalid)?;
    let recv = JettyRecv::Own { cfg: JfrCfg::new(setup.mode, 4), jfc: &jfc };
    let cfg = JettyCfg::new(JfsCfg::new(setup.mode, 4), &w.a.half.jfc, recv);
    refused("a jetty on a foreign JFC", ctx.create_jetty(&cfg), Status::Invalid)?;
    let memory = Memory::new(4096)?;
    let lease = other.ctx.alloc_token_id()?;
    let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL);
    let seg = ctx.register(memory.region(), &cfg, Some(&lease));
    refused("a foreign token id", seg, Status::Invalid)?;
    let foreign = other.ctx.register(memory.region(), &cfg, None)?;
    let (jetty, kit) = w.a.parts();
    let src = [urma_core::LocalSge { segment: &foreign, addr: foreign.va(), len: 8 }];
    let op = SendOp::Write { src: &src, dst: kit.at(0) };
    super::writes::is_invalid("a foreign segment", jetty.post_send(&[kit.wr(op, 1)]))
}
