//! Kill journal: what a survivor wrote down about every request, and the judgement on it.
//!
//! *Owns*: the journal's form, the rules of the judge, the worker that two processes run against
//! each other. *Takes*: commands over a socket from the process that starts the workers. *Gives*:
//! journals. *Must not*: end a process; tests do that.
#![forbid(unsafe_code)]

pub mod channel;
pub mod journal;
pub mod judge;
pub mod memory;
pub mod pause;
pub mod plan;
pub mod round;
pub mod side;
