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
    Host, Link, Moving, Outcome, Plan, Setup, World, cfg, check, pattern, same,
};

use crate::verify::moved;

const SETUP: Setup = Setup::new(Link::Host, Moving::On, TransportMode::Rc);
const LEN: usize = 64 << 10;

fn node(host: &LabHost) -> Outcome<Host> {
    let eid = Some(ip_eid(host.address()));
    let path = PathChoice::Packets;
    let cfg = NodeCfg { eid, path, rc: RcWire::Roce, ..cfg(SETUP) };
    host.run(|| Host::open_as(SETUP, cfg))
}

fn bound(a: &Host, b: &Host) -> Outcome<World> {
    World::between(SETUP, &Plan { len: 4 * LEN, ..Plan::new(SETUP.mode) }, a, b)
}

/// Payload of the packets of a long WRITE, as their number shows.
fn payload(w: &mut World) -> Outcome<u64> {
    let before = requests(w);
    w.a.mem().put(0, &pattern(7, LEN))?;
    w.b.mem().poison(0, LEN)?;
    let ctx = w.a.write(0, 0, LEN)?;
    w.a.sent_ok(ctx)?;
    w.b.mem().placed(0, &pattern(7, LEN))?;
    Ok(LEN as u64 / (requests(w) - before))
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
        for len in [1, 255, 256, 257, 4096, 4097, LEN - 1] {
            moved(&mut w, len).map_err(|failure| failure.during(format!("{plan:?}")))?;
        }
        same("payload of a packet", payload(&mut w)?, wanted)?;
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
    same("payload of a packet", payload(&mut w)?, 4096)?;
    lab.set_far_mtu(1, 0, 1500);
    let ctx = w.a.write(0, 0, LEN)?;
    let done = w.a.sent()?;
    same("user context", done.user_ctx, ctx)?;
    same("status", done.status, CrStatus::AckTimeout)?;
    drop(w);
    (0..2).for_each(|host| lab.set_mtu(host, 0, 1500));
    let mut w = bound(&a, &b)?;
    same("payload of a packet", payload(&mut w)?, 1024)?;
    check(a.node().device().counter(Counter::Retransmits) > 0, "packets that did not pass")
}
