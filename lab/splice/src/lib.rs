//! Splice and split: scattered pieces of a message joined and cut to packets.
//!
//! - owns: three cycle models behind one interface, their counters. What they give is compared with a node's own
//!   packetizer (`urma_packet::packetizer`).
//! - takes: beats. gives: packets with their sideband. must not: know headers, do I/O, read a clock.
#![forbid(unsafe_code)]

mod config;
mod engine;
mod fifo_times;
pub mod random;
pub mod run;

#[cfg(test)]
pub use config::SpliceFault;
pub use config::{EngineConfig, EngineConfigError, EngineScheme, TooLong};
pub use engine::Engine;
pub use engine::{CycleHistogram, EngineCounters, StallCycles};
pub use engine::{EngineOutput, InputBeat, InputError, OutputBeat};
pub use fifo_times::{FifoTimes, PacketTimes};
pub use urma_packet::packetizer::Sideband;
