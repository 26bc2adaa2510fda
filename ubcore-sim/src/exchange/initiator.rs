//! Requests of this node's queues to a peer, from the hand-over to the completion.
//!
//! *Owns*: outstanding requests, their numbers, their order. *Takes*: mail of send queues, answers, time. *Gives*:
//! pieces, completions. *Must not*: touch the memory of a target.

pub(crate) mod flow;
pub(crate) mod next_piece;
pub(crate) mod requester;
mod schedule;
pub(crate) mod send_queues;
