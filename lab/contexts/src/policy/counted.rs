//! Slots in the order of their counts, those of one count in the order of their last accesses: a list for each count that occurs.
//!
//! - owns: counts, the order. takes: slots that were accessed, in the order of their accesses. gives: the least of all.
//! - must not: look at more than a neighbour when a count grows by one.

use super::{PolicySlot, lirs::NONE};

/// A slot in the list of its count.
#[derive(Clone, Copy, Debug)]
struct CountedSlot {
    newer: u32,
    older: u32,
    /// List of its count; `NONE`: it is in none.
    list: u32,
    /// Number of its last access.
    last: u64,
}

/// The slots of one count, and the lists of the neighbouring counts.
#[derive(Clone, Copy, Debug)]
struct CountList {
    count: u32,
    newest: u32,
    oldest: u32,
    less: u32,
    more: u32,
}

/// Slots by count and last access.
#[derive(Clone, Debug)]
pub(super) struct CountedSlots {
    slots: Vec<CountedSlot>,
    lists: Vec<CountList>,
    free: Vec<u32>,
    /// List of the least count.
    least: u32,
    len: u32,
}

impl CountedSlots {
    /// No slots of `capacity`.
    pub(super) fn new(capacity: u32) -> Self {
        let none = CountedSlot { newer: NONE, older: NONE, list: NONE, last: 0 };
        let slots = vec![none; capacity as usize];
        Self { slots, lists: Vec::new(), free: Vec::new(), least: NONE, len: 0 }
    }

    /// Number of slots with a count.
    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    /// The oldest slot of the least count.
    pub(super) fn first(&self) -> Option<PolicySlot> {
        self.oldest_of_each().next().map(|(_, _, slot)| slot)
    }

