//! The loss record of the Adamap design: the newest node in the NIC, closed nodes in a list, packets lost again in a table.
//!
//! - owns: the left edge, which node a packet belongs to, when an entry is reported again.
//! - takes: sequences with tier and number of a table entry, time. gives: reports of losses, the left edge.
//! - must not: be better than the design: it takes a repeated packet that was overtaken for lost, and the end of a
//!   stream waits for the sender's timeout.

use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr;

use udma_abi::Nanos;

use super::{
    Holder,
    pool::KnittingPool,
    record::{Arrival, LossError, LossRecord, RecordTraits},
};
use crate::{
    knitting::BlockId,
    report::{DataMark, LossReport, LossRun, TICKET_MASK},
};

/// Time between two scans of list and table for old entries, in ns.
const SCAN_NS: Nanos = 100_000;
/// Reports that wait to be sent; further ones are not made.
const REPORTS_MAX: usize = 4096;
/// Tier of packets that were reported once.
const FIRST: u8 = 1;
/// Tier of packets that were lost again.
const SECOND: u8 = 2;

/// What a NIC holds of a TP in the Adamap design.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdamapSizes {
    /// Packets with a bit in a node, 1 to 64.
    pub bits: u8,
    /// First nodes of the list that the NIC holds, 1 to 64.
    pub list_nodes: u8,
    /// Nodes of the list that the NIC still holds when it begins to read further ones, less than it may hold.
    pub watermark: u8,
    /// Entries of the table that the NIC holds, 1 to 64.
    pub table_nodes: u8,
}

impl Default for AdamapSizes {
    /// 32 packets in a node; three nodes of the list, read as soon as one is used up; two entries of the table.
    fn default() -> Self {
        Self { bits: 32, list_nodes: 3, watermark: 2, table_nodes: 2 }
    }
}

/// A size of the Adamap design that cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name}={value}: {wanted}")]
pub struct AdamapSizeError {
    /// Name of the size.
    pub name: String,
    /// What was given for it.
    pub value: String,
    /// What is possible there.
    pub wanted: &'static str,
}

impl AdamapSizes {
    /// Checks each size.
    ///
    /// # Errors
    /// [`AdamapSizeError`] with the first one that is out of range.
    pub fn check(&self) -> Result<(), AdamapSizeError> {
        let wanted = "1 to 64";
        for (name, value) in
            [("bits", self.bits), ("list", self.list_nodes), ("table", self.table_nodes)]
        {
            if !(1..=64).contains(&value) {
                let (name, value) = (name.to_owned(), value.to_string());
                return Err(AdamapSizeError { name, value, wanted });
            }
        }
        if self.watermark >= self.list_nodes {
            let (name, value) = ("watermark".to_owned(), self.watermark.to_string());
            return Err(AdamapSizeError { name, value, wanted: "less than list" });
        }
        Ok(())
    }
}

impl FromStr for AdamapSizes {
    type Err = AdamapSizeError;

    /// Reads `bits=32,list=3,watermark=2,table=2`, of which each may be missing; without `watermark` it is one less than
    /// `list`.
    fn from_str(text: &str) -> Result<Self, AdamapSizeError> {
        let mut sizes = Self::default();
        let mut watermark = None;
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let wrong = |wanted| {
                let (name, value) = (name.to_owned(), value.to_owned());
                AdamapSizeError { name, value, wanted }
            };
            let number = value.parse().map_err(|_| wrong("a number from 0 to 64"))?;
            match name {
                "bits" => sizes.bits = number,
                "list" => sizes.list_nodes = number,
                "watermark" => watermark = Some(number),
                "table" => sizes.table_nodes = number,
                _ => return Err(wrong("a size is bits, list, watermark or table")),
            }
        }
        sizes.watermark = watermark.unwrap_or_else(|| sizes.list_nodes.saturating_sub(1));
        sizes.check()?;
        Ok(sizes)
    }
}

