//! The directory: where each context is, 16 bytes an entry.
//!
//! *Owns*: word 0 (place, state, flags, version), changed by one 64-bit exchange; word 1, hints. *Takes*: transitions.
//! *Gives*: place and version as one. *Must not*: change a place without its version.

use urma_mem::sync::{AtomicU64, Ordering};

use crate::{
    handle::{ContextHandle, ContextKind, ContextValueError},
    low_8, low_16,
};

/// Bytes of an entry.
pub const DIRECTORY_ENTRY_LEN: usize = size_of::<DirectoryEntry>();
const _: () = assert!(DIRECTORY_ENTRY_LEN == 16 || cfg!(loom), "two words");

/// Where a context is, or is going.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ContextPlace {
    /// No context has this handle.
    Absent = 0,
    /// In a slot of the chip.
    L1 = 1,
    /// In a page of CXL memory.
    L2 = 2,
    /// In host memory alone.
    L3 = 3,
    /// On its way to the chip; the offset names the place that it leaves.
    ToL1 = 4,
    /// On its way to CXL memory.
    ToL2 = 5,
    /// On its way to host memory alone.
    ToL3 = 6,
}

impl ContextPlace {
    const ALL: [Self; 7] =
        [Self::Absent, Self::L1, Self::L2, Self::L3, Self::ToL1, Self::ToL2, Self::ToL3];

    /// Whether a migration is under way.
    #[must_use]
    pub const fn is_moving(self) -> bool {
        matches!(self, Self::ToL1 | Self::ToL2 | Self::ToL3)
    }
}

/// Flag of word 0: the context stays where it is.
pub(crate) const PINNED: u8 = 1;
/// Flag of word 0: the lazy fields of the slot are newer than those below.
pub(crate) const DIRTY: u8 = 2;
/// Flag of word 0: a strong field is being written through.
pub(crate) const STRONG: u8 = 4;

/// Word 0 of an entry: `offset 32, place 4, flags 4, version 24` from the lowest bit on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryWord(u64);

impl EntryWord {
    /// Joins the parts; the version counts modulo 2^24.
    pub(crate) fn new(place: ContextPlace, offset: u32, flags: u8, version: u32) -> Self {
        let version = u64::from(version & VERSION_MAX);
        let flags = u64::from(flags & 15);
        Self(u64::from(offset) | (place as u64) << 32 | flags << 36 | version << 40)
    }

    /// Returns where the context is, or is going.
    #[must_use]
    pub fn place(self) -> ContextPlace {
        let place = usize::from(low_8(self.0 >> 32) & 15);
        ContextPlace::ALL.get(place).copied().unwrap_or(ContextPlace::Absent)
    }

    /// Returns where in the place: slot, or page and slot.
    #[must_use]
    pub const fn offset(self) -> u32 {
        (self.0 & 0xffff_ffff) as u32
    }

    /// Returns the version, 24 bits.
    #[must_use]
    pub const fn version(self) -> u32 {
        (self.0 >> 40) as u32
    }

    pub(crate) const fn flags(self) -> u8 {
        low_8(self.0 >> 36) & 15
    }

    pub(crate) const fn has(self, flag: u8) -> bool {
        self.flags() & flag != 0
    }

    /// The next version, at another place.
    pub(crate) fn moved(self, place: ContextPlace, offset: u32, flags: u8) -> Self {
        Self::new(place, offset, flags, self.version() + 1)
    }

    /// The same place and version, on its way to another one.
    pub(crate) fn leaving(self, to: ContextPlace) -> Self {
        Self::new(to, self.offset(), self.flags(), self.version())
    }

    /// The same entry with other flags.
    pub(crate) fn flagged(self, flags: u8) -> Self {
        Self::new(self.place(), self.offset(), flags, self.version())
    }
}

/// An entry. Word 1: `generation 16, hits of this half window 16, last access in units of 8.192 us 16, hits of the half
/// window before 16`.
#[derive(Debug)]
pub(crate) struct DirectoryEntry {
    word: AtomicU64,
    hints: AtomicU64,
}

