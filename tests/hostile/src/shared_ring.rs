//! The ring between two processes when the other side breaks its rules.
//!
//! *Owns*: the promises of both ends. *Takes*: steps of the hostile side. *Gives*: a panic when a
//! promise is broken. *Must not*: use more of the ring than its public face, so that other
//! implementations (a deliberately trusting one) can be held against the same promises.
//!
//! The reader: what it hands out lies inside what was published; its head never passes the tail; it
//! writes nothing but its head; after an impossible value it reports nothing more; while the
//! producer is honest it is a queue. The writer: what was published and not given back is never
//! overwritten, whatever the consumer claims; it writes nothing of the consumer's; after an
//! impossible value it accepts nothing more.

use std::collections::VecDeque;

use urma_mem::{
    Pages, Region,
    spsc::{Consumer, KIND_WRAP, LINE_LEN, Producer, ReserveError, half_len},
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
    let capacity = 64 << (2 * (choice % 4));
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
    (half(half_len(capacity)), half(2 * LINE_LEN))
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
    // Greatest tail that was ever shown: the reader may remember it.
    let mut published = 0;
    while let Some(step) = bytes.byte() {
        match step % 4 {
            0 => {
                let words = entries.len() / 8;
                let (Some(at), Some(value)) = (bytes.below(words), bytes.odd_word()) else {
                    return;
                };
                // Words of the tail line behind the tail mean nothing.
                lied |= at == 0 || at >= LINE_LEN / 8;
                entries.store_u64_release(at * 8, value).expect("inside");
                published = published.max(entries.load_u64(0).expect("inside"));
            }
            1 if !lied => {
                let Some(len) = bytes.below(capacity) else { return };
                let head = heads.load_u64(0).expect("inside");
                honest.publish(len, head);
                published = published.max(entries.load_u64(0).expect("inside"));
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
                        let inside = after > before && after <= published;
                        assert!(inside, "head {after} of {published} published");
                        assert!(after - before <= capacity as u64, "more than the ring");
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
        let size = 8 + len.next_multiple_of(8);
        let to_end = self.capacity - self.tail % self.capacity;
        let skip = if size <= to_end { 0 } else { to_end };
        let head = usize::try_from(head).unwrap_or(usize::MAX);
        if self.tail + skip + size - head > self.capacity {
            return;
        }
        if skip != 0 {
            self.header(self.tail, skip - 8, KIND_WRAP);
        }
        let start = self.tail + skip;
        let kind = u32::try_from(start).unwrap_or(0);
        let bytes: Vec<u8> = (0..len).map(|index| (start + index).to_le_bytes()[0]).collect();
        let at = LINE_LEN + start % self.capacity + 8;
        self.entries.write(at, &bytes).expect("room was looked at");
        self.header(start, len, kind);
        self.tail = start + size;
        self.entries.store_u64_release(0, self.tail as u64).expect("inside");
        self.queue.push_back((kind, bytes));
    }

    fn header(&self, position: usize, len: usize, kind: u32) {
        let header = u64::from(kind) << 32 | len as u64;
        let at = LINE_LEN + position % self.capacity;
        self.entries.store_u64(at, header).expect("inside");
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
    let (mut number, mut refused, mut lied) = (0_u32, false, false);
    while let Some(step) = bytes.byte() {
        let tail = entries.load_u64(0).expect("inside");
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
                if (freed..=tail).contains(&said) && said % 8 == 0 {
                    freed = said;
                }
                let memory = contents(&heads);
                let put = writer.put(number, &entry);
                number += 1;
                assert_eq!(contents(&heads), memory, "the writer wrote the consumer's half");
                let after = entries.load_u64(0).expect("inside");
                match put {
                    Put::Done => {
                        let size = 8 + (len as u64).next_multiple_of(8);
                        assert!(after >= tail + size, "the tail did not move far enough");
                        let outstanding = after - freed;
                        assert!(outstanding <= capacity as u64, "{outstanding} bytes in the ring");
                        live.push_back((after - size, after, entry));
                    }
                    Put::NoRoom | Put::Refused => assert_eq!(after, tail, "the tail moved"),
                }
                assert!(!refused || put != Put::Done, "it continued after an impossible value");
                refused |= put == Put::Refused;
            }
        }
        live.retain(|(start, _, _)| *start >= freed);
        for (start, _, entry) in &live {
            let at = LINE_LEN + usize::try_from(*start).unwrap_or(0) % capacity + 8;
            let mut seen = vec![0; entry.len()];
            entries.read(at, &mut seen).expect("inside");
            assert_eq!(seen, *entry, "an entry that was not given back was overwritten");
        }
    }
}
