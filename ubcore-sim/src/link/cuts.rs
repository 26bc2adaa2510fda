//! Times in which nothing passes: between two nodes, in one direction, around one node, or anywhere.
//!
//! - owns: what an outage concerns, and what becomes of datagrams in it. takes: a list of them.
//! - gives: a link that is cut or clogged for a time. must not: draw anything at random.

use udma_abi::Nanos;

use super::{Datagram, Link, forward};
use crate::ports::NodeAddr;

/// What an outage concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// All that is sent.
    All,
    /// Two nodes, in both directions.
    Between(NodeAddr, NodeAddr),
    /// What the first node sends to the second one.
    OneWay(NodeAddr, NodeAddr),
    /// What comes from an address or goes to it: a node that is cut off, or a port that is pulled.
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
    /// What it concerns: all else passes.
    pub cut: Cut,
    /// Datagrams wait for its end, in order (a clogged link); if not, they are lost.
    pub is_clog: bool,
}

impl Outage {
    /// One that loses what is sent in it.
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
}

impl Partition {
    /// Adds the fault to the link `inner`.
    #[must_use]
    pub fn new(inner: Box<dyn Link>, outages: Vec<Outage>) -> Self {
        Self { inner, outages }
    }

    /// When a datagram of `at` goes on; `None`: it is lost.
    fn passes_at(&self, mut at: Nanos, datagram: &Datagram) -> Option<Nanos> {
        // Each outage moves the time behind itself, so each holds a datagram once at most.
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
        if let Some(at) = self.passes_at(at, &datagram) {
            self.inner.send(at, datagram);
        }
    }

    forward!();
}
