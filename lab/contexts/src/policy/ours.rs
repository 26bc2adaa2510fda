//! Ours: a small FIFO of newcomers and a main FIFO, both of 2 bytes per slot; fingerprints of what left either,
//! which also move the border between them and choose among rules; and a sketch of use, by which the main FIFO may
//! choose its victim.
//!
//! Must not take more than a constant time.

use super::{
    Policy, PolicySlot,
    fifos::{FifoKind, Fifos},
    prints::{LeftLately, MainLeave, Prints, RuleDuel, VictimRule},
};
use crate::handle::scatter;

/// Slots of the main FIFO of which the least used one is the victim.
const CHOICE: u32 = 4;
/// Hits in the small FIFO that lead to the main one.
const TO_MAIN: u16 = 2;
/// Most slots that one victim spares: beyond, hits do not count.
const SPARED_MOST: u32 = 256;
/// Units of the size of the small FIFO: sixteenths of a slot.
const UNIT: u64 = 16;
/// Steps of that size at a return, in units, by how many more fingerprints the other queue has.
const STEP: (u32, u32) = (12, 64);
/// Quarters of the victims that were hit whose return says that the main FIFO is too small.
const TOO_SMALL: u32 = 3;

/// Queues, fingerprints and sketch of our policy.
///
/// What is counted in the sketch are misses and the first hit in the main FIFO since a slot was last spared: the
/// messages of one burst, or of one turn of interleaved flows, count once.
///
/// Two rules follow from what returns. The victim of the main FIFO is the least used of four slots or the oldest one,
/// whichever returns less ([`RuleDuel`]). And where most of what was hit returns, the main FIFO is too small for what
/// is used again: then a handle that left it without a hit starts in the small FIFO again, as a new one does.
///
/// Memory per entry: 2 bytes in the slot (`Fifos`); beside the slots 4 bytes of fingerprints and 8 to 16 bytes of
/// sketch. The handle of a slot is the cache's own, of which `handles` is a copy.
#[derive(Clone, Debug)]
pub(super) struct Ours {
    queues: Fifos,
    handles: Vec<u32>,
    /// What left the small and the main FIFO.
    left: Prints,
    sketch: Sketch,
    duel: RuleDuel,
    /// Victims of the main FIFO that were hit, and how many of them returned; halved from time to time.
    hit_left: u32,
    hit_returned: u32,
    /// Target size of the small FIFO in units; from 1 % to 80 % of the capacity.
    small: u64,
    capacity: u32,
    /// The group of the next victim.
    group: usize,
    victim: Option<(PolicySlot, VictimRule)>,
    /// The last miss, and whether its handle left lately: `insert` need not look again.
    missed: Option<(u32, LeftLately)>,
    /// Whether anything was evicted: before, what the small FIFO has no room for goes to the main one.
    evicted: bool,
}

