//! A reliable connection of the standard RoCEv2 opcodes, without I/O.
//!
//! - owns: one endpoint ([`RcEndpoint`]): requester and responder, PSNs, acknowledgements, retries,
//!   timers.
//! - takes: requests, receives, packets, the time, memory behind [`RcMemory`]. gives: packets,
//!   completions, the next deadline.
//! - must not: own a socket, an address, a thread or a clock, or need any URMA object.
//!
//! The rules are those of the InfiniBand Architecture Specification 1.7, 9.7, as the RoCE driver of
//! Linux (rxe) reads them. Where a packet arrives is for its owner: it verifies the ICRC
//! ([`urma_packet::roce::RocePacket::open`]) and finds the endpoint by BTH.DestQP.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod cfg;
mod endpoint;
mod request;
mod requester;
mod responder;
pub use cfg::{RcAccess, RcAtomic, RcCfg, RcCfgError, RcMemory};
pub use endpoint::RcEndpoint;
pub use request::{
    RcCompletion, RcCounts, RcOperation, RcPostError, RcReceive, RcRemote, RcRequest, RcSource,
    RcStatus,
};

/// Time in nanoseconds, from any fixed start.
pub type RcTime = u64;
