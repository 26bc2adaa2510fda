//! A stream of requests between two nodes with several ports, which counts what is executed.
#![expect(clippy::disallowed_methods, reason = "it measures how long requests had no answer")]

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use ubcore_sim::{
    NodeCfg, PortMode,
    host::{ip_eid, peer::PathChoice},
};
use urma_core::{CrStatus, SendOp};
use urma_net::Host as LabHost;
use urma_tests::world::{Host, Outcome, World, cfg, check, fail, limit, pattern, same};

use crate::ends::{SETUP, between, opened};

/// Requests outstanding at a time: half of them count, half of them write.
pub(crate) const DEPTH: usize = 16;
/// Bytes of a write, and the places that writes go to.
pub(crate) const LEN: usize = 3000;
const PLACES: usize = 32;
/// Behind the counter and its old values.
const WRITES: usize = 4096;

/// A node with all ports of a host.
pub(crate) fn node(host: &LabHost, port_mode: PortMode) -> Outcome<Host> {
    let (eid, further) = host.addresses().split_first().expect("a port");
    let (eid, ports) = (Some(ip_eid(*eid)), further.to_vec());
    opened(host, NodeCfg { eid, ports, port_mode, path: PathChoice::Auto, ..cfg(SETUP) })
}

/// Counts and writes without an end, and what came of it.
#[derive(Debug)]
pub(crate) struct Stream {
    w: World,
    posted: VecDeque<(u64, u64)>,
    /// Requests so far that count, and that write.
    next: u64,
    pub(crate) done: u64,
    last: Instant,
    /// Longest time between two completions since the owner set it.
    pub(crate) longest: Duration,
    /// When each request was completed, if the owner keeps it.
    pub(crate) ends: Option<Vec<Instant>>,
}

impl Stream {
    /// Between a segment of each node.
    pub(crate) fn new(a: &Host, b: &Host) -> Outcome<Self> {
        let w = between(a, b, WRITES + PLACES * LEN)?;
        let (posted, last) = (VecDeque::new(), Instant::now());
        Ok(Self { w, posted, next: 0, done: 0, last, longest: Duration::ZERO, ends: None })
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

    /// Goes on for so many requests. Returns the longest time without a completion since the owner set it.
    pub(crate) fn more(&mut self, requests: u64) -> Outcome<Duration> {
        let to = self.done + requests;
        self.run(|stream| stream.done >= to)
    }

    /// Goes on until `is_over`, which is asked after each request.
    pub(crate) fn run(&mut self, mut is_over: impl FnMut(&Self) -> bool) -> Outcome<Duration> {
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
        let now = Instant::now();
        self.longest = self.longest.max(now - self.last);
        self.last = now;
        if let Some(ends) = &mut self.ends {
            ends.push(now);
        }
        Ok(())
    }

    /// Ends it: each request was executed once, and each byte is there.
    pub(crate) fn end(mut self) -> Outcome<u64> {
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
