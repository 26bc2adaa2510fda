//! Which slot of the chip is given up: the interface, and LRU.
//!
//! *Owns*: the order of slots. *Takes*: hits, insertions, removals. *Gives*: a victim, admission.
//! *Must not*: know a directory or a time.

/// A replacement policy over numbered slots; every call takes constant time.
pub trait Replacement: std::fmt::Debug + Send {
    /// A context was found in the slot.
    fn on_hit(&mut self, slot: u32);
    /// The handle was put into a free slot.
    fn insert(&mut self, slot: u32, handle: u32);
    /// Returns the slot to give up next; `None`: no slot is taken.
    fn victim(&mut self) -> Option<u32>;
    /// Whether the handle is worth the victim's slot. Asked once for each miss while no slot is free.
    fn admit(&mut self, handle: u32, victim: u32) -> bool;
    /// The slot is free again.
    fn remove(&mut self, slot: u32);
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

    fn insert(&mut self, slot: u32, _handle: u32) {
        self.link_newest(slot);
    }

    fn victim(&mut self) -> Option<u32> {
        let oldest = self.links[self.head as usize].1;
        (oldest != self.head).then_some(oldest)
    }

    fn admit(&mut self, _handle: u32, _victim: u32) -> bool {
        true
    }

    fn remove(&mut self, slot: u32) {
        self.unlink(slot);
    }
}
