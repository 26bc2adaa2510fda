//! Two ports a host, of which one is pulled under load and joined again.
#![expect(clippy::disallowed_methods, reason = "it says how long requests had no answer")]
#![expect(clippy::print_stdout, reason = "the same")]

use std::{
    collections::VecDeque,
    thread,
    time::{Duration, Instant},
};

use ubcore_sim::{
    NodeCfg,
    PortMode::{self, ActiveBackup, Balance},
    host::{ip_eid, peer::PathChoice},
};
use udma_abi::counters::Counter;
use urma_core::{CrStatus, SendOp};
use urma_net::{Host as LabHost, Lab, LabPlan};
use urma_tests::world::{Host, Outcome, World, cfg, check, fail, limit, pattern, same};

use crate::verify::{SETUP, between, opened};

/// Requests outstanding at a time: half of them count, half of them write.
const DEPTH: usize = 16;
/// Bytes of a write, and the places that writes go to.
const LEN: usize = 3000;
const PLACES: usize = 32;
/// Behind the counter and its old values.
const WRITES: usize = 4096;

/// A node with all ports of a host.
fn node(host: &LabHost, port_mode: PortMode) -> Outcome<Host> {
    let (eid, further) = host.addresses().split_first().expect("a port");
    let (eid, ports) = (Some(ip_eid(*eid)), further.to_vec());
    opened(host, NodeCfg { eid, ports, port_mode, path: PathChoice::Auto, ..cfg(SETUP) })
}

/// Counts and writes without an end, and what came of it.
#[derive(Debug)]
struct Stream {
    w: World,
    posted: VecDeque<(u64, u64)>,
    /// Requests so far that count, and that write.
    next: u64,
    done: u64,
    last: Instant,
    longest: Duration,
    /// Times between the last completions.
    recent: VecDeque<Duration>,
}

impl Stream {
    fn new(w: World) -> Self {
        let (posted, recent, last) = (VecDeque::new(), VecDeque::new(), Instant::now());
        Self { w, posted, next: 0, done: 0, last, longest: Duration::ZERO, recent }
    }

    fn place(number: u64) -> usize {
        WRITES + usize::try_from(number / 2).expect("small") % PLACES * LEN
    }

    fn post(&mut self) -> Outcome {
        let number = self.next;
        self.next += 1;
        let ctx = if number.is_multiple_of(2) {
            let slot = 8 + usize::try_from(number).expect("small") % DEPTH * 8;
            self.w.a.post(|kit| SendOp::FetchAdd {
                result: kit.sge(slot, 8),
                target: kit.at(0),
                value: 1,
            })?
        } else {
            let at = Self::place(number);
            self.w.a.mem().put(at, &pattern(number, LEN))?;
            self.w.a.write(at, at, LEN)?
        };
        self.posted.push_back((ctx, number));
        Ok(())
    }

    /// Goes on until `is_over`, which is asked after each request.
    fn run(&mut self, mut is_over: impl FnMut(&Self) -> bool) -> Outcome<Duration> {
        let start = Instant::now();
        while !is_over(self) {
            while self.posted.len() < DEPTH {
                self.post()?;
            }
            self.take()?;
            if start.elapsed() > limit() {
                return fail(format!("not over after {} requests", self.done));
            }
        }
        Ok(self.longest)
    }

    fn take(&mut self) -> Outcome {
        let Some((ctx, number)) = self.posted.pop_front() else { return Ok(()) };
        let done = self.w.a.sent_as(CrStatus::Success)?;
        same("user context", done.user_ctx, ctx)?;
        if number.is_multiple_of(2) {
            let slot = 8 + usize::try_from(number).expect("small") % DEPTH * 8;
            same("value before", self.w.a.mem().word(slot)?, number / 2)?;
        }
        self.done += 1;
        let gap = self.last.elapsed();
        self.longest = self.longest.max(gap);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(gap);
        self.last = Instant::now();
        Ok(())
    }

    /// The longest time between the last completions, after some more.
    fn around(&mut self) -> Outcome<Duration> {
        let to = self.done + RECENT as u64 / 2;
        self.run(|stream| stream.done >= to)?;
        Ok(self.recent.iter().max().copied().unwrap_or_default())
    }

    /// Ends it: each request was executed once, and each byte is there.
    fn end(mut self) -> Outcome<u64> {
        while !self.posted.is_empty() {
            self.take()?;
        }
        same("counted", self.w.b.mem().word(0)?, self.next.div_ceil(2))?;
        let last_writes = (0..self.next).rev().filter(|number| number % 2 == 1).take(PLACES);
        for number in last_writes {
            let found = self.w.b.mem().take(Self::place(number), LEN)?;
            check(found == pattern(number, LEN), format!("bytes of write {number}"))?;
        }
        Ok(self.done)
    }
}

