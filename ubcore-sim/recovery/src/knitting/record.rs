//! The loss record of one TP: what came beyond the first gap, as a list of blocks.
//!
//! - owns: the left edge (first missing packet) and the list that covers what lies beyond it.
//! - takes: sequence numbers of received packets. gives: whether each is new, how far the left
//!   edge moves, SACK words.
//! - must not: keep memory of its own per packet: that is the pool's.
//!
//! Each block covers a sub-window of the receive sequence; blocks follow each other without holes,
//! the first one holds the left edge. Without loss there is no block and no access to the pool.
#![expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits on supported targets; block numbers have 32"
)]

use std::fmt::Debug;

use udma_abi::Nanos;

use super::pool::{KnittingPool, Scribbled};
use super::{BlockId, Holder};
use crate::repair::RepairMark;
use crate::report::{DataMark, LossReport, LossRun, TailMark};

/// What a received packet meant to the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// The left edge moved to this sequence: all before it was received.
    Advanced(u64),
    /// Kept beyond a gap.
    Kept,
    /// The packet was received before.
    Duplicate,
    /// Beyond a gap, and this side keeps nothing there.
    Dropped,
    /// It may have been received before: not accepted, it will be sent again if it was not.
    Unmatched,
}

impl Arrival {
    /// What it is where the left edge, `edge` before, is at `now` by it.
    pub(super) fn with_edge(self, edge: &mut u64, now: u64) -> Self {
        if now <= *edge || self != Self::Kept {
            return self;
        }
        *edge = now;
        Self::Advanced(now)
    }
}

/// Why a packet could not be recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LossError {
    /// The pool has no block left; the packet counts as lost.
    #[error("the knitting pool is exhausted")]
    Exhausted,
    /// The pool's content contradicts itself: someone else wrote to it.
    #[error("the knitting pool was written to by someone else")]
    Corrupt,
    /// Reads of the pool get no answer.
    #[error("the knitting pool does not answer reads")]
    Unanswered,
}

impl From<Scribbled> for LossError {
    fn from(Scribbled: Scribbled) -> Self {
        Self::Corrupt
    }
}

/// Properties of a loss record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordTraits {
    /// Losses are reported, so that a packet beyond a gap needs no acknowledgement at once.
    pub reports_losses: bool,
    /// Bytes that a NIC would hold of it now, besides the pool.
    pub nic_bytes: usize,
}

/// The receiving half of a strategy: which packets of a TP are missing. Sequences count packets from 0.
pub trait LossRecord: Send + Debug {
    /// Records packet `seq`, which says `mark` of itself, as received.
    /// After a [`LossError`] the packet is not recorded.
    fn record(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        seq: u64,
        mark: DataMark,
    ) -> Result<Arrival, LossError>;

    /// The left edge: the first packet that is missing.
    fn first_missing(&self) -> u64;

    /// Fills `words` with what was received beyond the left edge: bit 0 of word 0 is the packet
    /// after it. Returns how many words matter.
    fn sack(&self, pool: &KnittingPool, words: &mut [u64]) -> Result<usize, LossError>;

    /// What the rest of the receiver depends on.
    fn traits(&self) -> RecordTraits;

    /// Takes a repair packet; what it repairs is found at the next tail mark.
    fn on_repair(&mut self, _mark: &RepairMark) {}

    /// The next packets that repair packets brought: they count as received.
    fn poll_repaired(&mut self) -> Option<LossRun> {
        None
    }

    /// Takes the mark of a sender that has nothing to send.
    fn on_tail(
        &mut self,
        _pool: &mut KnittingPool,
        _now: Nanos,
        _mark: &TailMark,
    ) -> Result<(), LossError> {
        Ok(())
    }

    /// Time passed: what was reported may have been lost again. What is sent again needs the round-trip time `rtt_ns` to be
    /// here. Makes sure that the deadline is later than `now`.
    fn on_time(
        &mut self,
        _pool: &mut KnittingPool,
        _now: Nanos,
        _rtt_ns: Nanos,
    ) -> Result<(), LossError> {
        Ok(())
    }

    /// When [`LossRecord::on_time`] has something to do.
    fn poll_deadline(&self) -> Option<Nanos> {
        None
    }

    /// Whether [`LossRecord::poll_report`] gives something.
    fn has_report(&self) -> bool {
        false
    }

    /// The next report of losses.
    fn poll_report(&mut self) -> Option<LossReport> {
        None
    }

    /// Gives every block back.
    fn release(&mut self, pool: &mut KnittingPool);
}

/// The record that lives in the knitting pool.
#[derive(Debug)]
pub struct KnittingRecord {
    holder: Holder,
    /// Number of the first packet that is missing.
    edge: u64,
    /// First and last block, where the first one starts, and how many there are.
    list: Option<BlockList>,
    /// One past the highest packet received.
    top: u64,
    /// Packets received beyond the edge.
    kept: u64,
}

#[derive(Clone, Copy, Debug)]
struct BlockList {
    head: BlockId,
    tail: BlockId,
    /// Sequence of bit 0 of `head`; at most the edge.
    start: u64,
    blocks: u64,
}

impl KnittingRecord {
    /// An empty record of the TP with number `tpn` (unique among those that share the pool), whose
    /// first expected packet is sequence 0.
    #[must_use]
    pub const fn new(tpn: u32) -> Self {
        Self { holder: Holder::new(tpn), edge: 0, list: None, top: 0, kept: 0 }
    }

