//! Adamaps of packets that were lost more than once, by number.
//!
//! - owns: the table in host memory, the few entries that the NIC holds. takes: nodes of at most one bitmap.
//! - gives: entries by number. must not: give a number twice.

use std::collections::{BTreeMap, VecDeque};

use udma_abi::Nanos;

use super::node::AdamapNode;
use crate::knitting::pool::KnittingPool;

/// An entry: what is missing of one bitmap, and how often that was reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableEntry {
    pub(crate) node: AdamapNode,
    pub(crate) tier: u8,
}

/// All entries of one TP.
#[derive(Debug)]
pub(crate) struct AdamapTable {
    entries: BTreeMap<u32, TableEntry>,
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

    pub(crate) fn get(&self, number: u32) -> Option<TableEntry> {
        self.entries.get(&number).copied()
    }

    /// Adds an entry; its number.
    pub(crate) fn insert(&mut self, pool: &mut KnittingPool, now: Nanos, entry: TableEntry) -> u32 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.entries.insert(number, entry);
        pool.dma_mut().on_write(now);
        let low = entry.node.first_missing();
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
    pub(crate) fn store(&mut self, number: u32, entry: TableEntry, bits: u32) {
        let was_low = self.low == self.get(number).map(|old| old.node.first_missing());
        if entry.node.is_full(bits) {
            self.entries.remove(&number);
            self.nic.retain(|held| *held != number);
        } else {
            self.entries.insert(number, entry);
        }
        if was_low {
            self.low = self.entries.values().map(|entry| entry.node.first_missing()).min();
        }
    }

    /// Numbers of the entries that were reported before `time`.
    pub(crate) fn reported_before(&self, time: Nanos) -> Vec<u32> {
        let old = self.entries.iter().filter(|(_, entry)| entry.node.reported_at <= time);
        old.map(|(number, _)| *number).collect()
    }

    /// When the first entry was reported.
    pub(crate) fn oldest(&self) -> Option<Nanos> {
        self.entries.values().map(|entry| entry.node.reported_at).min()
    }

    pub(crate) fn forget(&mut self) {
        self.entries.clear();
        self.nic.clear();
        self.low = None;
    }
}
