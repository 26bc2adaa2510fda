//! Peers that close, and peers that are gone without a word.

use urma_core::{Completion, CrStatus};
use urma_net::{Lab, LabPlan};
use urma_tests::world::{Host, Outcome, Plan, World, same};

use crate::verify::{SETUP, node};

/// Error timeout of 137 s: what ends within the limit of a test did not end by it.
const PATIENT: u8 = 25;
/// Requests outstanding when the peer ends.
const OUTSTANDING: usize = 20;

/// Ends on the hosts of `lab`; requests of the first wait for an answer up to 4.096 us << `err_timeout`.
fn ends(lab: &Lab, err_timeout: u8) -> Outcome<(World, [Host; 2])> {
    let hosts = [node(lab.host(0))?, node(lab.host(1))?];
    let mut plan = Plan { len: 8192, ..Plan::new(SETUP.mode) };
    plan.send.err_timeout = err_timeout;
    Ok((World::between(SETUP, &plan, &hosts[0], &hosts[1])?, hosts))
}

/// SENDs to a queue without receives, which the peer cannot serve.
fn stuck(w: &mut World) -> Outcome<Vec<u64>> {
    (0..OUTSTANDING).map(|_| w.a.send(0, 64)).collect()
}

/// Each request ends as timed out, in order and once.
fn all_time_out(w: &mut urma_tests::world::End, posted: &[u64]) -> Outcome {
    for &ctx in posted {
        let Completion { user_ctx, status, .. } = w.sent()?;
        same("request and status", (user_ctx, status), (ctx, CrStatus::AckTimeout))?;
    }
    w.nothing_sent()
}

#[test]
fn a_closed_peer_ends_what_waits_for_it_at_once() -> Outcome {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return Ok(()) };
    let (mut w, [_here, there]) = ends(&lab, PATIENT)?;
    let posted = stuck(&mut w)?;
    let World { mut a, b, .. } = w;
    drop((b, there));
    all_time_out(&mut a, &posted)
}
