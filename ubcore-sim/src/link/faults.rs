//! Decorators that lose, duplicate or corrupt datagrams.
//!
//! - owns: loss, duplication, corruption, routers, and the order in which all decorators are stacked.
//! - takes: a link and a generator. gives: a worse link. must not: delay (that is `shape`).

use std::{collections::BTreeSet, sync::Arc};

use udma_abi::Nanos;

use super::calm::Calm;
use super::cuts::{Outage, Partition};
use super::{Datagram, DelayTail, FaultCounts, Jitter, Link, Rate, Reordering, Rng, Wire, forward};
use crate::ports::NodeAddr;

/// Faults of a link. All zero: a perfect wire without delay.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultCfg {
    /// One-way delay in ns.
    pub delay_ns: Nanos,
    /// Largest extra delay that keeps the order (jitter), in ns.
    pub jitter_ns: Nanos,
    /// Chance that a datagram is lost, in parts per million.
    pub loss_ppm: u32,
    /// Chance that a datagram is duplicated, in parts per million.
    pub duplicate_ppm: u32,
    /// Chance that a datagram is held back so that others overtake it, in parts per million.
    pub reorder_ppm: u32,
    /// Longest time that a datagram is held back, in ns.
    pub reorder_ns: Nanos,
    /// Chance that one bit of a datagram is flipped, in parts per million.
    pub corrupt_ppm: u32,
    /// Rate limit of each direction in bytes per second; 0: none.
    pub bytes_per_second: u64,
    /// Queue in front of the rate limit, in bytes; datagrams beyond it are lost.
    pub queue_bytes: u64,
    /// Chance that a datagram begins a burst of losses in its direction, in parts per million (Gilbert-Elliott).
    pub burst_ppm: u32,
    /// Average number of datagrams lost in a burst.
    pub burst_len: u32,
    /// Chance that a datagram is truncated, in parts per million.
    pub truncate_ppm: u32,
    /// Chance that a datagram gets a delay of the long tail, in parts per million.
    pub tail_ppm: u32,
    /// Longest delay of the tail, in ns; half of it is twice as likely, and so on.
    pub tail_ns: Nanos,
    /// Virtual time from which the link only delays; 0: never.
    pub calm_from: Nanos,
    /// Times in which nothing passes.
    pub outages: Vec<Outage>,
    /// Routers that pass only short datagrams, for a time.
    pub routers: Vec<Router>,
}

/// A router in one direction between two nodes, and the MTU behind it for a time. If several apply, the last one of the
/// list counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Router {
    /// First nanosecond of the interval, in virtual time.
    pub from: Nanos,
    /// First nanosecond after it.
    pub until: Nanos,
    /// The node that sends and the one that receives.
    pub way: (NodeAddr, NodeAddr),
    /// Largest IP packet that passes, in bytes.
    pub mtu: usize,
    /// The sender's system learns the MTU and refuses longer datagrams; if not, they are lost silently.
    pub is_reported: bool,
}

/// Bytes of the headers of IPv4 and UDP: the addresses of a fabric are IPv4-mapped.
pub(crate) const IP_OVERHEAD: usize = 28;

impl Router {
    /// Returns the router that drops a datagram of `len` bytes, BTH to ICRC, at `at`.
    pub(crate) fn in_the_way(
        routers: &[Self],
        at: Nanos,
        way: (NodeAddr, NodeAddr),
        len: usize,
    ) -> Option<&Self> {
        let is_now =
            |router: &&Self| router.way == way && (router.from..router.until).contains(&at);
        routers.iter().rfind(is_now).filter(|router| len + IP_OVERHEAD > router.mtu)
    }
}

impl FaultCfg {
    /// Builds the link: the rate limit nearest to the wire, then delays, then loss and duplication.
    #[must_use]
    pub fn build(&self, rng: &mut Rng) -> Box<dyn Link> {
        let mut link: Box<dyn Link> = Box::new(Wire::new(self.delay_ns));
        if self.bytes_per_second > 0 {
            link = Box::new(Rate::new(link, self.bytes_per_second, self.queue_bytes));
        }
        if self.jitter_ns > 0 {
            link = Box::new(Jitter::new(link, rng.fork(), self.jitter_ns));
        }
        if self.reorder_ppm > 0 {
            link = Box::new(Reordering::new(link, rng.fork(), self.reorder_ppm, self.reorder_ns));
        }
        if self.tail_ppm > 0 {
            link = Box::new(DelayTail::new(link, rng.fork(), self.tail_ppm, self.tail_ns));
        }
        if self.truncate_ppm > 0 {
            link = Box::new(Truncation::new(link, rng.fork(), self.truncate_ppm));
        }
        if self.corrupt_ppm > 0 {
            link = Box::new(Corruption::new(link, rng.fork(), self.corrupt_ppm));
        }
        if self.duplicate_ppm > 0 {
            link = Box::new(Duplication::new(link, rng.fork(), self.duplicate_ppm));
        }
        if self.loss_ppm > 0 {
            link = Box::new(Loss::new(link, rng.fork(), self.loss_ppm));
        }
        if self.burst_ppm > 0 {
            link = Box::new(BurstLoss::new(link, rng.fork(), self.burst_ppm, self.burst_len));
        }
        if !self.outages.is_empty() {
            link = Box::new(Partition::new(link, self.outages.clone()));
        }
        if !self.routers.is_empty() {
            link = Box::new(Routed { inner: link, routers: self.routers.clone(), lost: 0 });
        }
        if self.calm_from > 0 {
            link = Box::new(Calm::new(link, self.delay_ns, self.calm_from));
        }
        link
    }
}

