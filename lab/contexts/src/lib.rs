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
mod fault;
mod handle;
mod hash;
mod host;
mod l1;
#[cfg(all(test, loom))]
mod loom_tests;
mod memory;
mod narrow;
mod page;
pub mod policy;
mod quantiles;
pub mod replay;
mod small;
mod stats;
mod token;
pub mod trace;

pub use cache::{Access, AccessMode, ContextCache, ContextWake, NoContext};
pub use cfg::{CacheCfg, FillRule, MeetMigration};
pub use directory::{ContextPlace, DIRECTORY_ENTRY_LEN, Directory, EntryWord};
#[cfg(test)]
pub use fault::ContextFault;
pub use handle::{ContextHandle, ContextKind, ContextValueError, INDEX_MAX};
pub use small::SmallOp;
pub use stats::{ContextCounts, KindCounts, TimeHistogram};
pub use token::{ContextToken, TOKEN_VERSION, TokenBody};
