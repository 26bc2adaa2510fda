//! What both clients need: a runtime in a thread, a way to the controller, pauses between attempts.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::runtime::Runtime;
use tonic::Status;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::TlsIdentity;
use crate::proto::controller_client::ControllerClient;

/// Milliseconds between signs of life.
pub(crate) const HEARTBEAT: u64 = 100;
/// Pauses between attempts to open a session, at least and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];
/// An attempt that takes longer has failed.
const CONNECT: Duration = Duration::from_secs(2);

/// A thread or its runtime could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the thread of a session: {0}")]
pub struct RuntimeError(#[from] std::io::Error);

/// Pauses that double, up to a bound.
pub(crate) struct Backoff(Duration);

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
pub(crate) struct Controllers {
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
pub(crate) fn runtime() -> Result<Runtime, RuntimeError> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// The way to a controller.
pub(crate) fn endpoint(at: SocketAddr, tls: Option<&TlsIdentity>) -> Result<Endpoint, Status> {
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
pub(crate) async fn connect_hosts(
    at: SocketAddr,
    tls: Option<&TlsIdentity>,
) -> Result<ControllerClient<Channel>, Status> {
    let client = ControllerClient::connect(endpoint(at, tls)?).await;
    client.map_err(|error| Status::unavailable(connect_text(&error)))
}

/// Why a connection was not made; what lies below says more than the error itself.
pub(crate) fn connect_text(error: &tonic::transport::Error) -> String {
    let mut source = std::error::Error::source(error);
    let mut text = error.to_string();
    while let Some(below) = source {
        text = below.to_string();
        source = below.source();
    }
    text
}
