//! The whole stack in virtual time: unchanged API, driver and devices on the fabric, against a
//! model.
//!
//! *Owns*: the choice of a world by seed, the random workload, the byte-exact model, the checks.
//! *Takes*: a seed. *Gives*: the hash of all that happened, or what went wrong and the last events.
//! *Must not*: depend on how devices work; what it checks holds on every path.

mod area;
mod book;
#[cfg(test)]
mod directed;
#[cfg(test)]
mod idle;
mod judge;
mod lent;
#[cfg(test)]
mod models;
mod node;
mod plan;
mod post;
mod run;
mod shrink;
mod side;
#[cfg(test)]
mod standard;
mod trouble;
pub use plan::{SimPlan, Weather, Work};
pub use run::{Report, SimFailure, run};
pub use shrink::{Shrunk, shrink};
