//! Answers of commands: at once, or by a later step.
//!
//! *Owns*: results, and what a command waits for. *Must not*: keep a command without a limit of its own or of the
//! exchange.

use std::sync::Arc;

use udma_abi::{
    CmdStatus, Nanos, RawEid,
    cmd::{Mode, RSP_WORDS},
};

use crate::context::segment::LocalSegment;

/// Results of an answer.
pub(super) type AnswerWords = [u64; RSP_WORDS - 1];

/// State of a command after its execution.
#[derive(Debug)]
pub(super) enum CmdAnswer {
    /// Answered: status and results.
    Now(CmdStatus, AnswerWords),
    /// Answered by a later step.
    Later(PendingCommand),
}

impl CmdAnswer {
    pub(super) fn ok(results: &[u64]) -> Self {
        let mut all = [0; RSP_WORDS - 1];
        all[..results.len()].copy_from_slice(results);
        Self::Now(CmdStatus::Ok, all)
    }

    pub(super) fn status(status: CmdStatus) -> Self {
        Self::Now(status, [0; RSP_WORDS - 1])
    }
}

/// Answer of a fallible command: results, or the error status.
pub(super) type CmdOutcome = Result<CmdAnswer, CmdStatus>;

/// A command in progress.
#[derive(Clone, Debug)]
pub(super) enum PendingCommand {
    /// Waits for a path to a node.
    Connect {
        /// EID of the peer's node.
        eid: RawEid,
        /// Mode of the queues that use it.
        mode: Mode,
    },
    /// Waits for announced copies into a withdrawn segment.
    Drain {
        /// Withdrawn segment, which keeps its memory until no copy is announced.
        segment: Arc<LocalSegment>,
        /// Time at which the wait ends, whatever is still pending.
        until: Nanos,
    },
    /// Waits for the completions of a queue.
    Destroy(Leaving),
}

/// A queue that is being destroyed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    /// Number of the queue.
    pub(super) id: u32,
    /// Blocks and receives without a completion, as of the last time that one found room.
    pub(super) left: u32,
    /// Time at which the wait ends, whatever is still pending.
    pub(super) until: Nanos,
}

impl PendingCommand {
    pub(super) fn deadline(&self) -> Option<Nanos> {
        match self {
            Self::Connect { .. } => None,
            Self::Drain { until, .. } | Self::Destroy(Leaving { until, .. }) => Some(*until),
        }
    }
}
