//! Outages: times in which nothing passes between two nodes, in one direction, around one node, or anywhere.
//!
//! - owns: the scope of an outage, and what it does to datagrams. takes: a list of outages.
//! - gives: a link that is cut or clogged for a time. must not: draw anything at random.

use udma_abi::Nanos;

use super::{Datagram, FaultCounts, Link, forward};
use crate::ports::NodeAddr;

/// Scope of an outage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// All datagrams of the link.
    All,
    /// Two nodes, in both directions.
    Between(NodeAddr, NodeAddr),
    /// One direction: what the first node sends to the second.
    OneWay(NodeAddr, NodeAddr),
    /// All datagrams from or to an address: a node that is cut off, or an unplugged port.
    Address(NodeAddr),
}

impl Cut {
    fn concerns(self, datagram: &Datagram) -> bool {
        let way = (datagram.from, datagram.to);
        match self {
            Self::All => true,
            Self::Between(a, b) => way == (a, b) || way == (b, a),
            Self::OneWay(from, to) => way == (from, to),
            Self::Address(address) => way.0 == address || way.1 == address,
        }
    }
}

/// A time in which nothing passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// First nanosecond of the interval, in virtual time.
    pub from: Nanos,
    /// First nanosecond after it.
    pub until: Nanos,
    /// Which datagrams do not pass.
    pub cut: Cut,
    /// Datagrams wait for the end of the outage, in order (a clogged link); if not, they are lost.
    pub is_clog: bool,
}

impl Outage {
    /// An outage that loses what is sent in it.
    #[must_use]
    pub const fn of(cut: Cut, from: Nanos, until: Nanos) -> Self {
        Self { from, until, cut, is_clog: false }
    }
}

/// Lets nothing pass at given times.
#[derive(Debug)]
pub struct Partition {
    inner: Box<dyn Link>,
    outages: Vec<Outage>,
    lost: u64,
}

impl Partition {
    /// Adds outages to the link `inner`.
    #[must_use]
    pub fn new(inner: Box<dyn Link>, outages: Vec<Outage>) -> Self {
        Self { inner, outages, lost: 0 }
    }

    /// Returns when a datagram sent at `at` proceeds; `None`: it is lost.
    fn passes_at(&self, mut at: Nanos, datagram: &Datagram) -> Option<Nanos> {
        // Each outage moves the time behind its own end, so each delays a datagram at most once.
        for _ in 0..=self.outages.len() {
            let is_in = |outage: &&Outage| {
                (outage.from..outage.until).contains(&at) && outage.cut.concerns(datagram)
            };
            match self.outages.iter().find(is_in) {
                None => return Some(at),
                Some(outage) if outage.is_clog => at = outage.until,
                Some(_) => return None,
            }
        }
        None
    }
}

impl Link for Partition {
    fn send(&mut self, at: Nanos, datagram: Datagram) {
        match self.passes_at(at, &datagram) {
            Some(at) => self.inner.send(at, datagram),
            None => self.lost += 1,
        }
    }

    forward!(lost += lost);
}
