//! Two FIFOs of slots in 2 bytes per slot: the next slot, a count of hits, whether there ever was one, the queue.
//!
//! A next slot has 12 bits, so slots are in groups of 4096, each with two FIFOs of its own. Who takes victims of the
//! groups in turn has the order of one FIFO.
//!
//! - owns: links, counts of hits. takes: slots. gives: the oldest one of a queue. must not: take a slot out of the middle.

use super::PolicySlot;

/// Bits of the number of a slot in its group.
const LINK_BITS: u32 = 12;
const LINK: u16 = (1 << LINK_BITS) - 1;
const HIT_BIT: u16 = 1 << LINK_BITS;
const COUNT_SHIFT: u32 = LINK_BITS + 1;
/// Largest count of hits.
const COUNT_MAX: u16 = 3;
const MAIN_BIT: u16 = 1 << 15;
/// Number of slots that a group may have.
const GROUP: u32 = 1 << LINK_BITS;

/// One of the two queues of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FifoKind {
    /// Slots of handles that are new.
    Small,
    /// What was used again.
    Main,
}

/// Oldest and newest slot, in the group, and length.
#[derive(Clone, Copy, Default, Debug)]
struct FifoEnds {
    oldest: u16,
    newest: u16,
    len: u32,
}

/// FIFOs of all groups.
#[derive(Clone, Debug)]
pub(super) struct Fifos {
    /// A slot whose next one is itself is in no queue.
    slots: Vec<u16>,
    groups: Vec<[FifoEnds; 2]>,
    /// Logarithm of the number of groups.
    shift: u32,
}

impl Fifos {
    pub(super) fn new(capacity: u32) -> Self {
        let count = capacity.div_ceil(GROUP).next_power_of_two();
        let groups = vec![[FifoEnds::default(); 2]; count as usize];
        let mut fifos = Self { slots: Vec::new(), groups, shift: count.ilog2() };
        fifos.slots = (0..capacity).map(|slot| fifos.number(slot)).collect();
        fifos
    }

    /// Group of a slot: slots go round the groups, so that these differ by one slot at most.
    pub(super) const fn group_of(&self, slot: PolicySlot) -> usize {
        (slot & ((1 << self.shift) - 1)) as usize
    }

    /// Number of a slot in its group.
    #[expect(clippy::cast_possible_truncation, reason = "there are enough groups for 12 bits")]
    const fn number(&self, slot: PolicySlot) -> u16 {
        (slot >> self.shift) as u16
    }

    #[expect(clippy::cast_possible_truncation, reason = "a group of a slot")]
    const fn slot_of(&self, group: usize, number: u16) -> PolicySlot {
        (number as u32) << self.shift | group as u32
    }

    /// Number of groups, each with two queues.
    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Number of slots of a queue.
    pub(super) fn len(&self, group: usize, queue: FifoKind) -> u32 {
        self.groups[group][queue as usize].len
    }

    /// The oldest slot of a queue that is not empty.
    #[inline]
    pub(super) fn oldest(&self, group: usize, queue: FifoKind) -> PolicySlot {
        self.slot_of(group, self.groups[group][queue as usize].oldest)
    }

    /// Takes the oldest slot out of a queue that is not empty.
    #[inline]
    pub(super) fn pop(&mut self, group: usize, queue: FifoKind) -> PolicySlot {
        let slot = self.oldest(group, queue);
        let ends = &mut self.groups[group][queue as usize];
        let word = &mut self.slots[slot as usize];
        let number = std::mem::replace(&mut ends.oldest, *word & LINK);
        ends.len -= 1;
        *word = number | *word & HIT_BIT;
        slot
    }

    /// The oldest slot of a queue that is not empty becomes the newest, with one hit less than it has; whether it had one.
    #[inline]
    pub(super) fn spare_oldest(&mut self, group: usize, queue: FifoKind) -> bool {
        let slot = self.oldest(group, queue);
        let word = self.slots[slot as usize];
        if word >> COUNT_SHIFT & COUNT_MAX == 0 {
            return false;
        }
        self.slots[slot as usize] = word - (1 << COUNT_SHIFT);
        let ends = &mut self.groups[group][queue as usize];
        if ends.len > 1 {
            let (number, newest) = (ends.oldest, ends.newest);
            (ends.oldest, ends.newest) = (word & LINK, number);
            let before = self.slot_of(group, newest);
            let word = &mut self.slots[before as usize];
            *word = *word & !LINK | number;
        }
        // The link of the newest slot is not read, but must not be itself; that of any other slot is not.
        true
    }

    /// Puts a slot that is in no queue, as the newest, without hits.
    #[inline]
    pub(super) fn push(&mut self, queue: FifoKind, slot: PolicySlot) {
        let (group, number) = (self.group_of(slot), self.number(slot));
        let ends = &mut self.groups[group][queue as usize];
        let newest = std::mem::replace(&mut ends.newest, number);
        ends.len += 1;
        if ends.len == 1 {
            ends.oldest = number;
        } else {
            let before = self.slot_of(group, newest);
            let word = &mut self.slots[before as usize];
            *word = *word & !LINK | number;
        }
        let word = &mut self.slots[slot as usize];
        *word = end_word(queue, number) | *word & HIT_BIT;
    }

    /// Puts a slot that is in no queue, as the oldest, without hits.
    pub(super) fn push_oldest(&mut self, queue: FifoKind, slot: PolicySlot) {
        let (group, number) = (self.group_of(slot), self.number(slot));
        let ends = &mut self.groups[group][queue as usize];
        if ends.len == 0 {
            self.push(queue, slot);
            return;
        }
        let next = std::mem::replace(&mut ends.oldest, number);
        ends.len += 1;
        let word = &mut self.slots[slot as usize];
        *word = end_word(queue, number) & !LINK | next | *word & HIT_BIT;
    }

