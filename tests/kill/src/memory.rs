//! A worker's memory: areas, the words that writes leave, and the check of what a peer wrote.
//!
//! *Owns*: the layout and the words. *Takes*: plans. *Gives*: counts of wrong words. *Must not*:
//! write where the peer writes.
//!
//! Every word that a write stores names its request, so that after a kill in the middle of a copy
//! each word can still be judged: it must be of a request that writes there, and where the last word
//! of a request is seen, all of its words must be there (or those of a later one).

use std::io;

use urma_mem::Region;

use crate::plan::{MESSAGE_MAX, Mix, Op, Planned, SLOT_COUNT, SLOT_LEN, SLOTS, mix, planned};

/// Offset of the first counter (FETCH_ADD).
pub const ADDED: usize = 0;
/// Offset of the second counter (CAS).
pub const SWAPPED: usize = 64;
/// Words that WRITE_NOTIFY stores, one per slot.
const NOTICES: usize = 128;
/// Words that ordered pairs of writes step, one per slot.
const STEPS: usize = 256;
/// Old values of one's own atomics, 8 bytes per slot.
const RESULTS: usize = 4096;
/// What peers read; never changes.
pub const PATTERN: usize = 8192;
/// Where the peer writes: slots.
pub const INBOX: usize = PATTERN + SLOT_LEN;
const SLOTS_LEN: usize = SLOT_LEN * SLOT_COUNT;
/// Where one's own reads land: slots.
const READS: usize = INBOX + SLOTS_LEN;
/// What one's own writes and sends take: slots.
const SOURCES: usize = READS + SLOTS_LEN;
const RECEIVES: usize = SOURCES + SLOTS_LEN;
/// Receive buffers that there are.
pub const RECEIVES_MAX: usize = 256;
/// Length of the whole memory in bytes.
pub const LEN: usize = RECEIVES + RECEIVES_MAX * MESSAGE_MAX;
/// Bytes behind it that no segment covers.
const SLACK: usize = 4096;

/// The memory of one round.
#[derive(Debug)]
pub struct Memory {
    region: Region,
    buffer: Vec<u8>,
}

impl Memory {
    /// Fresh memory with the pattern in place.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new() -> io::Result<Self> {
        let region = Region::private(LEN + SLACK)?;
        let bytes: Vec<u8> =
            (0..SLOT_LEN / 8).flat_map(|index| pattern_word(index).to_le_bytes()).collect();
        region.write(PATTERN, &bytes).map_err(io::Error::other)?;
        let region = region.sub(0, LEN).map_err(io::Error::other)?;
        Ok(Self { region, buffer: Vec::with_capacity(SLOT_LEN) })
    }

    /// Returns the region that holds everything.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Offset of the old value of an atomic.
    #[must_use]
    pub fn result_of(id: u64) -> usize {
        RESULTS + 8 * slot(id)
    }

    /// Offset at which a read lands.
    #[must_use]
    pub fn read_of(id: u64) -> usize {
        READS + SLOT_LEN * slot(id)
    }

    /// Offset from which a write or send goes.
    #[must_use]
    pub fn source_of(id: u64) -> usize {
        SOURCES + SLOT_LEN * slot(id)
    }

    /// Offset at the peer to which a write goes.
    #[must_use]
    pub fn inbox_of(id: u64) -> usize {
        INBOX + SLOT_LEN * slot(id)
    }

    /// Offset at the peer of the word that WRITE_NOTIFY stores.
    #[must_use]
    pub fn notice_of(id: u64) -> usize {
        NOTICES + 8 * slot(id)
    }

    /// Offset at the peer of the word that ordered writes step.
    #[must_use]
    pub fn step_of(id: u64) -> usize {
        STEPS + 8 * slot(id)
    }

    /// Offset of receive buffer `index`.
    #[must_use]
    pub fn receive_of(index: usize) -> usize {
        RECEIVES + MESSAGE_MAX * (index % RECEIVES_MAX)
    }

    /// Puts the words of a write in place.
    pub fn fill_write(&mut self, id: u64, len: usize) {
        self.fill(id, len, |index| write_word(id, index));
    }

    /// Puts the two words of an ordered pair in place.
    pub fn fill_steps(&mut self, id: u64) {
        let words = [step_word(id, 0), step_word(id, 1)];
        self.buffer.clear();
        self.buffer.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self.region.write(Self::source_of(id), &self.buffer).expect("slots lie inside");
    }

    /// Whether the read of an ordered pair saw what its second write stored.
    #[must_use]
    pub fn is_step_right(&self, id: u64) -> bool {
        self.word(Self::read_of(id)) == step_word(id, 1)
    }

    /// Puts message `number` in place.
    pub fn fill_message(&mut self, id: u64, len: usize, number: u64) {
        self.fill(id, len, |index| message_word(number, index));
    }

    fn fill(&mut self, id: u64, len: usize, word: impl Fn(usize) -> u64) {
        self.buffer.clear();
        self.buffer.extend((0..len / 8).flat_map(|index| word(index).to_le_bytes()));
        self.region.write(Self::source_of(id), &self.buffer).expect("slots lie inside");
    }

    /// The 8 bytes at an offset.
    #[must_use]
    pub fn word(&self, offset: usize) -> u64 {
        self.region.load_u64_acquire(offset).expect("offsets are of this layout")
    }

    /// Whether a read brought what the peer's pattern holds.
    pub fn is_read_right(&mut self, id: u64, plan: &Planned) -> bool {
        let first = plan.offset / 8;
        self.are_words(Self::read_of(id), plan.len, |index| pattern_word(first + index))
    }

    /// Number of the message in a receive buffer; `None`: its bytes are wrong.
    pub fn message(&mut self, index: usize, len: usize) -> Option<u64> {
        let at = Self::receive_of(index);
        if len < 8 || !len.is_multiple_of(8) || len > MESSAGE_MAX {
            return None;
        }
        let number = self.word(at);
        self.are_words(at, len, |index| message_word(number, index)).then_some(number)
    }

    fn are_words(&mut self, offset: usize, len: usize, word: impl Fn(usize) -> u64) -> bool {
        self.buffer.resize(len, 0);
        self.region.read(offset, &mut self.buffer).expect("offsets are of this layout");
        let words = self.buffer.as_chunks::<8>().0;
        words.iter().enumerate().all(|(index, bytes)| *bytes == word(index).to_le_bytes())
    }

    /// Looks at all that the peer with this mix wrote: words looked at, wrong ones.
    pub fn check_inbox(&self, peer: Mix) -> (u64, u64) {
        let mut wrong = 0;
        for number in 0..SLOTS {
            // The peer may be writing: what it stores last is looked at first.
            let notice = self.word(Self::notice_of(number));
            let mut words = vec![0; SLOT_LEN / 8];
            for (index, word) in words.iter_mut().enumerate().rev() {
                *word = self.word(Self::inbox_of(number) + 8 * index);
            }
            wrong += wrong_words(peer, number, &words, notice);
        }
        (SLOTS * (SLOT_LEN as u64 / 8 + 1), wrong)
    }
}

