//! The bounds: Belady's OPT, which always inserts, and OPT with bypass, which may refuse. Both know the trace.
//!
//! - owns: the next use of each slot. takes: the whole trace before the first access. gives: victims.
//! - must not: run in a device. A victim costs a logarithm of the capacity.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Policy, PolicySlot};

/// OPT over one trace: calls have to be those of its accesses, in their order.
#[derive(Clone, Debug)]
pub(super) struct Belady {
    /// Position of the next access to the same handle, by position; `u64::MAX`: none.
    next: Arc<[u64]>,
    now: usize,
    bypass: bool,
    slots: Vec<u64>,
    order: BTreeSet<(u64, PolicySlot)>,
}

impl Belady {
    pub(super) fn new(next: Arc<[u64]>, bypass: bool, capacity: u32) -> Self {
        let slots = vec![u64::MAX; capacity as usize];
        Self { next, now: 0, bypass, slots, order: BTreeSet::new() }
    }

    /// Next use of the handle that is accessed now.
    fn incoming(&self) -> u64 {
        self.next.get(self.now - 1).copied().unwrap_or(u64::MAX)
    }
}

impl Policy for Belady {
    fn on_hit(&mut self, slot: PolicySlot) {
        self.now += 1;
        self.insert(0, slot);
    }

    fn on_miss(&mut self, _handle: u32) {
        self.now += 1;
    }

    fn victim(&mut self, _handle: u32) -> PolicySlot {
        self.order.last().map_or(0, |(_, slot)| *slot)
    }

    fn admit(&mut self, _handle: u32, victim: PolicySlot) -> bool {
        !self.bypass || self.incoming() < self.slots[victim as usize]
    }

    fn insert(&mut self, _handle: u32, slot: PolicySlot) {
        self.remove(slot);
        self.slots[slot as usize] = self.incoming();
        self.order.insert((self.incoming(), slot));
    }

    fn remove(&mut self, slot: PolicySlot) {
        self.order.remove(&(self.slots[slot as usize], slot));
    }

    fn retain(&mut self, slot: PolicySlot) {
        self.remove(slot);
        self.slots[slot as usize] = 0;
        self.order.insert((0, slot));
    }
}
