//! Policies as they were published: FIFO, LRU and CLOCK, SIEVE, 2Q, ARC, S3-FIFO; the bounds OPT and OPT with bypass.
//!
//! - owns: lists of slots, ghosts of what left. takes: hits, misses, insertions. gives: victims.
//! - must not: know names or parameters of a policy.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Policy, PolicySlot,
    lirs::{Ghosts, NONE, NodeLists},
};

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

/// FIFO, LRU or CLOCK: one list of slots, and a bit per slot.
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

/// SIEVE with one bit per slot: FIFO with a hand that stays where it evicted; slots behind it that were hit are spared once.
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

const FIFO: u32 = 0;
const MAIN: u32 = 1;

/// 2Q: newcomers in a FIFO; what returns after it left that FIFO goes to an LRU list. The FIFO has 25 % of the capacity, the
/// ghosts 50 % (as libCacheSim).
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

const ONCE: u32 = 0;
const AGAIN: u32 = 1;

/// ARC: one LRU list of what was used once, one of what was used again, each with ghosts that move the border. Lists and
/// ghosts together hold at most twice the capacity.
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

const SMALL: u32 = 0;
/// Hits in the small queue that lead to the main one.
const TO_MAIN: u8 = 2;
/// Largest count of the main queue.
const COUNT_MAX: u8 = 3;

/// S3-FIFO: a small queue of newcomers, a main queue, and ghosts of what left the small one. The small queue has 10 % of the
/// capacity, the ghosts 90 %; two hits in the small queue lead to the main one (as libCacheSim).
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

/// Belady's OPT, which always inserts, or OPT with bypass, which may refuse. Over one trace: calls have to be those of its
/// accesses, in their order. A victim costs a logarithm of the capacity.
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
