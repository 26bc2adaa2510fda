//! Runs that were reported more than once, in any order, and the lowest of them.
//!
//! - owns: their list, their tickets, what is known of the lowest one. takes: runs. gives: them again, the lowest start.
//! - must not: search the list for the lowest run.
//!
//! Lines are in two groups. Each line of the first group says what the lowest run of that group behind it is; of the
//! second group the lowest one is known. When the first group ends, the host passes over the lines once and notes this in
//! them: they are the first group then.

use super::line::RunOrder;
use super::lines::ListStep;
use super::list::{RunList, each_run};
use super::narrow::{U24, low_bits, near};
use super::nic::LineId;
use super::pool::KnittingPool;
use super::record::LossError;
use crate::report::{LossRun, TICKET_MASK};

/// A list with tickets.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaterRuns {
    list: RunList,
    /// Last line of the first group.
    group_end: LineId,
    /// Low bits of the lowest run of the second group, if there is one.
    low_next: u32,
    /// Ticket of the first run.
    ticket: U24,
    /// Number of runs in the list.
    len: U24,
}

impl LaterRuns {
    pub(super) const fn new() -> Self {
        Self {
            list: RunList::new(RunOrder::Any),
            group_end: LineId::NONE,
            low_next: 0,
            ticket: U24::new(0),
            len: U24::new(0),
        }
    }

    pub(super) const fn list(&self) -> &RunList {
        &self.list
    }

    pub(super) const fn ticket(&self) -> u32 {
        self.ticket.get()
    }

    pub(super) const fn len(&self) -> u32 {
        self.len.get()
    }

    /// Appends a run; its ticket. After an error nothing changed.
    pub(super) fn push(
        &mut self,
        pool: &mut KnittingPool,
        step: ListStep,
        run: LossRun,
    ) -> Result<u32, LossError> {
        let len = self.len();
        if len == U24::MAX {
            return Err(LossError::Exhausted);
        }
        let (head, tail) = self.list.lines();
        // Lines that say what lies behind them get no further run but in the one that is read.
        let is_new_line = tail == self.group_end && tail != head;
        self.list.push(pool, step, run, is_new_line)?;
        self.note(step, (head, tail), run.start);
        self.len = U24::new(len + 1);
        Ok(self.ticket().wrapping_add(len) & TICKET_MASK)
    }

    /// A run from `start` on was appended to lines that were these before.
    fn note(&mut self, step: ListStep, (head, tail): (LineId, LineId), start: u64) {
        let (_, new_tail) = self.list.lines();
        if head.is_none() {
            self.group_end = new_tail;
        } else if new_tail != self.group_end {
            let is_first = tail == self.group_end;
            let low = if is_first { start } else { start.min(near(step.edge, self.low_next)) };
            self.low_next = low_bits(low);
        }
    }

    /// Makes the first run start later, or removes it.
    pub(super) fn trim(
        &mut self,
        pool: &mut KnittingPool,
        step: ListStep,
        start: u64,
    ) -> Result<(), LossError> {
        let (head, _) = self.list.lines();
        if self.list.trim(pool, step, start)? {
            let len = self.len().checked_sub(1).ok_or(LossError::Corrupt)?;
            self.len = U24::new(len);
            self.ticket = U24::new(self.ticket().wrapping_add(1) & TICKET_MASK);
            if (len == 0) != self.list.first(step.edge).is_none() {
                return Err(LossError::Corrupt);
            }
        }
        let (new_head, _) = self.list.lines();
        if new_head.is_none() {
            self.group_end = LineId::NONE;
        } else if head != new_head && head == self.group_end {
            self.regroup(pool, step)?;
        }
        Ok(())
    }

    /// All lines are the first group now.
    fn regroup(&mut self, pool: &mut KnittingPool, step: ListStep) -> Result<(), LossError> {
        let (head, tail) = self.list.lines();
        self.group_end = tail;
        if head == tail {
            return Ok(());
        }
        let mut lows: Vec<(LineId, u64)> = Vec::new();
        self.list.each_line(pool, step, |line, id| {
            let mut low = u64::MAX;
            each_run(line, RunOrder::Any, (0, 0), |run| low = low.min(run.start))?;
            lows.push((id, low));
            Ok(())
        })?;
        let mut behind = u64::MAX;
        let mut next = LineId::NONE;
        for (id, low) in lows.into_iter().rev() {
            if !next.is_none() {
                pool.note_low(id, next, low_bits(behind))?;
            }
            (behind, next) = (behind.min(low), id);
        }
        // The NIC asks, and the host answers with the first line.
        pool.dma_mut().on_write(step.now);
        pool.dma_mut().on_read(step.now);
        Ok(())
    }

