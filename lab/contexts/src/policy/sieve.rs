//! SIEVE: FIFO with a hand that stays where it evicted; slots behind it that were hit are spared once.
//!
//! - owns: the list, the hand. takes: hits, insertions. gives: victims. must not: move a slot that is hit.

use super::list::{NONE, NodeLists};
use super::{Policy, PolicySlot};

/// SIEVE with one bit per slot.
#[derive(Clone, Debug)]
pub(super) struct Sieve {
    list: NodeLists,
    used: Vec<bool>,
    hand: u32,
}

impl Sieve {
    pub(super) fn new(capacity: u32) -> Self {
        Self { list: NodeLists::new(1, capacity), used: vec![false; capacity as usize], hand: NONE }
    }

    /// Takes a slot out; the hand goes on to the next newer one.
    fn unlink(&mut self, slot: PolicySlot) {
        if self.list.list_of(slot).is_some() {
            if self.hand == slot {
                self.hand = self.list.newer(slot);
            }
            self.list.remove(slot);
        }
    }
}

impl Policy for Sieve {
    fn on_hit(&mut self, slot: PolicySlot) {
        self.used[slot as usize] = true;
    }

    fn on_miss(&mut self, _handle: u32) {}

    fn victim(&mut self, _handle: u32) -> PolicySlot {
        loop {
            if self.hand == NONE {
                self.hand = self.list.oldest(0);
            }
            if !std::mem::take(&mut self.used[self.hand as usize]) {
                return self.hand;
            }
            self.hand = self.list.newer(self.hand);
        }
    }

    fn admit(&mut self, _handle: u32, _victim: PolicySlot) -> bool {
        true
    }

    fn insert(&mut self, _handle: u32, slot: PolicySlot) {
        self.unlink(slot);
        self.used[slot as usize] = false;
        self.list.push(0, slot);
    }

    fn remove(&mut self, slot: PolicySlot) {
        self.unlink(slot);
    }

    fn retain(&mut self, slot: PolicySlot) {
        self.unlink(slot);
        self.list.push(0, slot);
    }
}
