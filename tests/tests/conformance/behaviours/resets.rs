//! A device that is reset under load: every request ends once, waits end, the device comes back.

use std::{collections::BTreeMap, sync::Arc};

use ubcore_sim::node::Node;
use udma_abi::DeviceBacking;
use udma_provider::{DriverCfg, UdmaDevice};
use urma_core::{AsyncKind, Completion, CrStatus, Device, Jfc, SendOp, Status};
use urma_tests::world::{
    DeviceOrigin, End, Host, Outcome, Pause, Plan, Setup, World, cfg, check, faced, fail, limit,
    node_as, pause, refused, same, until,
};

super::behaviours! {
    Bad reliable reset_ends_every_request_once: "When a device is reset under load every outstanding send and receive completes once, flushed or done before.";
    Bad rm reset_makes_its_context_useless: "After a reset posts and calls on the old context are refused, and its fatal event comes once.";
    Bad rm reset_ends_waits: "A wait without limit ends when the device is reset.";
    Bad reliable_two_nodes reset_of_the_peer_ends_requests: "When the peer's device is reset under load every request to it completes once.";
    Good rm_two_nodes reset_device_works_again: "A device that was reset is opened again and carries requests in both directions.";
}

/// A node whose device the behaviour can reset.
fn resettable(setup: Setup) -> Outcome<(Arc<UdmaDevice>, Host)> {
    let node = node_as(setup, cfg(setup))?;
    let backing: Arc<dyn DeviceBacking> = Arc::<Node>::clone(&node);
    let device = Arc::new(UdmaDevice::new(backing, DriverCfg::default()));
    let host = open(setup, &device, &node)?;
    Ok((device, host))
}

/// A new context on it.
fn open(setup: Setup, device: &Arc<UdmaDevice>, node: &Arc<Node>) -> Outcome<Host> {
    let ctx = faced(setup, Device::new(Arc::<UdmaDevice>::clone(device)))?.open(0)?;
    Ok(Host { ctx: Arc::new(ctx), origin: DeviceOrigin::Node(Arc::clone(node)) })
}

/// Two ends, the first of which can be reset; on the own-node link both.
fn world(setup: Setup) -> Outcome<(Arc<UdmaDevice>, World)> {
    let (device, host) = resettable(setup)?;
    let other = match setup.link {
        urma_tests::world::Link::Own => host.clone(),
        _ => Host::open(setup)?,
    };
    let plan = Plan { len: 1 << 20, ..Plan::new(setup.mode) };
    Ok((device, World::between(setup, &plan, &host, &other)?))
}

/// What came on a JFC of a device that failed or goes on: (user context, status), until `count`
/// requests ended.
fn ends(jfc: &mut Jfc, count: usize) -> Outcome<BTreeMap<u64, CrStatus>> {
    let mut all = BTreeMap::new();
    until("the end of every request", || {
        let mut out = [Completion::default(); 8];
        let done = jfc.poll(&mut out).unwrap_or(0);
        for done in out[..done].iter().filter(|done| !is_marker(done.status)) {
            if let Some(before) = all.insert(done.user_ctx, done.status) {
                return fail(format!("{} ended twice: {before:?}, {done:?}", done.user_ctx));
            }
        }
        Ok((all.len() >= count).then_some(()))
    })?;
    // Nothing comes behind the last one.
    for _ in 0..3 {
        pause(Pause::Ticks);
        while let Ok(Some(done)) = jfc.poll_one() {
            check(is_marker(done.status), format!("{done:?} after the last one"))?;
        }
    }
    Ok(all)
}

fn is_marker(status: CrStatus) -> bool {
    matches!(status, CrStatus::WrFlushDone | CrStatus::WrSuspendDone)
}

/// Writes and messages in flight from `end`, half of the messages without a receive.
fn load(end: &mut End, other: &mut End) -> Outcome<Vec<u64>> {
    for index in 0..4 {
        other.recv(index * 64, 64)?;
    }
    let mut due = Vec::new();
    for index in 0..8 {
        due.push(end.write(0, 300_000, 60_000)?);
        due.push(end.send(index * 64, 64)?);
        due.push(end.read(0, 500_000, 60_000)?);
    }
    Ok(due)
}

