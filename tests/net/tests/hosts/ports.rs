//! Two ports a host, of which one is pulled under load and joined again.
#![expect(clippy::print_stdout, reason = "it says how long requests had no answer")]

use std::{thread, time::Duration};

use ubcore_sim::PortMode::{ActiveBackup, Balance};
use udma_abi::counters::Counter;
use urma_net::{Host as LabHost, Lab, LabPlan};
use urma_tests::world::{Outcome, check};

use crate::stream::{LEN, Stream, node};

/// Requests before a port is pulled, and after it returned.
const SOME: u64 = 2000;
/// Stretches of a stream of which one has to be without a port that is left without need.
const STRETCHES: usize = 50;

/// All traffic takes the other port while port 0 of `host` is pulled, and that one again after it was joined.
fn pulled(plan: LabPlan, host: usize) -> Outcome {
    let Some(lab) = Lab::or_skip(plan.ports(2)) else { return Ok(()) };
    let [a, b] = [node(lab.host(0), ActiveBackup)?, node(lab.host(1), ActiveBackup)?];
    let count = |counter| [&a, &b].map(|host| host.node().device().counter(counter));
    let mut stream = Stream::new(&a, &b)?;
    stream.more(SOME)?;
    let gap = thread::scope(|scope| {
        scope.spawn(|| lab.pull(host, 0));
        stream.longest = Duration::ZERO;
        // The requests of one node, and the responses of the other one, have no other way.
        stream.run(|_| !count(Counter::PortFailed).contains(&0))
    })?;
    let [_, other] = grown(&lab, &mut stream, SOME)?;
    let written = SOME / 2 * LEN as u64;
    check(other >= written, format!("{other} bytes by the other port, {written} were written"))?;
    thread::scope(|scope| {
        scope.spawn(|| lab.plug(host, 0));
        stream.run(|_| !count(Counter::PortReturned).contains(&0))
    })?;
    // A port may be left without need when the machine is busy, and is taken back then.
    let (mut stretches, mut by_port) = (0, [0, 1]);
    while by_port[0] < 9 * by_port[1] {
        by_port = grown(&lab, &mut stream, SOME)?;
        stretches += 1;
        check(stretches < 200, format!("bytes by each port at the end: {by_port:?}"))?;
    }
    let done = stream.end()?;
    // In this order: a port may be left and taken back between the two looks.
    let returned = count(Counter::PortReturned);
    let failed = count(Counter::PortFailed);
    let is_possible = failed.iter().zip(&returned).all(|(failed, returned)| returned <= failed);
    check(is_possible, format!("failed {failed:?}, returned {returned:?}"))?;
    println!(
        "{plan:?}: port of host {host} pulled: {gap:?} without an answer; {done} requests, failed {failed:?}, returned \
         {returned:?}, on the preferred port after {stretches} stretches"
    );
    Ok(())
}

/// Bytes that each port of host 0 sent while the stream had `requests` more.
fn grown(lab: &Lab, stream: &mut Stream, requests: u64) -> Outcome<[u64; 2]> {
    let before = carried(lab.host(0));
    stream.more(requests)?;
    let now = carried(lab.host(0));
    Ok([0, 1].map(|port| now[port][1] - before[port][1]))
}

/// Bytes that each port of a host received and sent so far.
fn carried(host: &LabHost) -> Vec<[u64; 2]> {
    let table = host.run(|| std::fs::read_to_string("/proc/thread-self/net/dev")).expect("a table");
    let ports = table.lines().filter_map(|line| line.split_once(':'));
    let ports = ports.filter(|(name, _)| name.trim() != "lo");
    let number = |text: Option<&str>| text.and_then(|text| text.parse().ok()).unwrap_or(0);
    ports
        .map(|(_, numbers)| {
            let mut numbers = numbers.split_whitespace();
            [number(numbers.next()), number(numbers.nth(7))]
        })
        .collect()
}

/// Each port of both hosts carries a good part of what the stream sends until it has `requests` more. A port may be left without
/// need when the machine is busy: a stretch counts in which all ports were in use.
fn share(lab: &Lab, stream: &mut Stream, requests: u64, failed: impl Fn() -> [u64; 4]) -> Outcome {
    let in_use = |[a, b, back_a, back_b]: [u64; 4]| (a, b) == (back_a, back_b);
    for _ in 0..STRETCHES {
        let at_start = failed();
        let before = [0, 1].map(|host| carried(lab.host(host)));
        stream.more(requests)?;
        let now = [0, 1].map(|host| carried(lab.host(host)));
        if !in_use(at_start) || failed() != at_start {
            println!("a port was left without need: {at_start:?}, {:?}", failed());
            continue;
        }
        for host in [0, 1] {
            let parts: Vec<[u64; 2]> = (now[host].iter().zip(&before[host]))
                .map(|(now, before)| [now[0] - before[0], now[1] - before[1]])
                .collect();
            println!("host {host}: bytes received and sent by each port: {parts:?}");
            for direction in [0, 1] {
                let all: u64 = parts.iter().map(|part| part[direction]).sum();
                let is_fair = parts.iter().all(|part| part[direction] > all / 5);
                check(is_fair, format!("host {host}, direction {direction}: {parts:?}"))?;
            }
        }
        return Ok(());
    }
    check(false, format!("no stretch of {STRETCHES} without a port that failed: {:?}", failed()))
}

/// One node balances by its settings, the other one by a call; a port is pulled under load and joined again.
#[test]
fn balance_uses_both_ports_as_long_as_they_work() -> Outcome {
    let plan = LabPlan::cable(1500).ports(2);
    let Some(lab) = Lab::or_skip(plan) else { return Ok(()) };
    let [a, b] = [node(lab.host(0), Balance)?, node(lab.host(1), ActiveBackup)?];
    b.node().set_port_mode(Balance);
    let count = |counter| [&a, &b].map(|host| host.node().device().counter(counter));
    // The failures first: a port may be left and taken back between the two looks.
    let failed = || {
        let ([a, b], [back_a, back_b]) = (count(Counter::PortFailed), count(Counter::PortReturned));
        [a, b, back_a, back_b]
    };
    let mut stream = Stream::new(&a, &b)?;
    stream.more(SOME)?;
    share(&lab, &mut stream, 4 * SOME, failed)?;
    for port in [0, 1] {
        let gap = thread::scope(|scope| {
            scope.spawn(|| lab.pull(0, port));
            stream.longest = Duration::ZERO;
            let failed = count(Counter::PortFailed);
            stream.run(|_| count(Counter::PortFailed) != failed)?;
            stream.more(SOME)
        })?;
        println!("port {port} pulled: {gap:?} without an answer");
        let returned = count(Counter::PortReturned);
        lab.plug(0, port);
        stream.run(|_| (0..2).all(|at| count(Counter::PortReturned)[at] > returned[at]))?;
        share(&lab, &mut stream, 4 * SOME, failed)?;
    }
    stream.end().map(drop)
}

#[test]
fn a_port_is_pulled_under_load_and_nothing_is_lost_or_doubled() -> Outcome {
    pulled(LabPlan::cable(1500), 0)?;
    pulled(LabPlan::cable(1500), 1)
}

#[test]
fn a_port_of_a_bridge_is_pulled_with_ipv6() -> Outcome {
    // An interface that goes down loses its IPv6 address: here the bridge's end goes down.
    pulled(LabPlan::bridge(2, 1500).v6(), 1)
}
