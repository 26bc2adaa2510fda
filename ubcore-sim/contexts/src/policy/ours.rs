//! Ours: a small FIFO of newcomers and a main FIFO, both of 2 bytes per slot; fingerprints of what left either, which also
//! move the border between them; and a sketch of use, by which the main FIFO chooses its victim of four.
//!
//! What is counted in the sketch are misses and the first hit in the main FIFO since a slot was last spared: the
//! messages of one burst, or of one turn of interleaved flows, count once.
//!
//! Memory per entry: 2 bytes in the slot (`Fifos`); beside the slots 4 bytes of fingerprints and 8 to 16 bytes of sketch. The
//! handle of a slot is the cache's own, of which `handles` is a copy.
//!
//! - owns: queues, fingerprints, sketch, border. takes: hits, misses, insertions. gives: victims.
//! - must not: take more than a constant time.

use super::fifos::{FifoKind, Fifos};
use super::prints::Prints;
use super::sketch::Sketch;
use super::{Policy, PolicySlot};

/// Slots of the main FIFO of which the least used one is the victim.
const CHOICE: u32 = 4;
/// Hits in the small FIFO that lead to the main one.
const TO_MAIN: u16 = 2;
/// Most slots that one victim spares: beyond, hits do not count.
const SPARED_MOST: u32 = 256;
/// Units of the size of the small FIFO: sixteenths of a slot.
const UNIT: u64 = 16;
/// Steps of that size at a return, in units, by how many more fingerprints the other queue has.
const STEP: (u64, u64) = (8, 64);

/// Queues, fingerprints and sketch of our policy.
#[derive(Clone, Debug)]
pub(super) struct Ours {
    queues: Fifos,
    handles: Vec<u32>,
    /// What left the small and the main FIFO.
    left: [Prints; 2],
    sketch: Sketch,
    /// Target size of the small FIFO in units; from 1 % to 80 % of the capacity.
    small: u64,
    capacity: u32,
    /// The group of the next victim.
    group: usize,
    victim: Option<PolicySlot>,
    /// The last miss, and whether its handle was among those that left: `insert` need not look again.
    missed: Option<(u32, bool)>,
    /// Whether anything was evicted: before, what the small FIFO has no room for goes to the main one.
    evicted: bool,
}

impl Ours {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            queues: Fifos::new(capacity),
            handles: vec![0; capacity as usize],
            left: [Prints::new(capacity), Prints::new(capacity)],
            sketch: Sketch::new(capacity),
            small: (u64::from(capacity) * UNIT / 10).max(UNIT),
            capacity,
            group: 0,
            victim: None,
            missed: None,
            evicted: false,
        }
    }

    /// Whether the small FIFO of a group has its size.
    fn small_is_full(&self, group: usize) -> bool {
        let len = u64::from(self.queues.len(group, FifoKind::Small));
        len * UNIT * self.queues.groups() as u64 >= self.small
    }

    fn used(&self, slot: PolicySlot) -> u64 {
        self.sketch.count(self.handles[slot as usize])
    }

    /// The least used of up to four slots of the main FIFO without hits; it becomes the oldest. The queue is not empty.
    fn main_victim(&mut self, group: usize) -> PolicySlot {
        let mut best = self.next_of_main(group);
        let mut least = self.used(best);
        for _ in 1..CHOICE.min(self.queues.len(group, FifoKind::Main) + 1) {
            let slot = self.next_of_main(group);
            let used = self.used(slot);
            let (kept, left) = if used < least { (best, slot) } else { (slot, best) };
            (best, least) = (left, least.min(used));
            self.queues.push(FifoKind::Main, kept);
        }
        self.queues.push_oldest(FifoKind::Main, best);
        best
    }

    /// Takes the oldest slot of the main FIFO out that has no hits; those with hits lose one and become the newest.
    fn next_of_main(&mut self, group: usize) -> PolicySlot {
        for _ in 0..SPARED_MOST {
            let slot = self.queues.oldest(group, FifoKind::Main);
            let count = self.queues.count(slot);
            if count == 0 {
                break;
            }
            self.queues.pop(group, FifoKind::Main);
            self.queues.push(FifoKind::Main, slot);
            self.queues.set_count(slot, count - 1);
        }
        self.queues.pop(group, FifoKind::Main)
    }

    /// Takes the last victim out of its queue, of which it is the oldest; that queue.
    fn unlink(&mut self, victim: PolicySlot) -> Option<FifoKind> {
        let queue = self.queues.queue_of(victim)?;
        self.queues.pop(self.queues.group_of(victim), queue);
        Some(queue)
    }
}

impl Policy for Ours {
    fn on_hit(&mut self, slot: PolicySlot) {
        let count = self.queues.count(slot);
        self.queues.set_count(slot, count + 1);
        if count == 0 && self.queues.queue_of(slot) == Some(FifoKind::Main) {
            self.sketch.add(self.handles[slot as usize]);
        }
    }

    fn on_miss(&mut self, handle: u32) {
        self.sketch.add(handle);
        let [small, main] = &self.left;
        let step = |other: &Prints, own: &Prints| {
            (STEP.0 * u64::from(other.len()) / u64::from(own.len().max(1))).clamp(STEP.0, STEP.1)
        };
        let capacity = u64::from(self.capacity);
        let (in_small, in_main) = (small.has(handle), main.has(handle));
        self.missed = Some((handle, in_small || in_main));
        if in_small {
            let most = (capacity * UNIT * 4 / 5).max(UNIT);
            self.small = (self.small + step(main, small)).min(most);
        } else if in_main {
            let least = (capacity * UNIT / 100).max(UNIT);
            self.small = self.small.saturating_sub(step(small, main)).max(least);
        }
    }

    fn victim(&mut self, _handle: u32) -> PolicySlot {
        let group = self.group;
        let victim = loop {
            let small = self.queues.len(group, FifoKind::Small);
            let main = self.queues.len(group, FifoKind::Main);
            if small == 0 || (main > 0 && !self.small_is_full(group)) {
                break self.main_victim(group);
            }
            let slot = self.queues.oldest(group, FifoKind::Small);
            if self.queues.count(slot) < TO_MAIN {
                break slot;
            }
            self.queues.pop(group, FifoKind::Small);
            self.queues.push(FifoKind::Main, slot);
        };
        self.victim = Some(victim);
        victim
    }

    fn admit(&mut self, _handle: u32, _victim: PolicySlot) -> bool {
        true
    }

    fn insert(&mut self, handle: u32, slot: PolicySlot) {
        let new = self.missed.take() == Some((handle, false));
        let returned = !new && (self.left[0].take(handle) | self.left[1].take(handle));
        if self.victim.take() == Some(slot) {
            if let Some(queue) = self.unlink(slot) {
                self.left[queue as usize].put(self.handles[slot as usize]);
            }
            self.evicted = true;
            self.group = (self.group + 1) % self.queues.groups();
        }
        self.handles[slot as usize] = handle;
        if self.queues.queue_of(slot).is_some() {
            // An object was destroyed: its slot keeps its place.
            self.queues.set_count(slot, 0);
            return;
        }
        let fill = !self.evicted && self.small_is_full(self.queues.group_of(slot));
        self.queues.push(if returned || fill { FifoKind::Main } else { FifoKind::Small }, slot);
    }

    fn remove(&mut self, slot: PolicySlot) {
        self.queues.set_count(slot, 0);
    }

    fn retain(&mut self, slot: PolicySlot) {
        if self.victim.take() == Some(slot) && self.unlink(slot).is_some() {
            self.queues.push(FifoKind::Main, slot);
        }
    }
}
