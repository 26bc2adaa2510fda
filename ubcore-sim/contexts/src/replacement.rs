//! Which slot of the chip is given up: the interface, and LRU.
//!
//! *Owns*: the order of slots. *Takes*: hits, insertions, removals. *Gives*: a victim, admission.
//! *Must not*: know a directory or a time.

/// A replacement policy over numbered slots; every call takes constant time. A miss is `on_miss`, then `insert` into an
/// empty slot, or `victim`, `admit` and, if that is true, `insert` into the victim's slot.
pub trait Replacement: std::fmt::Debug + Send {
    /// A context was found in the slot.
    fn on_hit(&mut self, slot: u32);
    /// The handle was not found; once for each miss, before anything else of it.
    fn on_miss(&mut self, handle: u32);
    /// Returns the slot that the handle would take. All slots are taken.
    fn victim(&mut self, handle: u32) -> u32;
    /// Whether the handle is worth the victim's slot.
    fn admit(&mut self, handle: u32, victim: u32) -> bool;
    /// The handle is in the slot, which was empty or the last victim's.
    fn insert(&mut self, handle: u32, slot: u32);
    /// The slot is empty: its context was destroyed or went down by its idle time.
    fn remove(&mut self, slot: u32);
    /// The victim may not leave now: the next one is another, where there is one.
    fn retain(&mut self, slot: u32);
}

/// Least recently used: a list through arrays.
#[derive(Debug)]
pub struct LruSlots {
    /// Neighbours of each slot, towards the older and the newer one; the last place is the head of the ring.
    links: Vec<(u32, u32)>,
    head: u32,
}

impl LruSlots {
    /// For so many slots.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self { links: (0..=slots).map(|slot| (slot, slot)).collect(), head: slots }
    }

    fn unlink(&mut self, slot: u32) {
        let (older, newer) = self.links[slot as usize];
        self.links[older as usize].1 = newer;
        self.links[newer as usize].0 = older;
        self.links[slot as usize] = (slot, slot);
    }

    fn link_newest(&mut self, slot: u32) {
        let newest = self.links[self.head as usize].0;
        self.links[slot as usize] = (newest, self.head);
        self.links[newest as usize].1 = slot;
        self.links[self.head as usize].0 = slot;
    }
}

impl Replacement for LruSlots {
    fn on_hit(&mut self, slot: u32) {
        self.unlink(slot);
        self.link_newest(slot);
    }

    fn on_miss(&mut self, _handle: u32) {}

    fn victim(&mut self, _handle: u32) -> u32 {
        self.links[self.head as usize].1
    }

    fn admit(&mut self, _handle: u32, _victim: u32) -> bool {
        true
    }

    fn insert(&mut self, _handle: u32, slot: u32) {
        self.on_hit(slot);
    }

    fn remove(&mut self, slot: u32) {
        self.unlink(slot);
    }

    fn retain(&mut self, slot: u32) {
        self.on_hit(slot);
    }
}
