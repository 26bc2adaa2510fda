//! Packed Adamap lines: runs of missing packets as byte-wise differences, a list of lines per tier.
//!
//! - owns: the code of a line, a first-in, first-out list with its ends in the NIC and its middle in the pool.
//! - takes: runs of missing packets. gives: them again, in order.
//! - must not: believe a line that was read from the pool before it was decoded whole.
//!
//! A line is 56 bytes and the link of its block: word 0 has the base sequence (48 bits) and the number of bytes in
//! use (16 bits), the rest are runs. A run is the distance from the end of the one before it, shifted by one; the low
//! bit says that a count follows (less 2), otherwise the run is one packet. Both are little-endian groups of seven bits.

use udma_abi::Nanos;

use super::pool::{BlockId, Holder, KnittingPool};
use super::record::LossError;
use crate::report::LossRun;

/// Bytes of runs in a line.
const LINE_BYTES: usize = 48;
const LINE_WORDS: usize = LINE_BYTES / 8 + 1;
/// Longest code of a run.
const RUN_BYTES_MAX: usize = 13;
const BASE_BITS: u32 = 48;

/// Order of the runs in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunOrder {
    /// Each begins after the end of the one before it.
    Rising,
    /// In any order at all.
    Any,
}

/// A line that is being filled or emptied.
#[derive(Clone, Copy, Debug)]
struct PackedLine {
    /// End of the run before the first one.
    base: u64,
    /// End of the last run written or read.
    end: u64,
    bytes: [u8; LINE_BYTES],
    used: u8,
    /// Bytes that were read.
    at: u8,
}

impl PackedLine {
    const fn new(base: u64) -> Self {
        Self { base, end: base, bytes: [0; LINE_BYTES], used: 0, at: 0 }
    }

    /// Appends a run; `false` when the line is full.
    fn push(&mut self, order: RunOrder, run: LossRun) -> bool {
        let delta = run.start.wrapping_sub(self.end).cast_signed();
        let delta = match order {
            RunOrder::Rising => delta.cast_unsigned(),
            RunOrder::Any => ((delta << 1) ^ (delta >> 63)).cast_unsigned(),
        };
        let mut code = [0; 2 * RUN_BYTES_MAX];
        let mut len = put(&mut code, 0, delta << 1 | u64::from(run.count > 1));
        if run.count > 1 {
            len = put(&mut code, len, u64::from(run.count) - 2);
        }
        let from = usize::from(self.used);
        let Some(room) = self.bytes.get_mut(from..from + len) else { return false };
        room.copy_from_slice(&code[..len]);
        self.used += u8::try_from(len).unwrap_or(u8::MAX);
        self.end = run.end();
        true
    }

    /// Reads the next run. A line of the pool may hold anything.
    fn next(&mut self, order: RunOrder) -> Option<Result<LossRun, LossError>> {
        (self.at < self.used).then(|| self.read(order).ok_or(LossError::Corrupt))
    }

    fn read(&mut self, order: RunOrder) -> Option<LossRun> {
        let bytes = self.bytes.get(..usize::from(self.used))?;
        let (code, mut at) = take(bytes, usize::from(self.at))?;
        let delta = match order {
            RunOrder::Rising => (code >> 1).cast_signed(),
            RunOrder::Any => (code >> 2).cast_signed() ^ -((code >> 1 & 1).cast_signed()),
        };
        let mut count = 1;
        if code & 1 != 0 {
            let more;
            (more, at) = take(bytes, at)?;
            count = u32::try_from(more).ok()?.checked_add(2)?;
        }
        let run = LossRun { start: self.end.checked_add_signed(delta)?, count };
        self.end = run.start.checked_add(u64::from(count)).filter(|end| *end >> BASE_BITS == 0)?;
        self.at = u8::try_from(at).ok()?;
        Some(run)
    }

    /// The line to be read from its start.
    const fn rewound(self) -> Self {
        Self { at: 0, end: self.base, ..self }
    }