/// Sizes and times of the Adamap design.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdamapCfg {
    /// What the NIC holds.
    pub sizes: AdamapSizes,
    /// Time after which what was reported is reported again, in ns; round trips come on top of it.
    pub entry_timeout_ns: Nanos,
    /// Round trips as this side measures them that are added to it, in thousandths; 0 where it has the path's in it.
    pub entry_timeout_permille: u32,
    /// Silence after which the sender starts over from the oldest packet, in ns; 0: the TP's timer alone tells.
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
    /// Round-trip time that this side measured last, in ns.
    rtt_ns: Nanos,
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
        let bits = cfg.sizes.bits.clamp(1, 64);
        let cfg = AdamapCfg { sizes: AdamapSizes { bits, ..cfg.sizes }, ..cfg };
        Self {
            holder,
            cfg,
            edge: 0,
            base: 0,
            newest: 0,
            rtt_ns: 0,
            list: NodeList::new(holder, cfg.sizes.list_nodes.into(), cfg.sizes.watermark.into()),
            table: AdamapTable::new(cfg.sizes.table_nodes.into()),
            last_number: None,
            scan_at: None,
            reports: VecDeque::new(),
        }
    }

    fn bits(&self) -> u32 {
        self.cfg.sizes.bits.into()
    }

    /// Time after which what was reported is reported again, in ns.
    fn timeout_ns(&self) -> Nanos {
        let permille = self.cfg.entry_timeout_permille.into();
        self.cfg.entry_timeout_ns.saturating_add(self.rtt_ns.saturating_mul(permille) / 1000)
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
            self.list.prefetch(pool, time, self.base)?;
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
            let number = self.table.insert(pool, now, node);
            self.report(now, SECOND, number, &node);
        }
        match rest {
            Some(rest) => self.list.replace_first(rest),
            None => self.list.pop(pool, now, self.base)?,
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
        let Some(mut node) = self.table.get(number) else { return Arrival::Unmatched };
        let Some(offset) = seq.checked_sub(node.start) else { return Arrival::Unmatched };
        if offset >= node.len.into() {
            return Arrival::Unmatched;
        }
        self.table.touch(pool, now, number);
        if node.received >> offset & 1 != 0 {
            return Arrival::Duplicate;
        }
        node.received |= 1 << offset;
        self.table.store(number, node, self.bits());
        if let Some(last) = self.last_number.replace(number).filter(|last| *last != number) {
            self.report_again(now, last);
        }
        Arrival::Kept
    }

    /// What is missing of an entry was lost again.
    fn report_again(&mut self, now: Nanos, number: u32) {
        let Some(mut node) = self.table.get(number) else { return };
        node.reported_at = now;
        self.table.store(number, node, self.bits());
        self.report(now, SECOND, number, &node);
    }

    fn report(&mut self, now: Nanos, tier: u8, number: u32, node: &AdamapNode) {
        if self.scan_at.is_none() {
            self.scan_at = Some(now.saturating_add(self.timeout_ns()));
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
        // What is not said now is said after the timeout.
        self.reports.truncate(REPORTS_MAX);
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
        let nodes =
            usize::from(self.cfg.sizes.list_nodes) + usize::from(self.cfg.sizes.table_nodes);
        let nic_bytes = size_of::<NicState>() + nodes * size_of::<AdamapNode>();
        RecordTraits { reports_losses: true, nic_bytes }
    }

    fn has_report(&self) -> bool {
        !self.reports.is_empty()
    }

    fn poll_report(&mut self) -> Option<LossReport> {
        self.reports.pop_front()
    }

    fn on_time(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        rtt_ns: Nanos,
    ) -> Result<(), LossError> {
        self.rtt_ns = rtt_ns;
        if self.poll_deadline().is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        let timeout_ns = self.timeout_ns();
        let Some(old) = now.checked_sub(timeout_ns) else {
            self.scan_at = Some(timeout_ns);
            return Ok(());
        };
        for number in self.table.reported_before(old) {
            self.report_again(now, number);
        }
        while let Some((node, _)) = self.list.first().filter(|(node, _)| node.reported_at <= old) {
            self.pass_window(pool, now, node)?;
            self.list.prefetch(pool, now, self.base)?;
        }
        let list = self.list.first().map(|(node, _)| node.reported_at);
        let oldest = [list, self.table.oldest()].into_iter().flatten().min();
        self.scan_at = oldest.map(|oldest| oldest.saturating_add(timeout_ns));
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

/// Words of a block that hold a node.
const WORDS: usize = 4;

/// Packets from `start` on: one bit for each of the first ones, whether it was received; all others are missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AdamapNode {
    /// Sequence of bit 0.
    pub(crate) start: u64,
    /// Bit by packet: it was received.
    pub(crate) received: u64,
    /// When it was reported last.
    pub(crate) reported_at: Nanos,
    /// Packets that it covers, at least 1.
    pub(crate) len: u32,
}

impl AdamapNode {
    /// Sequence after the last packet.
    pub(crate) const fn end(&self) -> u64 {
        self.start + self.len as u64
    }

    /// Bits of the packets that have one.
    pub(crate) const fn mask(&self, bits: u32) -> u64 {
        let count = if self.len < bits { self.len } else { bits };
        u64::MAX >> (64 - count)
    }

    /// Whether none that has a bit is missing.
    pub(crate) const fn is_full(&self, bits: u32) -> bool {
        self.received & self.mask(bits) == self.mask(bits)
    }

    /// First packet that is missing, if its bit shows one.
    pub(crate) const fn first_missing(&self) -> u64 {
        self.start + self.received.trailing_ones() as u64
    }

    /// The first window of `bits` packets, and what lies behind it.
    pub(crate) fn split(self, bits: u32) -> (Self, Option<Self>) {
        let rest = (self.len > bits).then(|| Self {
            start: self.start + u64::from(bits),
            received: 0,
            len: self.len - bits,
            ..self
        });
        (Self { len: self.len.min(bits), ..self }, rest)
    }

    /// Runs of missing packets in order.
    pub(crate) fn missing(&self, bits: u32) -> impl Iterator<Item = LossRun> {
        let (start, len) = (self.start, self.len);
        let received = self.received & self.mask(bits);
        let mut at = 0;
        std::iter::from_fn(move || {
            at += shifted(received, at).trailing_ones();
            if at >= len {
                return None;
            }
            let zeros = shifted(received, at).trailing_zeros();
            // Behind the last packet that was received, all are missing.
            let count = if zeros == 64 { len - at } else { zeros };
            let run = LossRun { start: start + u64::from(at), count };
            at += count;
            Some(run)
        })
    }
}

const fn shifted(bits: u64, by: u32) -> u64 {
    if by < 64 { bits >> by } else { 0 }
}

/// Nodes in the order of their sequences: the first ones in the NIC, the others in the pool.
#[derive(Debug)]
pub(crate) struct NodeList {
    holder: Holder,
    /// Nodes that the NIC holds, the first at hand, and one that is being read.
    nic: VecDeque<(AdamapNode, Nanos)>,
    nic_max: usize,
    /// Nodes that it still holds when it begins to read, and whether it reads until it holds as many as it may.
    watermark: usize,
    is_filling: bool,
    /// First and last node of the pool.
    blocks: Option<(BlockId, BlockId)>,
    /// End of the last node that was read; the next one lies behind it.
    read_end: u64,
}

impl NodeList {
    pub(crate) fn new(holder: Holder, nic_max: usize, watermark: usize) -> Self {
        let nic_max = nic_max.max(1);
        Self {
            holder,
            nic: VecDeque::with_capacity(nic_max),
            nic_max,
            watermark: watermark.min(nic_max - 1),
            is_filling: false,
            blocks: None,
            read_end: 0,
        }
    }

    /// The first node, and when it is at hand.
    pub(crate) fn first(&self) -> Option<(AdamapNode, Nanos)> {
        self.nic.front().copied()
    }

    /// Puts a changed node in the place of the first one.
    pub(crate) fn replace_first(&mut self, node: AdamapNode) {
        if let Some((first, _)) = self.nic.front_mut() {
            *first = node;
        }
    }

    /// Appends a node. After an error nothing changed.
    pub(crate) fn push(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        node: AdamapNode,
    ) -> Result<(), LossError> {
        if self.blocks.is_none() && self.nic.len() < self.nic_max {
            self.read_end = node.end();
            self.nic.push_back((node, now));
            return Ok(());
        }
        let block = pool.take(self.holder).ok_or(LossError::Exhausted)?;
        let words = [node.start, node.received, node.len.into(), node.reported_at];
        for (number, word) in words.into_iter().enumerate() {
            pool.store(block, number, word)?;
        }
        pool.dma_mut().on_write(now);
        self.blocks = Some(match self.blocks {
            None => (block, block),
            Some((first, last)) => {
                pool.link(last, Some(block))?;
                (first, block)
            }
        });
        Ok(())
    }

    /// Drops the first node and reads in advance.
    pub(crate) fn pop(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        top: u64,
    ) -> Result<(), LossError> {
        self.nic.pop_front();
        self.prefetch(pool, now, top)
    }

    /// Reads the next node if the NIC holds few, and then further ones until it holds as many as it may: the link to it is known when the one before it is there,
    /// so only one is under way. All nodes lie before `top`, whatever others wrote to the pool.
    pub(crate) fn prefetch(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        top: u64,
    ) -> Result<(), LossError> {
        let is_idle = self.nic.back().is_none_or(|(_, ready)| *ready <= now);
        let Some((block, last)) = self.blocks else { return Ok(()) };
        self.is_filling |= self.nic.len() <= self.watermark;
        self.is_filling &= self.nic.len() < self.nic_max;
        if !self.is_filling || !is_idle {
            return Ok(());
        }
        let ready = pool.dma_mut().on_read(now);
        let node = self.load(pool, block)?;
        let next = pool.next(block, self.holder)?;
        let is_in_order = self.read_end <= node.start && node.end() <= top;
        if next.is_none() != (block == last) || !is_in_order {
            return Err(LossError::Corrupt);
        }
        pool.give(block, self.holder)?;
        self.blocks = next.map(|next| (next, last));
        self.read_end = node.end();
        self.nic.push_back((node, ready));
        Ok(())
    }

    /// Forgets all nodes; their blocks are given back by their holder's [`KnittingPool::give_all`].
    pub(crate) fn forget(&mut self) {
        self.nic.clear();
        self.blocks = None;
    }

    fn load(&self, pool: &KnittingPool, block: BlockId) -> Result<AdamapNode, LossError> {
        let mut words = [0; WORDS];
        for (number, word) in words.iter_mut().enumerate() {
            *word = pool.load(block, number, self.holder)?;
        }
        let [start, received, len, reported_at] = words;
        let len = u32::try_from(len).ok().filter(|len| *len > 0).ok_or(LossError::Corrupt)?;
        let is_sound = start >> 48 == 0;
        let node = AdamapNode { start, received, reported_at, len };
        if is_sound { Ok(node) } else { Err(LossError::Corrupt) }
    }
}

/// What was lost again of one TP: an entry is what is missing of one bitmap.
#[derive(Debug)]
pub(crate) struct AdamapTable {
    entries: BTreeMap<u32, AdamapNode>,
    next: u32,
    /// Numbers of the entries that the NIC holds, the one used last at the back.
    nic: VecDeque<u32>,
    nic_max: usize,
    /// The lowest missing packet of all entries.
    low: Option<u64>,
}

impl AdamapTable {
    pub(crate) fn new(nic_max: usize) -> Self {
        let nic = VecDeque::with_capacity(nic_max + 1);
        Self { entries: BTreeMap::new(), next: 0, nic, nic_max, low: None }
    }

    /// The lowest packet that is missing.
    pub(crate) const fn low(&self) -> Option<u64> {
        self.low
    }

    pub(crate) fn get(&self, number: u32) -> Option<AdamapNode> {
        self.entries.get(&number).copied()
    }

    /// Adds an entry; its number.
    pub(crate) fn insert(&mut self, pool: &mut KnittingPool, now: Nanos, node: AdamapNode) -> u32 {
        let number = self.next;
        // A window has fewer packets than there are numbers, so none is given twice.
        self.next = self.next.wrapping_add(1) & TICKET_MASK;
        self.entries.insert(number, node);
        pool.dma_mut().on_write(now);
        let low = node.first_missing();
        self.low = Some(self.low.map_or(low, |known| known.min(low)));
        number
    }

    /// A packet needs the entry: the NIC reads it if it does not hold it.
    pub(crate) fn touch(&mut self, pool: &mut KnittingPool, now: Nanos, number: u32) {
        if let Some(at) = self.nic.iter().position(|held| *held == number) {
            self.nic.remove(at);
            pool.dma_mut().on_access(now, Some(now));
        } else {
            pool.dma_mut().on_access(now, None);
        }
        self.nic.push_back(number);
        if self.nic.len() > self.nic_max && self.nic.pop_front().is_some() {
            pool.dma_mut().on_write(now);
        }
    }

    /// Stores a changed entry, or removes it when nothing is missing of it any more.
    pub(crate) fn store(&mut self, number: u32, node: AdamapNode, bits: u32) {
        let was_low = self.low == self.get(number).map(|old| old.first_missing());
        if node.is_full(bits) {
            self.entries.remove(&number);
            self.nic.retain(|held| *held != number);
        } else {
            self.entries.insert(number, node);
        }
        if was_low {
            self.low = self.entries.values().map(AdamapNode::first_missing).min();
        }
    }

    /// Numbers of the entries that were reported before `time`.
    pub(crate) fn reported_before(&self, time: Nanos) -> Vec<u32> {
        let old = self.entries.iter().filter(|(_, node)| node.reported_at <= time);
        old.map(|(number, _)| *number).collect()
    }

    /// When the first entry was reported.
    pub(crate) fn oldest(&self) -> Option<Nanos> {
        self.entries.values().map(|node| node.reported_at).min()
    }

    pub(crate) fn forget(&mut self) {
        self.entries.clear();
        self.nic.clear();
        self.low = None;
    }
}
