//! Path MTUs that change while data is on its way.

use udma_abi::counters::Counter;
use urma_net::{Lab, LabPlan};
use urma_tests::world::{Outcome, World, pattern, same, until};

use crate::verify::world;

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
