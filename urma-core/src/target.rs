//! Imported queues of other nodes.

use crate::TargetId;

/// A queue to send to.
#[derive(Debug)]
pub struct TargetJetty {
    id: TargetId,
}

impl TargetJetty {
    /// Everything that names it.
    #[inline]
    #[must_use]
    pub fn target(&self) -> &TargetId {
        &self.id
    }
}
