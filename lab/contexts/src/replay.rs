//! A cache that a trace runs through: which handle is in which slot, hits and misses.
//!
//! - owns: the table of handles, counters. takes: a policy, accesses. gives: hit or miss. must not: choose a victim.

use crate::policy::{Policy, PolicySlot};

/// Number that stands for no slot and no handle.
const NONE: u32 = u32::MAX;

/// What was counted; accesses = hits + misses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CacheCounts {
    /// Accesses of all handles.
    pub accesses: u64,
    /// Accesses whose handle was in a slot.
    pub hits: u64,
    /// Accesses whose handle was in none.
    pub misses: u64,
    /// Handles that left for another one.
    pub evicted: u64,
    /// Misses that the policy did not let in.
    pub refused: u64,
}

/// A full-associative cache of unit sizes. Handles have numbers 0 to n - 1 beside their values: see `Trace::number`.
#[derive(Debug)]
pub struct CacheReplay {
    policy: Box<dyn Policy>,
    slot_of: Vec<PolicySlot>,
    held: Vec<u32>,
    /// Empty slots, the lowest last.
    empty: Vec<PolicySlot>,
    counts: CacheCounts,
}

impl CacheReplay {
    /// An empty cache of `capacity` slots under `policy`, for `handles` different handles.
    #[must_use]
    pub fn new(policy: Box<dyn Policy>, capacity: u32, handles: u32) -> Self {
        Self {
            policy,
            slot_of: vec![NONE; handles as usize],
            held: vec![NONE; capacity as usize],
            empty: (0..capacity).rev().collect(),
            counts: CacheCounts::default(),
        }
    }

    /// Accesses a handle; whether it was a hit.
    pub fn access(&mut self, number: u32, handle: u32) -> bool {
        self.counts.accesses += 1;
        let slot = self.slot_of[number as usize];
        if slot != NONE {
            self.counts.hits += 1;
            self.policy.on_hit(slot);
            return true;
        }
        self.counts.misses += 1;
        self.policy.on_miss(handle);
        let Some(slot) = self.room(handle) else {
            self.counts.refused += 1;
            return false;
        };
        self.policy.insert(handle, slot);
        self.held[slot as usize] = number;
        self.slot_of[number as usize] = slot;
        false
    }

    /// An empty slot, or that of a victim; `None` when the handle is refused.
    fn room(&mut self, handle: u32) -> Option<PolicySlot> {
        if let Some(slot) = self.empty.pop() {
            return Some(slot);
        }
        let slot = self.policy.victim(handle);
        if !self.policy.admit(handle, slot) {
            return None;
        }
        self.counts.evicted += 1;
        self.slot_of[self.held[slot as usize] as usize] = NONE;
        Some(slot)
    }

    /// Destroys the object of a handle: what is cached of it leaves.
    pub fn destroy(&mut self, number: u32) {
        let slot = std::mem::replace(&mut self.slot_of[number as usize], NONE);
        if slot != NONE {
            self.policy.remove(slot);
            self.empty.push(slot);
        }
    }

    /// What was counted so far.
    #[must_use]
    pub const fn counts(&self) -> CacheCounts {
        self.counts
    }
}
