//! Lines that the NIC holds: a cache of fixed size for the lists of all TPs, in front of the pool.
//!
//! - owns: which lines are at hand, since when, and which are newer than the pool has them; gaps that are not reported.
//! - takes: lines. gives: them again, and the one that had to make room.
//! - must not: hold more lines than it was made for, grow with the number of TPs.

use std::collections::BTreeMap;

use udma_abi::Nanos;

use super::line::PackedLine;
use super::{BlockId, Holder};

/// Lines that a NIC holds by default: 256 KiB of runs and links.
const NIC_LINES: usize = 4096;
/// Least number of lines: of one list, the first one, the next one and the last one.
pub(super) const NIC_LINES_MIN: usize = 8;
/// Number that no slot has.
pub(super) const NONE: u32 = u32::MAX;
/// Bits of a block's number that name its place in a piece.
const INDEX_BITS: u32 = 24;

/// A line by the number of its block; none is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct LineId(pub(super) u32);

impl LineId {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn of(block: BlockId) -> Option<Self> {
        block.number(INDEX_BITS)?.checked_add(1).map(Self)
    }

    pub(super) fn block(self) -> Option<BlockId> {
        Some(BlockId::of_number(self.0.checked_sub(1)?, INDEX_BITS))
    }

    pub(super) const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Piece and place in it.
    const fn place(self) -> (usize, usize) {
        let number = self.0 as usize - 1;
        (number >> INDEX_BITS, number & ((1 << INDEX_BITS) - 1))
    }
}

/// A line at hand, or on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct NicLine {
    pub(super) line: PackedLine,
    /// When it is at hand.
    pub(super) ready_at: Nanos,
    pub(super) next: LineId,
    /// Lowest run of the lines behind it that belong to the same group.
    pub(super) low_after: u32,
    pub(super) id: LineId,
    pub(super) holder: Holder,
    /// The pool does not have it as it is here.
    pub(super) is_dirty: bool,
    /// It was read from the pool: runs are appended to lines alone that were not.
    pub(super) is_read: bool,
    /// Slots that were used next and before.
    pub(super) newer: u32,
    pub(super) older: u32,
}

/// How many lines a NIC holds, and what they take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NicUsage {
    /// Lines that there is room for.
    pub lines: usize,
    /// Bytes of one, with what says which it is.
    pub line_bytes: usize,
    /// Most lines held at one time.
    pub used_max: usize,
}

/// Lines of all TPs that the NIC holds.
#[derive(Debug)]
pub(super) struct NicLines {
    pub(super) room: usize,
    pub(super) slots: Vec<NicLine>,
    unused: Vec<u32>,
    /// Slot of a line, by piece and place.
    by_place: Vec<Vec<u32>>,
    newest: u32,
    pub(super) oldest: u32,
    /// Gaps that are not reported, of TPs that have such.
    pub(super) gaps: BTreeMap<Holder, PackedLine>,
    pub(super) used_max: usize,
}

impl Default for NicLines {
    fn default() -> Self {
        Self {
            room: NIC_LINES,
            slots: Vec::new(),
            unused: Vec::new(),
            by_place: Vec::new(),
            newest: NONE,
            oldest: NONE,
            gaps: BTreeMap::new(),
            used_max: 0,
        }
    }
}

impl NicLines {
    pub(super) fn slot(&self, id: LineId) -> Option<u32> {
        let (piece, index) = id.place();
        self.by_place.get(piece)?.get(index).copied().filter(|slot| *slot != NONE)
    }

    pub(super) fn get(&self, id: LineId) -> Option<&NicLine> {
        Some(&self.slots[self.slot(id)? as usize])
    }

    /// The line, which is then the one used last.
    pub(super) fn touch(&mut self, id: LineId) -> Option<&mut NicLine> {
        let slot = self.slot(id)?;
        if self.newest != slot {
            self.unlink(slot);
            self.link(slot);
        }
        Some(&mut self.slots[slot as usize])
    }

    fn link(&mut self, slot: u32) {
        let newest = std::mem::replace(&mut self.newest, slot);
        let line = &mut self.slots[slot as usize];
        (line.newer, line.older) = (NONE, newest);
        match self.slots.get_mut(newest as usize) {
            Some(before) => before.newer = slot,
            None => self.oldest = slot,
        }
    }

