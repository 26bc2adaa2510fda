//! The controller of in-network computing over gRPC: its server, and the clients of switches and hosts.
//!
//! - owns: the protocol (`proto/inc/v1/inc.proto`) and its conversion to [`inc::control`], the threads, sockets and the clock
//!   of a controller and its clients.
//! - takes: a topology, commands of callers. gives: sessions ([`SwitchSession`], [`HostSession`]), a [`ControllerServer`].
//! - must not: decide anything that [`inc::controller::Controller`] decides.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod convert;
mod etcd;
mod follower;
mod host;
mod image;
mod link;
mod server;
mod store;
mod switch;
mod tools;
mod view;

pub use etcd::{EtcdCfg, EtcdElection, EtcdError, EtcdStore};
pub use follower::FollowerServer;
pub use host::{HostSession, HostSessionCfg, JoinError, OnHostCommand, SessionError};
pub use image::{ImageError, read_image, write_image};
pub use link::RuntimeError;
pub use server::{ControllerServer, ControllerServerCfg, ServerError, ServerExposure};
pub use store::{ControllerStore, FileStore, MemoryStore};
pub use switch::{OnSwitchCommand, SwitchSession, SwitchSessionCfg};
pub use tools::{ControllerTool, ToolError};

/// The messages and services of `inc.proto`, as generated.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    reason = "generated: the .proto has the comments"
)]
pub mod proto {
    tonic::include_proto!("inc.v1");

    /// Description of the protocol, for reflection.
    pub const DESCRIPTION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inc.bin"));
}

/// The calls of etcd, as generated.
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
