//! The ring between two processes when the other side breaks its rules.
//!
//! *Owns*: the promises of both ends. *Takes*: steps of the hostile side. *Gives*: a panic when a
//! promise is broken. *Must not*: use more of the ring than its public face, so that other
//! implementations (a deliberately trusting one) can be held against the same promises.
//!
//! The reader: what it hands out is inside the ring; its head moves by whole entries; it writes
//! nothing but its head; after an impossible value it reports nothing more; while the
//! producer is honest it is a queue. The writer: what was published and not given back is never
//! overwritten, whatever the consumer claims; it writes nothing of the consumer's; after an
//! impossible value it accepts nothing more.

use std::collections::VecDeque;

use urma_mem::{
    Pages, Region,
    spsc::{Consumer, ENTRY_ALIGN, KIND_WRAP, LINE_LEN, Producer, ReserveError},
};

use crate::Bytes;

/// What a reader found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The ring has no published entry.
    Nothing,
    /// An entry, which was given back.
    Entry(u32, Vec<u8>),
    /// The producer broke the rules of the ring, and the consumer refused it.
    Refused,
}

/// The end that reads, under test.
pub trait Reader {
    /// Takes the next entry and gives its room back.
    fn take(&mut self) -> Taken;
}

/// What became of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// The entry was published.
    Done,
    /// No room, or too long.
    NoRoom,
    /// The consumer broke the rules of the ring, and the producer refused it.
    Refused,
}

/// The end that writes, under test.
pub trait Writer {
    /// Publishes an entry of this kind with these bytes.
    fn put(&mut self, kind: u32, bytes: &[u8]) -> Put;
}

impl Reader for Consumer {
    fn take(&mut self) -> Taken {
        match self.next_entry() {
            Ok(None) => Taken::Nothing,
            Err(_) => Taken::Refused,
            Ok(Some(entry)) => {
                let mut bytes = vec![0; entry.len()];
                entry.read(0, &mut bytes).expect("an entry lies inside its ring");
                let mut more = [0];
                assert!(entry.read(bytes.len(), &mut more).is_err(), "bytes beyond an entry");
                let kind = entry.kind();
                entry.done();
                Taken::Entry(kind, bytes)
            }
        }
    }
}

impl Writer for Producer {
    fn put(&mut self, kind: u32, bytes: &[u8]) -> Put {
        match self.reserve(bytes.len()) {
            Err(ReserveError::Full | ReserveError::TooLong) => Put::NoRoom,
            Err(ReserveError::Corrupt(_)) => Put::Refused,
            Ok(mut slot) => {
                slot.write(0, bytes).expect("a slot has the room it was reserved with");
                slot.publish(kind).expect("the kind is not the reserved one");
                Put::Done
            }
        }
    }
}

/// The fuzz target: one end against a hostile other end.
pub fn shared_ring(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let Some(choice) = bytes.byte() else { return };
    let capacity = 256 << (2 * (choice % 4));
    if choice & 0x80 == 0 {
        reader(bytes, capacity, |heads, entries| {
            Consumer::new(heads, entries, capacity).expect("the layout is right")
        });
    } else {
        writer(bytes, capacity, |entries, heads| {
            Producer::new(entries, heads, capacity).expect("the layout is right")
        });
    }
}

fn halves(capacity: usize) -> (Region, Region) {
    let half = |len| Region::shared(len, Pages::Base).expect("memory for a test");
    (half(capacity), half(2 * LINE_LEN))
}

fn contents(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read(0, &mut bytes).expect("all of it");
    bytes
}

/// Holds a reader against its promises; `open` makes it from the head's half and the entries' half.
pub fn reader<R: Reader>(
    mut bytes: Bytes<'_>,
    capacity: usize,
    open: impl FnOnce(Region, Region) -> R,
) {
    let (entries, heads) = halves(capacity);
    let mut reader = open(heads.clone(), entries.clone());
    let mut honest = Honest { entries: entries.clone(), capacity, tail: 0, queue: VecDeque::new() };
    let (mut lied, mut refused) = (false, false);
    while let Some(step) = bytes.byte() {
        match step % 4 {
            0 => {
                let words = capacity / 8;
                let (Some(at), Some(value)) = (bytes.below(words), bytes.odd_word()) else {
                    return;
                };
                lied = true;
                entries.store_u64_release(at * 8, value).expect("inside");
            }
            1 if !lied => {
                let Some(len) = bytes.below(capacity) else { return };
                let head = heads.load_u64(0).expect("inside");
                honest.publish(len, head);
            }
            _ => {
                let (before, memory) = (heads.load_u64(0).expect("inside"), contents(&entries));
                let taken = reader.take();
                let after = heads.load_u64(0).expect("inside");
                assert_eq!(contents(&entries), memory, "the reader wrote the producer's half");
                let rest = contents(&heads);
                assert!(
                    rest[8..].iter().all(|byte| *byte == 0),
                    "the reader wrote beyond its head"
                );
                match &taken {
                    Taken::Entry(_, entry) => {
                        assert!(after > before, "head {after} after {before}");
                        assert!(after.is_multiple_of(ENTRY_ALIGN as u64), "head {after}");
                        assert!(after - before <= capacity as u64, "more than the ring");
                        let room = capacity as u64 - (before % capacity as u64);
                        let wraps = after - before > room;
                        assert!(
                            !wraps || before % capacity as u64 != 0,
                            "a marker of the whole ring"
                        );
                        assert!(entry.len() as u64 + 8 <= after - before, "longer than its room");
                    }
                    Taken::Nothing | Taken::Refused => assert_eq!(after, before, "the head moved"),
                }
                if refused {
                    assert_eq!(taken, Taken::Refused, "it continued after an impossible value");
                }
                refused = taken == Taken::Refused;
                if !lied {
                    let due = honest.queue.pop_front();
                    let due = due.map_or(Taken::Nothing, |(kind, bytes)| Taken::Entry(kind, bytes));
                    assert_eq!(taken, due, "an honest ring is a queue");
                }
            }
        }
    }
}

