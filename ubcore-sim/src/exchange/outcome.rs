//! How far a piece brought its request.
//!
//! *Owns*: what each result means for the answer and for the limit on guesses. *Must not*: answer.

use urma_packet::ResponseStatus;

use super::guesses::Judged;
use super::memory::ReadJob;
use super::serve::Answer;

/// How far a piece brought its request.
#[derive(Debug)]
pub(super) enum Outcome {
    /// More pieces follow.
    More,
    /// Done, with this answer.
    Done(Answer),
    /// Done; the data follow.
    Read(ReadJob),
    /// No receive; the same request comes again.
    NotReady(ResponseStatus),
}

impl Outcome {
    pub(super) const fn refused(status: ResponseStatus) -> Self {
        match status {
            ResponseStatus::ReceiverNotReady { .. } => Self::NotReady(status),
            _ => Self::Done(Answer::Status(status)),
        }
    }

    /// What it says about the tokens that were shown.
    pub(super) fn judged(&self) -> Judged {
        match self {
            Self::More | Self::Read(_) | Self::NotReady(_) => Judged::Begun,
            Self::Done(Answer::Value(_) | Answer::Status(ResponseStatus::Ack)) => Judged::Right,
            Self::Done(Answer::Status(ResponseStatus::AccessAbort)) => Judged::Wrong,
            Self::Done(Answer::Status(_)) => Judged::Neither,
        }
    }

    pub(super) const ACK: Self = Self::refused(ResponseStatus::Ack);
}
