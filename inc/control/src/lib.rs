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
mod etcd;
#[cfg(feature = "services")]
mod follower;
#[cfg(feature = "services")]
mod host;
mod image;
#[cfg(feature = "services")]
mod link;
#[cfg(feature = "services")]
mod server;
mod store;
#[cfg(feature = "services")]
mod switch;
#[cfg(feature = "services")]
mod tools;
#[cfg(feature = "services")]
mod view;

#[cfg(feature = "services")]
pub use etcd::{EtcdCfg, EtcdElection, EtcdError, EtcdStore};
#[cfg(feature = "services")]
pub use follower::FollowerServer;
#[cfg(feature = "services")]
pub use host::{HostSession, HostSessionCfg, JoinError, OnHostCommand, SessionError};
pub use image::{ImageError, read_image, write_image};
#[cfg(feature = "services")]
pub use link::RuntimeError;
#[cfg(feature = "services")]
pub use server::{ControllerServer, ControllerServerCfg, ServerError, ServerExposure};
pub use store::{ControllerStore, FileStore, MemoryStore};
#[cfg(feature = "services")]
pub use switch::{OnSwitchCommand, SwitchSession, SwitchSessionCfg};
#[cfg(feature = "services")]
pub use tools::{ControllerTool, ToolError};

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

/// The calls of etcd, as generated.
#[cfg(feature = "services")]
#[expect(
    unreachable_pub,
    unused_qualifications,
    clippy::allow_attributes_without_reason,
    reason = "generated: the .proto has the comments"
)]
mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}

/// TCP port for hosts and tools.
pub const HOSTS_PORT: u16 = 52200;
/// TCP port for switches.
pub const SWITCHES_PORT: u16 = 52311;
/// TCP port for metrics and health over HTTP.
pub const HTTP_PORT: u16 = 52201;

/// PEM texts by which this side shows who it is, and knows who the other one is.
#[derive(Clone)]
pub struct TlsIdentity {
    /// Certificates of those who may sign the other side's.
    pub authorities: String,
    /// Certificate of this side.
    pub certificate: String,
    /// Private key of the certificate.
    pub key: String,
}

impl std::fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsIdentity(..)")
    }
}
