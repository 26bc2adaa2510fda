//! Bytes on the wire: RoCEv2 framing, UB transaction headers, ICRC.
//!
//! - owns: every layout that leaves a node (docs/wire-spec.md is its prose twin), opcode tables,
//!   response codes, the ICRC rule, capture files.
//! - takes: received bytes; plain header values to send.
//! - gives: checked values or a [`PacketError`] with a named reason; headers written into a
//!   caller's buffer.
//! - must not: keep state, allocate on parse or emit, read a clock, panic on any input.
//!
//! Two families share the BTH: the standard InfiniBand opcodes ([`roce`]) and URMA traffic in the
//! manufacturer range ([`Packet`], [`PacketHeader`]). A same-host ring carries the transaction
//! part alone ([`Transaction`]).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod bth;
pub mod capture;
mod codec;
pub mod frame;
mod icrc;
mod num;
pub mod packetizer;
pub mod roce;
mod ub;

pub use bth::{BTH_LEN, Bth, BthWire, Congestion};
pub use codec::PacketError;
pub use icrc::Renumber;
pub use icrc::{ICRC_LEN, IcrcDigest, IcrcFlow, IcrcFront};
pub use num::{JettyId, Mtu, Psn, TokenId, TokenValue, Tpn, WireEid};
pub use ub::*;

/// UDP destination port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