/// Words of a slot that no order of whole and broken-off writes explains, given the word that the
/// last WRITE_NOTIFY into it stored.
fn wrong_words(of: Mix, slot: u64, words: &[u64], notice: u64) -> u64 {
    let mut wrong = 0;
    let mut finished = None;
    for (index, word) in words.iter().enumerate() {
        let Some(id) = writer(*word) else { continue };
        let plan = planned(of, id);
        let fits = *word == write_word(id, index)
            && id % SLOTS == slot
            && plan.op.is_write()
            && (index + 1) * 8 <= plan.len;
        if !fits {
            wrong += 1;
        } else if (index + 1) * 8 == plan.len {
            finished = finished.max(Some(id));
        }
    }
    let noticed = writer(notice);
    if let Some(id) = noticed {
        let fits =
            notice == notice_word(id) && id % SLOTS == slot && planned(of, id).op == Op::Notify;
        wrong += u64::from(!fits);
    }
    for id in finished.into_iter().chain(noticed) {
        let covered = &words[..planned(of, id).len / 8];
        let missing = covered.iter().filter(|word| writer(**word).is_none_or(|by| by < id));
        wrong += missing.count() as u64;
    }
    wrong
}

fn slot(id: u64) -> usize {
    usize::try_from(id % SLOTS).unwrap_or(0)
}

/// Word `index` of write `id`: the upper half names the request, the lower half proves it.
fn write_word(id: u64, index: usize) -> u64 {
    ((id + 1) << 32) | (mix(id ^ (index as u64) << 40) & u64::from(u32::MAX))
}

/// The word that WRITE_NOTIFY `id` stores.
#[must_use]
pub fn notice_word(id: u64) -> u64 {
    write_word(id, 1 << 20)
}

/// What write `index` of ordered pair `id` stores.
fn step_word(id: u64, index: u64) -> u64 {
    (id + 1) << 1 | index
}

fn writer(word: u64) -> Option<u64> {
    (word >> 32).checked_sub(1)
}

fn pattern_word(index: usize) -> u64 {
    mix(0x5eed ^ (index as u64) << 20)
}

