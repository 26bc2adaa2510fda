//! Event rings: how an entry, its count and the descriptor that a program sleeps on come together.
//!
//! Owns: the indices of the writing side, the order in which counts are raised, what becomes of a count whose entry is not
//! there. Takes: entries that were stored, counts of an eventfd. Gives: at most one count for each entry, never before
//! that is stored; one event for each count. Must not: store entries itself; consume a count for which there is no entry;
//! wait.
//!
//! Several threads write events. The one with the later place may be done first: its count would reach the reader before
//! the entry that the reader looks at. So the thread that finds the next entry in order stored raises its count, and those
//! of the entries behind it that are stored, too. A device of another make may still count first: the reader puts such a count
//! back, so that the descriptor is readable when the entry comes.

use crate::sync::{AtomicBool, AtomicU64, Ordering};

mod armed;
#[cfg(test)]
mod tests;

pub use armed::{ArmKind, ArmedIndices, ShownArm};

/// The writing side of a ring.
#[derive(Debug)]
pub struct EventWriter {
    depth: u64,
    claimed: AtomicU64,
    next: AtomicU64,
    /// Consumer index, as the reader reported it.
    consumed: AtomicU64,
    /// An event found no room: look for pending events when the reader moves.
    refused: AtomicBool,
    /// One bit for each place, changed when its entry is stored: set in even passes of the ring, clear in odd ones.
    stored: Box<[AtomicU64]>,
    /// Entries whose counts are raised, or are about to be.
    counted: AtomicU64,
}

impl EventWriter {
    /// Of a ring of `depth` places, a power of two.
    #[must_use]
    pub fn new(depth: u64) -> Self {
        let zero = || AtomicU64::new(0);
        let words = depth.div_ceil(WORD_BITS);
        Self {
            depth,
            claimed: zero(),
            next: zero(),
            consumed: zero(),
            refused: AtomicBool::new(false),
            stored: (0..words).map(|_| zero()).collect(),
            counted: zero(),
        }
    }

    /// The place of a new entry, free running; the caller stores it, then calls [`EventWriter::on_stored`]. `None`: the ring
    /// is full, and [`EventWriter::on_consumed`] says when to try again.
    pub fn claim(&self) -> Option<u64> {
        for _ in 0..CLAIM_TRIES {
            let claimed = self.claimed.fetch_add(1, Ordering::SeqCst);
            if claimed.wrapping_sub(self.consumed.load(Ordering::SeqCst)) < self.depth {
                return Some(self.next.fetch_add(1, Ordering::SeqCst));
            }
            self.claimed.fetch_sub(1, Ordering::SeqCst);
            // The reader may have moved before it could see the word: then this tries once more.
            self.refused.store(true, Ordering::SeqCst);
        }
        None
    }

    /// Whether the entry at `at` has the owner bit set.
    #[must_use]
    pub const fn owner(&self, at: u64) -> bool {
        (at / self.depth) & 1 == 0
    }

    /// The entry at `at` is stored. Calls `raise` once for each entry that is due.
    pub fn on_stored(&self, at: u64, mut raise: impl FnMut()) {
        let (word, bit) = self.bit(at);
        word.fetch_xor(bit, Ordering::SeqCst);
        // Each time round another entry is counted, by this thread or by one that also goes on.
        loop {
            let next = self.counted.load(Ordering::SeqCst);
            let (word, bit) = self.bit(next);
            let is_stored = (word.load(Ordering::SeqCst) & bit != 0) == self.owner(next);
            if !is_stored {
                return;
            }
            let done =
                self.counted.compare_exchange(next, next + 1, Ordering::SeqCst, Ordering::SeqCst);
            if done.is_ok() {
                raise();
            }
        }
    }

    /// Whether a place is free now; if none is, [`EventWriter::on_consumed`] says when one is. The caller has put a refused
    /// event where it waits: the refusal itself may have been answered before it was there.
    pub fn is_free_or_refused(&self) -> bool {
        self.refused.store(true, Ordering::SeqCst);
        let claimed = self.claimed.load(Ordering::SeqCst);
        claimed.wrapping_sub(self.consumed.load(Ordering::SeqCst)) < self.depth
    }

    /// The reader's index moved (free running, 32 bits). `None`: an impossible value. `Some(true)`: events were refused
    /// before and may fit now.
    pub fn on_consumed(&self, index: u32) -> Option<bool> {
        let before = self.consumed.load(Ordering::SeqCst);
        #[expect(clippy::cast_possible_truncation, reason = "free running index of 32 bits")]
        let moved = u64::from(index.wrapping_sub(before as u32));
        if before + moved > self.next.load(Ordering::SeqCst) {
            return None;
        }
        self.consumed.store(before + moved, Ordering::SeqCst);
        Some(self.refused.swap(false, Ordering::SeqCst))
    }

    fn bit(&self, at: u64) -> (&AtomicU64, u64) {
        let place = at % self.depth;
        let word = usize::try_from(place / WORD_BITS).unwrap_or(0);
        (&self.stored[word], 1 << (place % WORD_BITS))
    }
}

/// What a reader has of a ring: the descriptor's count, and entries.
pub trait EventSource {
    /// What an entry says.
    type Event;

    /// Takes one count, if there is one.
    fn take_count(&mut self) -> bool;

    /// Adds one count: the descriptor is readable.
    fn give_count(&mut self);

    /// Takes the next entry, if it is stored.
    fn take_entry(&mut self) -> Option<Self::Event>;

    /// Whether the next entry is stored.
    fn has_entry(&self) -> bool;
}

/// What a look at a ring gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventLook<E> {
    /// An event, and its count, were taken.
    Taken(E),
    /// No event is there, or its count came first.
    Nothing,
    /// A count is there whose entry never came: it was dropped.
    CountDropped,
}

/// The reading side of a ring.
#[derive(Debug, Default)]
pub struct EventReader {
    /// Looks in a row that found a count without an entry.
    vain: u32,
}

impl EventReader {
    /// The next event where each entry has one count: the descriptor is readable exactly while an event is unconsumed.
    pub fn next<S: EventSource>(&mut self, source: &mut S) -> EventLook<S::Event> {
        if !source.take_count() {
            return EventLook::Nothing;
        }
        if let Some(event) = source.take_entry() {
            self.vain = 0;
            return EventLook::Taken(event);
        }
        self.vain += 1;
        if self.vain > VAIN_MAX {
            self.vain = 0;
            return EventLook::CountDropped;
        }
        source.give_count();
        EventLook::Nothing
    }

    /// The next event where one count may stand for several, or come when its event was taken already: the entries count,
    /// and the descriptor is made readable for those that are left.
    pub fn next_of_merged<S: EventSource>(&mut self, source: &mut S) -> EventLook<S::Event> {
        // Before the look: what comes later is either seen by it or counted.
        while source.take_count() {}
        let event = source.take_entry();
        if source.has_entry() {
            source.give_count();
        }
        event.map_or(EventLook::Nothing, EventLook::Taken)
    }
}

const WORD_BITS: u64 = 64;
/// Attempts to get a place while the reader moves.
const CLAIM_TRIES: u32 = 2;
/// Looks in a row that may find a count before its entry: a device that counts first needs a few, one that counts for
/// nothing must not keep its reader awake.
pub const VAIN_MAX: u32 = 1 << 12;
