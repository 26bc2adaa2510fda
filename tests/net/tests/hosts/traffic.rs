//! Requests of each operation between two hosts, and between all pairs of eight.

use ubcore_sim::{
    host::{ip_eid, peer::PathChoice, udp::UdpOffload},
    node::NodeCfg,
};
use udma_abi::counters::Counter;
use urma_net::{Lab, LabPlan};
use urma_tests::world::{Outcome, cfg, same};

use crate::verify::{SETUP, atomics, between, moved, node, opened, world};

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
