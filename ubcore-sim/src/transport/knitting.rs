//! The Shared Knitting Buffer: loss records of all TPs, in host memory that the driver gave.
//!
//! - owns: the pool of equal blocks and the receive-side loss record that is made of them.
//! - takes: host-memory regions (pool commands), sequence numbers of received packets.
//! - gives: what was received beyond the first gap, as bitmap words for a SACK.
//! - must not: trust a byte of the pool: the driver can write to it at any time.

mod pool;
mod record;

pub(crate) use pool::{KnittingPool, PoolError};
pub(crate) use record::{Arrival, KnittingRecord, LossError, LossRecord};

#[cfg(test)]
mod tests;
