//! A link whose faults end at a given time.
//!
//! - owns: that time. takes: the link before it. gives: the same, and a perfect wire from then on.
//! - must not: forget what is still on its way.

use udma_abi::Nanos;

use super::{Datagram, Link, Wire};

/// The link of before, and the wire of after.
#[derive(Debug)]
pub(super) struct Calm {
    before: Box<dyn Link>,
    after: Wire,
    from: Nanos,
}

impl Calm {
    /// Behaves like `before`, but what is sent at `from` or later arrives `delay_ns` after that.
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
}
