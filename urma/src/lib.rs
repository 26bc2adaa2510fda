//! URMA for Rust programs: the one crate to depend on.
//!
//! *Owns*: how a device and its driver come together. *Takes*: a configuration, or the environment.
//! *Gives*: an open [`Context`], and everything of `urma-core` to use it with. *Must not*: know
//! rings, registers or packets.
#![doc = ""]
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod open;

use ubcore_sim::host::obstacle::{FailedAttempt, find};

pub use open::{OpenError, Opened, open, open_device, open_node, outside};
pub use ubcore_sim::{EidSource, Node, NodeCfg, NodeError, PathChoice};
pub use udma_abi::RawEid;
pub use udma_provider::device_on;
pub use urma_answer::{Answerer, WELL_KNOWN_ID};
pub use urma_core::*;
pub use urma_mem::{OutOfBounds, Pages, Region};

/// What stands between node `own` of this process and `peer`, after an import ended with `status`: the address,
/// the port, a firewall, the MTU or the version; words for the user. `None` for a status that has another reason. Takes
/// some seconds.
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

/// The examples of the project's READMEs, compiled and run as documentation tests of this crate, which knows all that they
/// use.
#[cfg(doctest)]
mod readmes {
    /// The project's first page.
    #[doc = include_str!("../../README.md")]
    struct FirstPageReadme;

    /// README of the crate `urma-mem`.
    #[doc = include_str!("../../urma-mem/README.md")]
    struct MemReadme;

    /// README of the crate `urma-core`.
    #[doc = include_str!("../../urma-core/README.md")]
    struct CoreReadme;

    /// README of the crate `urma-answer`.
    #[doc = include_str!("../../urma-core/answer/README.md")]
    struct AnswerReadme;

    /// README of the crate `udma-provider`.
    #[doc = include_str!("../../udma-provider/README.md")]
    struct DriverReadme;

    /// README of the crate `udma-abi`.
    #[doc = include_str!("../../udma-provider/abi/README.md")]
    struct AbiReadme;

    /// README of the crate `ubcore-sim`.
    #[doc = include_str!("../../ubcore-sim/README.md")]
    struct SimReadme;
}
