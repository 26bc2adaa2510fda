//! A short ring of two-word entries between two threads of a process.
//!
//! One writer at a time, which another one may follow, and one reader, which gets each entry once and in order. No side
//! waits, and no entry costs a locked instruction.

use core::array;

use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

#[cfg(not(loom))]
/// Places of a ring.
pub const PLACES: usize = 64;
#[cfg(loom)]
/// Places of a ring in a model.
pub const PLACES: usize = 2;

/// One fewer entries than there are places wait at most: the place of the newest one taken stays as it was.
#[expect(clippy::cast_possible_truncation, reason = "a small number")]
pub const ENTRIES_MAX: u32 = PLACES as u32 - 1;

/// What a writer passes on.
pub type WordPair = [u64; 2];

/// A place of the ring: an entry, and what only the writer reads.
#[derive(Debug)]
#[repr(align(32))]
struct WordPairSlot {
    entry: [AtomicU64; 2],
    note: AtomicU32,
}

/// A ring of [`WordPair`].
#[derive(Debug)]
pub struct WordPairRing {
    /// Entries stored, free running.
    tail: AtomicU32,
    /// A writer has it.
    has_writer: AtomicBool,
    places: [WordPairSlot; PLACES],
    /// Entries taken, free running.
    head: WordPairIndex,
}

/// A word in a cache line that no other word of the ring shares.
#[derive(Debug)]
#[repr(align(128))]
struct WordPairIndex(AtomicU32);

/// The writing end: what it remembers of a [`WordPairRing`].
#[derive(Debug, Default)]
pub struct WordPairWriter {
    tail: u32,
    /// Entries that may wait; 0: it is the writer of no ring.
    most: u32,
}

/// The reading end: what it remembers of a [`WordPairRing`].
#[derive(Debug, Default)]
pub struct WordPairReader {
    head: u32,
}

impl Default for WordPairRing {
    fn default() -> Self {
        Self {
            tail: AtomicU32::new(0),
            has_writer: AtomicBool::new(false),
            places: array::from_fn(|_| WordPairSlot {
                entry: array::from_fn(|_| AtomicU64::new(0)),
                note: AtomicU32::new(0),
            }),
            head: WordPairIndex(AtomicU32::new(0)),
        }
    }
}

impl WordPairRing {
    /// Makes the caller the writer of up to `most` entries that wait; `None`: there is one, or entries of the one
    /// before wait.
    #[must_use]
    pub fn claim(&self, most: u32) -> Option<WordPairWriter> {
        let (free, mine) = (Ordering::Acquire, Ordering::AcqRel);
        self.has_writer.compare_exchange(false, true, mine, free).ok()?;
        let tail = self.tail.load(Ordering::Acquire);
        if self.head.0.load(Ordering::Acquire) != tail {
            self.has_writer.store(false, Ordering::Release);
            return None;
        }
        Some(WordPairWriter { tail, most: most.clamp(1, ENTRIES_MAX) })
    }

    /// Whether a writer has it, as far as one can see.
    pub fn has_writer(&self) -> bool {
        self.has_writer.load(Ordering::Relaxed)
    }

    /// Whether an entry waits, as far as one can see.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.0.load(Ordering::Acquire) == self.tail.load(Ordering::Acquire)
    }
}

impl WordPairWriter {
    /// Whether it is the writer of a ring.
    #[inline]
    #[must_use]
    pub fn is_claimed(&self) -> bool {
        self.most != 0
    }

    /// Entries for which there is room.
    #[inline]
    #[must_use]
    pub fn room(&self, of: &WordPairRing) -> u32 {
        self.most.saturating_sub(self.tail.wrapping_sub(self.taken(of)))
    }

    /// Passes an entry on, for which there is room, with a note for the writer; without room it overwrites one.
    #[inline(always)]
    pub fn push(&mut self, of: &WordPairRing, entry: WordPair, note: u32) {
        let place = &of.places[self.tail as usize % PLACES];
        place.entry[0].store(entry[0], Ordering::Relaxed);
        place.entry[1].store(entry[1], Ordering::Relaxed);
        place.note.store(note, Ordering::Relaxed);
        self.tail = self.tail.wrapping_add(1);
        of.tail.store(self.tail, Ordering::Release);
    }

    /// The note of the entry with this number, which was passed on and not overwritten.
    #[inline]
    #[must_use]
    pub fn note_of(&self, of: &WordPairRing, number: u32) -> u32 {
        of.places[number as usize % PLACES].note.load(Ordering::Relaxed)
    }

    /// Number of entries passed on, free running.
    #[inline(always)]
    #[must_use]
    pub fn pushed(&self) -> u32 {
        self.tail
    }

    /// Number of entries that the reader has taken, free running.
    #[inline]
    #[must_use]
    pub fn taken(&self, of: &WordPairRing) -> u32 {
        of.head.0.load(Ordering::Acquire)
    }

    /// Ends the writer: another one may follow.
    pub fn end(self, of: &WordPairRing) {
        of.has_writer.store(false, Ordering::Release);
    }
}

