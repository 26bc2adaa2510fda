//! What has sockets and runs on tokio: the server of a controller, and the clients of switches, hosts and tools.
//!
//! What both clients need: a runtime in a thread, a way to the controller, pauses between attempts.

mod etcd;
mod host;
mod server;
mod switch;
mod tools;
mod view;

use std::{net::SocketAddr, time::Duration};

use tokio::runtime::Runtime;
use tonic::{
    Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::proto::controller_client::ControllerClient;

pub use etcd::{EtcdCfg, EtcdElection, EtcdError, EtcdStore};
pub use host::{HostSession, HostSessionCfg, JoinError, OnHostCommand, SessionError};
pub use server::{
    ControllerServer, ControllerServerCfg, FollowerServer, ServerError, ServerExposure,
};
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

/// Milliseconds between signs of life.
const HEARTBEAT: u64 = 100;
/// Pauses between attempts to open a session, at least and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];
/// An attempt that takes longer has failed.
const CONNECT: Duration = Duration::from_secs(2);

/// A thread or its runtime could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the thread of a session: {0}")]
pub struct RuntimeError(#[from] std::io::Error);

/// Pauses that double, up to a bound.
struct Backoff(Duration);

impl Backoff {
    pub(crate) fn new() -> Self {
        Self(PAUSES[0])
    }

    pub(crate) fn reset(&mut self) {
        self.0 = PAUSES[0];
    }

    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (2 * pause).min(PAUSES[1]);
        pause
    }
}

/// Controllers of which one is in charge, looked at in turn.
#[derive(Debug)]
struct Controllers {
    all: Vec<SocketAddr>,
    at: usize,
}

impl Controllers {
    pub(crate) fn new(first: SocketAddr, others: &[SocketAddr]) -> Self {
        Self { all: std::iter::once(first).chain(others.iter().copied()).collect(), at: 0 }
    }

    pub(crate) fn current(&self) -> SocketAddr {
        self.all[self.at]
    }

    /// This one does not answer, or is not in charge.
    pub(crate) fn go_on(&mut self) {
        self.at = (self.at + 1) % self.all.len();
    }
}

/// A runtime that runs in the thread that waits for it.
fn runtime() -> Result<Runtime, RuntimeError> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// The way to a controller.
fn endpoint(at: SocketAddr, tls: Option<&TlsIdentity>) -> Result<Endpoint, Status> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let invalid = |error: tonic::transport::Error| Status::invalid_argument(error.to_string());
    let endpoint = Endpoint::from_shared(format!("{scheme}://{at}")).map_err(invalid)?;
    let endpoint = endpoint.connect_timeout(CONNECT).tcp_nodelay(true);
    let Some(tls) = tls else { return Ok(endpoint) };
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&tls.authorities))
        .identity(Identity::from_pem(&tls.certificate, &tls.key));
    endpoint.tls_config(tls).map_err(invalid)
}

/// A connection to a controller's port for hosts and tools.
async fn connect_hosts(
    at: SocketAddr,
    tls: Option<&TlsIdentity>,
) -> Result<ControllerClient<Channel>, Status> {
    let client = ControllerClient::connect(endpoint(at, tls)?).await;
    client.map_err(|error| Status::unavailable(connect_text(&error)))
}

/// Why a connection was not made; what lies below says more than the error itself.
fn connect_text(error: &tonic::transport::Error) -> String {
    let mut source = std::error::Error::source(error);
    let mut text = error.to_string();
    while let Some(below) = source {
        text = below.to_string();
        source = below.source();
    }
    text
}
