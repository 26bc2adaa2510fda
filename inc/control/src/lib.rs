//! The controller of in-network computing over gRPC: its server, and the clients of switches and hosts.
//!
//! - owns: the protocol (`proto/inc/v1/inc.proto`) and its conversion to [`inc::control`], the threads, sockets and the clock
//!   of a controller and its clients.
//! - takes: a topology, commands of callers. gives: sessions ([`SwitchSession`], [`HostSession`]), a [`ControllerServer`].
//! - must not: decide anything that [`inc::controller::Controller`] decides.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod convert;
#[cfg(feature = "services")]
mod services;
mod store;

#[cfg(feature = "services")]
pub use services::*;
pub use store::{ControllerStore, FileStore, MemoryStore};
pub use store::{ImageError, read_image, write_image};

/// The messages and services of `inc.proto`, as generated.
#[expect(
    missing_docs,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    reason = "generated: the .proto has the comments"
)]
#[cfg_attr(
    feature = "services",
    expect(unused_qualifications, reason = "generated: the .proto has the comments")
)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/inc.v1.rs"));

    /// Description of the protocol, for reflection.
    pub const DESCRIPTION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inc.bin"));
}
