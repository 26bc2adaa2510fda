//! A device behind a vfio-user socket.
//!
//! - owns: the protocol (`wire`, `stream`), the client and its backing, the server of one connection.
//! - takes: a connected Unix socket. gives: a `DeviceBacking`, or a function served to a client. must not: know what
//!   registers or rings mean.
#![forbid(unsafe_code)]

mod backing;
mod link;
mod map;
mod serve;
mod stream;
mod wire;

#[cfg(test)]
mod tests;

pub use backing::UserDevice;
pub use link::UserError;
pub use map::MapQuota;
pub use serve::{ServedFunction, ServedShape, serve};