    fn unlink(&mut self, slot: u32) {
        let NicLine { newer, older, .. } = self.slots[slot as usize];
        match self.slots.get_mut(newer as usize) {
            Some(line) => line.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older as usize) {
            Some(line) => line.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Adds a line; the one that made room for it, if it must be written to the pool.
    pub(super) fn insert(&mut self, line: NicLine) -> Option<NicLine> {
        let mut written = None;
        if self.held() >= self.room
            && let Some(oldest) = self.slots.get(self.oldest as usize)
        {
            written = self.remove(oldest.id).filter(|line| line.is_dirty);
        }
        let slot = self.unused.pop().unwrap_or_else(|| {
            self.slots.push(line);
            u32::try_from(self.slots.len() - 1).unwrap_or(NONE)
        });
        self.slots[slot as usize] = line;
        let (piece, index) = line.id.place();
        if self.by_place.len() <= piece {
            self.by_place.resize_with(piece + 1, Vec::new);
        }
        if self.by_place[piece].len() <= index {
            self.by_place[piece].resize(index + 1, NONE);
        }
        self.by_place[piece][index] = slot;
        self.link(slot);
        self.used_max = self.used_max.max(self.held());
        written
    }

    pub(super) fn remove(&mut self, id: LineId) -> Option<NicLine> {
        let slot = self.slot(id)?;
        let (piece, index) = id.place();
        self.by_place[piece][index] = NONE;
        self.unlink(slot);
        self.unused.push(slot);
        Some(self.slots[slot as usize])
    }

    pub(super) fn held(&self) -> usize {
        self.slots.len() - self.unused.len() + self.gaps.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, prop_assert_eq, proptest};

    use super::*;

    fn line(id: u32, is_dirty: bool) -> NicLine {
        NicLine {
            line: PackedLine::new(0),
            ready_at: 0,
            next: LineId::NONE,
            low_after: 0,
            id: LineId(id),
            holder: Holder::new(1),
            is_dirty,
            is_read: !is_dirty,
            newer: NONE,
            older: NONE,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        /// Against a list, the latest first.
        #[test]
        fn the_line_that_was_used_least_recently_makes_room(
            steps in proptest::collection::vec((0u8..8, 1u32..24), 1..300),
            room in 8usize..12,
        ) {
            let mut nic = NicLines { room, ..NicLines::default() };
            let mut oracle: Vec<u32> = Vec::new();
            let mut most = 0;
            for (action, id) in steps {
                let at = oracle.iter().position(|other| *other == id);
                match (action, at) {
                    (0, at) => {
                        let removed = nic.remove(LineId(id)).map(|line| line.id.0);
                        prop_assert_eq!(removed, at.map(|at| oracle.remove(at)));
                    }
                    (1..=3, at) => {
                        let touched = nic.touch(LineId(id)).map(|line| line.id.0);
                        prop_assert_eq!(touched, at.map(|at| oracle.remove(at)));
                        if at.is_some() {
                            oracle.insert(0, id);
                        }
                    }
                    (_, Some(_)) => prop_assert_eq!(nic.get(LineId(id)).map(|line| line.id.0), Some(id)),
                    (_, None) => {
                        let written = nic.insert(line(id, id % 3 == 0)).map(|line| line.id.0);
                        let left = if oracle.len() == room { oracle.pop() } else { None };
                        prop_assert_eq!(written, left.filter(|id| id % 3 == 0), "a clean line is not written");
                        oracle.insert(0, id);
                    }
                }
                most = most.max(oracle.len());
                let oldest = nic.slots.get(nic.oldest as usize).map(|line| line.id.0);
                prop_assert_eq!(oldest, oracle.last().copied());
                prop_assert_eq!((nic.held(), nic.used_max), (oracle.len(), most));
                prop_assert_eq!(nic.get(LineId(id)).is_some(), oracle.contains(&id));
            }
        }
    }

    #[test]
    fn numbers_of_lines_name_piece_and_place() {
        let places = [(0, 0), (0, 5), (1, 0), (3, (1 << 24) - 1)];
        for (piece, index) in places {
            let id = LineId::of(BlockId { piece, index }).expect("within");
            assert_eq!(id.0, (piece << 24 | index) + 1);
            assert_eq!(id.place(), (piece as usize, index as usize));
            assert_eq!(id.block(), Some(BlockId { piece, index }));
            assert!(!id.is_none());
        }
        assert!(LineId::NONE.is_none() && LineId::NONE.block().is_none());
        assert_eq!(
            LineId::of(BlockId { piece: 255, index: (1 << 24) - 1 }),
            None,
            "there is no number above it"
        );
    }
}
