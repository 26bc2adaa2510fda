//! The loss record of the knitting receiver: which packets are missing, in the order in which they come again.
//!
//! - owns: the gaps that may be reordering, the list of packets reported once, the list of those reported again.
//! - takes: sequences with tier and ticket, tail marks. gives: reports of losses, the left edge.
//! - must not: search: what was reported comes again in the order of the reports, so that each list is
//!   read from its front, and what is passed over there was lost again.

use std::collections::VecDeque;

use udma_abi::Nanos;

use super::line::{RunList, RunOrder};
use super::pool::{Holder, KnittingPool};
use super::record::{Arrival, LossError, LossRecord, RecordTraits};
use crate::repair::{RepairCounts, RepairMark};
use crate::report::{DataMark, LossReport, LossRun, TICKET_MASK, TailMark};

/// Gaps that are not reported yet; of more the oldest is.
const UNREPORTED_MAX: usize = 32;
/// Most packets that another may be late by before it is reported as lost.
const LATE_MAX: u64 = 256;
/// Reports that may wait before packets that would cause more are dropped.
const REPORTS_MAX: usize = 64;
/// Least age of a report that may have been lost, in ns.
const PATIENCE_NS_MIN: Nanos = 10_000;
/// The same before the sender knows the round-trip time.
const PATIENCE_NS_INITIAL: Nanos = 1_000_000_000;
/// Least runs that fit into a line.
const RUNS_OF_A_LINE: u64 = 3;
/// Tier of packets that were reported once.
const FIRST: u8 = 1;
/// Tier of packets that were reported more often.
const LATER: u8 = 2;

/// The record of one TP.
#[derive(Debug)]
pub struct KnitRecord {
    holder: Holder,
    edge: u64,
    /// One past the highest packet that was sent, as far as is known.
    top: u64,
    /// Gaps that are not reported: the packets may be late.
    unreported: VecDeque<LossRun>,
    /// How late a packet was, in packets.
    late: u64,
    first: RunList,
    later: RunList,
    /// Ticket of the first run of `later`.
    ticket: u32,
    /// Lowest packet in `later`.
    later_low: Option<u64>,
    reports: VecDeque<LossReport>,
    reported_at: Nanos,
    repairs: RepairCounts,
    repaired: VecDeque<LossRun>,
}

impl KnitRecord {
    /// The record of the TP with number `tpn`, which received nothing.
    #[must_use]
    pub fn new(tpn: u32) -> Self {
        let holder = Holder::new(tpn);
        Self {
            holder,
            edge: 0,
            top: 0,
            unreported: VecDeque::new(),
            late: 0,
            first: RunList::new(holder, RunOrder::Rising),
            later: RunList::new(holder, RunOrder::Any),
            ticket: 0,
            later_low: None,
            reports: VecDeque::new(),
            reported_at: 0,
            repairs: RepairCounts::default(),
            repaired: VecDeque::new(),
        }
    }

    /// Takes a first transmission.
    fn take_new(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        seq: u64,
    ) -> Result<Arrival, LossError> {
        if seq < self.top {
            return Ok(self.take_late(seq));
        }
        if seq > self.top {
            self.open_gap(pool, now, seq)?;
        }
        self.top = seq + 1;
        match self.report_gaps(pool, now, self.late) {
            // The gaps stay unreported; the packet was taken.
            Ok(()) | Err(LossError::Exhausted) => Ok(Arrival::Kept),
            Err(LossError::Corrupt) => Err(LossError::Corrupt),
        }
    }

    /// The packets from `top` to `end` are missing.
    fn open_gap(&mut self, pool: &mut KnittingPool, now: Nanos, end: u64) -> Result<(), LossError> {
        if self.unreported.len() == UNREPORTED_MAX {
            if self.is_full() {
                return Err(LossError::Exhausted);
            }
            self.report_first_gap(pool, now)?;
        }
        let count = u32::try_from(end - self.top).map_err(|_| LossError::Exhausted)?;
        self.unreported.push_back(LossRun { start: self.top, count });
        Ok(())
    }

    /// A packet that others overtook.
    fn take_late(&mut self, seq: u64) -> Arrival {
        self.late = self.late.max(self.top - seq).min(LATE_MAX);
        let gap = |run: &LossRun| run.start <= seq && seq < run.end();
        let Some(at) = self.unreported.iter().position(gap) else { return Arrival::Unmatched };
        let run = self.unreported[at];
        let before = u32::try_from(seq - run.start).unwrap_or(0);
        let after = LossRun { start: seq + 1, count: run.count - before - 1 };
        if before > 0 {
            self.unreported[at].count = before;
            if after.count > 0 {
                self.unreported.insert(at + 1, after);
            }
        } else if after.count > 0 {
            self.unreported[at] = after;
        } else {
            self.unreported.remove(at);
        }
        Arrival::Kept
    }

