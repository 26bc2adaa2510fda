//! The loss record of the Adamap design: the newest node in the NIC, closed nodes in a list, packets lost again in a table.
//!
//! - owns: the left edge, which node a packet belongs to, when an entry is reported again.
//! - takes: sequences with tier and number of a table entry, time. gives: reports of losses, the left edge.
//! - must not: be better than the design: it takes a repeated packet that was overtaken for lost, and the end of a
//!   stream waits for the sender's timeout.

mod node;
mod table;

use std::collections::VecDeque;

use udma_abi::Nanos;

use self::node::{AdamapNode, NodeList};
use self::table::{AdamapTable, TableEntry};
use super::Holder;
use super::pool::KnittingPool;
use super::record::{Arrival, LossError, LossRecord, RecordTraits};
use crate::report::{DataMark, LossReport};

/// Time between two scans of list and table for old entries, in ns.
const SCAN_NS: Nanos = 100_000;
/// Tier of packets that were reported once.
const FIRST: u8 = 1;
/// Tier of packets that were lost again.
const SECOND: u8 = 2;

/// Sizes and times of the Adamap design.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdamapCfg {
    /// Packets with a bit in a node, 1 to 64.
    pub bits: u8,
    /// First nodes of the list that the NIC holds.
    pub list_nodes: u8,
    /// Entries of the table that the NIC holds.
    pub table_nodes: u8,
    /// Time after which what was reported is reported again, in ns.
    pub entry_timeout_ns: Nanos,
    /// Silence after which the sender starts over from the oldest packet, in ns.
    pub sender_timeout_ns: Nanos,
}

/// The record of one TP.
#[derive(Debug)]
pub(crate) struct AdamapRecord {
    holder: Holder,
    cfg: AdamapCfg,
    edge: u64,
    /// Sequence of bit 0 of the newest node: the first packet after all closed ones that is missing.
    base: u64,
    /// Packets of the newest node that were received.
    newest: u64,
    list: NodeList,
    table: AdamapTable,
    /// Number of the entry that the last packet of the table belonged to.
    last_number: Option<u32>,
    /// Nothing is old before this.
    scan_at: Option<Nanos>,
    reports: VecDeque<LossReport>,
}

/// What a NIC holds of a TP besides nodes.
struct NicState {
    _edge: u64,
    _base: u64,
    _newest: u64,
    _list: [u64; 2],
    _last_number: u32,
    _counts: [u16; 2],
}

impl AdamapRecord {
    /// The record of the TP with number `tpn`, which received nothing.
    pub(crate) fn new(tpn: u32, cfg: AdamapCfg) -> Self {
        let holder = Holder::new(tpn);
        let cfg = AdamapCfg { bits: cfg.bits.clamp(1, 64), ..cfg };
        Self {
            holder,
            cfg,
            edge: 0,
            base: 0,
            newest: 0,
            list: NodeList::new(holder, cfg.list_nodes.into()),
            table: AdamapTable::new(cfg.table_nodes.into()),
            last_number: None,
            scan_at: None,
            reports: VecDeque::new(),
        }
    }

    fn bits(&self) -> u32 {
        self.cfg.bits.into()
    }

    /// Takes a first transmission.
    fn take_new(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        seq: u64,
    ) -> Result<Arrival, LossError> {
        let Some(offset) = seq.checked_sub(self.base) else { return Ok(Arrival::Unmatched) };
        if offset < u64::from(self.bits()) {
            let bit = 1 << offset;
            if self.newest & bit != 0 {
                return Ok(Arrival::Duplicate);
            }
            self.newest |= bit;
            let whole = self.newest.trailing_ones();
            self.base += u64::from(whole);
            self.newest = if whole < 64 { self.newest >> whole } else { 0 };
            return Ok(Arrival::Kept);
        }
        let len = u32::try_from(offset).map_err(|_| LossError::Exhausted)?;
        let node = AdamapNode { start: self.base, received: self.newest, reported_at: now, len };
        self.list.push(pool, now, node)?;
        self.report(now, FIRST, 0, &node);
        (self.base, self.newest) = (seq + 1, 0);
        Ok(Arrival::Kept)
    }

    /// Takes a packet that was reported once: those before it in the list were lost again.
    fn take_first(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        seq: u64,
    ) -> Result<Arrival, LossError> {
        let mut time = now;
        loop {
            self.list.prefetch(pool, time)?;
            let found = self.list.first().filter(|(node, _)| node.start <= seq);
            let Some((node, ready)) = found else { return Ok(Arrival::Unmatched) };
            time = time.max(ready);
            if seq - node.start < node.len.min(self.bits()).into() {
                pool.dma_mut().on_access(now, Some(time));
                return self.take_bit(pool, time, seq, node);
            }
            self.pass_window(pool, time, node)?;
        }
    }

    /// Takes a packet that has a bit in the first node.
    fn take_bit(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        seq: u64,
        node: AdamapNode,
    ) -> Result<Arrival, LossError> {
        let bit = 1 << (seq - node.start);
        if node.received & bit != 0 {
            return Ok(Arrival::Duplicate);
        }
        let node = AdamapNode { received: node.received | bit, ..node };
        let above = node.mask(self.bits()) & !(bit | (bit - 1));
        if node.received & above == above {
            self.pass_window(pool, now, node)?;
        } else {
            self.list.replace_first(node);
        }
        Ok(Arrival::Kept)
    }

