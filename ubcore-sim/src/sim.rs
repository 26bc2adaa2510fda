//! The deterministic fabric: N devices in one thread, one virtual clock, one seed.
//!
//! - owns: the order in which devices step, what links do to datagrams, in-process same-host pairs,
//!   the log of everything that happened and its hash.
//! - takes: a seed and a configuration. gives: a `DeviceBacking` per node, on which the unchanged
//!   driver runs; the same log for the same seed, byte for byte.
//! - must not: copy any part of a device; read a real clock; start a thread.

mod attacker;
mod backing;
mod cfg;
mod fabric;
mod log;
mod node;
mod warnings;

pub use attacker::{Attacker, Guess};
pub use backing::SimBacking;
pub use cfg::{FabricCfg, HostSharing, ModelSource, eid, port_address};
pub use fabric::Fabric;
pub use log::{Fnv, Log};
pub use warnings::refuse_warnings;

#[cfg(test)]
mod tests;
