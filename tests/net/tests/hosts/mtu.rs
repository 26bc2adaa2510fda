//! Path MTUs that change while data is on its way.
//!
//! RC jetties of the standard opcodes between two hosts: which path MTU they take, and what follows when the path becomes
//! narrower.

use ubcore_sim::{
    NodeCfg, RcWire,
    host::{ip_eid, peer::PathChoice},
};
use udma_abi::counters::Counter;
use urma_core::{CrStatus, TransportMode};
use urma_net::{Host as LabHost, Lab, LabPlan};
use urma_tests::world::{
    Host, Link, Moving, Outcome, Plan, Setup, World, cfg, check, pattern, same, until,
};

use crate::traffic::{moved, world};

/// Bytes of a request, in no whole number of packets, and how many are outstanding.
const LEN: usize = (64 << 10) + 13;
const BATCH: usize = 8;

/// Posts a batch of WRITEs, lets `meanwhile` happen, and checks that each byte arrived, once.
fn stream(w: &mut World, round: u64, meanwhile: impl FnOnce()) -> Outcome {
    let bytes = pattern(round, LEN * BATCH);
    w.a.mem().put(0, &bytes)?;
    w.b.mem().poison(0, bytes.len())?;
    let write = |n| w.a.write(n * LEN, n * LEN, LEN);
    let posted = (0..BATCH).map(write).collect::<Outcome<Vec<_>>>()?;
    meanwhile();
    for ctx in posted {
        w.a.sent_ok(ctx)?;
    }
    w.b.mem().placed(0, &bytes).map_err(|failure| failure.during(format!("round {round}")))
}

/// Payload of packets from the first end to the second, once a TP is open.
fn payload(w: &World) -> Option<usize> {
    w.a.half.node().device().look().paths.iter().find_map(|path| path.mtu)
}

/// Traffic goes on until packets have a payload in `wanted`.
fn found(w: &mut World, wanted: std::ops::RangeInclusive<usize>) -> Outcome {
    let mut round = 100;
    until("the path MTU", || {
        round += 1;
        stream(w, round, || ())?;
        Ok(payload(w).filter(|payload| wanted.contains(payload)))
    })?;
    Ok(())
}

/// `change` makes the path as wide as it is given, somewhere behind the first host's own interface.
fn narrows_and_widens(plan: LabPlan, change: impl Fn(&Lab, u32)) -> Outcome {
    let Some(lab) = Lab::or_skip(plan) else { return Ok(()) };
    let mut w = world(&lab, LEN * BATCH + 8192)?;
    stream(&mut w, 0, || ())?;
    let wide = 1500..=8192;
    found(&mut w, wide.clone())?;
    stream(&mut w, 1, || change(&lab, 1500))?;
    found(&mut w, 1024..=1472)?;
    let narrowed = w.a.half.node().device().counter(Counter::PathNarrowed);
    same("whether the path was found to be narrow", narrowed > 0, true)?;
    stream(&mut w, 2, || change(&lab, 9000))?;
    found(&mut w, wide)?;
    stream(&mut w, 3, || ())
}

/// A bridge sends no message about what it drops: a black hole.
#[test]
fn a_black_hole_in_mid_run_is_found_and_left_again() -> Outcome {
    narrows_and_widens(LabPlan::bridge(2, 9000), |lab, mtu| lab.set_far_mtu(1, 0, mtu))
}

/// A router answers packets that are too large.
#[test]
fn a_router_whose_mtu_changes_in_mid_run_loses_nothing() -> Outcome {
    narrows_and_widens(LabPlan::router(2, 9000), |lab, mtu| lab.set_far_mtu(1, 0, mtu))
}

#[test]
fn an_own_interface_whose_mtu_changes_in_mid_run_loses_nothing() -> Outcome {
    for plan in [LabPlan::cable(9000), LabPlan::cable(9000).v6()] {
        narrows_and_widens(plan, |lab, mtu| lab.set_mtu(0, 0, mtu))?;
    }
    Ok(())
}

const SETUP: Setup = Setup::new(Link::Host, Moving::On, TransportMode::Rc);
const WRITE_LEN: usize = 64 << 10;

fn node(host: &LabHost) -> Outcome<Host> {
    let eid = Some(ip_eid(host.address()));
    let path = PathChoice::Packets;
    let cfg = NodeCfg { eid, path, rc: RcWire::Roce, ..cfg(SETUP) };
    host.run(|| Host::open_as(SETUP, cfg))
}

fn bound(a: &Host, b: &Host) -> Outcome<World> {
    World::between(SETUP, &Plan { len: 4 * WRITE_LEN, ..Plan::new(SETUP.mode) }, a, b)
}

/// Payload of the packets of a long WRITE, as their number shows.
fn payload_of(w: &mut World) -> Outcome<u64> {
    let before = requests(w);
    w.a.mem().put(0, &pattern(7, WRITE_LEN))?;
    w.b.mem().poison(0, WRITE_LEN)?;
    let ctx = w.a.write(0, 0, WRITE_LEN)?;
    w.a.sent_ok(ctx)?;
    w.b.mem().placed(0, &pattern(7, WRITE_LEN))?;
    Ok(WRITE_LEN as u64 / (requests(w) - before))
}

/// Packets of the first end that were not sent before.
fn requests(w: &World) -> u64 {
    let device = w.a.half.node().device();
    device.counter(Counter::TxPackets) - device.counter(Counter::Retransmits)
}

#[test]
fn a_connection_takes_the_largest_path_mtu_of_the_standard_that_passes() -> Outcome {
    for (plan, wanted) in [
        (LabPlan::cable(576), 256),
        (LabPlan::cable(1500), 1024),
        (LabPlan::cable(9000), 4096),
        (LabPlan::cable(1500).v6(), 1024),
        (LabPlan::cable(9000).v6(), 4096),
    ] {
        let Some(lab) = Lab::or_skip(plan) else { return Ok(()) };
        let (a, b) = (node(lab.host(0))?, node(lab.host(1))?);
        let mut w = bound(&a, &b)?;
        for len in [1, 255, 256, 257, 4096, 4097, WRITE_LEN - 1] {
            moved(&mut w, len).map_err(|failure| failure.during(format!("{plan:?}")))?;
        }
        same("payload of a packet", payload_of(&mut w)?, wanted)?;
    }
    Ok(())
}

/// The number of PSNs of a message depends on the path MTU, so a connection keeps it: a request that does not pass any more
/// ends with an error, and the jetties that are bound next take the path as it is.
#[test]
fn a_path_that_becomes_narrower_ends_the_connection() -> Outcome {
    let Some(lab) = Lab::or_skip(LabPlan::router(2, 9000)) else { return Ok(()) };
    let (a, b) = (node(lab.host(0))?, node(lab.host(1))?);
    let mut w = bound(&a, &b)?;
    same("payload of a packet", payload_of(&mut w)?, 4096)?;
    lab.set_far_mtu(1, 0, 1500);
    let ctx = w.a.write(0, 0, WRITE_LEN)?;
    let done = w.a.sent()?;
    same("user context", done.user_ctx, ctx)?;
    same("status", done.status, CrStatus::AckTimeout)?;
    drop(w);
    (0..2).for_each(|host| lab.set_mtu(host, 0, 1500));
    let mut w = bound(&a, &b)?;
    same("payload of a packet", payload_of(&mut w)?, 1024)?;
    check(a.node().device().counter(Counter::Retransmits) > 0, "packets that did not pass")
}