/// A producer that keeps the rules, written down a second time.
struct Honest {
    entries: Region,
    capacity: usize,
    tail: usize,
    queue: VecDeque<(u32, Vec<u8>)>,
}

impl Honest {
    fn publish(&mut self, len: usize, head: u64) {
        let len = len % (self.capacity / 2 - 7);
        let size = (8 + len).next_multiple_of(ENTRY_ALIGN);
        let to_end = self.capacity - self.tail % self.capacity;
        let skip = if size <= to_end { 0 } else { to_end };
        let head = usize::try_from(head).unwrap_or(usize::MAX);
        // The place of the next header stays free.
        if self.tail + skip + size + ENTRY_ALIGN - head > self.capacity {
            return;
        }
        let start = self.tail + skip;
        let kind = u32::try_from(start).unwrap_or(0) + 1;
        let bytes: Vec<u8> = (0..len).map(|index| (start + index).to_le_bytes()[0]).collect();
        let at = start % self.capacity + 8;
        self.entries.write(at, &bytes).expect("room was looked at");
        self.word(start + size, 0);
        self.word(start, u64::from(kind) << 32 | len as u64);
        if skip != 0 {
            self.word(self.tail, u64::from(KIND_WRAP) << 32 | (skip - 8) as u64);
        }
        self.tail = start + size;
        self.queue.push_back((kind, bytes));
    }

    fn word(&self, position: usize, word: u64) {
        self.entries.store_u64_release(position % self.capacity, word).expect("inside");
    }
}

/// Holds a writer against its promises; `open` makes it from the entries' half and the head's half.
pub fn writer<W: Writer>(
    mut bytes: Bytes<'_>,
    capacity: usize,
    open: impl FnOnce(Region, Region) -> W,
) {
    let (entries, heads) = halves(capacity);
    let mut writer = open(entries.clone(), heads.clone());
    // Greatest head that an honest consumer could have shown.
    let mut freed = 0;
    let mut live = VecDeque::<(u64, u64, Vec<u8>)>::new();
    let mut tail = 0;
    let (mut number, mut refused, mut lied) = (1_u32, false, false);
    while let Some(step) = bytes.byte() {
        match step % 4 {
            0 => {
                let Some(value) = bytes.odd_word() else { return };
                lied = true;
                heads.store_u64_release(0, value).expect("inside");
            }
            1 if !lied => {
                let Some((_, end, _)) = live.front() else { continue };
                freed = (*end).max(freed);
                heads.store_u64_release(0, freed).expect("inside");
            }
            _ => {
                let Some(len) = bytes.below(capacity) else { return };
                let entry = vec![number.to_le_bytes()[0]; len];
                // A value of the other side counts when it is possible by now, honest or not.
                let said = heads.load_u64(0).expect("inside");
                if (freed..=tail).contains(&said) && said.is_multiple_of(ENTRY_ALIGN as u64) {
                    freed = said;
                }
                let memory = contents(&heads);
                let put = writer.put(number, &entry);
                assert_eq!(contents(&heads), memory, "the writer wrote the consumer's half");
                if put == Put::Done {
                    let start = start_of(&entries, (tail, capacity), len, number);
                    let end = start + (8 + len as u64).next_multiple_of(ENTRY_ALIGN as u64);
                    let outstanding = end - freed;
                    assert!(outstanding < capacity as u64, "{outstanding} bytes in the ring");
                    assert_eq!(word(&entries, end, capacity), 0, "no place for the next header");
                    live.push_back((start, end, entry));
                    tail = end;
                }
                number += 1;
                assert!(!refused || put != Put::Done, "it continued after an impossible value");
                refused |= put == Put::Refused;
            }
        }
        live.retain(|(start, _, _)| *start >= freed);
        for (start, _, entry) in &live {
            let at = usize::try_from(*start).unwrap_or(0) % capacity + 8;
            let mut seen = vec![0; entry.len()];
            entries.read(at, &mut seen).expect("inside");
            assert_eq!(seen, *entry, "an entry that was not given back was overwritten");
        }
    }
}

/// Where the entry begins that was published at `tail`: there, or behind a wrap marker.
fn start_of(entries: &Region, (tail, capacity): (u64, usize), len: usize, kind: u32) -> u64 {
    let to_end = capacity as u64 - tail % capacity as u64;
    let marker = u64::from(KIND_WRAP) << 32 | (to_end - 8);
    let start = if word(entries, tail, capacity) == marker { tail + to_end } else { tail };
    let header = u64::from(kind) << 32 | len as u64;
    assert_eq!(word(entries, start, capacity), header, "a header that is not there");
    start
}

fn word(entries: &Region, position: u64, capacity: usize) -> u64 {
    let at = usize::try_from(position % capacity as u64).unwrap_or(0);
    entries.load_u64(at).expect("inside")
}
