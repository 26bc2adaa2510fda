//! Links in virtual time: datagrams go in, come out later, or not, or twice, or changed.
//!
//! - owns: the trait, the perfect wire, the decorators that spoil it, the seeded generator.
//! - takes: bytes and the time of sending. gives: deliveries in order of their time.
//! - must not: parse what it carries; draw randomness from anywhere but its seed.
//!
//! A fault is a decorator around another link; any number of them stack ([`FaultCfg::build`]).

mod calm;
mod cuts;
mod faults;
mod rng;
mod shape;
mod text;

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use udma_abi::Nanos;

use crate::ports::NodeAddr;

pub use cuts::{Cut, Outage, Partition};
pub use faults::{BurstLoss, Corruption, Duplication, FaultCfg, Loss, Router, Truncation};
pub use rng::Rng;
pub use shape::{DelayTail, Jitter, Rate, Reordering};
pub use text::{LinkFaults, LinkFaultsError};

/// A datagram in transit. Copies share their bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Address of the sending node.
    pub from: NodeAddr,
    /// Address of the receiving node.
    pub to: NodeAddr,
    /// UDP payload, from the BTH to the ICRC.
    pub bytes: Arc<[u8]>,
}

/// Carries datagrams between nodes in virtual time.
pub trait Link: Send + Debug {
    /// Takes a datagram at time `at`, which may lie ahead of what was polled so far but never
    /// behind it.
    fn send(&mut self, at: Nanos, datagram: Datagram);

    /// The next datagram that arrives at `now` or earlier.
    fn poll(&mut self, now: Nanos) -> Option<Datagram>;

    /// When the next one arrives.
    fn poll_deadline(&self) -> Option<Nanos>;
}

/// A perfect link: every datagram arrives once, unchanged, after a fixed delay.
#[derive(Debug)]
pub struct Wire {
    delay_ns: Nanos,
    queue: BTreeMap<(Nanos, u64), Datagram>,
    sent: u64,
}

impl Wire {
    /// A wire of `delay_ns` one way.
    #[must_use]
    pub const fn new(delay_ns: Nanos) -> Self {
        Self { delay_ns, queue: BTreeMap::new(), sent: 0 }
    }
}

impl Link for Wire {
    fn send(&mut self, at: Nanos, datagram: Datagram) {
        // The count keeps datagrams of one instant in the order in which they were sent.
        self.queue.insert((at.saturating_add(self.delay_ns), self.sent), datagram);
        self.sent += 1;
    }

    fn poll(&mut self, now: Nanos) -> Option<Datagram> {
        let entry = self.queue.first_entry()?;
        if entry.key().0 <= now { Some(entry.remove()) } else { None }
    }

    fn poll_deadline(&self) -> Option<Nanos> {
        self.queue.first_key_value().map(|(&(at, _), _)| at)
    }
}

/// Forwards what a decorator does not change.
macro_rules! forward {
    () => {
        fn poll(&mut self, now: Nanos) -> Option<Datagram> {
            self.inner.poll(now)
        }

        fn poll_deadline(&self) -> Option<Nanos> {
            self.inner.poll_deadline()
        }
    };
}
use forward;

#[cfg(test)]
mod tests;
