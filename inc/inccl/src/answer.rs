//! What calls of C answer with: a number, and words for what went wrong.

use inc::member::{OperationError, SubmitError};
use inc_net::bootstrap::BootstrapError;
use inc_net::group::{CollectiveError, GroupError};

/// Answers of calls, as in `inccl.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum IncclAnswer {
    Ok = 0,
    Invalid,
    Pending,
    Aborted,
    Timeout,
    NoTree,
    System,
    Canceled,
}

/// Why a call has no result: its answer, and the words for `inccl_last_error`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub(crate) struct IncclError {
    pub(crate) answer: IncclAnswer,
    pub(crate) words: String,
}

impl IncclError {
    pub(crate) const fn invalid(words: String) -> Self {
        Self { answer: IncclAnswer::Invalid, words }
    }

    pub(crate) const fn system(words: String) -> Self {
        Self { answer: IncclAnswer::System, words }
    }
}

impl From<GroupError> for IncclError {
    fn from(error: GroupError) -> Self {
        let answer = match &error {
            GroupError::Rank { .. }
            | GroupError::Member(_)
            | GroupError::Bootstrap(BootstrapError::WorldSize { .. }) => IncclAnswer::Invalid,
            GroupError::Socket { .. }
            | GroupError::Bootstrap(_)
            | GroupError::Join(_)
            | GroupError::Session(_) => IncclAnswer::System,
        };
        Self { answer, words: error.to_string() }
    }
}

impl From<CollectiveError> for IncclError {
    fn from(error: CollectiveError) -> Self {
        // With words there was no tree of switches to the end.
        let ended = |error: &OperationError, words: &str| match error {
            OperationError::Aborted(_) => IncclAnswer::Aborted,
            OperationError::Timeout(_) if !words.is_empty() => IncclAnswer::NoTree,
            OperationError::Timeout(_) => IncclAnswer::Timeout,
            OperationError::NoQpn => IncclAnswer::System,
            OperationError::Unknown => IncclAnswer::Invalid,
        };
        let answer = match &error {
            CollectiveError::Submit(SubmitError::Over(error)) => ended(error, ""),
            CollectiveError::Operation { error, why } => ended(error, why),
            CollectiveError::Submit(_)
            | CollectiveError::Reduction { .. }
            | CollectiveError::Root { .. } => IncclAnswer::Invalid,
        };
        Self { answer, words: error.to_string() }
    }
}