    fn to_words(self) -> [u64; LINE_WORDS] {
        let mut words = [0; LINE_WORDS];
        words[0] = self.base << 16 | u64::from(self.used);
        for (word, bytes) in words[1..].iter_mut().zip(self.bytes.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        words
    }

    fn from_words(words: [u64; LINE_WORDS]) -> Option<Self> {
        let used = u8::try_from(words[0] & 0xffff).ok()?;
        let mut line = Self::new(words[0] >> 16);
        line.used = used;
        for (bytes, word) in line.bytes.chunks_exact_mut(8).zip(&words[1..]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Some(line)
    }
}

/// Writes groups of seven bits at `at`; where they end.
fn put(bytes: &mut [u8], mut at: usize, mut value: u64) -> usize {
    while value > 0x7f {
        bytes[at] = 0x80 | value.to_le_bytes()[0];
        value >>= 7;
        at += 1;
    }
    bytes[at] = value.to_le_bytes()[0];
    at + 1
}

fn take(bytes: &[u8], mut at: usize) -> Option<(u64, usize)> {
    let (mut value, mut shift) = (0_u64, 0);
    loop {
        let byte = *bytes.get(at)?;
        at += 1;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some((value, at));
        }
        shift += 7;
    }
}

/// Runs in the order in which they were appended.
#[derive(Debug)]
pub(crate) struct RunList {
    holder: Holder,
    order: RunOrder,
    /// The first run, which is matched next.
    first: Option<LossRun>,
    /// Line that `first` was read from, when the pool or `last` does not hold the rest.
    head: PackedLine,
    /// The line that is being filled.
    last: PackedLine,
    /// First and last block of the lines between.
    blocks: Option<(BlockId, BlockId)>,
    /// When the first of them is at hand: it is read in advance.
    at_hand: Option<Nanos>,
    len: u32,
}

impl RunList {
    pub(crate) const fn new(holder: Holder, order: RunOrder) -> Self {
        Self {
            holder,
            order,
            first: None,
            head: PackedLine::new(0),
            last: PackedLine::new(0),
            blocks: None,
            at_hand: None,
            len: 0,
        }
    }

    /// The run that is matched next.
    pub(crate) const fn first(&self) -> Option<LossRun> {
        self.first
    }

    /// How many runs there are.
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// Appends a run. After an error nothing changed.
    pub(crate) fn push(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        run: LossRun,
    ) -> Result<(), LossError> {
        if self.first.is_none() {
            self.first = Some(run);
            self.len = 1;
            (self.head, self.last) = (PackedLine::new(0), PackedLine::new(run.end()));
            return Ok(());
        }
        if !self.last.push(self.order, run) {
            self.close(pool, now)?;
            self.last = PackedLine::new(self.last.end);
            self.last.push(self.order, run);
        }
        self.len += 1;
        Ok(())
    }

    /// Makes the first run start later, or removes it: `start` is the next missing packet in it.
    pub(crate) fn trim(
        &mut self,
        pool: &mut KnittingPool,
        now: Nanos,
        start: u64,
    ) -> Result<(), LossError> {
        let Some(run) = self.first else { return Ok(()) };
        if start < run.end() {
            let count = u32::try_from(run.end() - start).unwrap_or(u32::MAX);
            self.first = Some(LossRun { start, count });
            return Ok(());
        }
        self.len -= 1;
        self.first = self.read(pool, now)?;
        if self.first.is_none() != (self.len == 0) {
            return Err(LossError::Corrupt);
        }
        Ok(())
    }

    /// Lowest start of a run.
    pub(crate) fn lowest(&self, pool: &KnittingPool) -> Result<Option<u64>, LossError> {
        let mut lowest: Option<u64> = None;
        self.each_run(pool, |run| {
            lowest = Some(lowest.map_or(run.start, |lowest| lowest.min(run.start)));
        })?;
        Ok(lowest)
    }

