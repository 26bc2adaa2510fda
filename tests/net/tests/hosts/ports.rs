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
fn node(host: &LabHost) -> Outcome<Host> {
    let (eid, further) = host.addresses().split_first().expect("a port");
    let ports = further.to_vec();
    opened(host, NodeCfg { eid: Some(ip_eid(*eid)), ports, path: PathChoice::Auto, ..cfg(SETUP) })
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
}

impl Stream {
    fn new(w: World) -> Self {
        let (posted, last) = (VecDeque::new(), Instant::now());
        Self { w, posted, next: 0, done: 0, last, longest: Duration::ZERO }
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
        self.longest = self.longest.max(self.last.elapsed());
        self.last = Instant::now();
        Ok(())
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

fn pulled(plan: LabPlan, host: usize) -> Outcome {
    let Some(lab) = Lab::or_skip(plan.ports(2)) else { return Ok(()) };
    let (a, b) = (node(lab.host(0))?, node(lab.host(1))?);
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
    same("failures of a port", count(Counter::PortFailed), [1, 1])?;
    let back = thread::scope(|scope| {
        scope.spawn(|| lab.plug(host, 0));
        stream.longest = Duration::ZERO;
        stream.run(|_| count(Counter::PortReturned) != [0, 0])?;
        let to = stream.done + SOME;
        stream.run(|stream| stream.done >= to)
    })?;
    let done = stream.end()?;
    println!(
        "{plan:?}: port of host {host} pulled: {gap:?} without an answer; back {back:?}, {done} requests"
    );
    same("returns of a port", count(Counter::PortReturned), [1, 1])
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
