//! A software UDMA device (a NIC) behind the same registers and rings as hardware would have.
//!
//! The core takes time, packets and commands as arguments and gives packets, completions and
//! deadlines; only `host/` has threads, sockets and clocks.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod carrier;
mod cfg;
mod command;
mod context;
pub mod device;
mod dma;
mod endpoint;
mod engine;
mod exchange;
pub mod fault;
pub mod hooks;
pub mod host;
mod limits;
pub mod link;
pub mod nic;
pub mod node;
pub mod ports;
pub mod share;
pub mod sim;
#[cfg(test)]
pub(crate) mod tests;
mod transport;

pub use cfg::{DeviceCfg, Doorbells, ExpressLane, PingPongs, PortMode, RcWire, Seed};
pub use device::SoftwareDevice;
pub use host::peer::PathChoice;
pub use host::standard::{PortEndpoint, QpnInUse, StandardDrops};
pub use node::{AddEndpointError, EidSource, Node, NodeCfg, NodeError};
pub use ports::Ports;
pub use transport::Strategy;
pub use urma_recovery::{AdamapSizes, CongestionChoice};