    /// All runs in order.
    pub(crate) fn runs(&self, pool: &KnittingPool) -> Result<Vec<LossRun>, LossError> {
        let mut runs = Vec::new();
        self.each_run(pool, |run| runs.push(run))?;
        if runs.len() == self.len as usize { Ok(runs) } else { Err(LossError::Corrupt) }
    }

    /// Calls `take` with all runs in order.
    fn each_run(
        &self,
        pool: &KnittingPool,
        mut take: impl FnMut(LossRun),
    ) -> Result<(), LossError> {
        self.first.into_iter().for_each(&mut take);
        let mut take_all = |mut line: PackedLine| -> Result<(), LossError> {
            while let Some(run) = line.next(self.order) {
                take(run?);
            }
            Ok(())
        };
        take_all(self.head)?;
        let mut next = self.blocks.map(|(first, _)| first);
        for _ in 0..self.len {
            let Some(block) = next else { break };
            take_all(self.load(pool, block)?)?;
            next = pool.next(block, self.holder)?;
        }
        take_all(self.last.rewound())
    }

    /// Forgets all runs; their blocks are given back by their holder's [`KnittingPool::give_all`].
    pub(crate) const fn forget(&mut self) {
        *self = Self::new(self.holder, self.order);
    }

    /// Moves the line that is full to the pool.
    fn close(&mut self, pool: &mut KnittingPool, now: Nanos) -> Result<(), LossError> {
        if self.blocks.is_none() && self.head.at == self.head.used {
            // Nothing is before it: it is the next to be read and stays at hand.
            self.head = self.last.rewound();
            return Ok(());
        }
        let block = pool.take(self.holder).ok_or(LossError::Exhausted)?;
        for (number, word) in self.last.to_words().into_iter().enumerate() {
            pool.store(block, number, word)?;
        }
        pool.dma_mut().on_write(now);
        self.blocks = Some(match self.blocks {
            None => (block, block),
            Some((first, before)) => {
                pool.link(before, Some(block))?;
                (first, block)
            }
        });
        self.prefetch(pool, now);
        Ok(())
    }

    /// Reads the next line if the first one is nearly used up.
    fn prefetch(&mut self, pool: &mut KnittingPool, now: Nanos) {
        let left = usize::from(self.head.used - self.head.at);
        if self.blocks.is_some() && self.at_hand.is_none() && left <= WATERMARK_BYTES {
            self.at_hand = Some(pool.dma_mut().on_read(now));
        }
    }

    /// The run after the first one.
    fn read(&mut self, pool: &mut KnittingPool, now: Nanos) -> Result<Option<LossRun>, LossError> {
        if self.head.at == self.head.used {
            self.refill(pool, now)?;
        }
        self.prefetch(pool, now);
        self.head.next(self.order).transpose()
    }

    /// Takes the next line.
    fn refill(&mut self, pool: &mut KnittingPool, now: Nanos) -> Result<(), LossError> {
        let Some((block, last)) = self.blocks else {
            self.head = self.last.rewound();
            self.last = PackedLine::new(self.last.end);
            return Ok(());
        };
        let ready = self.at_hand.take();
        pool.dma_mut().on_access(now, ready);
        self.head = self.load(pool, block)?;
        let next = pool.next(block, self.holder)?;
        if next.is_none() != (block == last) {
            return Err(LossError::Corrupt);
        }
        pool.give(block, self.holder)?;
        self.blocks = next.map(|next| (next, last));
        Ok(())
    }

    fn load(&self, pool: &KnittingPool, block: BlockId) -> Result<PackedLine, LossError> {
        let mut words = [0; LINE_WORDS];
        for (number, word) in words.iter_mut().enumerate() {
            *word = pool.load(block, number, self.holder)?;
        }
        PackedLine::from_words(words).ok_or(LossError::Corrupt)
    }
}

/// Bytes left in the first line at which the next one is read in advance.
const WATERMARK_BYTES: usize = LINE_BYTES / 2;

#[cfg(test)]
mod tests;
