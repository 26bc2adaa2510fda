//! The laboratory: experiments on the code of the stack, in virtual time.
//!
//! - owns: experiments, their grids, results and plots. takes: a configuration and seeds.
//! - gives: one result per cell, beside formula and limit. must not: have protocol code of its own but that of
//!   others, which ours is measured beside.

#![forbid(unsafe_code)]

pub mod cache;
pub mod calibrate;
pub mod clock;
pub mod node;
pub mod output;
pub mod plot;
pub mod splice;
pub mod stats;
pub mod svg;
pub mod sweep;
pub mod units;
pub mod wan;
pub mod workers;
