//! A delete that was refused gives its object back.

use crate::Status;

/// The object is unchanged; `status` is the reason of the refusal.
#[derive(Debug, thiserror::Error)]
#[error("{status}")]
pub struct Refused<T> {
    /// The object, unchanged: the call had no effect, and the caller owns it again.
    pub object: Box<T>,
    /// Why it was refused.
    pub status: Status,
}

impl<T> Refused<T> {
    pub(crate) fn new(object: T, status: Status) -> Self {
        Self { object: Box::new(object), status }
    }
}

/// For callers that give up on the object.
impl<T> From<Refused<T>> for Status {
    fn from(refused: Refused<T>) -> Self {
        refused.status
    }
}
