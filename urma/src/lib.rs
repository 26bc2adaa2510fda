//! URMA for Rust programs: the one crate to depend on.
//!
//! *Owns*: how a device and its driver come together. *Takes*: a configuration, or the environment.
//! *Gives*: an open [`Context`], and everything of `urma-core` to use it with. *Must not*: know
//! rings, registers or packets.
#![doc = ""]
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod open;
mod reach;
#[cfg(doctest)]
mod readmes;

pub use open::{OpenError, Opened, open, open_device, open_node, outside};
pub use reach::why_unreached;
pub use ubcore_sim::{EidSource, Node, NodeCfg, NodeError, PathChoice};
pub use udma_abi::RawEid;
pub use udma_provider::device_on;
pub use urma_answer::{Answerer, WELL_KNOWN_ID};
pub use urma_core::*;
pub use urma_mem::{OutOfBounds, Pages, Region};
