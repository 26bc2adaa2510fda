//! ARC: one LRU list of what was used once, one of what was used again, each with ghosts that move the border.
//!
//! - owns: lists, ghosts, the target size of the first list. takes: hits, misses, insertions. gives: victims.
//! - must not: keep more than twice the capacity in lists and ghosts together.

use super::ghost::Ghosts;
use super::list::NodeLists;
use super::{Policy, PolicySlot};

const ONCE: u32 = 0;
const AGAIN: u32 = 1;

/// ARC with ghosts of up to the capacity.
#[derive(Clone, Debug)]
pub(super) struct Arc2 {
    lists: NodeLists,
    ghosts: Ghosts,
    handles: Vec<u32>,
    capacity: u32,
    /// Target size of the list of what was used once.
    target: f64,
}

impl Arc2 {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            lists: NodeLists::new(2, capacity),
            ghosts: Ghosts::new(2, 2 * capacity),
            handles: vec![0; capacity as usize],
            capacity,
            target: 0.0,
        }
    }

    /// Whether what was used once fills its half: lists and ghosts of it hold the capacity.
    fn once_is_full(&self) -> bool {
        self.lists.len(ONCE) + self.ghosts.len(ONCE) >= self.capacity
    }

    /// Makes the victim a ghost, within the bounds of a miss that was `in_ghosts` or not.
    fn bury(&mut self, victim: PolicySlot, list: u32, in_ghosts: bool) {
        if !in_ghosts && self.once_is_full() {
            if self.ghosts.len(ONCE) == 0 {
                return;
            }
            self.ghosts.pop(ONCE);
        } else if !in_ghosts {
            let all = self.lists.len(ONCE)
                + self.lists.len(AGAIN)
                + self.ghosts.len(ONCE)
                + self.ghosts.len(AGAIN);
            if all >= 2 * self.capacity {
                self.ghosts.pop(AGAIN);
            }
        }
        self.ghosts.push(list, self.handles[victim as usize]);
    }
}

impl Policy for Arc2 {
    fn on_hit(&mut self, slot: PolicySlot) {
        self.lists.move_to(AGAIN, slot);
    }

    fn on_miss(&mut self, handle: u32) {
        let (once, again) = (f64::from(self.ghosts.len(ONCE)), f64::from(self.ghosts.len(AGAIN)));
        match self.ghosts.list_of(handle) {
            Some(ONCE) => {
                self.target = (self.target + (again / once).max(1.0)).min(f64::from(self.capacity));
            }
            Some(_) => self.target = (self.target - (once / again).max(1.0)).max(0.0),
            None => {}
        }
    }

    fn victim(&mut self, handle: u32) -> PolicySlot {
        let ghost = self.ghosts.list_of(handle);
        let once = f64::from(self.lists.len(ONCE));
        let over = once > self.target
            || (ghost == Some(AGAIN) && once.total_cmp(&self.target).is_eq())
            || (ghost.is_none() && self.once_is_full() && self.ghosts.len(ONCE) == 0);
        let from_once = self.lists.len(AGAIN) == 0 || (once > 0.0 && over);
        self.lists.oldest(if from_once { ONCE } else { AGAIN })
    }

    fn admit(&mut self, _handle: u32, _victim: PolicySlot) -> bool {
        true
    }

    fn insert(&mut self, handle: u32, slot: PolicySlot) {
        let in_ghosts = self.ghosts.take(handle).is_some();
        if let Some(list) = self.lists.list_of(slot) {
            self.bury(slot, list, in_ghosts);
        }
        self.handles[slot as usize] = handle;
        self.lists.move_to(if in_ghosts { AGAIN } else { ONCE }, slot);
    }

    fn remove(&mut self, slot: PolicySlot) {
        self.lists.remove(slot);
    }

    fn retain(&mut self, slot: PolicySlot) {
        self.lists.move_to(AGAIN, slot);
    }
}
