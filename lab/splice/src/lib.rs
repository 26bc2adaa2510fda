//! Splice and split: scattered pieces of a message joined and cut to packets.
//!
//! - owns: the packetiser, three cycle models behind one interface, their counters.
//! - takes: beats or pieces. gives: packets with their sideband. must not: know headers, do I/O, read a clock.
#![forbid(unsafe_code)]

mod beat;
mod config;
mod counters;
mod engine;
mod fault;
mod fifo_times;
mod packetizer;
pub mod random;
pub mod run;

pub use beat::{EngineOutput, InputBeat, InputError, OutputBeat, Sideband};
pub use config::{EngineConfig, EngineConfigError, EngineScheme, TooLong};
pub use counters::{CycleHistogram, EngineCounters, StallCycles};
pub use engine::Engine;
#[cfg(test)]
pub use fault::SpliceFault;
pub use fifo_times::{FifoTimes, PacketTimes};
pub use packetizer::{BeginError, Packetizer};
