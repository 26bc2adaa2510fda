//! The experiment `cache`: replacement policies of a NIC's context cache, on traces.
//!
//! - owns: its grid, runs, tables, plots. takes: traces, policies, capacities. gives: results.
//! - must not: replace anything (that is `urma-contexts`'s).

pub mod cell;
pub mod grid;
pub mod options;
pub mod output;
pub mod plot;
pub mod tiers;
