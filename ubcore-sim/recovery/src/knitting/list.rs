//! A list of runs, first in, first out: the first run is in the context of the TP, the others in lines.
//!
//! - owns: the first run, the first and the last line. takes: runs of missing packets. gives: them again, in order.
//! - must not: hold a line: the NIC has those of all lists in one cache, the pool has the others.

use udma_abi::Nanos;

use super::line::{PackedLine, RunOrder};
use super::lines::{Appended, ListStep};
use super::narrow::{low_bits, near};
use super::nic::LineId;
use super::pool::KnittingPool;
use super::record::LossError;
use crate::report::LossRun;

/// Most packets of a run in a list.
pub(super) const RUN_PACKETS_MAX: u64 = u16::MAX as u64;
/// Bytes left in the first line at which the next one is read in advance.
const WATERMARK_BYTES: u8 = 24;

/// The ends of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunList {
    /// Low bits of the start of the first run, which is matched next.
    start: u32,
    /// Line of the second run, and the one that runs are appended to.
    head: LineId,
    tail: LineId,
    /// Packets of the first run; 0: the list is empty.
    count: u16,
    /// Where the second run is in its line.
    at: u8,
    order: RunOrder,
}

impl RunList {
    pub(super) const fn new(order: RunOrder) -> Self {
        Self { start: 0, head: LineId::NONE, tail: LineId::NONE, count: 0, at: 0, order }
    }

    /// The run that is matched next.
    pub(super) fn first(&self, edge: u64) -> Option<LossRun> {
        (self.count > 0)
            .then(|| LossRun { start: near(edge, self.start), count: self.count.into() })
    }

    /// First and last line.
    pub(super) const fn lines(&self) -> (LineId, LineId) {
        (self.head, self.tail)
    }

    /// When the first run is at hand; it is now if the NIC has read its line by then, or needs it no more.
    pub(super) fn ready_at(&self, pool: &KnittingPool) -> Option<Nanos> {
        if self.head.is_none() { None } else { pool.line(self.head).map(|line| line.ready_at) }
    }

    /// Appends a run of at most [`RUN_PACKETS_MAX`] packets, if asked in a line of its own. After an error nothing changed.
    pub(super) fn push(
        &mut self,
        pool: &mut KnittingPool,
        step: ListStep,
        run: LossRun,
        is_new_line: bool,
    ) -> Result<(), LossError> {
        let Some(first) = self.first(step.edge) else {
            return self.set_first(run);
        };
        let appended = match (self.tail.is_none(), is_new_line) {
            (true, _) => Appended::Full(first.end()),
            (false, true) => Appended::Away,
            (false, false) => pool.append(self.tail, self.order, run),
        };
        let base = match appended {
            Appended::Done => return Ok(()),
            Appended::Full(end) => end,
            Appended::Away => run.start,
        };
        let id = pool.open_line(step, base)?;
        if pool.append(id, self.order, run) != Appended::Done {
            return Err(LossError::Corrupt);
        }
        if self.tail.is_none() {
            (self.head, self.tail, self.at) = (id, id, 0);
            return Ok(());
        }
        pool.link_line(step.now, (self.tail, id), self.tail == self.head)?;
        self.tail = id;
        self.prefetch(pool, step)
    }

    /// Makes the first run start later, or removes it: `start` is the next missing packet in it. Whether it is removed.
    pub(super) fn trim(
        &mut self,
        pool: &mut KnittingPool,
        step: ListStep,
        start: u64,
    ) -> Result<bool, LossError> {
        let Some(run) = self.first(step.edge) else { return Ok(false) };
        if start < run.end() {
            let count = u32::try_from(run.end() - start).map_err(|_| LossError::Corrupt)?;
            self.set_first(LossRun { start, count })?;
            return Ok(false);
        }
        self.advance(pool, step, run)?;
        Ok(true)
    }

    /// Takes the run after `passed` as the first one.
    fn advance(
        &mut self,
        pool: &mut KnittingPool,
        step: ListStep,
        passed: LossRun,
    ) -> Result<(), LossError> {
        self.count = 0;
        let mut since = step.now;
        while !self.head.is_none() {
            since = pool.fetch(step, self.head, since)?;
            let held = pool.line(self.head).ok_or(LossError::Corrupt)?;
            let (line, next) = (held.line, held.next);
            if self.at < line.used() {
                let (run, at) = self.run_of(&line, step, passed)?;
                self.set_first(run)?;
                self.at = at;
                // A line that is on its way says when the run is at hand.
                if at == line.used() && self.head == self.tail && since <= step.now {
                    return self.leave_head(pool, step, LineId::NONE);
                }
                return self.prefetch(pool, step);
            }
            self.leave_head(pool, step, next)?;
        }
        Ok(())
    }

