//! Lines of the pool as the NIC and the host use them.
//!
//! - owns: when a line is read or written, and what that costs. takes: lines that are begun, filled, read.
//! - gives: lines, when those that are read from the pool are at hand.
//! - must not: interpret a list.

use udma_abi::Nanos;

use super::Holder;
use super::line::{LINE_WORDS, PackedLine, RunOrder};
use super::nic::{LineId, NIC_LINES_MIN, NONE, NicLine, NicUsage};
use super::pool::KnittingPool;
use super::record::LossError;
use crate::report::LossRun;

/// What a step of a list happens in.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListStep {
    pub(super) now: Nanos,
    pub(super) holder: Holder,
    /// All runs lie from here on.
    pub(super) edge: u64,
    /// All runs end before this or there.
    pub(super) top: u64,
}

/// Where an appended run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Appended {
    Done,
    /// The line is full; its last run ends there.
    Full(u64),
    /// The line is not at hand, or was read from the pool: another one follows it.
    Away,
}

impl KnittingPool {
    /// Gives the NIC room for so many lines; those that it holds stay.
    pub fn set_nic_lines(&mut self, lines: usize) {
        self.nic.room = lines.max(NIC_LINES_MIN);
    }

    /// What the NIC holds for all TPs together.
    #[must_use]
    pub fn nic_usage(&self) -> NicUsage {
        NicUsage {
            lines: self.nic.room,
            line_bytes: size_of::<NicLine>(),
            used_max: self.nic.used_max,
        }
    }

    /// A new line whose first run follows one that ends at `base`.
    pub(super) fn open_line(&mut self, step: ListStep, base: u64) -> Result<LineId, LossError> {
        let block = self.take(step.holder).ok_or(LossError::Exhausted)?;
        let Some(id) = LineId::of(block) else {
            self.give(block, step.holder)?;
            return Err(LossError::Exhausted);
        };
        self.hold(step, id, PackedLine::new(base), (LineId::NONE, 0), None);
        Ok(id)
    }

    /// The NIC holds a line, from the pool at that time, or new.
    fn hold(
        &mut self,
        step: ListStep,
        id: LineId,
        line: PackedLine,
        (next, low_after): (LineId, u32),
        read: Option<Nanos>,
    ) {
        let written = self.nic.insert(NicLine {
            line,
            ready_at: read.unwrap_or(0),
            next,
            low_after,
            id,
            holder: step.holder,
            is_dirty: read.is_none(),
            is_read: read.is_some(),
            newer: NONE,
            older: NONE,
        });
        if let Some(old) = written {
            self.write(step.now, &old);
        }
    }

    /// Writes a line to its block.
    fn write(&mut self, now: Nanos, held: &NicLine) {
        let Some(block) = held.id.block() else { return };
        let words = (0..).zip(held.line.to_words());
        let link = u64::from(held.low_after) << 32 | u64::from(held.next.0);
        for (number, word) in words.chain([(self.words(), link)]) {
            // A store fails only outside of the region; a line that is not there is noticed when it is read.
            let _ = self.store(block, number, word);
        }
        self.dma_mut().on_write(now);
    }

    /// Appends a run to a line that the NIC holds.
    pub(super) fn append(&mut self, id: LineId, order: RunOrder, run: LossRun) -> Appended {
        let Some(held) = self.nic.touch(id).filter(|held| !held.is_read) else {
            return Appended::Away;
        };
        if !held.line.push(order, run) {
            return Appended::Full(held.line.end());
        }
        held.is_dirty = true;
        Appended::Done
    }

    /// Links a line to the one behind it. If it is full and not the first one of its list, the pool holds it from now on.
    pub(super) fn link_line(
        &mut self,
        now: Nanos,
        (id, next): (LineId, LineId),
        is_first: bool,
    ) -> Result<(), LossError> {
        if let Some(held) = self.nic.touch(id) {
            (held.next, held.is_dirty) = (next, true);
            if !is_first && let Some(full) = self.nic.remove(id) {
                self.write(now, &full);
            }
            return Ok(());
        }
        let block = id.block().ok_or(LossError::Corrupt)?;
        self.store(block, self.words(), next.0.into())?;
        self.dma_mut().on_write(now);
        Ok(())
    }