impl WordPairReader {
    /// Number of entries taken, free running.
    #[inline(always)]
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.head
    }

    /// Whether an entry waits.
    #[inline(always)]
    #[must_use]
    pub fn has_front(&self, of: &WordPairRing) -> bool {
        of.tail.load(Ordering::Acquire) != self.head
    }

    /// The oldest entry that waits.
    #[inline(always)]
    #[must_use]
    pub fn front(&self, of: &WordPairRing) -> Option<WordPair> {
        if !self.has_front(of) {
            return None;
        }
        let place = &of.places[self.head as usize % PLACES].entry;
        Some([place[0].load(Ordering::Relaxed), place[1].load(Ordering::Relaxed)])
    }

    /// Takes the oldest entry, which [`WordPairReader::front`] returned.
    #[inline(always)]
    pub fn take(&mut self, of: &WordPairRing) {
        self.head = self.head.wrapping_add(1);
        of.head.0.store(self.head, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(loom))]
    #[test]
    fn entries_come_once_in_order_and_room_comes_back() {
        let relay = WordPairRing::default();
        let (mut writer, mut reader) = (relay.claim(3).unwrap(), WordPairReader::default());
        assert!(relay.has_writer() && relay.claim(1).is_none(), "one writer at a time");
        let (mut next, mut taken) = (0, 0);
        for round in 0..200 {
            while writer.room(&relay) != 0 {
                let note = u32::try_from(next).unwrap();
                writer.push(&relay, [next, !next], note);
                next += 1;
            }
            assert_eq!(next - taken, 3);
            for _ in 0..=round % 3 {
                assert_eq!(reader.front(&relay), Some([taken, !taken]));
                reader.take(&relay);
                taken += 1;
            }
            assert_eq!(u64::from(writer.taken(&relay)), taken);
            assert_eq!(u64::from(writer.note_of(&relay, writer.taken(&relay) - 1)), taken - 1);
            assert_eq!(u64::from(writer.pushed()), next);
        }
        writer.end(&relay);
        assert!(!relay.is_empty() && relay.claim(1).is_none(), "what waits is of the one before");
        while reader.front(&relay).is_some() {
            reader.take(&relay);
        }
        assert!(relay.is_empty());
        assert_eq!(relay.claim(99).map(|writer| writer.most), Some(ENTRIES_MAX));
    }

    #[cfg(loom)]
    mod model {
        use super::*;
        use crate::sync::Arc;

        /// A mistake of the model.
        #[derive(Clone, Copy, PartialEq, Eq)]
        enum Planted {
            None,
            /// The number of entries is stored before the entry.
            CountedEarly,
            /// The entry is given up before it is read.
            TakenEarly,
            /// A writer follows while entries wait.
            ClaimedEarly,
        }

        fn push(
            writer: &mut WordPairWriter,
            relay: &WordPairRing,
            entry: WordPair,
            planted: Planted,
        ) {
            if planted == Planted::CountedEarly {
                relay.tail.store(writer.tail.wrapping_add(1), Ordering::Release);
            }
            writer.push(relay, entry, 0);
        }

        /// One writer after another, each of which says beside the ring who it is; the reader never sees an entry
        /// with another writer's name.
        fn entries_are_whole_and_of_their_writer(planted: Planted) {
            loom::model(move || {
                let relay = Arc::new(WordPairRing::default());
                let name = Arc::new(AtomicU64::new(0));
                let reading = {
                    let (relay, name) = (relay.clone(), name.clone());
                    loom::thread::spawn(move || {
                        let mut reader = WordPairReader::default();
                        let mut next = 1;
                        for _ in 0..3 {
                            let Some(mut entry) = reader.front(&relay) else {
                                loom::thread::yield_now();
                                continue;
                            };
                            if planted == Planted::TakenEarly {
                                reader.take(&relay);
                                entry = relay.places[reader.head.wrapping_sub(1) as usize % PLACES]
                                    .entry
                                    .each_ref()
                                    .map(|word| word.load(Ordering::Relaxed));
                            }
                            let by = name.load(Ordering::Relaxed);
                            assert_eq!(entry, [next, by], "not the entry of its writer");
                            if planted != Planted::TakenEarly {
                                reader.take(&relay);
                            }
                            next += 1;
                        }
                    })
                };
                let mut next = 1;
                for by in 1..3 {
                    let claimed = match planted {
                        Planted::ClaimedEarly => Some(WordPairWriter {
                            tail: relay.tail.load(Ordering::Acquire),
                            most: ENTRIES_MAX,
                        }),
                        _ => relay.claim(ENTRIES_MAX),
                    };
                    let Some(mut writer) = claimed else { continue };
                    name.store(by, Ordering::Relaxed);
                    for _ in 0..2 {
                        if writer.room(&relay) != 0 {
                            push(&mut writer, &relay, [next, by], planted);
                            next += 1;
                        }
                    }
                    writer.end(&relay);
                }
                reading.join().unwrap();
            });
        }

        #[test]
        fn loom_entries_are_whole_and_of_their_writer() {
            entries_are_whole_and_of_their_writer(Planted::None);
        }

        #[test]
        #[should_panic(expected = "not the entry of its writer")]
        fn loom_catches_an_entry_counted_before_it_is_stored() {
            entries_are_whole_and_of_their_writer(Planted::CountedEarly);
        }

        #[test]
        #[should_panic(expected = "not the entry of its writer")]
        fn loom_catches_an_entry_given_up_before_it_is_read() {
            entries_are_whole_and_of_their_writer(Planted::TakenEarly);
        }

        #[test]
        #[should_panic(expected = "not the entry of its writer")]
        fn loom_catches_a_writer_that_follows_too_early() {
            entries_are_whole_and_of_their_writer(Planted::ClaimedEarly);
        }
    }
}
