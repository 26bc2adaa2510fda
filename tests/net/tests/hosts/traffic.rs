//! Requests of each operation between two hosts, and between all pairs of eight.

use urma_net::{Lab, LabPlan};
use urma_tests::world::Outcome;

use crate::verify::{atomics, between, moved, node, world};

/// Lengths that one packet of the smallest MTU holds. Longer ones wait for a node that finds its path MTU.
const SHORT: [usize; 6] = [1, 8, 63, 64, 300, 400];

fn each_length(plan: LabPlan) -> Outcome {
    let Some(lab) = Lab::or_skip(plan) else { return Ok(()) };
    let mut w = world(&lab, 8192)?;
    for len in SHORT {
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
    each_length(LabPlan::cable(1500).v6())
}

#[test]
fn two_hosts_exchange_every_operation_through_a_router() -> Outcome {
    each_length(LabPlan::router(2, 1500))
}

#[test]
fn eight_hosts_at_a_bridge_all_exchange_requests() -> Outcome {
    let Some(lab) = Lab::or_skip(LabPlan::bridge(8, 1500)) else { return Ok(()) };
    let nodes = lab.hosts().iter().map(node).collect::<Outcome<Vec<_>>>()?;
    for (i, a) in nodes.iter().enumerate() {
        for b in nodes.iter().skip(i + 1) {
            let mut w = between(a, b, 8192)?;
            moved(&mut w, 200)?;
        }
    }
    Ok(())
}
