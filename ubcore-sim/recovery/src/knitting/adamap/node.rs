//! Adamap nodes, and the list of those that wait for the first repetition.
//!
//! - owns: the code of a node in a block, the first nodes in the NIC, the rest in the pool, reads in advance.
//! - takes: nodes in the order of their sequences. gives: them again in that order, and when each is at hand.
//! - must not: believe a node of the pool that does not lie behind the one before it.

use std::collections::VecDeque;

use udma_abi::Nanos;

use crate::knitting::pool::KnittingPool;
use crate::knitting::record::LossError;
use crate::knitting::{BlockId, Holder};
use crate::report::LossRun;

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
    /// First and last node of the pool.
    blocks: Option<(BlockId, BlockId)>,
    /// End of the last node that was read; the next one lies behind it.
    read_end: u64,
}

impl NodeList {
    pub(crate) fn new(holder: Holder, nic_max: usize) -> Self {
        let nic = VecDeque::with_capacity(nic_max.max(1));
        Self { holder, nic, nic_max: nic_max.max(1), blocks: None, read_end: 0 }
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
    pub(crate) fn pop(&mut self, pool: &mut KnittingPool, now: Nanos) -> Result<(), LossError> {
        self.nic.pop_front();
        self.prefetch(pool, now)
    }

    /// Reads the next node if the NIC holds less than it may: the link to it is known when the one before it is there,
    /// so only one is under way.
    pub(crate) fn prefetch(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
    ) -> Result<(), LossError> {
        let is_idle = self.nic.back().is_none_or(|(_, ready)| *ready <= now);
        let Some((block, last)) = self.blocks else { return Ok(()) };
        if self.nic.len() >= self.nic_max || !is_idle {
            return Ok(());
        }
        let ready = pool.dma_mut().on_read(now);
        let node = self.load(pool, block)?;
        let next = pool.next(block, self.holder)?;
        if next.is_none() != (block == last) || node.start < self.read_end {
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
