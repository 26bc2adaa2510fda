//! The reliable transport between two nodes: TP, its handshake, the loss record in host memory.
//!
//! - owns: PSNs, windows, acknowledgement, retransmission, making and replacing TPs.
//! - takes: parsed packets, transaction pieces, time. gives: pieces in order, packets, deadlines.
//! - must not: read a clock, draw a random number, know jetties or segments.
//!
//! Inputs are `on_*` and `push`, outputs `pop` and `poll_*`; after every input, drain every output.

mod handshake;
mod knitting;
mod path_mtu;
mod receive;
mod send;
mod strategy;
mod timer;
mod tp;

pub(crate) use handshake::{
    Agreed, Challenger, Doubt, Handshake, HandshakeEvent, HandshakeState, Offer, OpenCfg,
    TpOpenError, refusal,
};
pub(crate) use knitting::{KnittingPool, PoolError};
pub(crate) use path_mtu::{MtuChange, MtuFaults, PathMtu};
pub(crate) use receive::Piece;
pub use strategy::Strategy;
#[cfg(test)]
pub(crate) use timer::RtoCfg;
pub(crate) use tp::{PushError, Received, TRANSMIT_MAX, Tp};
