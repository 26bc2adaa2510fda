//! Peers that close, and peers that are gone without a word.

use std::io::Read;

use nix::sys::signal::Signal;
use urma_core::{Completion, CrStatus};
use urma_net::{Lab, LabPlan};
use urma_tests::world::{End, Host, Outcome, Plan, World, fail, same, until};

use crate::traffic::{SETUP, node, node_at};

/// Error timeout of 137 s: what ends within the limit of a test did not end by it.
const PATIENT: u8 = 25;
/// Error timeout of 0.5 s: shorter than the time in which a TP gives up, which is then the bound.
const BRIEF: u8 = 17;
/// The longest wait that a queue without receives asks for, 0.66 s (code of a timer): a peer that
/// closes meanwhile is not asked again while its jetty is gone already and its node is not.
const LONG_WAIT: u8 = 0;
/// Requests outstanding when the peer ends.
const OUTSTANDING: usize = 20;

fn plan(err_timeout: u8) -> Plan {
    let mut plan = Plan { len: 256 << 10, ..Plan::new(SETUP.mode) };
    plan.send.err_timeout = err_timeout;
    plan.recv.min_rnr_timer = LONG_WAIT;
    plan
}

/// Ends on the hosts of `lab`; requests of the first wait for an answer up to 4.096 us << `err_timeout`.
fn ends(lab: &Lab, err_timeout: u8) -> Outcome<(World, [Host; 2])> {
    let hosts = [node(lab.host(0))?, node(lab.host(1))?];
    let w = World::between(SETUP, &plan(err_timeout), &hosts[0], &hosts[1])?;
    Ok((w, hosts))
}

/// Long WRITEs, and SENDs to a queue without receives, which the peer cannot serve.
fn posted(a: &mut End) -> Outcome<Vec<u64>> {
    (0..OUTSTANDING)
        .map(|n| if n % 2 == 0 { a.send(0, 64) } else { a.write(0, 0, 60_000) })
        .collect()
}

/// The same, and the peer answered the first of them: its queue has no receive.
fn waiting(a: &mut End) -> Outcome<Vec<u64>> {
    let posted = posted(a)?;
    until("the peer's first answer", || Ok((a.counter("rnr_received")? > 0).then_some(())))?;
    Ok(posted)
}

/// Each request ends as timed out, in order and once; a WRITE may have been served before.
fn all_time_out(a: &mut End, posted: &[u64]) -> Outcome {
    let mut timed_out = 0;
    for &ctx in posted {
        let Completion { user_ctx, status, .. } = a.sent()?;
        same("request", user_ctx, ctx)?;
        match status {
            CrStatus::AckTimeout => timed_out += 1,
            CrStatus::Success => {}
            other => return fail(format!("a request to a peer that is gone ended as {other:?}")),
        }
    }
    same("whether each SEND timed out", timed_out >= OUTSTANDING / 2, true)?;
    a.nothing_sent()
}

#[test]
fn a_closed_peer_ends_what_waits_for_it_at_once() -> Outcome {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return Ok(()) };
    let (w, [_here, there]) = ends(&lab, PATIENT)?;
    let World { mut a, b, .. } = w;
    let posted = waiting(&mut a)?;
    drop((b, there));
    all_time_out(&mut a, &posted)
}

#[test]
fn a_peer_behind_a_pulled_cable_ends_what_waits_for_it() -> Outcome {
    for plan in [LabPlan::cable(1500), LabPlan::bridge(2, 1500)] {
        let Some(lab) = Lab::or_skip(plan) else { return Ok(()) };
        let (w, _hosts) = ends(&lab, BRIEF)?;
        let World { mut a, b: _b, .. } = w;
        lab.pull(0, 0);
        let posted = posted(&mut a)?;
        all_time_out(&mut a, &posted)?;
    }
    Ok(())
}

#[test]
fn an_interface_that_is_set_down_ends_what_waits_for_the_peer() -> Outcome {
    for host in [0, 1] {
        let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return Ok(()) };
        let (w, _hosts) = ends(&lab, BRIEF)?;
        let World { mut a, b: _b, .. } = w;
        let posted = posted(&mut a)?;
        lab.host(host).ip(&["link set port0 down"]);
        all_time_out(&mut a, &posted)?;
    }
    Ok(())
}

/// Environment variable of a process that a test starts as a server: the address of its node.
const SERVE: &str = "URMA_NET_SERVE";

#[test]
#[ignore = "a process that other tests start"]
fn serve_until_the_end() -> Outcome {
    let Ok(address) = std::env::var(SERVE) else { return Ok(()) };
    let address = address.parse().map_err(|_| format!("{address} is no address"))?;
    let host = node_at(address)?;
    let half = plan(BRIEF).half(&host)?;
    println!("peer {}", half.words());
    // Until the test closes the other end of the pipe, or ends this process.
    let _ = std::io::stdin().read(&mut [0; 1])?;
    Ok(())
}

/// The end of a process on the second host is found by one on the first: how it ends, and the error timeout.
fn of_a_process(end: impl FnOnce(&mut urma_net::Process), err_timeout: u8) -> Outcome {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return Ok(()) };
    let mut command = lab.host(1).command(std::env::current_exe()?);
    command.args(["--exact", "peers::serve_until_the_end", "--ignored", "--nocapture"]);
    command.env(SERVE, lab.host(1).address().to_string()).stdin(std::process::Stdio::piped());
    let mut process = lab.host(1).start(&mut command);
    let words = loop {
        match process.line() {
            Some(line) => {
                if let Some((_, words)) = line.split_once("peer ") {
                    break words.to_owned();
                }
            }
            None => return fail(format!("the peer ended early: {:?}", process.end())),
        }
    };
    let (host, plan) = (node(lab.host(0))?, plan(err_timeout));
    let half = plan.half(&host)?;
    let (jetty, segment) = half.named(&words)?;
    let mut a = End::new(half, &jetty, &segment, plan.access)?;
    let ctx = a.write(0, 0, 8)?;
    a.sent_ok(ctx)?;
    let posted = waiting(&mut a)?;
    end(&mut process);
    all_time_out(&mut a, &posted)
}

#[test]
fn a_killed_process_ends_what_waits_for_it() -> Outcome {
    of_a_process(|process| process.signal(Signal::SIGKILL), BRIEF)
}

#[test]
fn a_process_that_exits_ends_what_waits_for_it_at_once() -> Outcome {
    of_a_process(urma_net::Process::close_input, PATIENT)
}
