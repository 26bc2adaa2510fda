//! The records of simple receivers: one bit per packet of the window, in the NIC; nothing beyond a gap.
//!
//! - owns: the bitmap, or the next sequence. takes: sequences. gives: whether each is new, the left edge.
//! - must not: take a block of the pool.

use std::collections::VecDeque;

use udma_abi::Nanos;

use super::{
    pool::KnittingPool,
    record::{Arrival, LossError, LossRecord, RecordTraits},
};
use crate::report::DataMark;

/// Bits from the word of the edge on.
#[derive(Debug, Default)]
pub(crate) struct BitmapRecord {
    edge: u64,
    words: VecDeque<u64>,
}

impl BitmapRecord {
    /// Word and bit of a sequence from the edge on.
    fn place(&self, seq: u64) -> Option<(usize, u64)> {
        let word = usize::try_from(seq / 64 - self.edge / 64).ok()?;
        Some((word, 1 << (seq % 64)))
    }

    fn is_received(&self, seq: u64) -> bool {
        let found = self.place(seq).and_then(|(word, bit)| Some(self.words.get(word)? & bit));
        found.is_some_and(|bit| bit != 0)
    }
}

impl LossRecord for BitmapRecord {
    fn record(
        &mut self,
        _pool: &mut KnittingPool,
        _now: Nanos,
        seq: u64,
        _mark: DataMark,
    ) -> Result<Arrival, LossError> {
        if seq < self.edge || self.is_received(seq) {
            return Ok(Arrival::Duplicate);
        }
        let (word, bit) = self.place(seq).ok_or(LossError::Exhausted)?;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
        if seq > self.edge {
            return Ok(Arrival::Kept);
        }
        while self.is_received(self.edge) {
            self.edge += 1;
            if self.edge.is_multiple_of(64) {
                self.words.pop_front();
            }
        }
        Ok(Arrival::Advanced(self.edge))
    }

    fn traits(&self) -> RecordTraits {
        RecordTraits { reports_losses: false, nic_bytes: size_of::<Self>() + 8 * self.words.len() }
    }

    fn first_missing(&self) -> u64 {
        self.edge
    }

    fn sack(&self, _pool: &KnittingPool, _words: &mut [u64]) -> Result<usize, LossError> {
        Ok(0)
    }

    fn release(&mut self, _pool: &mut KnittingPool) {
        self.words.clear();
    }
}

/// Takes packets in order only.
#[derive(Debug, Default)]
pub(crate) struct StrictRecord {
    next: u64,
}

impl LossRecord for StrictRecord {
    fn record(
        &mut self,
        _pool: &mut KnittingPool,
        _now: Nanos,
        seq: u64,
        _mark: DataMark,
    ) -> Result<Arrival, LossError> {
        Ok(match seq.cmp(&self.next) {
            std::cmp::Ordering::Less => Arrival::Duplicate,
            std::cmp::Ordering::Greater => Arrival::Dropped,
            std::cmp::Ordering::Equal => {
                self.next += 1;
                Arrival::Advanced(self.next)
            }
        })
    }

    fn traits(&self) -> RecordTraits {
        RecordTraits { reports_losses: false, nic_bytes: size_of::<Self>() }
    }

    fn first_missing(&self) -> u64 {
        self.next
    }

    fn sack(&self, _pool: &KnittingPool, _words: &mut [u64]) -> Result<usize, LossError> {
        Ok(0)
    }

    fn release(&mut self, _pool: &mut KnittingPool) {}
}
