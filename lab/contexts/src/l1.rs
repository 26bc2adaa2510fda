//! L1: slots of the chip, in banks.
//!
//! *Owns*: tokens and small fields of the slots, the index of each bank, its replacement policy. *Takes*: handles.
//! *Gives*: slots, victims. *Must not*: change a slot whose directory entry still names another context.

use std::collections::VecDeque;

use urma_mem::sync::{AtomicU32, AtomicU64, Ordering};

use crate::{
    handle::ContextHandle,
    policy::Policy,
    to_u32,
    token::{ContextToken, SmallOp},
};

/// Small fields and version of a slot, changed by exchange.
#[derive(Debug)]
pub(crate) struct SlotWord {
    small: AtomicU64,
    version: AtomicU32,
}

impl SlotWord {
    pub(crate) fn new(small: u64) -> Self {
        Self { small: AtomicU64::new(small), version: AtomicU32::new(0) }
    }

    pub(crate) fn read(&self) -> u64 {
        self.small.load(Ordering::Acquire)
    }

    pub(crate) fn install(&self, small: u64) {
        self.small.store(small, Ordering::Release);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Changes the fields, in at most [`INLINE_RETRIES`] tries: the fields before and after, and how many tries were
    /// lost. `interfere` runs between look and exchange.
    pub(crate) fn update(
        &self,
        op: SmallOp,
        mut interfere: impl FnMut(),
    ) -> (Option<(u64, u64)>, u64) {
        for lost in 0..INLINE_RETRIES {
            let old = self.read();
            let new = op.apply(old);
            interfere();
            let exchanged =
                self.small.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
            if exchanged.is_ok() {
                self.version.fetch_add(1, Ordering::Release);
                return (Some((old, new)), lost);
            }
        }
        (None, INLINE_RETRIES)
    }
}

/// A slot of the chip.
#[derive(Debug)]
pub(crate) struct ChipSlot {
    pub(crate) token: Option<ContextToken>,
    pub(crate) word: SlotWord,
    /// Place of its copy in L2, if it has one.
    pub(crate) home: Option<u32>,
}

#[derive(Debug)]
struct SlotBank {
    index: SlotIndex,
    free: Vec<u32>,
    policy: Box<dyn Policy>,
    /// Hits by engines that do not own the bank.
    foreign_hits: VecDeque<u32>,
}

/// All slots. Slots of a bank are numbered from 0 within it; outside, banks follow each other.
#[derive(Debug)]
pub(crate) struct ChipSlots {
    slots: Vec<ChipSlot>,
    banks: Vec<SlotBank>,
    per_bank: u32,
    /// Hits that a full ring lost.
    pub(crate) hits_lost: u64,
}

impl ChipSlots {
    /// `policy` makes the one of each bank for a number of slots.
    pub(crate) fn new(
        entries: u32,
        banks: u32,
        policy: &mut dyn FnMut(u32) -> Box<dyn Policy>,
    ) -> Self {
        let per_bank = entries / banks;
        let slot = |_| ChipSlot { token: None, word: SlotWord::new(0), home: None };
        let bank = |_| SlotBank {
            index: SlotIndex::new(per_bank),
            free: (0..per_bank).rev().collect(),
            policy: policy(per_bank),
            foreign_hits: VecDeque::new(),
        };
        Self {
            slots: (0..per_bank * banks).map(slot).collect(),
            banks: (0..banks).map(bank).collect(),
            per_bank,
            hits_lost: 0,
        }
    }

    pub(crate) fn find(&self, handle: ContextHandle) -> Option<u32> {
        let bank = self.bank_of(handle);
        let local = self.banks[bank].index.find(handle.bits())?;
        Some(self.global(bank, local))
    }

    pub(crate) fn slot(&self, slot: u32) -> &ChipSlot {
        &self.slots[slot as usize]
    }

    pub(crate) fn slot_mut(&mut self, slot: u32) -> &mut ChipSlot {
        &mut self.slots[slot as usize]
    }

    /// Notes a hit by an engine: in the policy by the bank's owner, else in a ring that may lose it.
    pub(crate) fn on_hit(&mut self, slot: u32, engine: u32) {
        let (at, local) = ((slot / self.per_bank) as usize, slot % self.per_bank);
        let banks = to_u32(self.banks.len());
        let bank = &mut self.banks[at];
        if engine % banks == to_u32(at) {
            bank.take_foreign_hits();
            bank.policy.on_hit(local);
        } else if bank.foreign_hits.len() < FOREIGN_HITS {
            bank.foreign_hits.push_back(local);
        } else {
            self.hits_lost += 1;
        }
    }

    /// Whether a slot is free for the handle.
    pub(crate) fn has_room(&self, handle: ContextHandle) -> bool {
        !self.banks[self.bank_of(handle)].free.is_empty()
    }

