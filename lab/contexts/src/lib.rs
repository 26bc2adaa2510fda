//! What a NIC keeps of its contexts on the chip: a model with exact rules, in virtual time.
//!
//! - owns: tokens, directory, tiers, migration; replacement policies; traces of lookups.
//! - takes: handles that are looked up, time, answers of the host. gives: when each context is there, counters.
//! - must not: decide a right, read a clock, do I/O.
#![forbid(unsafe_code)]

mod cache;
mod cfg;
mod cxl;
mod directory;
mod handle;
mod host;
mod l1;
#[cfg(all(test, loom))]
mod loom_tests;
mod memory;
mod page;
pub mod policy;
pub mod replay;
mod stats;
mod token;
pub mod trace;

pub use cache::{Access, AccessMode, ContextCache, ContextWake, NoContext};
#[cfg(test)]
pub use cfg::ContextFault;
pub use cfg::{CacheCfg, FillRule, MeetMigration};
pub use directory::{ContextPlace, DIRECTORY_ENTRY_LEN, Directory, EntryWord};
pub use handle::{ContextHandle, ContextKind, ContextValueError, INDEX_MAX};
pub use stats::{ContextCounts, KindCounts, TimeHistogram};
pub use token::{ContextToken, SmallOp, TOKEN_VERSION, TokenBody};

/// A count or index of a table in memory: at most 2^28.
pub(crate) fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A number below the length of a table in memory.
pub(crate) fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Returns the lowest byte of a number.
pub(crate) const fn low_8(number: u64) -> u8 {
    number.to_le_bytes()[0]
}

/// Returns the lowest two bytes of a number.
pub(crate) const fn low_16(number: u64) -> u16 {
    let [low, high, ..] = number.to_le_bytes();
    u16::from_le_bytes([low, high])
}