macro_rules! random_fault {
    ($(#[$meta:meta])* $name:ident, $counted:ident, $send:expr) => {
        $(#[$meta])*
        #[derive(Debug)]
        pub struct $name {
            inner: Box<dyn Link>,
            rng: Rng,
            ppm: u32,
            hits: u64,
        }

        impl $name {
            /// Around `inner`, with the chance `ppm` in a million for each datagram.
            #[must_use]
            pub fn new(inner: Box<dyn Link>, rng: Rng, ppm: u32) -> Self {
                Self { inner, rng, ppm, hits: 0 }
            }
        }

        impl Link for $name {
            fn send(&mut self, at: Nanos, datagram: Datagram) {
                let hit = self.rng.chance_ppm(self.ppm);
                self.hits += u64::from(hit);
                let act: fn(&mut Self, Nanos, Datagram, bool) = $send;
                act(self, at, datagram, hit);
            }

            forward!($counted += hits);
        }
    };
}

random_fault!(
    /// Loses datagrams with a given probability.
    Loss,
    lost,
    |link, at, datagram, hit| {
        if !hit {
            link.inner.send(at, datagram);
        }
    }
);

random_fault!(
    /// Carries datagrams twice with a given probability.
    Duplication,
    doubled,
    |link, at, datagram, hit| {
        if hit {
            link.inner.send(at, datagram.clone());
        }
        link.inner.send(at, datagram);
    }
);

random_fault!(
    /// Flips one bit of a datagram.
    Corruption,
    changed,
    |link, at, mut datagram, hit| {
        if hit && !datagram.bytes.is_empty() {
            let mut bytes = datagram.bytes.to_vec();
            let at_byte = link.rng.index(bytes.len());
            bytes[at_byte] ^= 1 << link.rng.below(8);
            datagram.bytes = Arc::from(bytes);
        }
        link.inner.send(at, datagram);
    }
);

random_fault!(
    /// Loses the end of a datagram, of any length but nothing.
    Truncation,
    changed,
    |link, at, mut datagram, hit| {
        if hit && !datagram.bytes.is_empty() {
            let left = link.rng.index(datagram.bytes.len());
            datagram.bytes = Arc::from(&datagram.bytes[..left]);
        }
        link.inner.send(at, datagram);
    }
);

/// Loses datagrams in bursts, in each direction independently: the model of Gilbert and Elliott, which loses nothing in
/// the good state and everything in the bad state.
#[derive(Debug)]
pub struct BurstLoss {
    inner: Box<dyn Link>,
    rng: Rng,
    begin_ppm: u32,
    end_ppm: u32,
    /// Directions that are in the bad state.
    bad: BTreeSet<(NodeAddr, NodeAddr)>,
    lost: u64,
}

impl BurstLoss {
    /// Adds bursts to `inner`: a datagram begins one with a probability of `begin_ppm` parts per million; average length
    /// `len` datagrams.
    #[must_use]
    pub fn new(inner: Box<dyn Link>, rng: Rng, begin_ppm: u32, len: u32) -> Self {
        let end_ppm = 1_000_000 / len.max(1);
        Self { inner, rng, begin_ppm, end_ppm, bad: BTreeSet::new(), lost: 0 }
    }
}

impl Link for BurstLoss {
    fn send(&mut self, at: Nanos, datagram: Datagram) {
        let way = (datagram.from, datagram.to);
        let is_lost = self.bad.contains(&way) || self.rng.chance_ppm(self.begin_ppm);
        if !is_lost {
            return self.inner.send(at, datagram);
        }
        self.lost += 1;
        // A burst has at least one datagram, and ends after each with the same probability.
        if self.rng.chance_ppm(self.end_ppm) {
            self.bad.remove(&way);
        } else {
            self.bad.insert(way);
        }
    }

    forward!(lost += lost);
}

/// Loses datagrams that are too long for a router on their way.
#[derive(Debug)]
struct Routed {
    inner: Box<dyn Link>,
    routers: Vec<Router>,
    lost: u64,
}

impl Link for Routed {
    fn send(&mut self, at: Nanos, datagram: Datagram) {
        let way = (datagram.from, datagram.to);
        if Router::in_the_way(&self.routers, at, way, datagram.bytes.len()).is_none() {
            self.inner.send(at, datagram);
        } else {
            self.lost += 1;
        }
    }

    forward!(lost += lost);
}