/// Requests before a port is pulled, and after it returned.
const SOME: u64 = 2000;
/// Requests around a change of the port.
const RECENT: usize = 512;

fn pulled(plan: LabPlan, host: usize) -> Outcome {
    let Some(lab) = Lab::or_skip(plan.ports(2)) else { return Ok(()) };
    let [a, b] = [node(lab.host(0), ActiveBackup)?, node(lab.host(1), ActiveBackup)?];
    let count = |counter| [&a, &b].map(|host| host.node.device().counter(counter));
    let mut stream = Stream::new(between(&a, &b, WRITES + PLACES * LEN)?);
    stream.run(|stream| stream.done >= SOME)?;
    let gap = thread::scope(|scope| {
        scope.spawn(|| lab.pull(host, 0));
        stream.longest = Duration::ZERO;
        stream.run(|_| count(Counter::PortFailed) != [0, 0])?;
        let to = stream.done + SOME;
        stream.run(|stream| stream.done >= to)
    })?;
    check(count(Counter::PortFailed) != [0, 0], "no failure of a port")?;
    let (plain, first, second) = thread::scope(|scope| {
        scope.spawn(|| lab.plug(host, 0));
        stream.longest = Duration::ZERO;
        // Until the first node takes the port back, nothing changes: the same stream without a cause for a pause.
        let plain = stream.run(|_| count(Counter::PortReturned) != [0, 0])?;
        let first = stream.around()?;
        stream.run(|_| !count(Counter::PortReturned).contains(&0))?;
        Outcome::Ok((plain, first, stream.around()?))
    })?;
    let done = stream.end()?;
    println!(
        "{plan:?}: port of host {host} pulled: {gap:?} without an answer; taken back by one node {first:?}, by both \
         {second:?}, before that {plain:?}; {done} requests, failed {:?}, returned {:?}",
        count(Counter::PortFailed),
        count(Counter::PortReturned),
    );
    Ok(())
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

/// Each port of both hosts carries a good part of what the stream sends until it has `requests` more.
fn share(lab: &Lab, stream: &mut Stream, requests: u64) -> Outcome {
    let before = [0, 1].map(|host| carried(lab.host(host)));
    let to = stream.done + requests;
    stream.run(|stream| stream.done >= to)?;
    for host in [0, 1] {
        let now = carried(lab.host(host));
        let parts: Vec<[u64; 2]> = (now.iter().zip(&before[host]))
            .map(|(now, before)| [now[0] - before[0], now[1] - before[1]])
            .collect();
        println!("host {host}: bytes received and sent by each port: {parts:?}");
        for direction in [0, 1] {
            let all: u64 = parts.iter().map(|part| part[direction]).sum();
            let is_fair = parts.iter().all(|part| part[direction] > all / 5);
            check(is_fair, format!("host {host}, direction {direction}: {parts:?}"))?;
        }
    }
    Ok(())
}

/// One node balances by its settings, the other one by a call; a port is pulled under load and joined again.
#[test]
fn balance_uses_both_ports_as_long_as_they_work() -> Outcome {
    let plan = LabPlan::cable(1500).ports(2);
    let Some(lab) = Lab::or_skip(plan) else { return Ok(()) };
    let [a, b] = [node(lab.host(0), Balance)?, node(lab.host(1), ActiveBackup)?];
    b.node.set_port_mode(Balance);
    let count = |counter| [&a, &b].map(|host| host.node.device().counter(counter));
    let mut stream = Stream::new(between(&a, &b, WRITES + PLACES * LEN)?);
    stream.run(|stream| stream.done >= SOME)?;
    share(&lab, &mut stream, 4 * SOME)?;
    for port in [0, 1] {
        let gap = thread::scope(|scope| {
            scope.spawn(|| lab.pull(0, port));
            stream.longest = Duration::ZERO;
            let failed = count(Counter::PortFailed);
            stream.run(|_| count(Counter::PortFailed) != failed)?;
            stream.around()
        })?;
        println!("port {port} pulled: {gap:?} without an answer");
        let returned = count(Counter::PortReturned);
        lab.plug(0, port);
        stream.run(|_| (0..2).all(|at| count(Counter::PortReturned)[at] > returned[at]))?;
        share(&lab, &mut stream, 4 * SOME)?;
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
