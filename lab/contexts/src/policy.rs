//! Replacement policies: which slot of a full cache is used again, and whether a handle that missed is let in.
//!
//! - owns: order, counts and ghosts of each policy. takes: hits, misses, insertions by slot and handle. gives: victims.
//! - must not: know what a slot holds, read a clock.
//!
//! An access is one of three: `on_hit`; `on_miss` and `insert` into an empty slot; `on_miss`, `victim`, `admit` and, if
//! that is true, `insert` into the victim's slot. Between `on_miss` and the rest other accesses may lie: a fetch takes
//! time.

use std::fmt;

mod counted;
mod fifos;
pub mod kind;
mod lirs;
mod ours;
mod prints;
mod published;
pub mod seed;
mod w_tiny_lfu;

/// LRU for so many slots, all empty.
#[must_use]
pub fn lru(slots: u32) -> Box<dyn Policy> {
    Box::new(published::OneList::new(published::HitRule::Lru, slots))
}

/// The policy of this project for so many slots, all empty.
#[must_use]
pub fn ours(slots: u32) -> Box<dyn Policy> {
    Box::new(ours::Ours::new(slots))
}

/// Number of a slot of the cache, below its capacity.
pub type PolicySlot = u32;

/// A replacement policy. Every call takes a constant time in the mean, whatever the capacity.
pub trait Policy: fmt::Debug + Send {
    /// Counts a hit of the handle in `slot`.
    fn on_hit(&mut self, slot: PolicySlot);

    /// Counts a miss of `handle`, once per miss and before anything else of it.
    fn on_miss(&mut self, handle: u32);

    /// Returns the slot that `handle` would replace. All slots are in use; the victim stays until `insert` names its slot.
    fn victim(&mut self, handle: u32) -> PolicySlot;

    /// Returns whether `handle` may replace what is in `victim`, a slot that `victim` returned for it.
    fn admit(&mut self, handle: u32, victim: PolicySlot) -> bool;

    /// Puts `handle` into `slot`: an empty one, or the last victim, whose handle leaves with that.
    fn insert(&mut self, handle: u32, slot: PolicySlot);

    /// Takes out what is in `slot`: the object was destroyed. The slot is empty afterwards.
    fn remove(&mut self, slot: PolicySlot);

    /// Keeps a victim that may not leave now (pinned). The next `victim` returns another slot, unless the policy values this one
    /// least all the same: a count that is still the lowest, a queue of one slot.
    fn retain(&mut self, slot: PolicySlot);
}
