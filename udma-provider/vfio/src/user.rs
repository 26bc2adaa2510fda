//! A device behind a vfio-user socket.
//!
//! - owns: the protocol (`wire`, `stream`), the client's function, the server of one connection.
//! - takes: a connected Unix socket. gives: a `PciDevice`, or a function served to a client. must not: know what
//!   registers or rings mean.
#![forbid(unsafe_code)]

mod config_space;
mod device;
mod dma;
mod link;
mod map;
mod serve;
mod server_clock;
mod stream;
mod window;
mod wire;

#[cfg(test)]
mod tests;

pub use config_space::{ServedBar, ServedConfig, ServedIdentity};
pub use device::UserDevice;
pub use link::UserError;
pub use map::MapQuota;
pub use serve::{ServedFunction, ServedShape, refuse, serve};
