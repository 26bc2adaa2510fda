//! Flows that share a router's queue: those of the stack, rivals with other congestion control, traffic without any.
//!
//! - owns: the world of a bottleneck, rivals, grid and results. takes: a link, its queue, who sends, a seed.
//! - gives: shares, losses and waits. must not: control the stack's own flows (that is `urma-recovery`'s).

pub mod grid;
pub mod picture;
pub mod results;
pub mod rival;
pub mod world;
