//! Records for polls which cache lines a post touches.
//!
//! *Owns*: nothing. *Takes*: a poster that stays where it is. *Gives*: addresses to prefetch. *Must not*: be called
//! per request.

use super::SendPoster;

impl SendPoster {
    /// Records what a post touches. Called when the device writes this queue's CQEs, since the queue may then be one
    /// of many.
    #[cold]
    #[inline(never)]
    pub(super) fn note_lines(&mut self) {
        self.is_noted = true;
        self.link.lines.note(0, self, HOT_LEN);
        self.doorbell.note_lines(&self.link.lines);
    }
}

/// Bytes at the front of a poster that each post touches.
const HOT_LEN: usize = 128;
