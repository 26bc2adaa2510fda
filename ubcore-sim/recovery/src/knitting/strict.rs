//! The record of a receiver that keeps nothing beyond a gap.
//!
//! - owns: the next sequence. takes: sequences. gives: whether each is the next one.
//! - must not: take a block of the pool.

use udma_abi::Nanos;

use super::pool::KnittingPool;
use super::record::{Arrival, LossError, LossRecord, RecordTraits};
use crate::report::DataMark;

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
