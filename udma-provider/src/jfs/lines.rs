//! Which cache lines a post touches, for the polls.
//!
//! *Owns*: nothing. *Takes*: a poster that stays where it is. *Gives*: addresses for hints. *Must not*: be called per request.

use super::SendPoster;

impl SendPoster {
    /// Notes what a post touches: the device reports what this queue posts, so that it may be one of many.
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
