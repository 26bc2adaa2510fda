//! The loss record of the knitting receiver: which packets are missing, in the order in which they come again.
//!
//! - owns: the context of a TP in the NIC; reports that are to be sent; repair packets, which the host counts.
//! - takes: sequences with tier and ticket, tail marks. gives: reports of losses, the left edge.
//! - must not: search: what was reported comes again in the order of the reports, so that each list is
//!   read from its front, and what is passed over there was lost again.

use std::collections::VecDeque;

use udma_abi::Nanos;

use super::Holder;
use super::gaps::Gaps;
use super::later::LaterRuns;
use super::line::RunOrder;
use super::lines::ListStep;
use super::list::{RUN_PACKETS_MAX, RunList};
use super::narrow::{SPAN_MAX, U48, low_bits, near};
use super::pool::KnittingPool;
use super::record::{Arrival, LossError, LossRecord, RecordTraits};
use crate::repair::{RepairCounts, RepairMark};
use crate::report::{DataMark, LossReport, LossRun, TICKET_MASK, TailMark};

/// Most packets that another may be late by before it is reported as lost.
const LATE_MAX: u8 = u8::MAX;
/// Reports that may wait before packets that would cause more are dropped.
const REPORTS_MAX: usize = 64;
/// Least age of a report that may have been lost, in ns.
const PATIENCE_NS_MIN: Nanos = 10_000;
/// The same before the sender knows the round-trip time: less than its longest timeout, which is 500 ms.
const PATIENCE_NS_INITIAL: Nanos = 250_000_000;
/// Binary logarithm of the unit, in ns, in which the NIC notes when it reported last.
const TICK_LOG2: u32 = 10;
/// Least runs that fit into a line.
const RUNS_OF_A_LINE: u64 = 3;
/// Tier of packets that were reported once.
const FIRST: u8 = 1;
/// Tier of packets that were reported more often.
const LATER: u8 = 2;
/// Most bytes of a TP's loss context in the NIC.
const NIC_BYTES_MAX: usize = 64;

/// What a NIC holds of a TP: all that the record is, but lines, which the NIC holds for all TPs together.
#[derive(Debug)]
struct KnitContext {
    /// Packets that were reported once.
    first: RunList,
    /// Packets that were reported more often.
    later: LaterRuns,
    /// Low bits of the packet after the highest one that was sent, as far as is known.
    top: u32,
    /// When something was reported last, in ticks, which wrap.
    reported: u32,
    /// First packet that is missing.
    edge: U48,
    /// How late a packet was, in packets.
    late: u8,
    /// Number of gaps that are not reported: their packets may be late.
    gaps: u8,
}

/// What the host holds of a TP for repair packets, which it counts and uses.
#[derive(Debug, Default)]
struct RepairHost {
    counts: RepairCounts,
    repaired: VecDeque<LossRun>,
}

const _: () = {
    assert!(size_of::<KnitContext>() <= NIC_BYTES_MAX);
    // Whatever is added beside the context is not of the NIC, or belongs into it.
    let beside = size_of::<RepairHost>() + size_of::<VecDeque<LossReport>>() + 8;
    assert!(size_of::<KnitRecord>() <= size_of::<KnitContext>() + beside);
};

/// The record of one TP.
#[derive(Debug)]
pub struct KnitRecord {
    /// Place of the context in the NIC.
    holder: Holder,
    nic: KnitContext,
    /// Packets that the NIC is about to send.
    reports: VecDeque<LossReport>,
    host: RepairHost,
}

impl KnitRecord {
    /// The record of the TP with number `tpn`, which received nothing.
    #[must_use]
    pub fn new(tpn: u32) -> Self {
        Self {
            holder: Holder::new(tpn),
            nic: KnitContext {
                first: RunList::new(RunOrder::Rising),
                later: LaterRuns::new(),
                top: 0,
                reported: 0,
                edge: U48::new(0),
                late: 0,
                gaps: 0,
            },
            reports: VecDeque::new(),
            host: RepairHost::default(),
        }
    }

    const fn edge(&self) -> u64 {
        self.nic.edge.get()
    }

    const fn top(&self) -> u64 {
        near(self.edge(), self.nic.top)
    }

