//! How far a piece brought its request.
//!
//! *Owns*: what each result means for the answer and for the limit on guesses. *Must not*: answer.

use urma_packet::ResponseStatus;

use super::guesses::Judged;
use super::memory::ReadJob;
use super::serve::Reply;

/// How far a piece brought its request.
#[derive(Debug)]
pub(super) enum PieceOutcome {
    /// The request goes on with the next piece.
    More,
    /// Done, with this answer.
    Done(Reply),
    /// Done; the data follow.
    Read(ReadJob),
    /// No receive; the same request comes again.
    NotReady(ResponseStatus),
    /// The bytes are not where the piece says; the same request comes again, with its bytes.
    NoBytes,
}

impl PieceOutcome {
    pub(super) const fn refused(status: ResponseStatus) -> Self {
        if matches!(status, ResponseStatus::ReceiverNotReady { .. }) {
            Self::NotReady(status)
        } else {
            Self::Done(Reply::Status(status))
        }
    }

    /// Whether the request went on by it.
    pub(super) fn is_progress(&self) -> bool {
        matches!(self.judged(), Judged::Right) || matches!(self, Self::More | Self::Read(_))
    }

    /// What it says about the tokens that were shown.
    pub(super) fn judged(&self) -> Judged {
        match self {
            Self::More | Self::Read(_) | Self::NotReady(_) | Self::NoBytes => Judged::Begun,
            Self::Done(Reply::Value(_) | Reply::Status(ResponseStatus::Ack)) => Judged::Right,
            Self::Done(Reply::Status(ResponseStatus::AccessAbort)) => Judged::Wrong,
            Self::Done(Reply::Status(_)) => Judged::Neither,
        }
    }

    pub(super) const ACK: Self = Self::refused(ResponseStatus::Ack);
}
