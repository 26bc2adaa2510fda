//! From doorbell to completion.
//!
//! *Owns*: fetching, the direct path, outstanding requests, receives, completions. *Takes*: queues
//! made runnable. *Gives*: bytes moved, pieces for carriers, completion entries.
//! *Must not*: create or destroy objects.

pub(crate) mod core;
pub(crate) mod direct;
pub(crate) mod fast;
pub(crate) mod fetch;
pub(crate) mod gather;
pub(crate) mod mail;
pub(crate) mod names;
pub(crate) mod pass_length;
pub(crate) mod paths;
pub(crate) mod pieces;
pub(crate) mod ping_pong;
pub(crate) mod pull;
pub(crate) mod queue;
pub(crate) mod remote;
pub(crate) mod retire;
pub(crate) mod send;
