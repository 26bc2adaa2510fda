//! Memory faults: pages that the device cannot read.

use udma_abi::DeviceBacking;
use urma_core::{CrStatus, JettyState, SegmentCfg, SendOp, TransportMode};
use urma_tests::world::{
    End, Kit, Memory, NO_MAPPING, Outcome, Plan, Setup, World, check, pattern, same,
};

super::behaviours! {
    Good reliable poison_is_written_over: "A WRITE over memory with a fault succeeds and is placed, and the fault stays.";
    Good reliable poison_ends_at_its_page: "Pages beside one with a fault are read, written and sent as before.";
    Bad any poisoned_source: "A SEND and a WRITE from memory with a fault end as local data poison, place nothing and stop their queue.";
    Bad reliable poisoned_target_is_not_read: "A READ and an atomic of memory with a fault end as remote data poison; nothing arrives and nothing changes.";
    Bad reliable poisoned_before_registration: "Memory that had a fault when it was registered ends requests like memory with a later fault.";
}

const PAGE: usize = 4096;

/// Marks `len` bytes of an end's memory as bad.
fn mark(end: &End, mem: &Memory, offset: usize, len: usize) {
    let node = end.half.node();
    node.device().poison(node.now(), mem.region().addr() + offset, len);
}

fn poison_is_written_over(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    mark(&w.b, w.b.mem(), 2 * PAGE, PAGE);
    let bytes = pattern(1, 3 * PAGE);
    w.a.mem().put(0, &bytes)?;
    w.b.mem().poison(PAGE, bytes.len())?;
    let ctx = w.a.write(0, PAGE, bytes.len())?;
    w.a.sent_ok(ctx)?;
    w.b.mem().placed(PAGE, &bytes)?;
    w.a.read(2 * PAGE, 16 * PAGE, 8)?;
    w.a.sent_as(CrStatus::RemDataPoison).map(|_| ())
}

fn poison_ends_at_its_page(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    mark(&w.b, w.b.mem(), 2 * PAGE + 5, 1);
    mark(&w.a, w.a.mem(), 2 * PAGE + 5, 1);
    for (page, len) in [(1, PAGE), (3, PAGE), (0, 2 * PAGE)] {
        let bytes = pattern(page as u64, len);
        w.a.mem().put(page * PAGE, &bytes)?;
        let ctx = w.a.write(page * PAGE, page * PAGE, len)?;
        w.a.sent_ok(ctx)?;
        same("bytes placed", w.b.mem().take(page * PAGE, len)? == bytes, true)?;
        w.a.mem().poison(16 * PAGE, len)?;
        let ctx = w.a.read(page * PAGE, 16 * PAGE, len)?;
        w.a.sent_ok(ctx)?;
        w.a.mem().placed(16 * PAGE, &bytes)?;
    }
    w.b.mem().poison(8 * PAGE, PAGE)?;
    let recv = w.b.recv(8 * PAGE, PAGE)?;
    let ctx = w.a.send(PAGE, PAGE)?;
    w.a.sent_ok(ctx)?;
    w.b.received_ok(recv)?;
    w.b.mem().placed(8 * PAGE, &w.a.mem().take(PAGE, PAGE)?)
}

fn poisoned_source(setup: Setup) -> Outcome {
    let kinds = if setup.mode == TransportMode::Um { 1 } else { 2 };
    for kind in 0..kinds {
        let mut w = World::new(setup)?;
        mark(&w.a, w.a.mem(), 2 * PAGE, PAGE);
        w.b.mem().poison(8 * PAGE, 16)?;
        if kind == 0 {
            w.b.recv(8 * PAGE, 16)?;
        }
        // The last byte is the first bad one.
        let ctx = match kind {
            0 => w.a.send(2 * PAGE - 15, 16)?,
            _ => w.a.write(2 * PAGE - 15, 8 * PAGE, 16)?,
        };
        let done = w.a.sent_as(CrStatus::LocDataPoison)?;
        same("user context", done.user_ctx, ctx)?;
        w.a.sent_as(CrStatus::WrFlushDone)?;
        same("state", w.a.half.jetty.query()?.state, JettyState::Error)?;
        w.b.nothing_received()?;
        w.b.mem().untouched(8 * PAGE, 16)?;
    }
    Ok(())
}

/// A request ends as remote data poison; what that makes of its queue depends on the mode.
fn meets_poison(w: &mut World, build: fn(Kit<'_>) -> SendOp<'_>) -> Outcome {
    w.a.mem().poison(16 * PAGE, 16)?;
    let ctx = w.a.post(build)?;
    let done = w.a.sent_as(CrStatus::RemDataPoison)?;
    same("user context", done.user_ctx, ctx)?;
    w.a.mem().untouched(16 * PAGE, 16)?;
    let state = match w.setup.mode {
        TransportMode::Rc => {
            w.a.sent_as(CrStatus::WrFlushDone)?;
            JettyState::Error
        }
        TransportMode::Rm | TransportMode::Um => JettyState::Ready,
    };
    same("state", w.a.half.jetty.query()?.state, state)
}

fn fetch_add(kit: Kit<'_>) -> SendOp<'_> {
    SendOp::FetchAdd { result: kit.sge(16 * PAGE, 8), target: kit.at(2 * PAGE), value: 1 }
}

fn poisoned_target_is_not_read(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    mark(&w.b, w.b.mem(), 2 * PAGE, PAGE);
    w.b.mem().set_word(2 * PAGE, 7)?;
    meets_poison(&mut w, fetch_add)?;
    same("the word", w.b.mem().word(2 * PAGE)?, 7)?;

    let mut w = World::new(setup)?;
    // Good before, so that nothing of that is believed afterwards.
    let ctx = w.a.read(2 * PAGE - 15, 16 * PAGE, 16)?;
    w.a.sent_ok(ctx)?;
    mark(&w.b, w.b.mem(), 2 * PAGE, PAGE);
    w.a.mem().poison(16 * PAGE, 16)?;
    w.a.read(2 * PAGE - 15, 16 * PAGE, 16)?;
    w.a.sent_as(CrStatus::RemDataPoison)?;
    w.a.mem().untouched(16 * PAGE, 16)
}

fn poisoned_before_registration(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let access = Plan::new(setup.mode).access;
    let mem = Memory::new(4 * PAGE)?;
    mark(&w.b, &mem, PAGE, 2 * PAGE);
    let seg = w.b.half.ctx.register(mem.region(), &SegmentCfg::new(access), None)?;
    let remote = w.a.half.ctx.import_segment(&seg.remote(), access, NO_MAPPING)?;
    w.a.remote = remote;
    let ctx = w.a.read(3 * PAGE, 16 * PAGE, PAGE)?;
    w.a.sent_ok(ctx)?;
    w.a.mem().poison(16 * PAGE, PAGE)?;
    w.a.read(0, 16 * PAGE, PAGE + 1)?;
    w.a.sent_as(CrStatus::RemDataPoison)?;
    w.a.mem().untouched(16 * PAGE, PAGE)?;
    check(seg.va() == mem.region().addr() as u64, "the segment lies where its memory does")
}
