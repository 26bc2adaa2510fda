//! Whole runs of an engine: mixes of messages, beats of their pieces, schedules and totals.
//!
//! - owns: draws of a seed, the input side, what a run reports. takes: messages and an engine. gives: a schedule.
//! - must not: reach into an engine.

pub mod drive;
pub mod messages;
