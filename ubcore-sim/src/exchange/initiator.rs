//! What this node's queues ask of a peer: from a handed-over request to its end.
//!
//! *Owns*: outstanding requests, their numbers, their order. *Takes*: mail of send queues, answers, time. *Gives*: pieces,
//! ends. *Must not*: touch the memory of a target.

mod answer;
pub(crate) mod flow;
mod modelled;
mod next_piece;
pub(crate) mod request;
pub(crate) mod requester;
mod schedule;
pub(crate) mod send_queues;