    const fn list_step(&self, now: Nanos) -> ListStep {
        ListStep { now, holder: self.holder, edge: self.edge(), top: self.top() }
    }

    fn first(&self) -> Option<LossRun> {
        self.nic.first.first(self.edge())
    }

    fn first_later(&self) -> Option<LossRun> {
        self.nic.later.list().first(self.edge())
    }

    /// Takes a first transmission.
    fn take_new(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        seq: u64,
    ) -> Result<Arrival, LossError> {
        let top = self.top();
        if seq < top {
            return Ok(self.take_late(pool, seq));
        }
        if seq - self.edge() >= SPAN_MAX {
            return Err(LossError::Exhausted);
        }
        if seq > top {
            self.open_gap(pool, now, seq)?;
        }
        self.nic.top = low_bits(seq + 1);
        match self.report_gaps(pool, now, self.nic.late) {
            // The gaps stay unreported; the packet was taken.
            Ok(()) | Err(LossError::Exhausted) => Ok(Arrival::Kept),
            Err(error) => Err(error),
        }
    }

    /// The packets from the highest one to `end` are missing; after an error only those below the highest one then.
    fn open_gap(&mut self, pool: &mut KnittingPool, now: Nanos, end: u64) -> Result<(), LossError> {
        if end - self.edge() >= SPAN_MAX {
            return Err(LossError::Exhausted);
        }
        let mut start = self.top();
        while start < end {
            let count = (end - start).min(RUN_PACKETS_MAX);
            let run = LossRun { start, count: u32::try_from(count).unwrap_or(0) };
            self.nic.top = low_bits(run.end());
            if let Err(error) = self.add_gap(pool, now, run) {
                self.nic.top = low_bits(start);
                return Err(error);
            }
            start = run.end();
        }
        Ok(())
    }

    /// A gap of packets that may be late. Where none ever was, it is reported at once.
    fn add_gap(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        run: LossRun,
    ) -> Result<(), LossError> {
        if self.nic.gaps == 0 && self.nic.late == 0 && !self.is_full() {
            match self.report_gap(pool, now, run) {
                Err(LossError::Exhausted) => {}
                result => return result,
            }
        }
        loop {
            let mut gaps = self.gaps(pool);
            if gaps.push(run) && self.keep_gaps(pool, &gaps) {
                return Ok(());
            }
            if self.nic.gaps == 0 || self.is_full() {
                return Err(LossError::Exhausted);
            }
            self.report_first_gap(pool, now)?;
        }
    }

    fn gaps(&self, pool: &KnittingPool) -> Gaps {
        Gaps::of(if self.nic.gaps == 0 { None } else { pool.gaps(self.holder) })
    }

    /// Keeps gaps in the NIC; `false` and no change if they do not fit.
    fn keep_gaps(&mut self, pool: &mut KnittingPool, gaps: &Gaps) -> bool {
        let line = gaps.to_line();
        let is_kept = line.is_some() == (gaps.len() > 0) && pool.keep_gaps(self.holder, line);
        if is_kept {
            self.nic.gaps = u8::try_from(gaps.len()).unwrap_or(u8::MAX);
        }
        is_kept
    }

    /// A packet that others overtook.
    fn take_late(&mut self, pool: &mut KnittingPool, seq: u64) -> Arrival {
        let late = u8::try_from(self.top() - seq).unwrap_or(LATE_MAX);
        self.nic.late = self.nic.late.max(late);
        let mut gaps = self.gaps(pool);
        if gaps.take(seq).is_some() && self.keep_gaps(pool, &gaps) {
            Arrival::Kept
        } else {
            Arrival::Unmatched
        }
    }

    /// Reports gaps that at least `late` packets overtook.
    fn report_gaps(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        late: u8,
    ) -> Result<(), LossError> {
        while self.nic.gaps > 0 && !self.is_full() {
            let first = self.gaps(pool).first();
            if first.is_none_or(|run| run.end() + u64::from(late) > self.top()) {
                break;
            }
            self.report_first_gap(pool, now)?;
        }
        Ok(())
    }