fn reset_ends_every_request_once(setup: Setup) -> Outcome {
    for _ in 0..3 {
        let (device, mut w) = world(setup)?;
        let due = load(&mut w.a, &mut w.b)?;
        let mut receives = Vec::new();
        for index in 0..5 {
            receives.push(w.a.recv(index * 64, 64)?);
        }
        device.reset()?;
        let sends = ends(&mut w.a.half.jfc, due.len())?;
        same("requests that ended", sends.keys().copied().collect::<Vec<_>>(), due)?;
        let is_right = |status: &CrStatus| matches!(status, CrStatus::Success | CrStatus::WrFlush);
        check(sends.values().all(is_right), format!("{sends:?}"))?;
        check(
            sends.values().any(|status| *status == CrStatus::WrFlush),
            "no send was outstanding",
        )?;
        let ended = ends(&mut w.a.half.recv_jfc, receives.len())?;
        same("receives that ended", ended.keys().copied().collect::<Vec<_>>(), receives)?;
        check(ended.values().all(is_right), format!("{ended:?}"))?;
    }
    Ok(())
}

fn reset_makes_its_context_useless(setup: Setup) -> Outcome {
    let (device, mut w) = world(setup)?;
    device.reset()?;
    check(w.a.write(0, 0, 8).is_err(), "a post was taken after the reset")?;
    let ctx = &w.a.half.ctx;
    let jfc = ctx.create_jfc(&urma_core::JfcCfg::new(8), None);
    refused("a JFC", jfc, Status::NoDevice)?;
    refused("a token id", ctx.alloc_token_id(), Status::NoDevice)?;
    let event = ctx.next_async(Some(limit()))?;
    same("event", event.map(|event| event.kind), Some(AsyncKind::DeviceFatal))?;
    refused("a second event", ctx.next_async(Some(limit())), Status::NoDevice)
}

fn reset_ends_waits(setup: Setup) -> Outcome {
    let (device, w) = world(setup)?;
    std::thread::scope(|scope| -> Outcome {
        let (jfce, ctx) = (&w.a.half.jfce, &w.a.half.ctx);
        let events = scope.spawn(|| jfce.wait(&mut [0; 4], None));
        let fatal = scope.spawn(|| ctx.next_async(None));
        pause(Pause::Ticks);
        device.reset()?;
        match events.join().map_err(|_| "the waiter panicked".to_owned())? {
            Ok(0) | Err(_) => {}
            Ok(count) => return fail(format!("{count} events of a device that was reset")),
        }
        let fatal = fatal.join().map_err(|_| "the waiter panicked".to_owned())??;
        same("event", fatal.map(|event| event.kind), Some(AsyncKind::DeviceFatal))
    })
}

fn reset_of_the_peer_ends_requests(setup: Setup) -> Outcome {
    let (device, host) = resettable(setup)?;
    let mut plan = Plan { len: 1 << 20, ..Plan::new(setup.mode) };
    plan.send.err_timeout = 14;
    let mut w = World::between(setup, &plan, &Host::open(setup)?, &host)?;
    let due = load(&mut w.a, &mut w.b)?;
    device.reset()?;
    let ended = ends(&mut w.a.half.jfc, due.len())?;
    same("requests that ended", ended.keys().copied().collect::<Vec<_>>(), due)
}

fn reset_device_works_again(setup: Setup) -> Outcome {
    let (device, host) = resettable(setup)?;
    let other = Host::open(setup)?;
    let plan = Plan::new(setup.mode);
    let mut host = host;
    for round in 0..3 {
        let mut w =
            until("the path to the peer", || Ok(World::between(setup, &plan, &host, &other).ok()))?;
        for number in 0..3 {
            super::messages::one_send(&mut w, round * 10 + number, 300)?;
            let there = w.a.write(0, 4096, 3000)?;
            let back = w.b.write(0, 4096, 3000)?;
            w.a.sent_ok(there)?;
            w.b.sent_ok(back)?;
        }
        let nop = w.a.post(|_| SendOp::Nop)?;
        w.a.sent_ok(nop)?;
        let node = Arc::clone(host.node());
        drop(w);
        drop(host);
        device.reset()?;
        host = open(setup, &device, &node)?;
    }
    Ok(())
}
