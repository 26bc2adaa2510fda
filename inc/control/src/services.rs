//! What has sockets and runs on tokio: the server of a controller, and the clients of switches, hosts and tools.

mod etcd;
mod follower;
mod host;
mod link;
mod server;
mod switch;
mod tools;
mod view;

pub use etcd::{EtcdCfg, EtcdElection, EtcdError, EtcdStore};
pub use follower::FollowerServer;
pub use host::{HostSession, HostSessionCfg, JoinError, OnHostCommand, SessionError};
pub use link::RuntimeError;
pub use server::{ControllerServer, ControllerServerCfg, ServerError, ServerExposure};
pub use switch::{OnSwitchCommand, SwitchSession, SwitchSessionCfg};
pub use tools::{ControllerTool, ToolError};

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