impl DirectoryEntry {
    pub(crate) fn new() -> Self {
        let absent = EntryWord::new(ContextPlace::Absent, 0, 0, 0);
        Self { word: AtomicU64::new(absent.0), hints: AtomicU64::new(0) }
    }

    pub(crate) fn read(&self) -> EntryWord {
        EntryWord(self.word.load(Ordering::Acquire))
    }

    /// Changes word 0 if it is still the one that was read.
    pub(crate) fn exchange(&self, read: EntryWord, to: EntryWord) -> bool {
        self.word.compare_exchange(read.0, to.0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn hints(&self) -> Hints {
        Hints::of(self.hints.load(Ordering::Relaxed))
    }

    fn set_hints(&self, hints: Hints) {
        self.hints.store(hints.bits(), Ordering::Relaxed);
    }
}

/// Word 1 of an entry, unpacked.
#[derive(Clone, Copy, Default)]
struct Hints {
    generation: u16,
    count: u16,
    stamp: u16,
    before: u16,
}

impl Hints {
    fn of(bits: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = bits.to_le_bytes();
        let half = |low, high| u16::from_le_bytes([low, high]);
        Self { generation: half(a, b), count: half(c, d), stamp: half(e, f), before: half(g, h) }
    }

    fn bits(self) -> u64 {
        let parts = [self.generation, self.count, self.stamp, self.before];
        parts.iter().rev().fold(0, |bits, part| bits << 16 | u64::from(*part))
    }

    /// Time of the last access in units, at most 65,535 units before `now`.
    fn last(self, now_units: u64) -> u64 {
        let age = low_16(now_units).wrapping_sub(self.stamp);
        now_units.saturating_sub(u64::from(age))
    }

    /// Counts of the two half windows at `now`.
    fn counts(self, now_units: u64, half_ns: u64) -> (u16, u16) {
        let half_of = |units: u64| units * STAMP_NS / half_ns;
        match half_of(now_units) - half_of(self.last(now_units)) {
            0 => (self.count, self.before),
            1 => (0, self.count),
            _ => (0, 0),
        }
    }
}

/// Places of all contexts: one table a kind, which grows with the largest index in use.
#[derive(Debug, Default)]
pub struct Directory {
    tables: [Vec<DirectoryEntry>; ContextKind::ALL.len()],
}

impl Directory {
    /// Makes room for indices below `count`, and for no more: 16 bytes each.
    ///
    /// # Errors
    /// More than `limit` indices.
    pub(crate) fn reserve(
        &mut self,
        kind: ContextKind,
        count: usize,
        limit: usize,
    ) -> Result<(), ContextValueError> {
        if count > limit {
            let rule = format!("below {limit}, the limit of the directory");
            return Err(ContextValueError::new("index", count as u64 - 1, rule));
        }
        let table = &mut self.tables[kind as usize];
        let more = count.saturating_sub(table.len());
        table.reserve_exact(more);
        table.extend((0..more).map(|_| DirectoryEntry::new()));
        Ok(())
    }

    /// Makes room for one more index.
    pub(crate) fn grow(
        &mut self,
        handle: ContextHandle,
        limit: usize,
    ) -> Result<(), ContextValueError> {
        let wanted = handle.index() as usize + 1;
        let len = self.tables[handle.kind() as usize].len();
        if wanted <= len {
            return Ok(());
        }
        // Doubling bounds the copies; the limit bounds the doubling.
        let room = wanted.max((2 * len).min(limit)).max(GROWTH_MIN.min(limit));
        self.reserve(handle.kind(), room, limit)
    }

    pub(crate) fn entry(&self, handle: ContextHandle) -> Option<&DirectoryEntry> {
        self.tables[handle.kind() as usize].get(handle.index() as usize)
    }

    /// Returns place and version of a context; `None`: there is no such context.
    #[must_use]
    pub fn read(&self, handle: ContextHandle) -> Option<EntryWord> {
        let word = self.entry(handle)?.read();
        (word.place() != ContextPlace::Absent).then_some(word)
    }

    /// Returns the life of the handle.
    #[must_use]
    pub fn generation(&self, handle: ContextHandle) -> u16 {
        self.entry(handle).map_or(0, |entry| entry.hints().generation)
    }

    /// Begins a life of the handle: it has no hits.
    pub(crate) fn set_generation(&self, handle: ContextHandle, generation: u16) {
        if let Some(entry) = self.entry(handle) {
            entry.set_hints(Hints { generation, ..Hints::default() });
        }
    }

    /// Counts an access with this weight.
    pub(crate) fn note(&self, handle: ContextHandle, now: u64, half_ns: u64, weight: u16) {
        let Some(entry) = self.entry(handle) else { return };
        let (hints, units) = (entry.hints(), now / STAMP_NS);
        let (count, before) = hints.counts(units, half_ns);
        let stamp = low_16(units);
        entry.set_hints(Hints { count: count.saturating_add(weight), before, stamp, ..hints });
    }

    /// Hits in the window: those of the half window before count half.
    pub(crate) fn hits(&self, handle: ContextHandle, now: u64, half_ns: u64) -> u32 {
        self.entry(handle).map_or(0, |entry| {
            let (count, before) = entry.hints().counts(now / STAMP_NS, half_ns);
            u32::from(count) + u32::from(before / 2)
        })
    }

    /// Time since the last access in ns, exact to 8.192 us, modulo 0.537 s.
    pub(crate) fn idle(&self, handle: ContextHandle, now: u64) -> u64 {
        let units = now / STAMP_NS;
        self.entry(handle).map_or(0, |entry| (units - entry.hints().last(units)) * STAMP_NS)
    }

    /// Bytes of all tables, with what is reserved.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.tables.iter().map(|table| table.capacity() * DIRECTORY_ENTRY_LEN).sum()
    }

    /// Number of indices of a kind that have an entry.
    pub(crate) fn len(&self, kind: ContextKind) -> u32 {
        u32::try_from(self.tables[kind as usize].len()).unwrap_or(u32::MAX)
    }
}

/// Unit of the last access in ns.
const STAMP_NS: u64 = 8192;
/// Entries of the first growth of a table.
const GROWTH_MIN: usize = 64;
/// Largest version; the next one is 0.
const VERSION_MAX: u32 = (1 << 24) - 1;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn hits_of_the_half_window_before_count_half() {
        let mut directory = Directory::default();
        let handle = ContextHandle::new(ContextKind::Page, 0).expect("small");
        directory.grow(handle, 64).expect("room");
        // Half windows of ten units.
        let half = 10 * STAMP_NS;
        let hits = |directory: &Directory, half_windows: u64| {
            directory.hits(handle, half_windows * half, half)
        };
        directory.note(handle, 0, half, 10);
        directory.note(handle, 9 * STAMP_NS, half, 1);
        assert_eq!(hits(&directory, 0), 11);
        assert_eq!(hits(&directory, 1), 5);
        directory.note(handle, half, half, 4);
        assert_eq!(hits(&directory, 1), 9);
        assert_eq!((hits(&directory, 2), hits(&directory, 3)), (2, 0));
        // After a pause nothing of before counts.
        directory.note(handle, 5 * half, half, 3);
        assert_eq!((hits(&directory, 5), hits(&directory, 6)), (3, 1));
        assert_eq!(directory.idle(handle, 6 * half), 10 * STAMP_NS);
    }

    #[test]
    fn a_table_doubles_up_to_its_limit() {
        for (limit, index, wanted) in [
            (1000, 0, [64, 128, 256, 512, 1000]),
            (1000, 200, [201, 402, 804, 1000, 1000]),
            (100, 63, [64, 100, 100, 100, 100]),
            (10, 3, [10; 5]),
        ] {
            let mut directory = Directory::default();
            let mut index = index;
            for wanted in wanted {
                let handle = ContextHandle::new(ContextKind::Page, index).expect("small");
                directory.grow(handle, limit).expect("below the limit");
                assert_eq!(directory.len(ContextKind::Page), wanted, "{limit} {index}");
                assert_eq!(directory.bytes(), wanted as usize * DIRECTORY_ENTRY_LEN);
                index = wanted.min(u32::try_from(limit).expect("small") - 1);
            }
            let beyond =
                ContextHandle::new(ContextKind::Page, u32::try_from(limit).expect("small"));
            assert!(directory.grow(beyond.expect("small"), limit).is_err(), "{limit}");
        }
    }
}