    /// No more packets of the first window of the first node will come: what is missing was lost again.
    fn pass_window(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        node: AdamapNode,
    ) -> Result<(), LossError> {
        let (window, rest) = node.split(self.bits());
        if !window.is_full(self.bits()) {
            let node = AdamapNode { reported_at: now, ..window };
            let number = self.table.insert(pool, now, TableEntry { node, tier: SECOND });
            self.report(now, SECOND, number, &node);
        }
        match rest {
            Some(rest) => self.list.replace_first(rest),
            None => self.list.pop(pool, now)?,
        }
        Ok(())
    }

    /// Takes a packet of the table.
    fn take_later(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        seq: u64,
        number: u32,
    ) -> Arrival {
        let Some(mut entry) = self.table.get(number) else { return Arrival::Unmatched };
        let Some(offset) = seq.checked_sub(entry.node.start) else { return Arrival::Unmatched };
        if offset >= entry.node.len.into() {
            return Arrival::Unmatched;
        }
        self.table.touch(pool, now, number);
        if entry.node.received >> offset & 1 != 0 {
            return Arrival::Duplicate;
        }
        entry.node.received |= 1 << offset;
        self.table.store(number, entry, self.bits());
        if let Some(last) = self.last_number.replace(number).filter(|last| *last != number) {
            self.report_again(now, last);
        }
        Arrival::Kept
    }

    /// What is missing of an entry was lost again.
    fn report_again(&mut self, now: Nanos, number: u32) {
        let Some(mut entry) = self.table.get(number) else { return };
        entry.tier = entry.tier.saturating_add(1);
        entry.node.reported_at = now;
        self.table.store(number, entry, self.bits());
        self.report(now, entry.tier, number, &entry.node);
    }

    fn report(&mut self, now: Nanos, tier: u8, number: u32, node: &AdamapNode) {
        if self.scan_at.is_none() {
            self.scan_at = Some(now.saturating_add(self.cfg.entry_timeout_ns));
        }
        let mut report = LossReport::new(tier, number);
        for run in node.missing(self.bits()) {
            if !report.push(run) {
                self.reports.push_back(report);
                report = LossReport::new(tier, number);
                report.push(run);
            }
        }
        self.reports.push_back(report);
    }

    /// The left edge as newest node, list and table say; it never goes back.
    fn edge_of_nodes(&self) -> Result<u64, LossError> {
        let list = self.list.first().map(|(node, _)| node.first_missing());
        let edge = [list, self.table.low()].into_iter().flatten().min().unwrap_or(self.base);
        if edge < self.edge || edge > self.base { Err(LossError::Corrupt) } else { Ok(edge) }
    }
}

impl LossRecord for AdamapRecord {
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
            FIRST => self.take_first(pool, now, seq)?,
            _ => self.take_later(pool, now, seq, mark.ticket),
        };
        let edge = self.edge_of_nodes()?;
        Ok(arrival.with_edge(&mut self.edge, edge))
    }

    fn first_missing(&self) -> u64 {
        self.edge
    }

    fn sack(&self, _pool: &KnittingPool, _words: &mut [u64]) -> Result<usize, LossError> {
        Ok(0)
    }

    fn traits(&self) -> RecordTraits {
        let nodes = usize::from(self.cfg.list_nodes) + usize::from(self.cfg.table_nodes);
        let nic_bytes = size_of::<NicState>() + nodes * size_of::<AdamapNode>();
        RecordTraits { reports_losses: true, nic_bytes }
    }

    fn poll_report(&mut self) -> Option<LossReport> {
        self.reports.pop_front()
    }

    fn on_time(&mut self, pool: &mut KnittingPool, now: Nanos) -> Result<(), LossError> {
        if self.poll_deadline().is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        let Some(old) = now.checked_sub(self.cfg.entry_timeout_ns) else { return Ok(()) };
        for number in self.table.reported_before(old) {
            self.report_again(now, number);
        }
        while let Some((node, _)) = self.list.first().filter(|(node, _)| node.reported_at <= old) {
            self.pass_window(pool, now, node)?;
            self.list.prefetch(pool, now)?;
        }
        let list = self.list.first().map(|(node, _)| node.reported_at);
        let oldest = [list, self.table.oldest()].into_iter().flatten().min();
        self.scan_at = oldest.map(|oldest| oldest.saturating_add(self.cfg.entry_timeout_ns));
        Ok(())
    }

    fn poll_deadline(&self) -> Option<Nanos> {
        self.scan_at.map(|at| at.div_ceil(SCAN_NS) * SCAN_NS)
    }

    fn release(&mut self, pool: &mut KnittingPool) {
        pool.give_all(self.holder);
        self.list.forget();
        self.table.forget();
        self.reports.clear();
        self.scan_at = None;
        (self.base, self.newest) = (self.edge, 0);
    }
}

#[cfg(test)]
mod tests;
