//! Why a peer is not reached.
//!
//! *Takes*: the EIDs of two nodes, the status with which an import ended. *Gives*: words for the user. *Must
//! not*: be used for a decision.

use ubcore_sim::host::obstacle::{FailedAttempt, find};
use udma_abi::RawEid;
use urma_core::{Eid, Status};

/// What stands between node `own` of this process and `peer`, after an import ended with `status`: the address,
/// the port, a firewall, the MTU or the version. `None` for a status that has another reason. Takes some seconds.
#[must_use]
pub fn why_unreached(own: Eid, peer: Eid, status: Status) -> Option<String> {
    let attempt = if status == Status::TimedOut {
        FailedAttempt::Silence
    } else if status == Status::Unreachable {
        FailedAttempt::Refusal
    } else if status == Status::PeerFull {
        return Some(status.to_string());
    } else {
        return None;
    };
    let (own, peer) = (RawEid(own.bytes()), RawEid(peer.bytes()));
    Some(find(own, std::process::id(), peer, attempt).to_string())
}
