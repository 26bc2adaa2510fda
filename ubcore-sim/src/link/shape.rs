//! Decorators that change when datagrams arrive.
//!
//! - owns: jitter, reordering, long-tailed delays, rate limit. takes: a link and a generator.
//! - gives: a slower link. must not: lose datagrams, except at a full queue.

use std::collections::BTreeMap;

use udma_abi::Nanos;

use super::{Datagram, FaultCounts, Link, Rng, forward};
use crate::ports::NodeAddr;

/// Delays each datagram by a random time, but keeps the order of each direction.
#[derive(Debug)]
pub struct Jitter {
    inner: Box<dyn Link>,
    rng: Rng,
    most_ns: Nanos,
    /// When the last datagram of each direction proceeded.
    last: BTreeMap<(NodeAddr, NodeAddr), Nanos>,
}

impl Jitter {
    /// Adds jitter of up to `most_ns` per datagram to `inner`.
    #[must_use]
    pub fn new(inner: Box<dyn Link>, rng: Rng, most_ns: Nanos) -> Self {
        Self { inner, rng, most_ns, last: BTreeMap::new() }
    }
}

impl Link for Jitter {
    fn send(&mut self, at: Nanos, datagram: Datagram) {
        let late = at.saturating_add(self.rng.below(self.most_ns.saturating_add(1)));
        let last = self.last.entry((datagram.from, datagram.to)).or_insert(0);
        *last = late.max(*last);
        self.inner.send(*last, datagram);
    }

    forward!();
}

/// Holds some datagrams back, so that later ones overtake them.
#[derive(Debug)]
pub struct Reordering {
    inner: Box<dyn Link>,
    rng: Rng,
    ppm: u32,
    most_ns: Nanos,
    late: u64,
}

impl Reordering {
    /// Adds delays of up to `most_ns` to `inner`, each with a probability of `ppm` parts per million.
    #[must_use]
    pub fn new(inner: Box<dyn Link>, rng: Rng, ppm: u32, most_ns: Nanos) -> Self {
        Self { inner, rng, ppm, most_ns, late: 0 }
    }
}

impl Link for Reordering {
    fn send(&mut self, at: Nanos, datagram: Datagram) {
        let held = if self.rng.chance_ppm(self.ppm) { self.rng.below(self.most_ns) } else { 0 };
        self.late += u64::from(held > 0);
        self.inner.send(at.saturating_add(held), datagram);
    }

    forward!(late += late);
}

/// Delays some datagrams with a long tail: half the longest delay is twice as likely, and so on down to a 128th of it.
#[derive(Debug)]
pub struct DelayTail {
    inner: Box<dyn Link>,
    rng: Rng,
    ppm: u32,
    most_ns: Nanos,
    late: u64,
}

/// How often the longest delay of a tail is halved for the shortest ones.
const HALVINGS: u32 = 7;

impl DelayTail {
    /// Adds delays of up to `most_ns` to `inner`, each with a probability of `ppm` parts per million.
    #[must_use]
    pub fn new(inner: Box<dyn Link>, rng: Rng, ppm: u32, most_ns: Nanos) -> Self {
        Self { inner, rng, ppm, most_ns, late: 0 }
    }

    fn delay(&mut self) -> Nanos {
        // Integers, because floating-point powers differ between machines.
        let doublings = self.rng.next_u64().trailing_ones().min(HALVINGS);
        let most = self.most_ns >> (HALVINGS - doublings);
        most / 2 + self.rng.below(most / 2 + 1)
    }
}

impl Link for DelayTail {
    fn send(&mut self, at: Nanos, datagram: Datagram) {
        let late = if self.rng.chance_ppm(self.ppm) { self.delay() } else { 0 };
        self.late += u64::from(late > 0);
        self.inner.send(at.saturating_add(late), datagram);
    }

    forward!(late += late);
}

/// Limits the bytes per second of each direction; a full queue drops datagrams.
#[derive(Debug)]
pub struct Rate {
    inner: Box<dyn Link>,
    bytes_per_second: u64,
    queue_bytes: u64,
    /// When each direction is idle again.
    busy_until: BTreeMap<(NodeAddr, NodeAddr), Nanos>,
    lost: u64,
}

impl Rate {
    /// Adds the rate limit to the link `inner`.
    #[must_use]
    pub fn new(inner: Box<dyn Link>, bytes_per_second: u64, queue_bytes: u64) -> Self {
        Self {
            inner,
            bytes_per_second: bytes_per_second.max(1),
            queue_bytes,
            busy_until: BTreeMap::new(),
            lost: 0,
        }
    }

    fn time_of(&self, bytes: u64) -> Nanos {
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        Nanos::try_from(ns).unwrap_or(Nanos::MAX)
    }
}

impl Link for Rate {
    fn send(&mut self, at: Nanos, datagram: Datagram) {
        let own = self.time_of(datagram.bytes.len() as u64);
        let longest = self.time_of(self.queue_bytes);
        let busy = self.busy_until.entry((datagram.from, datagram.to)).or_insert(0);
        let start = at.max(*busy);
        if start - at > longest {
            self.lost += 1;
            return;
        }
        *busy = start.saturating_add(own);
        self.inner.send(*busy, datagram);
    }

    forward!(lost += lost);
}