    /// Lowest start of a run.
    pub(super) fn lowest(
        &self,
        pool: &mut KnittingPool,
        step: ListStep,
    ) -> Result<Option<u64>, LossError> {
        let Some(mut lowest) = self.list.lowest_at_hand(pool, step)? else { return Ok(None) };
        let (head, tail) = self.list.lines();
        if head != self.group_end {
            let held = pool.line(head).ok_or(LossError::Corrupt)?;
            lowest = lowest.min(near(step.edge, held.low_after));
        }
        if tail != self.group_end {
            lowest = lowest.min(near(step.edge, self.low_next));
        }
        Ok(Some(lowest))
    }

    /// Removes all runs, as the host does; their tickets are not given again.
    pub(super) fn clear(
        &mut self,
        pool: &mut KnittingPool,
        step: ListStep,
    ) -> Result<(), LossError> {
        self.list.clear(pool, step)?;
        self.forget();
        Ok(())
    }

    /// Forgets all runs; their blocks are given back by [`KnittingPool::drop_all`].
    pub(super) const fn forget(&mut self) {
        self.list.forget();
        self.ticket = U24::new(self.ticket.get().wrapping_add(self.len.get()) & TICKET_MASK);
        self.len = U24::new(0);
        self.group_end = LineId::NONE;
    }
}

#[cfg(test)]
mod tests {
    use urma_mem::Region;

    use super::super::Holder;
    use super::*;

    #[test]
    fn a_list_with_as_many_runs_as_tickets_takes_no_more() {
        let mut pool = KnittingPool::new();
        let region = Region::private(4 << 6).expect("memory");
        pool.grow(0x4_0000, region, 6, 4).expect("a fresh piece");
        let step = ListStep { now: 0, holder: Holder::new(1), edge: 0, top: 100 };
        let run = LossRun { start: 5, count: 1 };
        for (len, wanted) in
            [(U24::MAX - 1, Ok(U24::MAX - 1)), (U24::MAX, Err(LossError::Exhausted))]
        {
            let mut runs = LaterRuns { len: U24::new(len), ..LaterRuns::new() };
            assert_eq!(runs.push(&mut pool, step, run), wanted, "{len}");
        }
    }

    fn small(number: u64) -> u32 {
        u32::try_from(number).expect("a small number")
    }

    /// Runs in any order against a plain list, in many lines of both groups.
    #[test]
    fn the_lowest_start_is_that_of_a_plain_list() {
        for seed in 1..=40_u64 {
            let mut pool = KnittingPool::new();
            let region = Region::private(256 << 6).expect("memory");
            pool.grow(0x4_0000, region, 6, 256).expect("a fresh piece");
            let (mut runs, mut plain) = (LaterRuns::new(), std::collections::VecDeque::new());
            let (mut ticket, mut random) = (0, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let mut draw = |below: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % below
            };
            let mut step = ListStep { now: 0, holder: Holder::new(1), edge: 7, top: 60_000 };
            for _ in 0..600 {
                step.now += draw(3_000);
                // Lists of some lines grow and shrink again.
                let is_pushed = plain.is_empty() || draw(2 * 60) > plain.len() as u64;
                if is_pushed && plain.len() < 110 {
                    let run = LossRun { start: 7 + draw(50_000), count: 1 + small(draw(9)) };
                    let wanted = (ticket + small(plain.len() as u64)) & TICKET_MASK;
                    assert_eq!(runs.push(&mut pool, step, run), Ok(wanted), "seed {seed}");
                    plain.push_back(run);
                } else if let Some(first) = plain.front_mut() {
                    let start = first.start + 1 + draw(u64::from(first.count));
                    runs.trim(&mut pool, step, start).expect("the lines are sound");
                    match first.end() - start {
                        0 => {
                            plain.pop_front();
                            ticket += 1;
                        }
                        left => *first = LossRun { start, count: small(left) },
                    }
                }
                if draw(200) == 0 {
                    runs.clear(&mut pool, step).expect("the lines are sound");
                    ticket += small(plain.len() as u64);
                    plain.clear();
                }
                let lowest = plain.iter().map(|run: &LossRun| run.start).min();
                assert_eq!(runs.lowest(&mut pool, step), Ok(lowest), "seed {seed}: {plain:?}");
                assert_eq!((runs.ticket(), runs.len()), (ticket, small(plain.len() as u64)));
                assert_eq!(runs.list().first(step.edge), plain.front().copied());
            }
        }
    }
}
