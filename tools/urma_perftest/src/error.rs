//! Why a run ended early.
//!
//! *Owns*: the one error of this program, made for people.

use urma::OutOfBounds;
use urma::{CrStatus, Eid, PathKind, PostError, Status};

use crate::{oob::OobError, pattern::Mismatch, plan::PlanRefusal};

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// The plan cannot be carried out.
    #[error(transparent)]
    Refused(#[from] PlanRefusal),
    /// The exchange with the other side failed.
    #[error(transparent)]
    Oob(#[from] OobError),
    /// The URMA API refused something.
    #[error("{what}: {status}")]
    Api {
        /// Operation that failed, in words.
        what: &'static str,
        /// Status that the operation returned.
        status: Status,
    },
    /// The peer's node is not reached.
    #[error("no path to node {eid}: {why}")]
    NoPath {
        /// EID of the peer's node.
        eid: Eid,
        /// Address, port, firewall, MTU or version, with what to do.
        why: String,
    },
    /// A request was refused or failed, or did not complete in time.
    #[error("{0}")]
    Request(String),
    /// A request has no acknowledgement.
    #[error("request {user_ctx:#x} failed: {}", CrStatus::AckTimeout)]
    Unanswered {
        /// Context of the request.
        user_ctx: u64,
    },
    /// A byte is wrong.
    #[error("verification failed: {0}")]
    Mismatch(#[from] Mismatch),
    /// The system said no.
    #[error("{what}: {error}")]
    System {
        /// Operation that failed, in words.
        what: &'static str,
        /// Error that the operation returned.
        error: std::io::Error,
    },
}

impl RunError {
    /// For a completion that is not a success.
    pub(crate) fn failed(status: CrStatus, user_ctx: u64) -> Self {
        if status == CrStatus::AckTimeout {
            return Self::Unanswered { user_ctx };
        }
        Self::Request(format!("request {user_ctx:#x} failed: {status}"))
    }

    /// The error with what stands between the nodes `own` and `peer`, where requests went in packets and had no
    /// acknowledgement. Takes some seconds then.
    pub(crate) fn explained(self, (own, peer): (Eid, Eid), path: PathKind) -> Self {
        let Self::Unanswered { .. } = self else { return self };
        let why = match path {
            PathKind::Packets => urma::why_unreached(own, peer, Status::TimedOut),
            _ => None,
        };
        let why = why.unwrap_or_else(|| {
            "the process of the peer is stopped, or had no processor".to_owned()
        });
        Self::Request(format!("{self}; node {peer}: {why}"))
    }
}

impl From<PostError> for RunError {
    fn from(error: PostError) -> Self {
        Self::Request(error.to_string())
    }
}

impl From<OutOfBounds> for RunError {
    fn from(error: OutOfBounds) -> Self {
        Self::Mismatch(Mismatch::Range(error))
    }
}

/// Names what was tried when the API refuses.
pub(crate) fn api(what: &'static str) -> impl FnOnce(Status) -> RunError {
    move |status| RunError::Api { what, status }
}
