//! The experiment `splice`: how three packet engines join and cut messages, cycle by cycle.
//!
//! - owns: its grid, results, the picture of the first cycles. takes: lists of options. gives: results of a model.
//! - must not: model an engine (that is `urma-splice`'s).

pub mod cells;
pub mod picture;
pub mod plot;
pub mod results;
