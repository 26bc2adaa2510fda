//! W-TinyLFU: a small LRU window; what leaves it enters the main part only if it was used more often than its victim.
//!
//! Variant: window 1 %, main part an SLRU of 20 % and 80 %, each rounded down, counts in a Bloom filter of 10 hashes, halved
//! every 32 times the main part (as libCacheSim 0.3.5; hits in the window are not counted). Where the two parts are one
//! slot short of the main part, a hit there drives a slot out; it leaves at the next miss here, which then admits freely.
//!
//! - owns: window, main part, counts. takes: hits, insertions. gives: victims. must not: evict twice for one miss.

use super::lirs::{NONE, NodeLists};
use super::{Policy, PolicySlot};
use crate::handle::spread;

const WINDOW: u32 = 0;
const PROBATION: u32 = 1;
const PROTECTED: u32 = 2;
/// Slots that left the main part at a hit: the next victims.
const LEFT: u32 = 3;
/// Hashes and counters of a filter with one false answer in 1000.
const HASHES: u32 = 10;
const COUNTERS_PER_1000: u64 = 14_378;

/// Counts by handle, each the least of ten counters.
#[derive(Clone, Debug)]
struct CountFilter(Vec<u32>);

impl CountFilter {
    fn places(&self, handle: u32) -> impl Iterator<Item = usize> + use<> {
        let (mixed, counters) = (spread(handle), self.0.len() as u64);
        let (first, step) = (mixed & 0xffff_ffff, mixed >> 32);
        (0..u64::from(HASHES)).map(move |n| {
            usize::try_from(((first + n * step) & 0xffff_ffff) % counters).unwrap_or(0)
        })
    }

    fn add(&mut self, handle: u32) {
        for place in self.places(handle) {
            self.0[place] = self.0[place].saturating_add(1);
        }
    }

    fn count(&self, handle: u32) -> u32 {
        self.places(handle).map(|place| self.0[place]).min().unwrap_or(0)
    }
}

/// W-TinyLFU with a window of one hundredth.
#[derive(Clone, Debug)]
pub(super) struct WTinyLfu {
    lists: NodeLists,
    handles: Vec<u32>,
    counts: CountFilter,
    main_size: u32,
    hits: u64,
}

impl WTinyLfu {
    pub(super) fn new(capacity: u32) -> Self {
        let main_size = capacity - capacity / 100;
        let counters = (u64::from(main_size) * COUNTERS_PER_1000).div_ceil(1000).max(20);
        Self {
            lists: NodeLists::new(4, capacity),
            handles: vec![0; capacity as usize],
            counts: CountFilter(vec![0; usize::try_from(counters).unwrap_or(usize::MAX)]),
            main_size,
            hits: 0,
        }
    }

    fn main_len(&self) -> u32 {
        self.lists.len(PROBATION) + self.lists.len(PROTECTED)
    }

    fn enter_main(&mut self, slot: PolicySlot) {
        let full = self.lists.len(PROBATION) >= self.main_size / 5;
        let room = self.lists.len(PROTECTED) < self.main_size * 4 / 5;
        self.lists.move_to(if full && room { PROTECTED } else { PROBATION }, slot);
    }

    fn count_of(&self, slot: PolicySlot) -> u32 {
        self.counts.count(self.handles[slot as usize])
    }
}

impl Policy for WTinyLfu {
    fn on_hit(&mut self, slot: PolicySlot) {
        match self.lists.list_of(slot) {
            Some(WINDOW) => return self.lists.move_to(WINDOW, slot),
            Some(LEFT) => return self.insert(self.handles[slot as usize], slot),
            _ => self.lists.move_to(PROTECTED, slot),
        }
        if self.lists.len(PROTECTED) > self.main_size * 4 / 5 {
            self.lists.move_to(PROBATION, self.lists.oldest(PROTECTED));
            if self.lists.len(PROBATION) > self.main_size / 5 {
                self.lists.move_to(LEFT, self.lists.oldest(PROBATION));
            }
        }
        self.counts.add(self.handles[slot as usize]);
        self.hits += 1;
        if self.hits >= 32 * u64::from(self.main_size) {
            self.hits = 0;
            self.counts.0.iter_mut().for_each(|count| *count /= 2);
        }
    }

    fn on_miss(&mut self, _handle: u32) {}

    fn victim(&mut self, _handle: u32) -> PolicySlot {
        let left = self.lists.oldest(LEFT);
        if left != NONE {
            return left;
        }
        loop {
            let main = match self.lists.oldest(PROBATION) {
                NONE => self.lists.oldest(PROTECTED),
                slot => slot,
            };
            let candidate = self.lists.oldest(WINDOW);
            if candidate == NONE {
                return main;
            }
            let (room, wins) = (
                self.main_len() < self.main_size,
                main != NONE && self.count_of(candidate) > self.count_of(main),
            );
            self.counts.add(self.handles[candidate as usize]);
            if room {
                self.enter_main(candidate);
            } else if wins {
                self.lists.move_to(PROBATION, candidate);
                return main;
            } else {
                return candidate;
            }
        }
    }

    fn admit(&mut self, _handle: u32, _victim: PolicySlot) -> bool {
        true
    }

    fn insert(&mut self, handle: u32, slot: PolicySlot) {
        self.handles[slot as usize] = handle;
        self.lists.move_to(WINDOW, slot);
        self.counts.add(handle);
    }

    fn remove(&mut self, slot: PolicySlot) {
        self.lists.remove(slot);
    }

    fn retain(&mut self, slot: PolicySlot) {
        let list = self.lists.list_of(slot).unwrap_or(WINDOW);
        self.lists.move_to(list, slot);
    }
}