    /// Makes sure that the NIC holds a line, whose number it has from `since` on; when it is at hand.
    pub(super) fn fetch(
        &mut self,
        step: ListStep,
        id: LineId,
        since: Nanos,
    ) -> Result<Nanos, LossError> {
        if let Some(held) = self.nic.touch(id) {
            return Ok(held.ready_at);
        }
        let (line, link) = self.load_line(step, id)?;
        let ready = self.dma_mut().on_read(step.now.max(since));
        self.hold(step, id, line, link, Some(ready));
        Ok(ready)
    }

    /// A line of the pool, its link and the lowest run of its group behind it.
    fn load_line(
        &self,
        step: ListStep,
        id: LineId,
    ) -> Result<(PackedLine, (LineId, u32)), LossError> {
        let block = id.block().ok_or(LossError::Corrupt)?;
        let mut words = [0; LINE_WORDS];
        for (number, word) in words.iter_mut().enumerate() {
            *word = self.load(block, number, step.holder)?;
        }
        let line = PackedLine::from_words(words, step.edge).ok_or(LossError::Corrupt)?;
        let link = self.load(block, self.words(), step.holder)?;
        let (low_after, next) = (link >> 32, link & u64::from(u32::MAX));
        let half = |word| u32::try_from(word).map_err(|_| LossError::Corrupt);
        Ok((line, (LineId(half(next)?), half(low_after)?)))
    }

    /// A line that the NIC holds.
    pub(super) fn line(&self, id: LineId) -> Option<&NicLine> {
        self.nic.get(id)
    }

    /// A line as the host sees it: what the NIC has of it and the pool does not is written first.
    pub(super) fn line_of_host(
        &mut self,
        step: ListStep,
        id: LineId,
    ) -> Result<(PackedLine, LineId), LossError> {
        let Some(slot) = self.nic.slot(id) else {
            let (line, (next, _)) = self.load_line(step, id)?;
            return Ok((line, next));
        };
        let held = self.nic.slots[slot as usize];
        if held.is_dirty {
            self.write(step.now, &held);
            self.nic.slots[slot as usize].is_dirty = false;
        }
        Ok((held.line, held.next))
    }

    /// The host notes with a line which run is the lowest one behind it in its group.
    pub(super) fn note_low(&mut self, id: LineId, next: LineId, low: u32) -> Result<(), LossError> {
        if let Some(slot) = self.nic.slot(id) {
            let held = &mut self.nic.slots[slot as usize];
            (held.low_after, held.is_dirty) = (low, true);
        }
        let block = id.block().ok_or(LossError::Corrupt)?;
        self.store(block, self.words(), u64::from(low) << 32 | u64::from(next.0))?;
        Ok(())
    }

    /// A repeated packet needs the first run of a list, whose line is at hand then; `None`: the context has the run.
    pub(super) fn await_run(&mut self, now: Nanos, ready: Option<Nanos>) {
        self.dma_mut().on_access(now, Some(ready.unwrap_or(now)));
    }

    /// Gives the block of a line back.
    pub(super) fn drop_line(&mut self, id: LineId, holder: Holder) -> Result<(), LossError> {
        self.nic.remove(id);
        self.give(id.block().ok_or(LossError::Corrupt)?, holder)?;
        Ok(())
    }

    /// Gives all that a holder has back.
    pub(super) fn drop_all(&mut self, holder: Holder) {
        for slot in (0..).take(self.nic.slots.len()) {
            let NicLine { id, holder: of, .. } = self.nic.slots[slot as usize];
            // A slot that is not in use says what it held last.
            if of == holder && self.nic.slot(id) == Some(slot) {
                self.nic.remove(id);
            }
        }
        self.nic.gaps.remove(&holder);
        self.give_all(holder);
    }

    /// Gaps of a TP that are not reported.
    pub(super) fn gaps(&self, holder: Holder) -> Option<&PackedLine> {
        self.nic.gaps.get(&holder)
    }

    /// Keeps the gaps of a TP; `false` when the NIC has no room for such a line.
    pub(super) fn keep_gaps(&mut self, holder: Holder, gaps: Option<PackedLine>) -> bool {
        let Some(gaps) = gaps else {
            self.nic.gaps.remove(&holder);
            return true;
        };
        let is_held = self.nic.gaps.contains_key(&holder);
        if !is_held && self.nic.gaps.len() >= self.nic.room / 2 {
            return false;
        }
        self.nic.gaps.insert(holder, gaps);
        while self.nic.held() > self.nic.room
            && let Some(oldest) = self.nic.slots.get(self.nic.oldest as usize).map(|line| line.id)
            && let Some(old) = self.nic.remove(oldest)
        {
            if old.is_dirty {
                self.write(0, &old);
            }
        }
        true
    }
}
