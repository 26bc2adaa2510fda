//! The rooms of `ubcored` that others use: a function of a node behind a vfio-user server.
//!
//! - owns: the function of one client with its vectors, and the thread that works for all. takes: nodes. gives: what
//!   [`udma_vfio::user::serve`] serves. must not: listen, or decide who is served.
#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "a daemon lives in real time")]

mod attend;
mod descriptors;
mod function;
#[cfg(test)]
mod hostile;
mod vectors;

pub use attend::Attendants;
pub use descriptors::DescriptorBudget;
pub use function::NodeFunction;