    /// Count, last access and number of the oldest slot of each count, the least count first.
    pub(super) fn oldest_of_each(&self) -> impl Iterator<Item = (u32, u64, PolicySlot)> + '_ {
        let list = |number: u32| self.lists.get(number as usize);
        let all = std::iter::successors(list(self.least), move |of| list(of.more));
        all.map(|list| (list.count, self.slots[list.oldest as usize].last, list.oldest))
    }

    /// Gives a slot a count, with an access now: it is the newest of that count. One that has a count loses it. Looks at all
    /// counts below it, which are few.
    pub(super) fn put(&mut self, slot: PolicySlot, count: u32, now: u64) {
        self.remove(slot);
        let (mut less, mut more) = (NONE, self.least);
        while let Some(list) = self.lists.get(more as usize).filter(|list| list.count < count) {
            (less, more) = (more, list.more);
        }
        let list = self.list_between(less, more, count);
        self.push(list, slot, now);
        self.len += 1;
    }

    /// Takes a slot out, if it has a count.
    pub(super) fn remove(&mut self, slot: PolicySlot) {
        let list = self.slots[slot as usize].list;
        if list != NONE {
            self.unlink(slot);
            self.close_if_empty(list);
            self.len -= 1;
        }
    }

    /// An access of a slot that has a count: the count grows by one, up to its limit.
    pub(super) fn raise(&mut self, slot: PolicySlot, now: u64) {
        let from = self.slots[slot as usize].list;
        let Some(CountList { count, newest, oldest, more, .. }) =
            self.lists.get(from as usize).copied()
        else {
            return;
        };
        let count = count.saturating_add(1);
        let next = self.lists.get(more as usize).map(|list| list.count);
        if newest == oldest && next != Some(count) {
            // It is alone, and stays between its neighbours.
            self.lists[from as usize].count = count;
            self.slots[slot as usize].last = now;
            return;
        }
        self.unlink(slot);
        let to = match self.lists[from as usize].count == count {
            true => from,
            false => self.list_between(from, more, count),
        };
        self.push(to, slot, now);
        self.close_if_empty(from);
    }

    /// Halves all counts; slots of two counts that become one are in the order of their last accesses.
    pub(super) fn halve(&mut self) {
        let mut at = self.least;
        while let Some(list) = self.lists.get_mut(at as usize) {
            list.count /= 2;
            let (count, more) = (list.count, list.more);
            // No third count is the same when it is halved.
            if self.lists.get(more as usize).is_some_and(|list| list.count / 2 == count) {
                self.merge(at, more);
            }
            at = self.lists[at as usize].more;
        }
    }

    /// Moves the slots of the list of the next count into this one.
    fn merge(&mut self, to: u32, from: u32) {
        let (mut one, mut other) =
            (self.lists[to as usize].oldest, self.lists[from as usize].oldest);
        self.lists[to as usize].oldest = NONE;
        self.lists[to as usize].newest = NONE;
        while one != NONE || other != NONE {
            let key = |slot: u32| self.slots.get(slot as usize).map(|held| (held.last, slot));
            let is_other = match (key(one), key(other)) {
                (Some(one), Some(other)) => other < one,
                (one, _) => one.is_none(),
            };
            let slot = if is_other { other } else { one };
            let CountedSlot { newer, last, .. } = self.slots[slot as usize];
            if is_other {
                other = newer;
            } else {
                one = newer;
            }
            self.push(to, slot, last);
        }
        self.lists[from as usize].newest = NONE;
        self.close_if_empty(from);
    }

    /// The list of a count: `more` if it is that, else a new one between two neighbours.
    fn list_between(&mut self, less: u32, more: u32, count: u32) -> u32 {
        if self.lists.get(more as usize).is_some_and(|list| list.count == count) {
            return more;
        }
        let list = CountList { count, newest: NONE, oldest: NONE, less, more };
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.lists.push(list);
                crate::to_u32(self.lists.len() - 1)
            }
        };
        self.lists[number as usize] = list;
        self.join(less, number);
        self.join(number, more);
        number
    }

    /// Makes two lists neighbours.
    fn join(&mut self, less: u32, more: u32) {
        match self.lists.get_mut(less as usize) {
            Some(list) => list.more = more,
            None => self.least = more,
        }
        if let Some(list) = self.lists.get_mut(more as usize) {
            list.less = less;
        }
    }

    /// Adds a slot as the newest of a list; of those of one access, in the order of their numbers.
    fn push(&mut self, list: u32, slot: PolicySlot, now: u64) {
        let (mut older, mut newer) = (self.lists[list as usize].newest, NONE);
        while let Some(held) =
            self.slots.get(older as usize).filter(|held| held.last == now && older > slot)
        {
            (older, newer) = (held.older, older);
        }
        let ends = &mut self.lists[list as usize];
        match self.slots.get_mut(newer as usize) {
            Some(newer) => newer.older = slot,
            None => ends.newest = slot,
        }
        match self.slots.get_mut(older as usize) {
            Some(older) => older.newer = slot,
            None => ends.oldest = slot,
        }
        self.slots[slot as usize] = CountedSlot { newer, older, list, last: now };
    }

    fn unlink(&mut self, slot: PolicySlot) {
        let held = &mut self.slots[slot as usize];
        let CountedSlot { newer, older, list, .. } = *held;
        held.list = NONE;
        let ends = &mut self.lists[list as usize];
        match self.slots.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => ends.newest = older,
        }
        match self.slots.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => ends.oldest = newer,
        }
    }

    fn close_if_empty(&mut self, list: u32) {
        let CountList { newest, less, more, .. } = self.lists[list as usize];
        if newest == NONE {
            self.join(less, more);
            self.free.push(list);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Slots against a set of count, last access and number.
    #[test]
    fn the_order_is_that_of_a_sorted_set() {
        for (capacity, highest) in [(1, 3), (7, 2), (40, 5), (40, 300)] {
            let mut counted = CountedSlots::new(capacity);
            let mut model: BTreeSet<(u32, u64, u32)> = BTreeSet::new();
            for call in 1..30_000_u64 {
                let drawn = crate::handle::mix(call);
                // Some calls are of one access.
                let now = call / 3;
                let [slot, what, count, high, ..] = drawn.to_le_bytes();
                let slot = u32::from(slot) % capacity;
                let count = (u32::from(count) | u32::from(high) << 8) % (highest + 1);
                let known = model.iter().find(|(_, _, other)| *other == slot).copied();
                match what {
                    0 => {
                        counted.halve();
                        model = model.iter().map(|(c, last, slot)| (c / 2, *last, *slot)).collect();
                    }
                    1..40 => {
                        counted.remove(slot);
                        known.map(|entry| model.remove(&entry));
                    }
                    40..90 => {
                        counted.put(slot, count, now);
                        known.map(|entry| model.remove(&entry));
                        model.insert((count, now, slot));
                    }
                    _ => {
                        counted.raise(slot, now);
                        if let Some(entry) = known {
                            model.remove(&entry);
                            model.insert((entry.0 + 1, now, slot));
                        }
                    }
                }
                assert_eq!(counted.len() as usize, model.len());
                assert_eq!(counted.first(), model.first().map(|(_, _, slot)| *slot), "{call}");
                let mut wanted: Vec<(u32, u64, u32)> = Vec::new();
                for entry in &model {
                    if wanted.last().is_none_or(|(count, ..)| *count != entry.0) {
                        wanted.push(*entry);
                    }
                }
                assert_eq!(counted.oldest_of_each().collect::<Vec<_>>(), wanted, "{call}");
            }
            assert!(counted.lists.len() <= capacity as usize + 1, "lists are used again");
        }
    }

    #[test]
    fn a_count_at_its_limit_stays_there_and_the_slot_becomes_the_newest() {
        let mut counted = CountedSlots::new(2);
        counted.put(0, u32::MAX, 1);
        counted.put(1, u32::MAX, 2);
        counted.raise(0, 3);
        assert_eq!(counted.oldest_of_each().collect::<Vec<_>>(), [(u32::MAX, 2, 1)]);
        counted.raise(1, 4);
        assert_eq!(counted.first(), Some(0));
    }
}