    /// Reports gaps that at least `late` packets overtook.
    fn report_gaps(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        late: u64,
    ) -> Result<(), LossError> {
        while self.unreported.front().is_some_and(|run| run.end() + late <= self.top)
            && !self.is_full()
        {
            self.report_first_gap(pool, now)?;
        }
        Ok(())
    }

    fn report_first_gap(&mut self, pool: &mut KnittingPool, now: Nanos) -> Result<(), LossError> {
        let Some(&run) = self.unreported.front() else { return Ok(()) };
        self.first.push(pool, now, run)?;
        self.unreported.pop_front();
        self.report(now, FIRST, 0, run);
        Ok(())
    }

    /// Whether as many reports wait to be sent as may.
    fn is_full(&self) -> bool {
        self.reports.len() >= REPORTS_MAX
    }

    /// Takes a packet that was reported once: those before it in the list were lost again.
    fn take_first(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        seq: u64,
    ) -> Result<Arrival, LossError> {
        loop {
            let Some(run) = self.first.first().filter(|run| run.start <= seq) else {
                return Ok(Arrival::Unmatched);
            };
            let end = seq.min(run.end());
            if end > run.start {
                self.lose_again(pool, now, run.start, end)?;
            }
            let found = seq < run.end();
            self.first.trim(pool, now, if found { seq + 1 } else { end })?;
            if found {
                pool.dma_mut().on_hit();
                return Ok(Arrival::Kept);
            }
        }
    }

    /// Takes a packet that was reported several times, at last with `ticket`.
    fn take_later(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        seq: u64,
        ticket: u32,
    ) -> Result<Arrival, LossError> {
        if tickets(self.ticket, ticket) >= self.later.len() {
            return Ok(Arrival::Unmatched);
        }
        while tickets(self.ticket, ticket) > 0 {
            self.rotate(pool, now)?;
        }
        let Some(run) = self.later.first() else { return Ok(Arrival::Unmatched) };
        if seq < run.start || run.end() <= seq {
            return Ok(Arrival::Unmatched);
        }
        if run.start < seq {
            self.lose_again(pool, now, run.start, seq)?;
        }
        pool.dma_mut().on_hit();
        self.drop_later(pool, now, seq + 1)?;
        if self.later_low == Some(run.start) {
            self.later_low = self.later.lowest(pool)?;
        }
        Ok(Arrival::Kept)
    }

    /// Appends the first run of the second list to that list.
    fn rotate(&mut self, pool: &mut KnittingPool, now: Nanos) -> Result<(), LossError> {
        let Some(run) = self.later.first() else { return Ok(()) };
        self.lose_again(pool, now, run.start, run.end())?;
        self.drop_later(pool, now, run.end())
    }

    fn drop_later(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        start: u64,
    ) -> Result<(), LossError> {
        let runs = self.later.len();
        self.later.trim(pool, now, start)?;
        self.ticket = self.ticket.wrapping_add(runs - self.later.len()) & TICKET_MASK;
        Ok(())
    }

    fn lose_again(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        start: u64,
        end: u64,
    ) -> Result<(), LossError> {
        let count = u32::try_from(end - start).map_err(|_| LossError::Corrupt)?;
        let run = LossRun { start, count };
        let ticket = self.ticket.wrapping_add(self.later.len()) & TICKET_MASK;
        self.later.push(pool, now, run)?;
        self.later_low = Some(self.later_low.map_or(start, |low| low.min(start)));
        self.report(now, LATER, ticket, run);
        Ok(())
    }

    fn report(&mut self, now: Nanos, tier: u8, ticket: u32, run: LossRun) {
        self.reported_at = now;
        if let Some(last) = self.reports.back_mut()
            && last.tier == tier
            && last.push(run)
        {
            return;
        }
        let mut report = LossReport::new(tier, ticket);
        report.push(run);
        self.reports.push_back(report);
    }

    /// Reports what the mark shows to be lost.
    fn tend(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        mark: &TailMark,
    ) -> Result<(), LossError> {
        if self.repairs.end().is_some_and(|end| end <= mark.end) {
            if mark.end > self.top {
                self.open_gap(pool, now, mark.end)?;
                self.top = mark.end;
            }
            self.repair(pool, now)?;
        }
        // A report that was sent a round trip ago and changed nothing was lost itself.
        let patience = match mark.rtt_ns {
            0 => PATIENCE_NS_INITIAL,
            rtt => rtt.saturating_add(rtt / 8).max(PATIENCE_NS_MIN),
        };
        let is_old = self.reported_at.saturating_add(patience) < now;
        let (runs, ticket) = (self.later.len(), self.ticket);
        for _ in 0..runs {
            let end = tickets(ticket, mark.ticket_end);
            let is_due = tickets(ticket, self.ticket) < end && end <= runs;
            if !is_due && !is_old {
                break;
            }
            self.rotate(pool, now)?;
        }
        let first_end = if is_old { self.top } else { mark.first_end };
        while let Some(run) = self.first.first().filter(|run| run.start < first_end) {
            let end = run.end().min(first_end);
            self.lose_again(pool, now, run.start, end)?;
            self.first.trim(pool, now, end)?;
        }
        if mark.end > self.top {
            self.open_gap(pool, now, mark.end)?;
            self.top = mark.end;
        }
        self.report_gaps(pool, now, 0)
    }

