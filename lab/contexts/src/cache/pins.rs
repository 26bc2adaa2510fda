//! Pins: the first packet of a message keeps its contexts in L1 until the last.
//!
//! *Owns*: what is pinned, until when. *Gives*: at most a quarter of L1. *Must not*: let a pin outlive its time.

use std::collections::{BTreeMap, VecDeque};

use super::ContextCache;
use crate::directory::{ContextPlace, PINNED};
use crate::handle::ContextHandle;

/// Pins, each until a time.
#[derive(Debug, Default)]
pub(super) struct Pins {
    until: BTreeMap<ContextHandle, u64>,
    /// In the order of their ends; those that ended early are skipped.
    ends: VecDeque<(u64, ContextHandle)>,
}

impl Pins {
    /// Whether a pin waits for the context or holds it.
    pub(super) fn is_wanted(&self, handle: ContextHandle) -> bool {
        self.until.contains_key(&handle)
    }

    pub(super) fn len(&self) -> usize {
        self.until.len()
    }

    /// Time at which the first pin ends.
    pub(super) fn end_at(&self) -> Option<u64> {
        self.ends.front().map(|(at, _)| *at)
    }
}

impl ContextCache {
    /// Keeps a context in L1, from when it is there until [`ContextCache::unpin`] or 100 us from now. Whether it may: a
    /// quarter of L1 can be pinned.
    pub fn pin(&mut self, handle: ContextHandle, now: u64) -> bool {
        self.advance(now);
        let is_new = !self.pins.is_wanted(handle);
        let is_full = self.pins.len() >= self.chip.entries() as usize / PINNED_PART;
        if self.directory.read(handle).is_none() || is_new && is_full {
            self.counts.pins_refused += 1;
            return false;
        }
        self.counts.pins += u64::from(is_new);
        self.pins.until.insert(handle, now + PIN_NS);
        self.pins.ends.push_back((now + PIN_NS, handle));
        self.repin(handle);
        true
    }

    /// The last packet of the message passed.
    pub fn unpin(&mut self, handle: ContextHandle) {
        if self.pins.until.remove(&handle).is_some() {
            self.flag_pinned(handle, false);
        }
    }

    /// A context that is in L1 has the flag of its pin.
    pub(super) fn repin(&self, handle: ContextHandle) {
        if self.pins.is_wanted(handle) {
            self.flag_pinned(handle, true);
        }
    }

    pub(super) fn end_pins(&mut self) {
        while self.pins.ends.front().is_some_and(|(at, _)| *at <= self.now) {
            let Some((at, handle)) = self.pins.ends.pop_front() else { return };
            if self.pins.until.get(&handle) == Some(&at) {
                self.counts.pins_expired += 1;
                self.unpin(handle);
            }
        }
    }

    fn flag_pinned(&self, handle: ContextHandle, is_pinned: bool) {
        let in_l1 = self.word(handle).filter(|word| word.place() == ContextPlace::L1);
        if let Some(word) = in_l1 {
            let flags = word.flags() & !PINNED | if is_pinned { PINNED } else { 0 };
            self.publish(handle, word, word.flagged(flags));
        }
    }
}

/// One of so many slots can be pinned.
const PINNED_PART: usize = 4;
/// Longest time of a pin.
const PIN_NS: u64 = 100_000;
