//! Work of a node without its program: the background thread, and what wakes it.
//!
//! *Owns*: the thread, its pauses, whether programs poll. *Takes*: readiness of descriptors, timers, polls. *Gives*:
//! steps of the device. *Must not*: take a processor from a program that polls.

pub(crate) mod moderation;
pub mod poll;
pub mod presence;
pub mod thread;
pub mod vain_wakeups;
pub mod wakeup_policy;
