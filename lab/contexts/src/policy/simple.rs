//! FIFO, LRU and CLOCK: one list of slots.
//!
//! - owns: the list, a bit per slot. takes: hits, insertions. gives: the oldest slot. must not: look at handles.

use super::list::NodeLists;
use super::{Policy, PolicySlot};

/// What a hit does in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HitRule {
    /// Nothing: first in, first out.
    Fifo,
    /// Moves the slot to the front: the least recently used one is oldest.
    Lru,
    /// Sets the slot's bit, which spares it once: CLOCK.
    Clock,
}

/// FIFO, LRU or CLOCK.
#[derive(Clone, Debug)]
pub(super) struct OneList {
    rule: HitRule,
    list: NodeLists,
    used: Vec<bool>,
}

impl OneList {
    pub(super) fn new(rule: HitRule, capacity: u32) -> Self {
        Self { rule, list: NodeLists::new(1, capacity), used: vec![false; capacity as usize] }
    }
}

impl Policy for OneList {
    fn on_hit(&mut self, slot: PolicySlot) {
        match self.rule {
            HitRule::Fifo => {}
            HitRule::Lru => self.list.move_to(0, slot),
            HitRule::Clock => self.used[slot as usize] = true,
        }
    }

    fn on_miss(&mut self, _handle: u32) {}

    fn victim(&mut self, _handle: u32) -> PolicySlot {
        loop {
            let slot = self.list.oldest(0);
            if !std::mem::take(&mut self.used[slot as usize]) {
                return slot;
            }
            self.list.move_to(0, slot);
        }
    }

    fn admit(&mut self, _handle: u32, _victim: PolicySlot) -> bool {
        true
    }

    fn insert(&mut self, _handle: u32, slot: PolicySlot) {
        self.used[slot as usize] = false;
        self.list.move_to(0, slot);
    }

    fn remove(&mut self, slot: PolicySlot) {
        self.list.remove(slot);
    }

    fn retain(&mut self, slot: PolicySlot) {
        self.list.move_to(0, slot);
    }
}
