//! The experiment `node`: nodes of the whole stack, unchanged driver and device, over a network with faults in virtual time.
//!
//! - owns: its grid, the programs of the nodes, what they check, results. takes: lists of options, a seed. gives: counts and a hash.
//! - must not: model a part of the stack: nodes, links and faults are those of `ubcore-sim`'s fabric.

pub mod book;
pub mod grid;
pub mod plot;
pub mod program;
pub mod results;
pub mod run;
