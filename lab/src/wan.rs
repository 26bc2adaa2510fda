//! The experiment `wan`: loss recovery on long and lossy paths.
//!
//! - owns: its grid, the model of the path, formulas. takes: cells and seeds. gives: results.
//! - must not: recover losses (that is `urma-recovery`'s).

pub mod bottleneck;
pub mod cell;
pub mod cpu;
pub mod formula;
pub mod grid;
pub mod loss;
pub mod path;
pub mod plot;
pub mod results;
