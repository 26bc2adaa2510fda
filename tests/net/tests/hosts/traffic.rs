//! Requests of each operation between two hosts, and between all pairs of eight.
//!
//! What is sent between two ends, and that each byte of it arrives.

use std::net::IpAddr;

use ubcore_sim::{
    host::{ip_eid, peer::PathChoice, udp::UdpOffload},
    node::NodeCfg,
};
use udma_abi::counters::Counter;
use urma_core::SendOp;
use urma_net::{Host as LabHost, Lab, LabPlan};
use urma_tests::world::{Host, Outcome, World, cfg, pattern, same};

pub(crate) use crate::ends::{SETUP, between, opened};

/// Lengths of one packet at any MTU, around a whole packet at common ones, and of thousands of packets.
const LENGTHS: [usize; 17] = [
    1,
    8,
    63,
    64,
    300,
    400,
    1391,
    1393,
    4095,
    4097,
    8999,
    64 << 10,
    (64 << 10) + 1,
    (64 << 10) + 77,
    (1 << 20) - 3,
    1 << 20,
    LONGEST,
];
const LONGEST: usize = (1 << 20) + 1;

fn each_length(plan: LabPlan) -> Outcome {
    let Some(lab) = Lab::or_skip(plan) else { return Ok(()) };
    let mut w = world(&lab, 2 * LONGEST + 8192)?;
    for len in LENGTHS {
        moved(&mut w, len).map_err(|failure| failure.during(format!("{plan:?}")))?;
    }
    atomics(&mut w)
}

#[test]
fn two_hosts_exchange_every_operation_at_mtu_1500() -> Outcome {
    each_length(LabPlan::cable(1500))
}

#[test]
fn two_hosts_exchange_every_operation_at_mtu_9000() -> Outcome {
    each_length(LabPlan::cable(9000))
}

#[test]
fn two_hosts_exchange_every_operation_at_mtu_576() -> Outcome {
    each_length(LabPlan::cable(576))
}

#[test]
fn two_hosts_exchange_every_operation_with_ipv6_alone() -> Outcome {
    for mtu in [1280, 1500, 9000] {
        each_length(LabPlan::cable(mtu).v6())?;
    }
    Ok(())
}

#[test]
fn two_hosts_exchange_every_operation_through_a_router() -> Outcome {
    each_length(LabPlan::router(2, 1500))
}

/// Of two hosts, one cuts and joins packets, the other one, or none: each packet is good where it arrives.
#[test]
fn two_hosts_exchange_every_operation_with_and_without_offload() -> Outcome {
    let (on, off) = (UdpOffload::On, UdpOffload::Off);
    for offload in [[on, off], [off, on], [off, off]] {
        let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return Ok(()) };
        let open = |number| {
            let host: &urma_net::Host = lab.host(number);
            let (eid, path) = (Some(ip_eid(host.address())), PathChoice::Auto);
            opened(host, NodeCfg { eid, path, udp_offload: offload[number], ..cfg(SETUP) })
        };
        let nodes = [open(0)?, open(1)?];
        let mut w = between(&nodes[0], &nodes[1], 2 * LONGEST + 8192)?;
        for len in LENGTHS {
            moved(&mut w, len).map_err(|failure| failure.during(format!("{offload:?}")))?;
        }
        atomics(&mut w)?;
        for node in &nodes {
            let dropped = node.node().device().counter(Counter::DropIcrc);
            same(&format!("packets with a wrong ICRC, {offload:?}"), dropped, 0)?;
        }
    }
    Ok(())
}

#[test]
fn eight_hosts_at_a_bridge_all_exchange_requests() -> Outcome {
    let Some(lab) = Lab::or_skip(LabPlan::bridge(8, 1500)) else { return Ok(()) };
    let nodes = lab.hosts().iter().map(node).collect::<Outcome<Vec<_>>>()?;
    for (i, a) in nodes.iter().enumerate() {
        for b in nodes.iter().skip(i + 1) {
            let mut w = between(a, b, 256 << 10)?;
            moved(&mut w, 200)?;
            moved(&mut w, (64 << 10) + 5)?;
        }
    }
    Ok(())
}

/// A node at the first address of a host.
pub(crate) fn node(host: &LabHost) -> Outcome<Host> {
    host.run(|| node_at(host.address()))
}

/// A node at an address of the calling thread's host.
pub(crate) fn node_at(address: IpAddr) -> Outcome<Host> {
    let eid = Some(ip_eid(address));
    Host::open_as(SETUP, NodeCfg { eid, path: PathChoice::Auto, ..cfg(SETUP) })
}

/// Ends on two hosts, with segments of `len` bytes.
pub(crate) fn world(lab: &Lab, len: usize) -> Outcome<World> {
    between(&node(lab.host(0))?, &node(lab.host(1))?, len)
}

/// A WRITE, a READ and a SEND of `len` bytes, each checked with the bytes around it. The ends need
/// segments of `2 * len` bytes and a page.
pub(crate) fn moved(w: &mut World, len: usize) -> Outcome {
    let (from, to) = (64, len + 512);
    let bytes = pattern(len as u64 + 1, len);
    w.a.mem().put(from, &bytes)?;
    w.b.mem().poison(to, len)?;
    let ctx = w.a.write(from, to, len)?;
    w.a.sent_ok(ctx)?;
    w.b.mem().placed(to, &bytes).map_err(|failure| failure.during(format!("WRITE of {len}")))?;
    w.a.mem().poison(to, len)?;
    let ctx = w.a.read(to, to, len)?;
    w.a.sent_ok(ctx)?;
    w.a.mem().placed(to, &bytes).map_err(|failure| failure.during(format!("READ of {len}")))?;
    w.b.mem().poison(to, len)?;
    let (received, sent) = (w.b.recv(to, len)?, w.a.send(from, len)?);
    w.a.sent_ok(sent)?;
    let message = w.b.received_ok(received)?;
    same("bytes of the message", message.len as usize, len)?;
    w.b.mem().placed(to, &bytes).map_err(|failure| failure.during(format!("SEND of {len}")))
}

/// Atomics on one word, each checked by its old and new value.
pub(crate) fn atomics(w: &mut World) -> Outcome {
    w.b.mem().put(4096, &5_u64.to_le_bytes())?;
    let ctx =
        w.a.post(|kit| SendOp::FetchAdd { result: kit.sge(0, 8), target: kit.at(4096), value: 7 })?;
    w.a.sent_ok(ctx)?;
    same("value before FADD", w.a.mem().word(0)?, 5)?;
    let ctx = w.a.post(|kit| SendOp::Cas {
        result: kit.sge(8, 8),
        target: kit.at(4096),
        compare: 12,
        swap: 99,
    })?;
    w.a.sent_ok(ctx)?;
    same("value before CAS", w.a.mem().word(8)?, 12)?;
    same("value after both", w.b.mem().word(4096)?, 99)
}