/// Word `index` of message `number`: the number itself, then words that only it has.
fn message_word(number: u64, index: usize) -> u64 {
    if index == 0 { number } else { mix(number ^ (index as u64) << 44) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Mode;

    const OF: Mix = Mix { seed: 3, mode: Mode::Rm };

    /// Two writes that share a slot, the later one at least as long.
    fn two_writes(seed: Mix) -> (u64, u64) {
        let long = |id: &u64| {
            let plan = planned(seed, *id);
            plan.op == Op::Write && plan.len >= 64
        };
        let first = (0..).find(long).unwrap();
        let len = planned(seed, first).len;
        let next = |id: &u64| long(id) && planned(seed, *id).len >= len;
        (first, (1..).map(|n| first + n * SLOTS).find(next).unwrap())
    }

    fn stored(id: u64, seed: Mix) -> Vec<u64> {
        (0..planned(seed, id).len / 8).map(|index| write_word(id, index)).collect()
    }

    #[test]
    fn whole_and_broken_off_writes_are_right() {
        let (first, second) = two_writes(OF);
        let slot = first % SLOTS;
        let mut words = stored(first, OF);
        assert_eq!(wrong_words(OF, slot, &words, 0), 0);
        let later = stored(second, OF);
        words[..4].copy_from_slice(&later[..4]);
        assert_eq!(wrong_words(OF, slot, &words, 0), 0, "broken off over a whole one");
        assert_eq!(wrong_words(OF, slot, &later, 0), 0);
        let mut torn = vec![0; later.len()];
        torn[2..6].copy_from_slice(&later[2..6]);
        assert_eq!(wrong_words(OF, slot, &torn, 0), 0, "broken off, any order");
    }

    #[test]
    fn an_early_end_a_torn_word_and_a_wrong_place_are_seen() {
        let (first, second) = two_writes(OF);
        let slot = first % SLOTS;
        let whole = stored(second, OF);
        let mut early = whole.clone();
        early[1] = 0;
        assert_eq!(wrong_words(OF, slot, &early, 0), 1, "the end is there, a word is missing");
        let mut torn = whole.clone();
        torn[1] ^= 0xff;
        assert_eq!(wrong_words(OF, slot, &torn, 0), 1);
        assert_eq!(wrong_words(OF, (slot + 1) % SLOTS, &whole[..4], 0), 4, "another slot");
        let mut shifted = whole.clone();
        shifted[0] = whole[1];
        assert!(wrong_words(OF, slot, &shifted, 0) > 0);
    }

    #[test]
    fn a_notice_before_its_bytes_is_seen() {
        let is_notify = |id: &u64| planned(OF, *id).op == Op::Notify && planned(OF, *id).len > 8;
        let id = (0..).find(is_notify).unwrap();
        let (slot, mut words) = (id % SLOTS, stored(id, OF));
        assert_eq!(wrong_words(OF, slot, &words, notice_word(id)), 0);
        assert_eq!(wrong_words(OF, slot, &words, notice_word(id) + 1), 1, "another word");
        assert!(wrong_words(OF, (slot + 1) % SLOTS, &words, notice_word(id)) > 0);
        words[0] = 0;
        words.pop();
        words.push(0);
        assert_eq!(wrong_words(OF, slot, &words, 0), 0, "broken off");
        assert_eq!(wrong_words(OF, slot, &words, notice_word(id)), 2, "two words are missing");
    }

    #[test]
    fn a_read_that_sees_the_first_of_two_writes_is_wrong() {
        let mut memory = Memory::new().unwrap();
        memory.fill_steps(5);
        let step = |memory: &Memory, at: usize| {
            let word = memory.word(Memory::source_of(5) + at);
            memory.region.write(Memory::read_of(5), &word.to_le_bytes()).unwrap();
        };
        assert!(!memory.is_step_right(5), "nothing came");
        step(&memory, 0);
        assert!(!memory.is_step_right(5), "the first");
        step(&memory, 8);
        assert!(memory.is_step_right(5));
        assert!(!memory.is_step_right(5 + SLOTS), "of another request");
    }

    #[test]
    fn one_wrong_word_of_an_inbox_is_counted() {
        let memory = Memory::new().unwrap();
        assert_eq!(memory.check_inbox(OF).1, 0);
        let last = INBOX + SLOTS_LEN - 8;
        memory.region.write(last, &[0xff; 8]).unwrap();
        assert_eq!(memory.check_inbox(OF).1, 1);
        memory.region.write(last, &[0; 8]).unwrap();
        memory.region.write(Memory::notice_of(SLOTS - 1), &[0xff; 8]).unwrap();
        assert!(memory.check_inbox(OF).1 > 0);
    }

    #[test]
    fn messages_and_reads_are_recognised() {
        let mut memory = Memory::new().unwrap();
        memory.fill_message(5, 64, 9);
        let mut bytes = [0; 64];
        memory.region.read(Memory::source_of(5), &mut bytes).unwrap();
        memory.region.write(Memory::receive_of(3), &bytes).unwrap();
        assert_eq!(memory.message(3, 64), Some(9));
        for len in [72, 63, 0, MESSAGE_MAX + 8] {
            assert_eq!(memory.message(3, len), None, "not what was sent: {len}");
        }
        memory.region.write(Memory::receive_of(3) + 40, &[1]).unwrap();
        assert_eq!(memory.message(3, 64), None);
        let plan = Planned { op: Op::Read, len: 800, offset: 1600 };
        assert!(!memory.is_read_right(1, &plan));
        let mut bytes = vec![0; 800];
        memory.region.read(PATTERN + 1600, &mut bytes).unwrap();
        memory.region.write(Memory::read_of(1), &bytes).unwrap();
        assert!(memory.is_read_right(1, &plan));
    }
}
