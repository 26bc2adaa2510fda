//! The calls of tools, for threads that block.

use std::net::SocketAddr;
use std::time::Duration;

use inc::controller::GroupSecret;
use tokio::runtime::Runtime;
use tonic::Status;
use tonic::transport::Channel;

use super::TlsIdentity;
use super::{RuntimeError, connect_hosts, runtime};
use crate::proto::{self, controller_client::ControllerClient};

/// An answer that takes longer does not come.
const ANSWER: Duration = Duration::from_secs(10);

/// A connection to a controller, to look at it and to change its topology.
#[derive(Debug)]
pub struct ControllerTool {
    runtime: Runtime,
    client: ControllerClient<Channel>,
}

/// Why a tool has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The connection has no runtime.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The controller cannot be reached, or refuses.
    #[error("{0}")]
    Refused(String),
    /// No answer came in time.
    #[error("the controller did not answer within 10 s")]
    NoAnswer,
}

impl From<Status> for ToolError {
    fn from(status: Status) -> Self {
        Self::Refused(status.message().to_owned())
    }
}

impl ControllerTool {
    /// Connects to a controller's port for hosts and tools.
    ///
    /// # Errors
    /// [`ToolError`].
    pub fn connect(controller: SocketAddr, tls: Option<&TlsIdentity>) -> Result<Self, ToolError> {
        let runtime = runtime()?;
        let client = runtime.block_on(connect_hosts(controller, tls));
        let client = client.map_err(|status| {
            ToolError::Refused(format!("no controller at {controller}: {}", status.message()))
        })?;
        Ok(Self { runtime, client })
    }

    /// What there is now; `None`: of all tenants.
    ///
    /// # Errors
    /// [`ToolError`].
    pub fn list(&mut self, tenant: Option<u32>) -> Result<proto::Snapshot, ToolError> {
        let call = self.client.list(proto::ListRequest { tenant });
        let answer = self.runtime.block_on(async { tokio::time::timeout(ANSWER, call).await });
        Ok(answer.map_err(|_| ToolError::NoAnswer)??.into_inner())
    }

    /// What there is now, and again after each change, until `on_snapshot` returns false.
    ///
    /// # Errors
    /// [`ToolError`].
    pub fn watch(
        &mut self,
        tenant: Option<u32>,
        mut on_snapshot: impl FnMut(&proto::Snapshot) -> bool,
    ) -> Result<(), ToolError> {
        let client = &mut self.client;
        self.runtime.block_on(async {
            let mut stream = client.watch(proto::ListRequest { tenant }).await?.into_inner();
            while let Some(snapshot) = stream.message().await? {
                if !on_snapshot(&snapshot) {
                    return Ok(());
                }
            }
            Err(ToolError::Refused("the controller ended".to_owned()))
        })
    }

    /// The topology, and the trees of running communicators.
    ///
    /// # Errors
    /// [`ToolError`].
    pub fn topology(&mut self) -> Result<proto::GetTopologyResponse, ToolError> {
        let call = self.client.get_topology(proto::GetTopologyRequest {});
        let answer = self.runtime.block_on(async { tokio::time::timeout(ANSWER, call).await });
        Ok(answer.map_err(|_| ToolError::NoAnswer)??.into_inner())
    }

    /// Puts another topology in force, with the proof that a controller with a secret wants.
    ///
    /// # Errors
    /// [`ToolError`]; a fault of the document is named with its line and column.
    pub fn put_topology(
        &mut self,
        map: String,
        secret: Option<&GroupSecret>,
    ) -> Result<(), ToolError> {
        let client = &mut self.client;
        let put = async {
            let nonce = client.challenge(proto::ChallengeRequest {}).await?.into_inner().nonce;
            let challenge = <[u8; 16]>::try_from(&nonce[..]).unwrap_or_default();
            let proof = secret.map(|secret| secret.topology_proof(challenge, &map));
            let proof = proof.unwrap_or_default();
            client.put_topology(proto::PutTopologyRequest { map, nonce, proof }).await
        };
        let answer = self.runtime.block_on(async { tokio::time::timeout(ANSWER, put).await });
        answer.map_err(|_| ToolError::NoAnswer)??;
        Ok(())
    }
}