    /// The slot to give up for the handle, of those that `may_leave`; none if none may.
    pub(crate) fn victim(
        &mut self,
        handle: ContextHandle,
        may_leave: impl Fn(&ChipSlot) -> bool,
    ) -> Option<u32> {
        let at = self.bank_of(handle);
        let first = to_u32(at) * self.per_bank;
        let bank = &mut self.banks[at];
        bank.take_foreign_hits();
        for _ in 0..VICTIM_TRIES {
            let local = bank.policy.victim(handle.bits());
            if may_leave(&self.slots[(first + local) as usize]) {
                return Some(first + local);
            }
            bank.policy.retain(local);
        }
        let taken = |slot: &u32| {
            let slot = &self.slots[*slot as usize];
            slot.token.is_some() && may_leave(slot) && bank.index.find_token(slot).is_some()
        };
        (first..first + self.per_bank).find(taken)
    }

    /// Whether the policy thinks the handle worth the victim's slot.
    pub(crate) fn admit(&mut self, handle: ContextHandle, victim: u32) -> bool {
        let at = self.bank_of(handle);
        self.banks[at].policy.admit(handle.bits(), victim % self.per_bank)
    }

    /// Puts a context into a free slot of its bank.
    pub(crate) fn install(
        &mut self,
        token: ContextToken,
        small: u64,
        home: Option<u32>,
    ) -> Option<u32> {
        let handle = token.handle();
        let at = self.bank_of(handle);
        let local = self.banks[at].free.pop()?;
        let slot = self.global(at, local);
        let place = &mut self.slots[slot as usize];
        (place.token, place.home) = (Some(token), home);
        place.word.install(small);
        let bank = &mut self.banks[at];
        bank.index.insert(handle.bits(), local);
        bank.policy.insert(handle.bits(), local);
        Some(slot)
    }

    /// The handle was not found, and is about to be brought here.
    pub(crate) fn on_miss(&mut self, handle: ContextHandle) {
        let at = self.bank_of(handle);
        self.banks[at].policy.on_miss(handle.bits());
    }

    /// Takes a context out of the index and the policy; its slot stays until [`ChipSlots::free`].
    pub(crate) fn hide(&mut self, handle: ContextHandle, slot: u32) {
        let at = self.give_up(handle, slot);
        self.banks[at].policy.remove(slot % self.per_bank);
    }

    /// As [`ChipSlots::hide`], of a victim whose slot [`ChipSlots::install`] takes next: the policy learns of it there.
    pub(crate) fn give_up(&mut self, handle: ContextHandle, slot: u32) -> usize {
        let at = self.bank_of(handle);
        let local = slot % self.per_bank;
        let bank = &mut self.banks[at];
        bank.index.remove(handle.bits());
        bank.foreign_hits.retain(|hit| *hit != local);
        at
    }

    /// The slot is free again.
    pub(crate) fn free(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        (place.token, place.home) = (None, None);
        let (bank, local) = ((slot / self.per_bank) as usize, slot % self.per_bank);
        self.banks[bank].free.push(local);
    }

    pub(crate) fn entries(&self) -> u32 {
        to_u32(self.slots.len())
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        let free: usize = self.banks.iter().map(|bank| bank.free.len()).sum();
        self.slots.len() - free
    }

    fn bank_of(&self, handle: ContextHandle) -> usize {
        spread(handle.bits()) as usize & (self.banks.len() - 1)
    }

    fn global(&self, bank: usize, local: u32) -> u32 {
        to_u32(bank) * self.per_bank + local
    }
}

impl SlotBank {
    fn take_foreign_hits(&mut self) {
        while let Some(slot) = self.foreign_hits.pop_front() {
            self.policy.on_hit(slot);
        }
    }
}

/// Open addressing with linear probes, read without a lock; one owner writes.
#[derive(Debug)]
struct SlotIndex {
    /// `handle 32, slot + 1 in 32`; 0 is free.
    cells: Vec<AtomicU64>,
}

impl SlotIndex {
    fn new(slots: u32) -> Self {
        let cells = (2 * slots as usize).next_power_of_two();
        Self { cells: (0..cells).map(|_| AtomicU64::new(0)).collect() }
    }

    fn find(&self, handle: u32) -> Option<u32> {
        let at = self.probe(handle)?;
        let slot = self.cells[at].load(Ordering::Acquire) & 0xffff_ffff;
        u32::try_from(slot).ok()?.checked_sub(1)
    }

    fn find_token(&self, slot: &ChipSlot) -> Option<u32> {
        self.find(slot.token?.handle().bits())
    }

    fn insert(&self, handle: u32, slot: u32) {
        let mut at = self.first(handle);
        // Half of the cells are free at least.
        while self.cells[at].load(Ordering::Relaxed) != 0 {
            at = self.next(at);
        }
        let cell = u64::from(handle) << 32 | (u64::from(slot) + 1);
        self.cells[at].store(cell, Ordering::Release);
    }

    /// Frees the cell and closes the gap. A reader may miss a cell that moves: the directory names its slot.
    fn remove(&self, handle: u32) {
        let Some(mut gap) = self.probe(handle) else { return };
        let mut at = gap;
        loop {
            at = self.next(at);
            let cell = self.cells[at].load(Ordering::Relaxed);
            if cell == 0 {
                break;
            }
            let first = self.first((cell >> 32) as u32);
            let mask = self.cells.len() - 1;
            // It may move back if its first cell is not behind the gap.
            if at.wrapping_sub(first) & mask >= at.wrapping_sub(gap) & mask {
                self.cells[gap].store(cell, Ordering::Release);
                gap = at;
            }
        }
        self.cells[gap].store(0, Ordering::Release);
    }

