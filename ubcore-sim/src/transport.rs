//! The reliable transport between two nodes: TP, its handshake, the path MTU.
//!
//! - owns: PSNs, the bytes of both windows, making and replacing TPs; what is lost and sent again is decided in
//!   `urma-recovery`, in sequences.
//! - takes: parsed packets, transaction pieces, time. gives: pieces in order, packets, deadlines.
//! - must not: read a clock, draw a random number, know jetties or segments.
//!
//! Inputs are `on_*` and `push`, outputs `pop` and `poll_*`; after every input, drain every output.

mod code;
mod handshake;
mod path_mtu;
pub(crate) mod planted;
mod receive;
mod repair;
mod ring;
mod strategy;
mod tp;

pub(crate) use handshake::{
    Agreed, Challenger, Doubt, Handshake, HandshakeEvent, HandshakeState, Offer, OpenCfg,
    TpOpenError, refusal,
};
pub(crate) use path_mtu::{MtuChange, MtuFaults, PathMtu};
pub(crate) use receive::Piece;
pub use strategy::Strategy;
#[cfg(test)]
pub(crate) use tp::TRANSMIT_MAX;
pub(crate) use tp::{PushError, Received, Tp, TpCfg, TpStats};
#[cfg(test)]
pub(crate) use urma_recovery::RtoCfg;
pub(crate) use urma_recovery::{CongestionChoice, KnittingPool, PoolError, SPREAD_MAX};
