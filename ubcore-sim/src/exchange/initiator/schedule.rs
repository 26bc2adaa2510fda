//! Order of sequences at the carrier: round-robin, urgent ones first.
//!
//! *Owns*: the order among sequences that have something to push. *Takes*: sequences with the priority of their
//! queue. *Gives*: the next one. *Must not*: let a sequence wait without a bound.
//!
//! A slot goes to the highest waiting priority, and there to each sequence in round-robin order. While lower
//! priorities wait, one slot of [`SHARE`] goes to one of them, again in round-robin order: with 16 priorities each
//! gets at least one slot of 8 * 15.

use std::collections::VecDeque;

use crate::exchange::pair::Pair;

/// Priorities, 0 to 15 (UMDK release 26.06: URMA_MAX_PRIORITY_CNT).
const LEVELS: usize = 16;
/// One of so many slots goes to a lower priority than the highest.
const SHARE: u32 = 8;

/// The sequences of one peer that have something to push.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    levels: [VecDeque<Pair>; LEVELS],
    /// Bit mask of the levels that are not empty.
    waiting: u32,
    /// Slots in a row for the highest level while others waited.
    in_a_row: u32,
    /// Lower level that had the last slot.
    lower: u32,
}

/// A sequence and the level in which it has its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ScheduledPair {
    pub(crate) pair: Pair,
    level: usize,
}

impl Schedule {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Adds a sequence that has something to push.
    pub(crate) fn push(&mut self, pair: Pair, priority: u8) {
        let level = usize::from(priority).min(LEVELS - 1);
        self.levels[level].push_back(pair);
        self.waiting |= 1 << level;
    }

    /// Puts a sequence back that used its slot and has more to push.
    pub(crate) fn push_again(&mut self, scheduled: ScheduledPair) {
        self.levels[scheduled.level].push_back(scheduled.pair);
        self.waiting |= 1 << scheduled.level;
    }

    /// Puts a sequence back first, because there was no room for its piece.
    pub(crate) fn put_back(&mut self, scheduled: ScheduledPair) {
        self.levels[scheduled.level].push_front(scheduled.pair);
        self.waiting |= 1 << scheduled.level;
    }

    pub(crate) fn pop(&mut self) -> Option<ScheduledPair> {
        let level = self.next_level()?;
        let pair = self.levels[level].pop_front()?;
        if self.levels[level].is_empty() {
            self.waiting &= !(1 << level);
        }
        Some(ScheduledPair { pair, level })
    }

    fn next_level(&mut self) -> Option<usize> {
        let highest = self.waiting.checked_ilog2()?;
        let others = self.waiting & !(1 << highest);
        if others == 0 {
            self.in_a_row = 0;
            return Some(highest as usize);
        }
        self.in_a_row += 1;
        if self.in_a_row < SHARE {
            return Some(highest as usize);
        }
        self.in_a_row = 0;
        // The next lower level after the last one, or the highest of them.
        let below = others & ((1 << self.lower) - 1);
        let others = if below != 0 { below } else { others };
        self.lower = others.ilog2();
        Some(self.lower as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::pair;

    fn pair(id: u32) -> Pair {
        Pair::new(pair::initiator(id, true), None)
    }

    fn slots_of(waiting: &[(u32, u8)], slots: usize) -> Vec<u32> {
        let mut all = Schedule::default();
        for (id, priority) in waiting {
            all.push(pair(*id), *priority);
        }
        let mut next = || {
            let scheduled = all.pop().unwrap();
            all.push_again(scheduled);
            scheduled.pair.queue()
        };
        (0..slots).map(|_| next()).collect()
    }

    #[test]
    fn equals_have_slots_in_round_robin_order() {
        assert_eq!(slots_of(&[(1, 3), (2, 3), (3, 3)], 6), [1, 2, 3, 1, 2, 3]);
    }

    #[test]
    fn the_urgent_get_seven_slots_of_eight_and_the_others_share_the_rest() {
        let slots = slots_of(&[(1, 0), (5, 15), (2, 7), (3, 7)], 8 * 8);
        let of = |id| slots.iter().filter(|slot| **slot == id).count();
        assert_eq!((of(5), of(1)), (56, 4));
        assert_eq!((of(2), of(3)), (2, 2));
    }

    #[test]
    fn each_priority_has_a_slot_within_its_bound() {
        let all: Vec<(u32, u8)> = (0..16).map(|n| (n, u8::try_from(n).unwrap())).collect();
        let slots = slots_of(&all, 4 * 8 * 15);
        for id in 0..16 {
            let at: Vec<usize> = (0..slots.len()).filter(|at| slots[*at] == id).collect();
            assert!(at[0] < 8 * 15, "{id}");
            assert!(at.windows(2).all(|pair| pair[1] - pair[0] <= 8 * 15), "{id}");
        }
    }

    #[test]
    fn a_sequence_that_found_no_room_is_next_in_its_level() {
        let mut schedule = Schedule::default();
        schedule.push(pair(1), 2);
        schedule.push(pair(2), 2);
        let scheduled = schedule.pop().unwrap();
        schedule.put_back(scheduled);
        assert_eq!(schedule.pop(), Some(scheduled));
        assert!(schedule.pop().is_some() && schedule.pop().is_none() && schedule.is_empty());
    }
}
