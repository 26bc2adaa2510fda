//! Decorators that lose, double or change datagrams.
//!
//! - owns: loss, duplication, corruption, partitions, routers, and the recipe that stacks all decorators.
//! - takes: a link and a generator. gives: a worse link. must not: delay (that is `shape`).

use std::sync::Arc;

use udma_abi::Nanos;

use super::{Datagram, Jitter, Link, Rate, Reordering, Rng, Wire, forward};
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
    /// Times in which nothing passes.
    pub outages: Vec<Outage>,
    /// Routers that let only short datagrams pass, for a time.
    pub routers: Vec<Router>,
    /// Times in which ports are pulled.
    pub pulled: Vec<PulledPort>,
}

/// A time in which a port is pulled: nothing comes from its address or goes to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PulledPort {
    /// Address of the port.
    pub address: NodeAddr,
    /// First nanosecond of the interval, in virtual time.
    pub from: Nanos,
    /// First nanosecond after it.
    pub until: Nanos,
}

/// A time in which nothing passes between two nodes (in either direction), or at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// First nanosecond of the interval, in virtual time.
    pub from: Nanos,
    /// First nanosecond after it.
    pub until: Nanos,
    /// The nodes that are cut off from each other; `None` means all of them.
    pub pair: Option<(NodeAddr, NodeAddr)>,
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
        if self.corrupt_ppm > 0 {
            link = Box::new(Corruption::new(link, rng.fork(), self.corrupt_ppm));
        }
        if self.duplicate_ppm > 0 {
            link = Box::new(Duplication::new(link, rng.fork(), self.duplicate_ppm));
        }
        if self.loss_ppm > 0 {
            link = Box::new(Loss::new(link, rng.fork(), self.loss_ppm));
        }
        if !self.outages.is_empty() {
            link = Box::new(Partition::new(link, self.outages.clone()));
        }
        if !self.routers.is_empty() {
            link = Box::new(Routed { inner: link, routers: self.routers.clone() });
        }
        if !self.pulled.is_empty() {
            link = Box::new(Pulled { inner: link, ports: self.pulled.clone() });
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

/// Lets nothing pass at given times.
#[derive(Debug)]
pub struct Partition {
    inner: Box<dyn Link>,
    outages: Vec<Outage>,
}

impl Partition {
    /// Adds the fault to the link `inner`.
    #[must_use]
    pub fn new(inner: Box<dyn Link>, outages: Vec<Outage>) -> Self {
        Self { inner, outages }
    }
}

impl Link for Partition {
    fn send(&mut self, at: Nanos, datagram: Datagram) {
        let ends = (datagram.from, datagram.to);
        let cut = |outage: &Outage| {
            let concerned = outage.pair.is_none_or(|(a, b)| ends == (a, b) || ends == (b, a));
            concerned && (outage.from..outage.until).contains(&at)
        };
        if !self.outages.iter().any(cut) {
            self.inner.send(at, datagram);
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

/// Loses what goes by ports that are pulled.
#[derive(Debug)]
struct Pulled {
    inner: Box<dyn Link>,
    ports: Vec<PulledPort>,
}

impl Link for Pulled {
    fn send(&mut self, at: Nanos, datagram: Datagram) {
        let ends = [datagram.from, datagram.to];
        let is_lost = |port: &PulledPort| {
            ends.contains(&port.address) && (port.from..port.until).contains(&at)
        };
        if !self.ports.iter().any(is_lost) {
            self.inner.send(at, datagram);
        }
    }

    forward!();
}