impl Ours {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            queues: Fifos::new(capacity),
            handles: vec![0; capacity as usize],
            left: Prints::new(capacity),
            sketch: Sketch::new(capacity),
            duel: RuleDuel::new(capacity),
            hit_left: 1,
            hit_returned: 0,
            small: (u64::from(capacity) * UNIT / 10).max(UNIT),
            capacity,
            group: 0,
            victim: None,
            missed: None,
            evicted: false,
        }
    }

    /// Whether the small FIFO of a group has its size.
    #[inline]
    fn small_is_full(&self, group: usize) -> bool {
        let len = u64::from(self.queues.len(group, FifoKind::Small));
        len * UNIT * self.queues.groups() as u64 >= self.small
    }

    #[inline]
    fn scattered(&self, slot: PolicySlot) -> u32 {
        scatter(self.handles[slot as usize])
    }

    /// A slot of the main FIFO without hits, chosen by `rule`; it becomes the oldest. The queue is not empty.
    fn main_victim(&mut self, group: usize, rule: VictimRule) -> PolicySlot {
        let mut best = self.next_of_main(group);
        if rule == VictimRule::LeastUsed {
            let mut least = self.sketch.count(self.scattered(best));
            for _ in 1..CHOICE.min(self.queues.len(group, FifoKind::Main) + 1) {
                let slot = self.next_of_main(group);
                let used = self.sketch.count(self.scattered(slot));
                let (kept, left) = if used < least { (best, slot) } else { (slot, best) };
                (best, least) = (left, least.min(used));
                self.queues.push(FifoKind::Main, kept);
            }
        }
        self.queues.push_oldest(FifoKind::Main, best);
        best
    }

    /// Takes the oldest slot of the main FIFO out that has no hits; those with hits lose one and become the newest.
    #[inline]
    fn next_of_main(&mut self, group: usize) -> PolicySlot {
        for _ in 0..SPARED_MOST {
            if !self.queues.spare_oldest(group, FifoKind::Main) {
                break;
            }
        }
        self.queues.pop(group, FifoKind::Main)
    }

    /// Takes the last victim out of its queue, of which it is the oldest; that queue.
    #[inline]
    fn unlink(&mut self, victim: PolicySlot) -> Option<FifoKind> {
        let queue = self.queues.queue_of(victim)?;
        self.queues.pop(self.queues.group_of(victim), queue);
        Some(queue)
    }

    /// Keeps the fingerprint of a victim that leaves.
    #[inline]
    fn evict(&mut self, victim: PolicySlot, rule: VictimRule) {
        let was_hit = self.queues.was_hit(victim);
        let scattered = self.scattered(victim);
        match self.unlink(victim) {
            None => {}
            Some(FifoKind::Small) => self.left.put_small(scattered),
            Some(FifoKind::Main) => {
                self.left.put_main(scattered, MainLeave { rule, was_hit });
                self.duel.evicted(rule);
                self.hit_left += u32::from(was_hit);
                if self.hit_left > self.capacity + 8 {
                    self.hit_left /= 2;
                    self.hit_returned /= 2;
                }
            }
        }
        self.evicted = true;
        self.group += 1;
        if self.group == self.queues.groups() {
            self.group = 0;
        }
    }

    /// Whether a handle that left lately belongs in the main FIFO.
    const fn is_used_again(&self, left: LeftLately) -> bool {
        let LeftLately { small, main } = left;
        let from_main = match main {
            None => false,
            Some(leave) => leave.was_hit || 4 * self.hit_returned <= TOO_SMALL * self.hit_left,
        };
        small || from_main
    }

    /// Moves the border: what left the small FIFO returns, or what left the main one.
    fn move_border(&mut self, left: LeftLately) {
        if !left.small && left.main.is_none() {
            return;
        }
        let capacity = u64::from(self.capacity);
        let (small, main) = (self.left.small_len(), self.left.main_len());
        // Numbers of 32 bits: at most 12 times 2^24, and quicker to divide.
        let step =
            |other: u32, own: u32| u64::from((STEP.0 * other / own.max(1)).clamp(STEP.0, STEP.1));
        if left.small {
            let most = (capacity * UNIT * 4 / 5).max(UNIT);
            self.small = (self.small + step(main, small)).min(most);
        } else {
            let least = (capacity * UNIT / 100).max(UNIT);
            self.small = self.small.saturating_sub(step(small, main)).max(least);
        }
    }
}

impl Policy for Ours {
    fn on_hit(&mut self, slot: PolicySlot) {
        if self.queues.hit(slot) == Some(FifoKind::Main) {
            self.sketch.add(self.scattered(slot));
        }
    }

    fn on_miss(&mut self, handle: u32) {
        let scattered = scatter(handle);
        self.sketch.add(scattered);
        let left = self.left.find(scattered);
        self.move_border(left);
        if let Some(leave) = left.main {
            self.duel.returned(leave.rule);
            self.hit_returned += u32::from(leave.was_hit);
        }
        self.missed = Some((handle, left));
    }

    fn victim(&mut self, _handle: u32) -> PolicySlot {
        let group = self.group;
        let victim = loop {
            let small = self.queues.len(group, FifoKind::Small);
            let main = self.queues.len(group, FifoKind::Main);
            if small == 0 || (main > 0 && !self.small_is_full(group)) {
                let rule = self.duel.next();
                break (self.main_victim(group, rule), rule);
            }
            let slot = self.queues.oldest(group, FifoKind::Small);
            if self.queues.count(slot) < TO_MAIN {
                break (slot, VictimRule::default());
            }
            self.queues.pop(group, FifoKind::Small);
            self.queues.push(FifoKind::Main, slot);
        };
        self.victim = Some(victim);
        victim.0
    }

    fn admit(&mut self, _handle: u32, _victim: PolicySlot) -> bool {
        true
    }

