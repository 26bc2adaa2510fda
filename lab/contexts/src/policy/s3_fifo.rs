//! S3-FIFO: a small queue of newcomers, a main queue, and ghosts of what left the small one.
//!
//! Variant: small queue 10 % of the capacity, ghosts 90 %, two hits in the small queue lead to the main one (as libCacheSim).
//!
//! - owns: both queues, ghosts, 2-bit counts. takes: hits, insertions. gives: victims. must not: move a slot that is hit.

use super::ghost::Ghosts;
use super::list::NodeLists;
use super::{Policy, PolicySlot};

const SMALL: u32 = 0;
const MAIN: u32 = 1;
/// Hits in the small queue that lead to the main one.
const TO_MAIN: u8 = 2;
/// Largest count of the main queue.
const COUNT_MAX: u8 = 3;

/// S3-FIFO with a small queue of a tenth.
#[derive(Clone, Debug)]
pub(super) struct S3Fifo {
    queues: NodeLists,
    counts: Vec<u8>,
    handles: Vec<u32>,
    ghosts: Ghosts,
    small_size: u32,
    main_size: u32,
    /// Whether anything was evicted: before, what the small queue has no room for goes to the main one.
    evicted: bool,
}

impl S3Fifo {
    pub(super) fn new(capacity: u32) -> Self {
        let small = capacity / 10;
        Self {
            queues: NodeLists::new(2, capacity),
            counts: vec![0; capacity as usize],
            handles: vec![0; capacity as usize],
            ghosts: Ghosts::new(1, (capacity - small).max(1)),
            small_size: small,
            main_size: capacity - small,
            evicted: false,
        }
    }
}

impl Policy for S3Fifo {
    fn on_hit(&mut self, slot: PolicySlot) {
        let count = &mut self.counts[slot as usize];
        *count = count.saturating_add(1);
    }

    fn on_miss(&mut self, _handle: u32) {}

    fn victim(&mut self, _handle: u32) -> PolicySlot {
        loop {
            let main = self.queues.len(MAIN) > self.main_size || self.queues.len(SMALL) == 0;
            let slot = self.queues.oldest(if main { MAIN } else { SMALL });
            let count = &mut self.counts[slot as usize];
            if main && *count > 0 {
                *count = (*count).min(COUNT_MAX) - 1;
            } else if !main && *count >= TO_MAIN {
                *count = 0;
            } else {
                return slot;
            }
            self.queues.move_to(MAIN, slot);
        }
    }

    fn admit(&mut self, _handle: u32, _victim: PolicySlot) -> bool {
        true
    }

    fn insert(&mut self, handle: u32, slot: PolicySlot) {
        let returned = self.ghosts.take(handle).is_some();
        let first = !self.evicted && self.queues.len(SMALL) >= self.small_size;
        self.evicted |= self.queues.list_of(slot).is_some();
        if self.queues.list_of(slot) == Some(SMALL) {
            self.ghosts.push(0, self.handles[slot as usize]);
        }
        self.counts[slot as usize] = 0;
        self.handles[slot as usize] = handle;
        self.queues.move_to(if returned || (first && !self.evicted) { MAIN } else { SMALL }, slot);
    }

    fn remove(&mut self, slot: PolicySlot) {
        self.queues.remove(slot);
    }

    fn retain(&mut self, slot: PolicySlot) {
        self.queues.move_to(MAIN, slot);
    }
}