    /// Whether `seq` was received.
    pub fn is_received(&self, pool: &KnittingPool, seq: u64) -> Result<bool, LossError> {
        if seq < self.edge {
            return Ok(true);
        }
        match self.find(pool, seq)? {
            Some((block, word, bit)) => Ok(pool.load(block, word, self.holder)? & bit != 0),
            None => Ok(false),
        }
    }

    /// Block of `seq`, and bit in it. `None` beyond the last block.
    fn find(
        &self,
        pool: &KnittingPool,
        seq: u64,
    ) -> Result<Option<(BlockId, usize, u64)>, LossError> {
        let (Some(list), bits) = (self.list, block_bits(pool)) else { return Ok(None) };
        let Some(offset) = seq.checked_sub(list.start) else { return Ok(None) };
        let number = offset / bits;
        if number >= list.blocks {
            return Ok(None);
        }
        let mut block = list.head;
        if number + 1 == list.blocks {
            block = list.tail;
        } else {
            for _ in 0..number {
                block = pool.next(block, self.holder)?.ok_or(LossError::Corrupt)?;
            }
        }
        let bit = offset % bits;
        Ok(Some((block, (bit / 64) as usize, 1 << (bit % 64))))
    }

    /// Makes the list reach `seq`; all blocks or none are taken.
    fn extend(&mut self, pool: &mut KnittingPool, seq: u64) -> Result<(), LossError> {
        if pool.usage().blocks == 0 {
            return Err(LossError::Exhausted);
        }
        let bits = block_bits(pool);
        let start = self.list.map_or(self.edge, |list| list.start);
        let have = self.list.map_or(0, |list| list.blocks);
        let missing = ((seq - start) / bits + 1).saturating_sub(have);
        if missing > pool.free() {
            return Err(LossError::Exhausted);
        }
        for _ in 0..missing {
            let block = pool.take(self.holder).ok_or(LossError::Exhausted)?;
            self.list = Some(match self.list {
                None => BlockList { head: block, tail: block, start, blocks: 1 },
                Some(list) => {
                    pool.link(list.tail, Some(block))?;
                    BlockList { tail: block, blocks: list.blocks + 1, ..list }
                }
            });
        }
        Ok(())
    }

    /// Moves the edge behind the packets that follow it without a gap, and drops passed blocks.
    fn slide(&mut self, pool: &mut KnittingPool) -> Result<(), LossError> {
        self.edge += 1;
        self.top = self.top.max(self.edge);
        while self.kept > 0 && self.is_received(pool, self.edge)? {
            self.edge += 1;
            self.kept -= 1;
        }
        if self.kept == 0 && self.edge != self.top {
            return Err(LossError::Corrupt);
        }
        let bits = block_bits(pool);
        while let Some(list) = self.list {
            if self.kept > 0 && list.start + bits > self.edge {
                break;
            }
            let next = pool.next(list.head, self.holder)?;
            let last = list.blocks == 1;
            if last != next.is_none() {
                return Err(LossError::Corrupt);
            }
            pool.give(list.head, self.holder)?;
            self.list = next.map(|head| BlockList {
                head,
                start: list.start + bits,
                blocks: list.blocks - 1,
                ..list
            });
        }
        Ok(())
    }
}

impl LossRecord for KnittingRecord {
    fn record(
        &mut self,
        pool: &mut KnittingPool,
        _now: Nanos,
        seq: u64,
        _mark: DataMark,
    ) -> Result<Arrival, LossError> {
        if seq < self.edge {
            return Ok(Arrival::Duplicate);
        }
        if seq == self.edge {
            self.slide(pool)?;
            return Ok(Arrival::Advanced(self.edge));
        }
        if self.find(pool, seq)?.is_none() {
            self.extend(pool, seq)?;
        }
        let (block, word, bit) = self.find(pool, seq)?.ok_or(LossError::Corrupt)?;
        let old = pool.load(block, word, self.holder)?;
        if old & bit != 0 {
            return Ok(Arrival::Duplicate);
        }
        pool.store(block, word, old | bit)?;
        self.kept += 1;
        self.top = self.top.max(seq + 1);
        Ok(Arrival::Kept)
    }

    fn traits(&self) -> RecordTraits {
        RecordTraits { reports_losses: false, nic_bytes: size_of::<Self>() }
    }

    fn first_missing(&self) -> u64 {
        self.edge
    }

    fn sack(&self, pool: &KnittingPool, words: &mut [u64]) -> Result<usize, LossError> {
        words.fill(0);
        if self.kept == 0 {
            return Ok(0);
        }
        let room = words.len() as u64 * 64;
        let count = (self.top - self.edge - 1).min(room);
        for i in 0..count {
            if self.is_received(pool, self.edge + 1 + i)? {
                words[(i / 64) as usize] |= 1 << (i % 64);
            }
        }
        Ok(count.div_ceil(64) as usize)
    }

    fn release(&mut self, pool: &mut KnittingPool) {
        if self.list.take().is_some() {
            pool.give_all(self.holder);
        }
        self.kept = 0;
        self.top = self.edge;
    }
}

fn block_bits(pool: &KnittingPool) -> u64 {
    pool.words() as u64 * 64
}
