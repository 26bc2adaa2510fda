//! 2Q: newcomers in a FIFO; what returns after it left that FIFO goes to an LRU list.
//!
//! Variant: FIFO 25 % of the capacity, ghosts 50 % (as libCacheSim).
//!
//! - owns: both lists, ghosts. takes: hits, insertions. gives: victims. must not: promote on a hit in the FIFO.

use super::ghost::Ghosts;
use super::list::NodeLists;
use super::{Policy, PolicySlot};

const FIFO: u32 = 0;
const MAIN: u32 = 1;

/// 2Q with a FIFO of a quarter.
#[derive(Clone, Debug)]
pub(super) struct TwoQ {
    lists: NodeLists,
    handles: Vec<u32>,
    ghosts: Ghosts,
    fifo_size: u32,
}

impl TwoQ {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            lists: NodeLists::new(2, capacity),
            handles: vec![0; capacity as usize],
            ghosts: Ghosts::new(1, (capacity / 2).max(1)),
            fifo_size: capacity / 4,
        }
    }
}

impl Policy for TwoQ {
    fn on_hit(&mut self, slot: PolicySlot) {
        if self.lists.list_of(slot) == Some(MAIN) {
            self.lists.move_to(MAIN, slot);
        }
    }

    fn on_miss(&mut self, _handle: u32) {}

    fn victim(&mut self, _handle: u32) -> PolicySlot {
        let fifo = self.lists.len(FIFO) > self.fifo_size || self.lists.len(MAIN) == 0;
        self.lists.oldest(if fifo { FIFO } else { MAIN })
    }

    fn admit(&mut self, _handle: u32, _victim: PolicySlot) -> bool {
        true
    }

    fn insert(&mut self, handle: u32, slot: PolicySlot) {
        let returned = self.ghosts.take(handle).is_some();
        if self.lists.list_of(slot) == Some(FIFO) {
            self.ghosts.push(0, self.handles[slot as usize]);
        }
        self.handles[slot as usize] = handle;
        self.lists.move_to(if returned { MAIN } else { FIFO }, slot);
    }

    fn remove(&mut self, slot: PolicySlot) {
        self.lists.remove(slot);
    }

    fn retain(&mut self, slot: PolicySlot) {
        self.lists.move_to(MAIN, slot);
    }
}
