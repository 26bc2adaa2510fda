//! Decorators that lose, double or change datagrams.
//!
//! - owns: loss, duplication, corruption, routers, and the recipe that stacks all decorators.
//! - takes: a link and a generator. gives: a worse link. must not: delay (that is `shape`).

use std::{collections::BTreeSet, sync::Arc};

use udma_abi::Nanos;

use super::calm::Calm;
use super::cuts::{Outage, Partition};
use super::{Datagram, DelayTail, Jitter, Link, Rate, Reordering, Rng, Wire, forward};
use crate::ports::NodeAddr;

/// How bad a link is. All zero is a perfect wire without delay.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultCfg {
    /// One-way delay in ns.
    pub delay_ns: Nanos,
    /// Most extra delay that keeps the order, in ns.
    pub jitter_ns: Nanos,
    /// Chance that a datagram is lost, in a million.
    pub loss_ppm: u32,
    /// Chance that it comes twice, in a million.
    pub duplicate_ppm: u32,
    /// Chance that it is held back so that others overtake it, in a million.
    pub reorder_ppm: u32,
    /// Longest time it is held back, in ns.
    pub reorder_ns: Nanos,
    /// Chance that one bit of it is flipped, in a million.
    pub corrupt_ppm: u32,
    /// Bytes per second of each direction; 0 is no limit.
    pub bytes_per_second: u64,
    /// Most bytes that wait to be sent; more are lost.
    pub queue_bytes: u64,
    /// Chance that a datagram begins a burst of losses in its direction, in a million (Gilbert-Elliott).
    pub burst_ppm: u32,
    /// Datagrams that such a burst loses, on average.
    pub burst_len: u32,
    /// Chance that only the beginning of a datagram arrives, in a million.
    pub truncate_ppm: u32,
    /// Chance that a datagram is in the tail of delays, in a million.
    pub tail_ppm: u32,
    /// Longest delay of the tail, in ns; half of it is twice as frequent, and so on.
    pub tail_ns: Nanos,
    /// From then on, in virtual time, the link only delays; 0: never.
    pub calm_from: Nanos,
    /// Times in which nothing passes.
    pub outages: Vec<Outage>,
    /// Routers that let only short datagrams pass, for a time.
    pub routers: Vec<Router>,
}

/// A router of one direction between two nodes, and the MTU behind it for a time. The last one of a direction
/// and a time counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Router {
    /// First nanosecond of the interval, in virtual time.
    pub from: Nanos,
    /// First nanosecond after it.
    pub until: Nanos,
    /// The node that sends and the one that receives.
    pub way: (NodeAddr, NodeAddr),
    /// Bytes of an IP packet that pass.
    pub mtu: usize,
    /// The sender's system learns of the MTU and takes no datagram beyond it; if not, they are lost without
    /// a message.
    pub is_reported: bool,
}

/// Bytes of the headers of IPv4 and UDP: the addresses of a fabric are IPv4-mapped.
pub(crate) const IP_OVERHEAD: usize = 28;

impl Router {
    /// The router that a datagram of `len` bytes, BTH to ICRC, does not pass at `at`.
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
    /// The link: rate nearest to the wire, then delays, then what loses and doubles.
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
            link = Box::new(Routed { inner: link, routers: self.routers.clone() });
        }
        if self.calm_from > 0 {
            link = Box::new(Calm::new(link, self.delay_ns, self.calm_from));
        }
        link
    }
}

macro_rules! random_fault {
    ($(#[$meta:meta])* $name:ident, $send:expr) => {
        $(#[$meta])*
        #[derive(Debug)]
        pub struct $name {
            inner: Box<dyn Link>,
            rng: Rng,
            ppm: u32,
        }

        impl $name {
            /// Around `inner`, with the chance `ppm` in a million for each datagram.
            #[must_use]
            pub fn new(inner: Box<dyn Link>, rng: Rng, ppm: u32) -> Self {
                Self { inner, rng, ppm }
            }
        }

        impl Link for $name {
            fn send(&mut self, at: Nanos, datagram: Datagram) {
                let hit = self.rng.chance_ppm(self.ppm);
                let act: fn(&mut Self, Nanos, Datagram, bool) = $send;
                act(self, at, datagram, hit);
            }

            forward!();
        }
    };
}

random_fault!(
    /// Loses datagrams with a given probability.
    Loss,
    |link, at, datagram, hit| {
        if !hit {
            link.inner.send(at, datagram);
        }
    }
);

random_fault!(
    /// Carries datagrams twice with a given probability.
    Duplication,
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
    |link, at, mut datagram, hit| {
        if hit && !datagram.bytes.is_empty() {
            let left = link.rng.index(datagram.bytes.len());
            datagram.bytes = Arc::from(&datagram.bytes[..left]);
        }
        link.inner.send(at, datagram);
    }
);

/// Loses datagrams in bursts, each direction by itself: the model of Gilbert and Elliott, in whose good state
/// nothing is lost and in whose bad state everything.
#[derive(Debug)]
pub struct BurstLoss {
    inner: Box<dyn Link>,
    rng: Rng,
    begin_ppm: u32,
    end_ppm: u32,
    /// Directions in a burst.
    bad: BTreeSet<(NodeAddr, NodeAddr)>,
}

impl BurstLoss {
    /// Around `inner`: with a chance of `begin_ppm` in a million a datagram begins a burst, of `len` on average.
    #[must_use]
    pub fn new(inner: Box<dyn Link>, rng: Rng, begin_ppm: u32, len: u32) -> Self {
        let end_ppm = 1_000_000 / len.max(1);
        Self { inner, rng, begin_ppm, end_ppm, bad: BTreeSet::new() }
    }
}

impl Link for BurstLoss {
    fn send(&mut self, at: Nanos, datagram: Datagram) {
        let way = (datagram.from, datagram.to);
        let is_lost = self.bad.contains(&way) || self.rng.chance_ppm(self.begin_ppm);
        if !is_lost {
            return self.inner.send(at, datagram);
        }
        // A burst has one datagram at least, and ends behind each with the same chance.
        if self.rng.chance_ppm(self.end_ppm) {
            self.bad.remove(&way);
        } else {
            self.bad.insert(way);
        }
    }

    forward!();
}

/// Loses what is too long for the router in its way.
#[derive(Debug)]
struct Routed {
    inner: Box<dyn Link>,
    routers: Vec<Router>,
}

impl Link for Routed {
    fn send(&mut self, at: Nanos, datagram: Datagram) {
        let way = (datagram.from, datagram.to);
        if Router::in_the_way(&self.routers, at, way, datagram.bytes.len()).is_none() {
            self.inner.send(at, datagram);
        }
    }

    forward!();
}
