//! The Shared Knitting Buffer: loss records of all TPs, in host memory that the driver gave.
//!
//! - owns: the pool of equal blocks and the receive-side loss records that are made of them.
//! - takes: host-memory regions (pool commands), sequence numbers of received packets.
//! - gives: what was received beyond the first gap, as bitmap words or as reports of losses.
//! - must not: trust a byte of the pool: the driver can write to it at any time.

mod adamap;
mod bitmap;
mod block;
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
mod strict;

pub use adamap::AdamapCfg;
pub(crate) use adamap::AdamapRecord;
pub(crate) use bitmap::BitmapRecord;
pub use dma::{DmaCfg, DmaModel, DmaStats};
pub use knit::KnitRecord;
pub use nic::NicUsage;
pub use pool::{KnittingPool, PoolError, PoolUsage};
pub use record::{Arrival, KnittingRecord, LossError, LossRecord, RecordTraits};
pub(crate) use strict::StrictRecord;

#[cfg(test)]
mod tests;
