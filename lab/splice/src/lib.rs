//! Splice and split: scattered pieces of a message joined and cut to packets.
//!
//! - owns: the packetiser, three cycle models behind one interface, their counters.
//! - takes: beats or pieces. gives: packets with their sideband. must not: know headers, do I/O, read a clock.
#![forbid(unsafe_code)]

mod config;
mod engine;
mod fifo_times;
mod packetizer;
pub mod random;
pub mod run;

#[cfg(test)]
pub use config::SpliceFault;
pub use config::{EngineConfig, EngineConfigError, EngineScheme, TooLong};
pub use engine::Engine;
pub use engine::{CycleHistogram, EngineCounters, StallCycles};
pub use engine::{EngineOutput, InputBeat, InputError, OutputBeat, Sideband};
pub use fifo_times::{FifoTimes, PacketTimes};
pub use packetizer::{BeginError, Packetizer};