    /// The queue of a slot, if it is in one.
    pub(super) fn queue_of(&self, slot: PolicySlot) -> Option<FifoKind> {
        let word = self.slots[slot as usize];
        let queue = if word & MAIN_BIT == 0 { FifoKind::Small } else { FifoKind::Main };
        (word & LINK != self.number(slot)).then_some(queue)
    }

    /// Hits of a slot, at most 3.
    #[inline]
    pub(super) fn count(&self, slot: PolicySlot) -> u16 {
        self.slots[slot as usize] >> COUNT_SHIFT & COUNT_MAX
    }

    /// Whether a slot was hit since the last [`Fifos::forget_hits`].
    #[inline]
    pub(super) fn was_hit(&self, slot: PolicySlot) -> bool {
        self.slots[slot as usize] & HIT_BIT != 0
    }

    /// Counts a hit of a slot, up to 3; the queue of a slot whose count was 0.
    #[inline]
    pub(super) fn hit(&mut self, slot: PolicySlot) -> Option<FifoKind> {
        let word = self.slots[slot as usize];
        let count = word >> COUNT_SHIFT & COUNT_MAX;
        let more = u16::from(count < COUNT_MAX) << COUNT_SHIFT;
        self.slots[slot as usize] = (word | HIT_BIT) + more;
        if count > 0 { None } else { self.queue_of(slot) }
    }

    /// Forgets all hits of a slot: it holds another handle.
    #[inline]
    pub(super) fn forget_hits(&mut self, slot: PolicySlot) {
        self.slots[slot as usize] &= !(COUNT_MAX << COUNT_SHIFT | HIT_BIT);
    }

    /// Sets the hits of a slot.
    #[inline]
    pub(super) fn set_count(&mut self, slot: PolicySlot, count: u16) {
        let word = &mut self.slots[slot as usize];
        *word = *word & !(COUNT_MAX << COUNT_SHIFT) | count.min(COUNT_MAX) << COUNT_SHIFT;
    }
}

/// Word of the newest slot of a queue: its next one is not read, but is not itself.
const fn end_word(queue: FifoKind, number: u16) -> u16 {
    match queue {
        FifoKind::Small => number ^ 1,
        FifoKind::Main => number ^ 1 | MAIN_BIT,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};

    use super::*;

    /// Random calls on one group and on three, against double-ended queues.
    #[test]
    fn queues_do_what_double_ended_queues_do() {
        for capacity in [1_u32, 5, 2 * GROUP + 100] {
            let mut fifos = Fifos::new(capacity);
            let groups = fifos.groups();
            let mut model = vec![[VecDeque::<PolicySlot>::new(), VecDeque::new()]; groups];
            let mut free: Vec<PolicySlot> = (0..capacity).collect();
            let mut random = 1_u64;
            let mut hit = HashSet::new();
            for _ in 0..60_000 {
                random = crate::handle::mix(random.wrapping_add(0x9e37_79b9_7f4a_7c15));
                let queue = if random & 1 == 0 { FifoKind::Small } else { FifoKind::Main };
                let group = usize::try_from((random >> 8) % groups as u64).expect("small");
                match random >> 1 & 7 {
                    0 if !model[group][queue as usize].is_empty() => {
                        let slot = fifos.pop(group, queue);
                        assert_eq!(Some(slot), model[group][queue as usize].pop_front());
                        assert_eq!((fifos.queue_of(slot), fifos.count(slot)), (None, 0));
                        // Moved or not, a slot keeps whether it was hit until that is forgotten.
                        assert_eq!(fifos.was_hit(slot), hit.remove(&slot));
                        fifos.forget_hits(slot);
                        assert!(!fifos.was_hit(slot));
                        free.push(slot);
                    }
                    1 => {
                        let Some(slot) = free.pop() else { continue };
                        fifos.push_oldest(queue, slot);
                        model[fifos.group_of(slot)][queue as usize].push_front(slot);
                        assert_eq!(fifos.queue_of(slot), Some(queue));
                    }
                    2 | 3 if !model[group][queue as usize].is_empty() => {
                        let model = &mut model[group][queue as usize];
                        let hits = fifos.count(model[0]);
                        assert_eq!(fifos.spare_oldest(group, queue), hits > 0);
                        if hits > 0 {
                            assert_eq!(fifos.count(model[0]), hits - 1);
                            model.rotate_left(1);
                        }
                    }
                    _ => {
                        let Some(slot) = free.pop() else { continue };
                        fifos.push(queue, slot);
                        hit.insert(slot);
                        let hits = fifos.count(slot);
                        assert_eq!((hits, fifos.hit(slot)), (0, Some(queue)));
                        (0..8).for_each(|_| assert_eq!(fifos.hit(slot), None));
                        model[fifos.group_of(slot)][queue as usize].push_back(slot);
                        assert_eq!((fifos.queue_of(slot), fifos.count(slot)), (Some(queue), 3));
                    }
                }
                let model = &model[group][queue as usize];
                assert_eq!(fifos.len(group, queue) as usize, model.len());
                if let Some(oldest) = model.front() {
                    assert_eq!(fifos.oldest(group, queue), *oldest);
                }
            }
        }
        assert_eq!(size_of_val(&Fifos::new(100).slots[0]), 2);
    }
}
