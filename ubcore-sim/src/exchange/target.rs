//! Requests of a peer's queues to this node, from a piece to its answer.
//!
//! *Owns*: receives, unfinished messages, kept answers. *Takes*: pieces in order. *Gives*: placed bytes, receive
//! completions, answers. *Must not*: place a byte before rights, state and bounds of the target were checked.

pub(crate) mod fragment;
pub(crate) mod guesses;
pub(crate) mod lookups;
pub(crate) mod memory;
pub(crate) mod message;
pub(crate) mod object;
pub(crate) mod receive;
pub(crate) mod responder;
mod serve;