    fn report_first_gap(&mut self, pool: &mut KnittingPool, now: Nanos) -> Result<(), LossError> {
        let mut gaps = self.gaps(pool);
        let Some(run) = gaps.first() else { return Ok(()) };
        self.report_gap(pool, now, run)?;
        gaps.pop();
        if self.keep_gaps(pool, &gaps) { Ok(()) } else { Err(LossError::Corrupt) }
    }

    fn report_gap(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        run: LossRun,
    ) -> Result<(), LossError> {
        let step = self.list_step(now);
        self.nic.first.push(pool, step, run, false)?;
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
            let Some(run) = self.first().filter(|run| run.start <= seq) else {
                return Ok(Arrival::Unmatched);
            };
            let end = seq.min(run.end());
            if end > run.start {
                self.lose_again(pool, now, run.start, end)?;
            }
            let found = seq < run.end();
            if found {
                pool.await_run(now, self.nic.first.ready_at(pool));
            }
            let step = self.list_step(now);
            self.nic.first.trim(pool, step, if found { seq + 1 } else { end })?;
            if found {
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
        if tickets(self.nic.later.ticket(), ticket) >= self.nic.later.len() {
            return Ok(Arrival::Unmatched);
        }
        while tickets(self.nic.later.ticket(), ticket) > 0 {
            self.rotate(pool, now)?;
        }
        let Some(run) = self.first_later() else { return Ok(Arrival::Unmatched) };
        if seq < run.start || run.end() <= seq {
            return Ok(Arrival::Unmatched);
        }
        pool.await_run(now, self.nic.later.list().ready_at(pool));
        if run.start < seq {
            self.lose_again(pool, now, run.start, seq)?;
        }
        let step = self.list_step(now);
        self.nic.later.trim(pool, step, seq + 1)?;
        Ok(Arrival::Kept)
    }

    /// Appends the first run of the second list to that list.
    fn rotate(&mut self, pool: &mut KnittingPool, now: Nanos) -> Result<(), LossError> {
        let Some(run) = self.first_later() else { return Ok(()) };
        self.lose_again(pool, now, run.start, run.end())?;
        let step = self.list_step(now);
        self.nic.later.trim(pool, step, run.end())
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
        let step = self.list_step(now);
        let ticket = self.nic.later.push(pool, step, run)?;
        self.report(now, LATER, ticket, run);
        Ok(())
    }

    fn report(&mut self, now: Nanos, tier: u8, ticket: u32, run: LossRun) {
        self.nic.reported = ticks(now);
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
        if self.host.counts.end().is_some_and(|end| end <= mark.end) {
            if mark.end > self.top() {
                self.open_gap(pool, now, mark.end)?;
            }
            self.repair(pool, now)?;
        }
        // A report that was sent a round trip ago and changed nothing was lost itself.
        let patience = match mark.rtt_ns {
            0 => PATIENCE_NS_INITIAL,
            rtt => rtt.saturating_add(rtt / 8).max(PATIENCE_NS_MIN),
        };
        let age = Nanos::from(ticks(now).wrapping_sub(self.nic.reported)) << TICK_LOG2;
        let is_old = age > patience;
        let (runs, ticket) = (self.nic.later.len(), self.nic.later.ticket());
        for _ in 0..runs {
            let end = tickets(ticket, mark.ticket_end);
            let is_due = tickets(ticket, self.nic.later.ticket()) < end && end <= runs;
            if !is_due && !is_old {
                break;
            }
            self.rotate(pool, now)?;
        }
        let first_end = if is_old { self.top() } else { mark.first_end };
        while let Some(run) = self.first().filter(|run| run.start < first_end) {
            let end = run.end().min(first_end);
            self.lose_again(pool, now, run.start, end)?;
            let step = self.list_step(now);
            self.nic.first.trim(pool, step, end)?;
        }
        if mark.end > self.top() {
            self.open_gap(pool, now, mark.end)?;
        }
        self.report_gaps(pool, now, 0)
    }

    /// No list can grow: the first run is reported where it is, since its packets make room.
    fn ask_again(&mut self, now: Nanos) {
        if let Some(run) = self.first_later() {
            self.report(now, LATER, self.nic.later.ticket(), run);
        } else if let Some(run) = self.first() {
            self.report(now, FIRST, 0, run);
        }
    }

    /// Takes what repair packets brought out of the lists, and reports the rest with new tickets. The host does this: it
    /// has the packets of the group, and reads the lists in its own memory.
    fn repair(&mut self, pool: &mut KnittingPool, now: Nanos) -> Result<(), LossError> {
        let step = self.list_step(now);
        let mut missing = self.nic.first.runs(pool, step)?;
        missing.extend(self.nic.later.list().runs(pool, step)?);
        missing.extend(self.gaps(pool).runs());
        missing.sort_unstable_by_key(|run| run.start);
        let Some((repaired, left)) = self.host.counts.repair(&missing) else { return Ok(()) };
        // The lists give their own blocks back first, so that what is left has room.
        if pool.usage().free < left.len() as u64 / RUNS_OF_A_LINE {
            return Ok(());
        }
        self.nic.first.clear(pool, step)?;
        self.nic.later.clear(pool, step)?;
        pool.keep_gaps(self.holder, None);
        self.nic.gaps = 0;
        for run in left {
            let mut start = run.start;
            while start < run.end() {
                let end = run.end().min(start + RUN_PACKETS_MAX);
                self.lose_again(pool, now, start, end)?;
                start = end;
            }
        }
        self.host.repaired.extend(repaired);
        self.move_edge(pool, now).map(|_| ())
    }

    /// Moves the left edge to where the lists say it is; it never goes back.
    fn move_edge(&mut self, pool: &mut KnittingPool, now: Nanos) -> Result<u64, LossError> {
        let step = self.list_step(now);
        let gap = if self.nic.gaps > 0 { self.gaps(pool).first() } else { None };
        let starts = [
            gap.map(|run| run.start),
            self.first().map(|run| run.start),
            self.nic.later.lowest(pool, step)?,
        ];
        let edge = starts.into_iter().flatten().min().unwrap_or(step.top);
        if edge < step.edge || edge > step.top {
            return Err(LossError::Corrupt);
        }
        self.nic.edge = U48::new(edge);
        Ok(edge)
    }
}

/// Tickets from one to a later one.
const fn tickets(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & TICKET_MASK
}

/// Time in the unit of the NIC.
#[expect(clippy::cast_possible_truncation, reason = "they wrap")]
const fn ticks(now: Nanos) -> u32 {
    (now >> TICK_LOG2) as u32
}

impl LossRecord for KnitRecord {
    fn record(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        seq: u64,
        mark: DataMark,
    ) -> Result<Arrival, LossError> {
        let edge = self.edge();
        if seq < edge {
            return Ok(Arrival::Duplicate);
        }
        if mark.tier == 0 && seq == edge && self.nic.top == low_bits(edge) {
            self.nic.edge = U48::new(edge + 1);
            self.nic.top = low_bits(edge + 1);
            return Ok(Arrival::Advanced(edge + 1));
        }
        let arrival = match mark.tier {
            0 => self.take_new(pool, now, seq)?,
            _ if self.is_full() => Arrival::Unmatched,
            FIRST => self.take_first(pool, now, seq)?,
            _ => self.take_later(pool, now, seq, mark.ticket)?,
        };
        if seq > edge || arrival != Arrival::Kept {
            return Ok(arrival);
        }
        self.move_edge(pool, now).map(Arrival::Advanced)
    }

    fn first_missing(&self) -> u64 {
        self.edge()
    }

    fn sack(&self, _pool: &KnittingPool, _words: &mut [u64]) -> Result<usize, LossError> {
        Ok(0)
    }

    fn traits(&self) -> RecordTraits {
        RecordTraits { reports_losses: true, nic_bytes: size_of_val(&self.nic) }
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
        if mark.end > self.edge() {
            self.host.counts.on_repair(mark);
        }
    }

    fn poll_repaired(&mut self) -> Option<LossRun> {
        self.host.repaired.pop_front()
    }

    fn poll_report(&mut self) -> Option<LossReport> {
        self.reports.pop_front()
    }

    fn release(&mut self, pool: &mut KnittingPool) {
        pool.drop_all(self.holder);
        self.nic.first.forget();
        self.nic.later.forget();
        self.nic.gaps = 0;
        self.reports.clear();
        self.host.repaired.clear();
        self.nic.top = low_bits(self.edge());
    }
}