    /// No list can grow: the first run is reported where it is, since its packets make room.
    fn ask_again(&mut self, now: Nanos) {
        if let Some(run) = self.later.first() {
            self.report(now, LATER, self.ticket, run);
        } else if let Some(run) = self.first.first() {
            self.report(now, FIRST, 0, run);
        }
    }

    /// Takes what repair packets brought out of the lists, and reports the rest with new tickets.
    fn repair(&mut self, pool: &mut KnittingPool, now: Nanos) -> Result<(), LossError> {
        let mut missing = self.first.runs(pool)?;
        missing.extend(self.later.runs(pool)?);
        missing.extend(&self.unreported);
        missing.sort_unstable_by_key(|run| run.start);
        let Some((repaired, left)) = self.repairs.repair(&missing) else { return Ok(()) };
        // The lists give their own blocks back first, so that what is left has room.
        if pool.usage().free < left.len() as u64 / RUNS_OF_A_LINE {
            return Ok(());
        }
        while let Some(run) = self.first.first() {
            self.first.trim(pool, now, run.end())?;
        }
        while let Some(run) = self.later.first() {
            self.drop_later(pool, now, run.end())?;
        }
        self.unreported.clear();
        self.later_low = None;
        for run in left {
            self.lose_again(pool, now, run.start, run.end())?;
        }
        self.repaired.extend(repaired);
        self.edge = self.edge_of_lists()?;
        Ok(())
    }

    /// The left edge as the lists say; it never goes back.
    fn edge_of_lists(&self) -> Result<u64, LossError> {
        let starts = [
            self.unreported.front().map(|run| run.start),
            self.first.first().map(|run| run.start),
            self.later_low,
        ];
        let edge = starts.into_iter().flatten().min().unwrap_or(self.top);
        if edge < self.edge || edge > self.top { Err(LossError::Corrupt) } else { Ok(edge) }
    }
}

/// Tickets from one to a later one.
const fn tickets(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & TICKET_MASK
}

impl LossRecord for KnitRecord {
    fn record(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        seq: u64,
        mark: DataMark,
    ) -> Result<Arrival, LossError> {
        if seq < self.edge {
            return Ok(Arrival::Duplicate);
        }
        let arrival = match mark.tier {
            0 => self.take_new(pool, now, seq)?,
            _ if self.is_full() => Arrival::Unmatched,
            FIRST => self.take_first(pool, now, seq)?,
            _ => self.take_later(pool, now, seq, mark.ticket)?,
        };
        let edge = self.edge_of_lists()?;
        Ok(arrival.with_edge(&mut self.edge, edge))
    }

    fn first_missing(&self) -> u64 {
        self.edge
    }

    fn sack(&self, _pool: &KnittingPool, _words: &mut [u64]) -> Result<usize, LossError> {
        Ok(0)
    }

    fn traits(&self) -> RecordTraits {
        let unreported = self.unreported.len() * size_of::<LossRun>();
        // Repair packets are counted and used in host memory.
        let host = size_of::<RepairCounts>() + size_of::<VecDeque<LossRun>>();
        RecordTraits { reports_losses: true, nic_bytes: size_of::<Self>() - host + unreported }
    }

    fn on_tail(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        mark: &TailMark,
    ) -> Result<(), LossError> {
        if self.is_full() {
            return Ok(());
        }
        match self.tend(pool, now, mark) {
            Err(LossError::Exhausted) => self.ask_again(now),
            result => return result,
        }
        Ok(())
    }

    fn has_report(&self) -> bool {
        !self.reports.is_empty()
    }

    fn on_repair(&mut self, mark: &RepairMark) {
        if mark.end > self.edge {
            self.repairs.on_repair(mark);
        }
    }

    fn poll_repaired(&mut self) -> Option<LossRun> {
        self.repaired.pop_front()
    }

    fn poll_report(&mut self) -> Option<LossReport> {
        self.reports.pop_front()
    }

    fn release(&mut self, pool: &mut KnittingPool) {
        pool.give_all(self.holder);
        self.first.forget();
        self.later.forget();
        self.unreported.clear();
        self.reports.clear();
        self.repaired.clear();
        self.later_low = None;
        self.top = self.edge;
    }
}