    /// The run that is next in the first line, which lies where runs of this list may.
    fn run_of(
        &self,
        line: &PackedLine,
        step: ListStep,
        passed: LossRun,
    ) -> Result<(LossRun, u8), LossError> {
        let found = line.read(self.order, self.at, passed.end()).ok_or(LossError::Corrupt)?;
        let (run, _) = found;
        let least = if self.order == RunOrder::Rising { passed.end() } else { step.edge };
        if run.start < least.max(step.edge) || run.end() > step.top {
            return Err(LossError::Corrupt);
        }
        Ok(found)
    }

    /// Gives the first line back; `next` is the one behind it.
    fn leave_head(
        &mut self,
        pool: &mut KnittingPool,
        step: ListStep,
        next: LineId,
    ) -> Result<(), LossError> {
        if next.is_none() != (self.head == self.tail) {
            return Err(LossError::Corrupt);
        }
        pool.drop_line(self.head, step.holder)?;
        (self.head, self.at) = (next, 0);
        if next.is_none() {
            self.tail = next;
        }
        Ok(())
    }

    /// Reads the next line if the first one is nearly used up.
    fn prefetch(&self, pool: &mut KnittingPool, step: ListStep) -> Result<(), LossError> {
        if self.head == self.tail {
            return Ok(());
        }
        let Some(held) = pool.line(self.head) else { return Ok(()) };
        if held.line.used().saturating_sub(self.at) <= WATERMARK_BYTES && !held.next.is_none() {
            let (next, since) = (held.next, held.ready_at);
            pool.fetch(step, next, since)?;
        }
        Ok(())
    }

    /// Lowest start of a run from the first one to the end of the first line.
    pub(super) fn lowest_at_hand(
        &self,
        pool: &mut KnittingPool,
        step: ListStep,
    ) -> Result<Option<u64>, LossError> {
        let Some(first) = self.first(step.edge) else { return Ok(None) };
        let mut lowest = first.start;
        if !self.head.is_none() {
            pool.fetch(step, self.head, step.now)?;
            let held = pool.line(self.head).ok_or(LossError::Corrupt)?;
            each_run(&held.line, self.order, (self.at, first.end()), |run| {
                lowest = lowest.min(run.start);
            })?;
        }
        Ok(Some(lowest))
    }

    /// All runs in order, as the host reads them: what only the NIC has is written first.
    pub(super) fn runs(
        &self,
        pool: &mut KnittingPool,
        step: ListStep,
    ) -> Result<Vec<LossRun>, LossError> {
        let mut runs: Vec<LossRun> = self.first(step.edge).into_iter().collect();
        self.each_line(pool, step, |line, id| {
            let end = runs.last().map_or(0, LossRun::end);
            let at = if id == self.head { self.at } else { 0 };
            each_run(line, self.order, (at, end), |run| runs.push(run))
        })?;
        if runs.iter().any(|run| run.start < step.edge || run.end() > step.top) {
            return Err(LossError::Corrupt);
        }
        Ok(runs)
    }

    /// Calls `take` with all lines in order, as the host reads them.
    pub(super) fn each_line(
        &self,
        pool: &mut KnittingPool,
        step: ListStep,
        mut take: impl FnMut(&PackedLine, LineId) -> Result<(), LossError>,
    ) -> Result<(), LossError> {
        let (mut id, blocks) = (self.head, pool.usage().blocks);
        for _ in 0..=blocks {
            if id.is_none() {
                return Ok(());
            }
            let (line, next) = pool.line_of_host(step, id)?;
            take(&line, id)?;
            if next.is_none() != (id == self.tail) {
                return Err(LossError::Corrupt);
            }
            id = next;
        }
        Err(LossError::Corrupt)
    }

    /// Removes all runs, as the host does.
    pub(super) fn clear(
        &mut self,
        pool: &mut KnittingPool,
        step: ListStep,
    ) -> Result<(), LossError> {
        let mut ids = Vec::new();
        self.each_line(pool, step, |_, id| {
            ids.push(id);
            Ok(())
        })?;
        for id in ids {
            pool.drop_line(id, step.holder)?;
        }
        self.forget();
        Ok(())
    }

    /// Forgets all runs; their blocks are given back by [`KnittingPool::drop_all`].
    pub(super) const fn forget(&mut self) {
        *self = Self::new(self.order);
    }

    fn set_first(&mut self, run: LossRun) -> Result<(), LossError> {
        self.count = u16::try_from(run.count).map_err(|_| LossError::Corrupt)?;
        self.start = low_bits(run.start);
        Ok(())
    }
}

/// Calls `take` with the runs of a line from byte `at` on, which follow one that ends at `end`.
pub(super) fn each_run(
    line: &PackedLine,
    order: RunOrder,
    (mut at, mut end): (u8, u64),
    mut take: impl FnMut(LossRun),
) -> Result<(), LossError> {
    while at < line.used() {
        let (run, next) = line.read(order, at, end).ok_or(LossError::Corrupt)?;
        take(run);
        (at, end) = (next, run.end());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
