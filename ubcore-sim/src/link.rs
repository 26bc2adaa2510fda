//! Links in virtual time: datagrams arrive later, or not, or twice, or changed.
//!
//! - owns: the trait, the perfect wire, the decorators that add faults, the seeded generator.
//! - takes: bytes and the time of sending. gives: deliveries in order of their time.
//! - must not: parse datagrams; draw random numbers from anything but its seed.
//!
//! Each fault is a decorator around another link; any number of them can be stacked ([`FaultCfg::build`]).

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
    /// Sends a datagram at time `at`, which must not be before the time of the last poll.
    fn send(&mut self, at: Nanos, datagram: Datagram);

    /// Returns the next datagram that arrives at `now` or earlier.
    fn poll(&mut self, now: Nanos) -> Option<Datagram>;

    /// Returns when the next datagram arrives.
    fn poll_deadline(&self) -> Option<Nanos>;

    /// Adds what its faults did so far.
    fn count(&self, counts: &mut FaultCounts);
}

/// Datagrams that the faults of a link met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultCounts {
    /// Lost: by chance, in a burst, in an outage, at a full queue, by a router.
    pub lost: u64,
    /// Carried a second time.
    pub doubled: u64,
    /// Changed in a bit, or truncated.
    pub changed: u64,
    /// Held back: others may overtake them.
    pub late: u64,
}

/// A perfect link: every datagram arrives once, unchanged, after a fixed delay.
#[derive(Debug)]
pub struct Wire {
    delay_ns: Nanos,
    queue: BTreeMap<(Nanos, u64), Datagram>,
    sent: u64,
}

impl Wire {
    /// A wire with a one-way delay of `delay_ns`.
    #[must_use]
    pub const fn new(delay_ns: Nanos) -> Self {
        Self { delay_ns, queue: BTreeMap::new(), sent: 0 }
    }
}

impl Link for Wire {
    fn send(&mut self, at: Nanos, datagram: Datagram) {
        // The count keeps datagrams of the same time in the order of sending.
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

    fn count(&self, _: &mut FaultCounts) {}
}

/// The methods that a decorator only forwards; `lost += own` adds its field `own` to what was lost.
macro_rules! forward {
    ($($counted:ident += $own:ident)?) => {
        fn poll(&mut self, now: Nanos) -> Option<Datagram> {
            self.inner.poll(now)
        }

        fn poll_deadline(&self) -> Option<Nanos> {
            self.inner.poll_deadline()
        }

        fn count(&self, counts: &mut FaultCounts) {
            $(counts.$counted += self.$own;)?
            self.inner.count(counts);
        }
    };
}
use forward;

#[cfg(test)]
mod tests;
