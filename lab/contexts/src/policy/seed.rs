//! The seed's rule: least frequently used, least recent of equals, with aging, a weight of recency, and admission.
//! Without aging and admission it is LFU.
//!
//! - owns: counts of slots, counts of handles outside, ranks by recency. takes: hits, misses, insertions. gives: victims.
//! - must not: count an access twice. A hit and a victim cost a constant time; with a weight of recency, a logarithm of the capacity, and a victim
//!   looks at each count that occurs.

use super::{Policy, PolicySlot, counted::CountedSlots, lirs::HandleMap};

/// Counts of handles outside, at most this many times the capacity: beyond, all of them are halved.
const OUTSIDE_MOST: usize = 32;

/// Parameters of the seed's rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeedRule {
    /// All counts are halved each time so many times the capacity were accessed; 0: never.
    pub aging: u32,
    /// Weight of recency: score = count + alpha * rank / entries, rank 0 the least recent; 0 to 16.
    pub alpha: u32,
    /// A full cache takes a handle at its miss of this number; 0: at its first, counted anew.
    pub admit: u32,
}

impl SeedRule {
    /// Neither aging, nor recency but between equals, nor admission: LFU.
    pub const LFU: Self = Self { aging: 0, alpha: 0, admit: 0 };
    /// The seed's default: aging of 10.
    pub const AGED: Self = Self { aging: 10, alpha: 0, admit: 0 };
}

/// The seed's rule with its parameters.
#[derive(Clone, Debug)]
pub(super) struct SeedLfu {
    rule: SeedRule,
    capacity: usize,
    order: CountedSlots,
    outside: HandleMap<u32>,
    ranks: Option<Ranks>,
    now: u64,
}

impl SeedLfu {
    pub(super) fn new(rule: SeedRule, capacity: u32) -> Self {
        Self {
            rule,
            capacity: capacity as usize,
            order: CountedSlots::new(capacity),
            outside: HandleMap::default(),
            ranks: (rule.alpha > 0).then(|| Ranks::new(capacity)),
            now: 0,
        }
    }

    /// Counts an access, and ages before it when its time has come.
    fn tick(&mut self) {
        self.now += 1;
        let period = u64::from(self.rule.aging) * self.capacity as u64;
        if period > 0 && self.now.is_multiple_of(period) {
            self.order.halve();
            self.age_outside();
        }
    }

    fn age_outside(&mut self) {
        self.outside.retain(|_, count| {
            *count /= 2;
            *count > 0
        });
    }

    /// A slot was accessed once more.
    fn raise(&mut self, slot: PolicySlot) {
        self.order.raise(slot, self.now);
        self.touch(slot);
    }

    fn touch(&mut self, slot: PolicySlot) {
        if let Some(ranks) = &mut self.ranks {
            ranks.touch(slot);
        }
    }

    /// The least score: in each count the least recent slot is the candidate.
    fn least(&self, ranks: &Ranks) -> PolicySlot {
        let entries = u64::from(self.order.len());
        let mut best = (u64::MAX, u64::MAX, 0);
        for (count, last, slot) in self.order.oldest_of_each() {
            let least = u64::from(count) * entries;
            if least > best.0 {
                break;
            }
            let score = least + u64::from(self.rule.alpha) * ranks.rank(slot);
            best = best.min((score, last, slot));
        }
        best.2
    }
}

impl Policy for SeedLfu {
    fn on_hit(&mut self, slot: PolicySlot) {
        self.tick();
        self.raise(slot);
    }

    fn on_miss(&mut self, handle: u32) {
        self.tick();
        if self.rule.admit > 0 {
            *self.outside.entry(handle).or_insert(0) += 1;
            if self.outside.len() > OUTSIDE_MOST * self.capacity {
                self.age_outside();
            }
        }
    }

    fn victim(&mut self, _handle: u32) -> PolicySlot {
        match &self.ranks {
            Some(ranks) => self.least(ranks),
            None => self.order.first().unwrap_or(0),
        }
    }

    fn admit(&mut self, handle: u32, _victim: PolicySlot) -> bool {
        self.rule.admit == 0
            || self.outside.get(&handle).is_some_and(|count| *count >= self.rule.admit)
    }

    fn insert(&mut self, handle: u32, slot: PolicySlot) {
        let count = self.outside.get(&handle).copied().unwrap_or(1);
        self.order.put(slot, count, self.now);
        self.touch(slot);
    }

    fn remove(&mut self, slot: PolicySlot) {
        self.order.remove(slot);
        if let Some(ranks) = &mut self.ranks {
            ranks.remove(slot);
        }
    }

    fn retain(&mut self, slot: PolicySlot) {
        self.raise(slot);
    }
}

/// Ranks of slots by last access: a tree of sums over positions, packed anew when the positions are used up.
#[derive(Clone, Debug)]
struct Ranks {
    sums: Vec<u32>,
    at: Vec<usize>,
    next: usize,
}

impl Ranks {
    fn new(capacity: u32) -> Self {
        let slots = capacity as usize;
        Self { sums: vec![0; 4 * slots + 2], at: vec![0; slots], next: 1 }
    }

    /// Adds one, or with wrapping takes one off, at a position.
    fn add(&mut self, mut at: usize, change: u32) {
        while at < self.sums.len() {
            self.sums[at] = self.sums[at].wrapping_add(change);
            at += at & at.wrapping_neg();
        }
    }

    fn remove(&mut self, slot: PolicySlot) {
        let at = std::mem::take(&mut self.at[slot as usize]);
        if at > 0 {
            self.add(at, 1_u32.wrapping_neg());
        }
    }

    fn touch(&mut self, slot: PolicySlot) {
        self.remove(slot);
        if self.next >= self.sums.len() {
            self.pack();
        }
        self.at[slot as usize] = self.next;
        self.add(self.next, 1);
        self.next += 1;
    }

    fn pack(&mut self) {
        let mut used: Vec<(usize, usize)> =
            self.at.iter().enumerate().filter(|(_, at)| **at > 0).map(|(s, at)| (*at, s)).collect();
        used.sort_unstable();
        self.sums.fill(0);
        self.next = 1;
        for (_, slot) in used {
            self.at[slot] = self.next;
            self.add(self.next, 1);
            self.next += 1;
        }
    }

    /// Number of slots whose last access is earlier.
    fn rank(&self, slot: PolicySlot) -> u64 {
        let (mut at, mut sum) = (self.at[slot as usize].saturating_sub(1), 0);
        while at > 0 {
            sum += u64::from(self.sums[at]);
            at &= at - 1;
        }
        sum
    }
}
