//! The Shared Knitting Buffer: loss records of all TPs, in host memory that the driver gave.
//!
//! - owns: the pool of equal blocks and the receive-side loss records that are made of them.
//! - takes: host-memory regions (pool commands), sequence numbers of received packets.
//! - gives: what was received beyond the first gap, as bitmap words or as reports of losses.
//! - must not: trust a byte of the pool: the driver can write to it at any time.

mod adamap;
mod bitmap;
mod dma;
mod gaps;
mod knit;
mod later;
mod line;
mod lines;
mod list;
mod narrow;
mod nic;
mod pool;
mod record;

pub(crate) use adamap::AdamapRecord;
pub use adamap::{AdamapCfg, AdamapSizeError, AdamapSizes};
pub(crate) use bitmap::{BitmapRecord, StrictRecord};
pub use dma::{DmaCfg, DmaModel, DmaStats};
pub use knit::KnitRecord;
pub use nic::NicUsage;
pub use pool::{KnittingPool, PoolError, PoolTraffic, PoolUsage};
pub use record::{Arrival, KnittingRecord, LossError, LossRecord, RecordTraits};

/// A block, by piece and position in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockId {
    piece: u32,
    index: u32,
}

impl BlockId {
    /// As one number whose low bits are the place in the piece, if that has no more of them.
    fn number(self, index_bits: u32) -> Option<u32> {
        let is_small = self.index >> index_bits == 0;
        is_small
            .then_some(self.piece.checked_shl(index_bits)? | self.index)
            .filter(|number| number >> index_bits == self.piece)
    }

    /// The block with that number.
    const fn of_number(number: u32, index_bits: u32) -> Self {
        Self { piece: number >> index_bits, index: number & ((1 << index_bits) - 1) }
    }
}

/// Number of the TP that holds a block; 0: none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Holder(u32);

impl Holder {
    pub(crate) const fn new(number: u32) -> Self {
        // TPNs have 24 bits, so 0 stays free.
        Self((number & 0x00ff_ffff) + 1)
    }
}

#[cfg(test)]
mod tests;