    fn probe(&self, handle: u32) -> Option<usize> {
        let mut at = self.first(handle);
        for _ in 0..self.cells.len() {
            let cell = self.cells[at].load(Ordering::Acquire);
            if cell == 0 {
                return None;
            }
            if (cell >> 32) as u32 == handle {
                return Some(at);
            }
            at = self.next(at);
        }
        None
    }

    fn first(&self, handle: u32) -> usize {
        (spread(handle) >> 8) as usize & (self.cells.len() - 1)
    }

    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.cells.len() - 1)
    }
}

/// Spreads neighbouring handles (multiplication by a golden ratio of 64 bits).
fn spread(handle: u32) -> u32 {
    (u64::from(handle).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

/// Exchanges of one access before it goes to the batch worker.
pub(crate) const INLINE_RETRIES: u64 = 4;
/// Hits of other engines that a bank keeps.
const FOREIGN_HITS: usize = 64;
/// Victims that a policy is asked for while they are pinned.
const VICTIM_TRIES: u32 = 8;

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_index_agrees_with_a_map(ops in proptest::collection::vec((any::<bool>(), 0u32..40), 1..400)) {
            let (index, mut map) = (SlotIndex::new(16), BTreeMap::new());
            for (at, (is_in, handle)) in ops.into_iter().enumerate() {
                if is_in && map.len() < 16 && !map.contains_key(&handle) {
                    index.insert(handle, to_u32(at));
                    map.insert(handle, to_u32(at));
                } else if !is_in {
                    index.remove(handle);
                    map.remove(&handle);
                }
                for handle in 0..40 {
                    prop_assert_eq!(index.find(handle), map.get(&handle).copied());
                }
            }
        }
    }

    #[test]
    fn an_update_gives_up_after_four_lost_exchanges() {
        let word = SlotWord::new(10);
        let interfere =
            || word.small.store(word.small.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        assert_eq!(word.update(SmallOp::Add(100), interfere), (None, INLINE_RETRIES));
        assert_eq!(word.read(), 14, "only the others' changes");
        assert_eq!(word.update(SmallOp::Add(100), || ()), (Some((14, 114)), 0));
    }

    fn token(index: u32) -> ContextToken {
        ContextToken::new(index, 0, &crate::TokenBody::Page { address: 1 }).expect("a sound token")
    }

    #[test]
    fn a_bank_keeps_so_many_hits_of_other_engines() {
        let mut chip = ChipSlots::new(4, 2, &mut crate::policy::lru);
        let slot = chip.install(token(1), 0, None).expect("room");
        let owner = slot / 2;
        (0..FOREIGN_HITS).for_each(|_| chip.on_hit(slot, owner + 1));
        assert_eq!(chip.hits_lost, 0);
        chip.on_hit(slot, owner + 1);
        assert_eq!(chip.hits_lost, 1);
        // The owner takes them, and there is room again.
        chip.on_hit(slot, owner);
        chip.on_hit(slot, owner + 1);
        assert_eq!(chip.hits_lost, 1);
    }

    #[test]
    fn a_hit_of_what_left_is_no_hit_of_what_came() {
        let mut chip = ChipSlots::new(2, 1, &mut crate::policy::lru);
        let first = chip.install(token(1), 0, None).expect("room");
        let second = chip.install(token(2), 0, None).expect("room");
        // As of an engine that does not own the bank.
        chip.banks[0].foreign_hits.push_back(second);
        for (slot, old, new) in [(second, 2, 3), (first, 1, 4)] {
            chip.hide(token(old).handle(), slot);
            chip.free(slot);
            assert_eq!(chip.install(token(new), 0, None), Some(slot));
        }
        assert_eq!(
            chip.victim(token(9).handle(), |_| true),
            Some(second),
            "the one that came first"
        );
    }

    /// Whatever may leave: the one that the policy names, or the only one that may.
    #[test]
    fn a_victim_lies_in_the_bank_of_the_handle_that_comes() {
        let mut chip = ChipSlots::new(8, 2, &mut crate::policy::lru);
        let (mut taken, mut index) = (0, 0);
        while taken < 8 {
            taken += u32::from(chip.install(token(index), 0, None).is_some());
            index += 1;
        }
        for index in 1000..1020 {
            let handle = token(index).handle();
            let bank = to_u32(chip.bank_of(handle));
            assert!(!chip.has_room(handle));
            let victim = chip.victim(handle, |_| true).expect("one may leave");
            assert_eq!(victim / 4, bank, "{index}");
            let last = chip.slot(4 * bank + 3).token;
            let only = chip.victim(handle, |slot| slot.token == last);
            assert_eq!(only, Some(4 * bank + 3), "{index}");
            assert_eq!(chip.victim(handle, |_| false), None);
        }
    }
}
