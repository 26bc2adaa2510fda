//! What exists between creation and destruction: queues, completion queues, events, segments, paths.
//!
//! *Owns*: the objects and their tables. *Takes*: checked arguments of commands. *Gives*: lookups
//! that never wait. *Must not*: move payload.

pub(crate) mod arm_slot;
pub(crate) mod counts;
pub(crate) mod event;
pub(crate) mod function;
pub(crate) mod function_id;
pub(crate) mod guesses;
pub(crate) mod jfc;
pub(crate) mod link;
pub(crate) mod lives;
pub(crate) mod model;
pub(crate) mod objects;
pub(crate) mod poison;
pub(crate) mod queue;
pub(crate) mod segment;
pub(crate) mod step_share;
pub(crate) mod table;
pub(crate) mod tables;
pub(crate) mod token;
