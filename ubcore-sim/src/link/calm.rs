//! A link whose faults end at a given time.
//!
//! - owns: the time. takes: a faulty link. gives: that link until then, and a perfect wire afterwards.
//! - must not: drop datagrams that are still in transit.

use udma_abi::Nanos;

use super::{Datagram, FaultCounts, Link, Wire};

/// A link that becomes a perfect wire at a given time.
#[derive(Debug)]
pub(super) struct Calm {
    before: Box<dyn Link>,
    after: Wire,
    from: Nanos,
}

impl Calm {
    /// Behaves like `before`; datagrams sent at `from` or later arrive after exactly `delay_ns`.
    pub(super) fn new(before: Box<dyn Link>, delay_ns: Nanos, from: Nanos) -> Self {
        Self { before, after: Wire::new(delay_ns), from }
    }

    fn deadlines(&self) -> [Option<Nanos>; 2] {
        [self.before.poll_deadline(), self.after.poll_deadline()]
    }
}

impl Link for Calm {
    fn send(&mut self, at: Nanos, datagram: Datagram) {
        if at < self.from { self.before.send(at, datagram) } else { self.after.send(at, datagram) }
    }

    fn poll(&mut self, now: Nanos) -> Option<Datagram> {
        let [before, after] = self.deadlines().map(|at| at.unwrap_or(Nanos::MAX));
        if before <= after { self.before.poll(now) } else { self.after.poll(now) }
    }

    fn poll_deadline(&self) -> Option<Nanos> {
        self.deadlines().into_iter().flatten().min()
    }

    fn count(&self, counts: &mut FaultCounts) {
        self.before.count(counts);
    }
}
