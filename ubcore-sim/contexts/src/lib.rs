//! What a NIC keeps of its contexts on the chip: a model with exact rules, in virtual time.
//!
//! - owns: tokens, directory, tiers, migration; replacement policies; traces of lookups.
//! - takes: handles that are looked up, time, answers of the host. gives: when each context is there, counters.
//! - must not: decide a right, read a clock, do I/O.
#![forbid(unsafe_code)]

mod hash;
pub mod policy;
pub mod replay;
pub mod trace;