    fn insert(&mut self, handle: u32, slot: PolicySlot) {
        let left = match self.missed.take() {
            Some((missed, left)) if missed == handle => left,
            _ => self.left.find(scatter(handle)),
        };
        if left.small || left.main.is_some() {
            self.left.take(scatter(handle));
        }
        let returned = self.is_used_again(left);
        if let Some((victim, rule)) = self.victim.take()
            && victim == slot
        {
            self.evict(slot, rule);
        }
        self.handles[slot as usize] = handle;
        self.queues.forget_hits(slot);
        if self.queues.queue_of(slot).is_some() {
            // An object was destroyed: its slot keeps its place.
            return;
        }
        let fill = !self.evicted && self.small_is_full(self.queues.group_of(slot));
        self.queues.push(if returned || fill { FifoKind::Main } else { FifoKind::Small }, slot);
    }

    fn remove(&mut self, slot: PolicySlot) {
        self.queues.set_count(slot, 0);
    }

    fn retain(&mut self, slot: PolicySlot) {
        if self.victim.take().is_some_and(|(victim, _)| victim == slot)
            && self.unlink(slot).is_some()
        {
            self.queues.push(FifoKind::Main, slot);
        }
    }
}

/// Counters per slot of the cache, before rounding up to a power of two; 4 bits each.
const COUNTERS_PER_SLOT: u64 = 16;
/// All counters are halved once per so many uses times the capacity: a tenth of a word per use, or less.
const AGING: u64 = 20;
const COUNTERS_PER_WORD: u64 = 16;
const COUNT_MAX: u64 = 15;
/// Bits of a halved counter that stay in it.
const HALVED: u64 = 0x7777_7777_7777_7777;

/// Estimates of use by handle: 8 to 16 bytes per slot of the cache.
#[derive(Clone, Debug)]
pub(super) struct Sketch {
    words: Vec<u64>,
    /// Uses until all counters are halved.
    period: u64,
    /// Uses since all counters were halved.
    uses: u64,
}

impl Sketch {
    pub(super) fn new(capacity: u32) -> Self {
        let counters = (u64::from(capacity) * COUNTERS_PER_SLOT).next_power_of_two().max(64);
        let words = usize::try_from(counters / COUNTERS_PER_WORD).unwrap_or(usize::MAX);
        Self { words: vec![0; words], period: AGING * u64::from(capacity), uses: 0 }
    }

    /// Word of a scattered handle, and the bit of its counter in each quarter of the word.
    #[inline]
    fn place(&self, scattered: u32) -> (usize, [u32; 4]) {
        let word = scattered as usize & (self.words.len() - 1);
        (word, [0, 1, 2, 3].map(|row| 16 * row + ((scattered >> (24 + 2 * row)) & 3) * 4))
    }

    /// Estimated uses of a handle, at most 15.
    #[inline]
    pub(super) fn count(&self, scattered: u32) -> u64 {
        let (word, bits) = self.place(scattered);
        least(self.words[word], bits)
    }

    /// Counts a use: only the counters that are the least, so that others err less.
    #[inline]
    pub(super) fn add(&mut self, scattered: u32) {
        let (at, bits) = self.place(scattered);
        let word = self.words[at];
        let least = least(word, bits);
        if least < COUNT_MAX {
            let added = bits.map(|bit| u64::from((word >> bit) & COUNT_MAX == least) << bit);
            self.words[at] = word + (added[0] | added[1] | added[2] | added[3]);
        }
        self.uses += 1;
        if self.uses >= self.period {
            self.uses = 0;
            self.words.iter_mut().for_each(|word| *word = *word >> 1 & HALVED);
        }
    }
}

/// The least of a handle's four counters in its word.
fn least(word: u64, bits: [u32; 4]) -> u64 {
    let counts = bits.map(|bit| (word >> bit) & COUNT_MAX);
    counts[0].min(counts[1]).min(counts[2].min(counts[3]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::scatter;

    #[test]
    fn estimates_are_never_below_the_uses_and_are_halved() {
        let mut sketch = Sketch::new(100);
        for handle in 0..200 {
            (0..handle % 8).for_each(|_| sketch.add(scatter(handle)));
        }
        for handle in 0..200 {
            assert!(sketch.count(scatter(handle)) >= u64::from(handle % 8), "{handle}");
        }
        let many = (0..200)
            .filter(|handle| sketch.count(scatter(*handle)) > u64::from(handle % 8))
            .count();
        assert!(many < 40, "{many} of 200 are too high");
        let before = sketch.count(scatter(7));
        (0..2000).for_each(|_| sketch.add(scatter(1)));
        assert_eq!(
            (sketch.count(scatter(1)), sketch.count(scatter(7))),
            (15 - 15 / 2 + 7, before / 2)
        );
    }
}
