//! What the C functions said no to.
//!
//! *Owns*: counts by thread. *Gives*: them, for tests that want to know who refused.

use std::cell::Cell;

/// Counts of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Answers {
    /// Calls that a C function refused.
    pub refused: u64,
    /// Completions with an error that a C function gave.
    pub failed: u64,
}

std::thread_local! {
    static MINE: Cell<Answers> = const { Cell::new(Answers { refused: 0, failed: 0 }) };
}

/// Takes the counts of the calling thread; they begin again.
#[must_use]
pub fn take_answers() -> Answers {
    MINE.take()
}

/// A C function refused a call.
pub(crate) fn note_refused() {
    MINE.with(|mine| mine.update(|was| Answers { refused: was.refused + 1, ..was }));
}

/// A completion says that its request failed.
pub(crate) fn note_failed() {
    MINE.with(|mine| mine.update(|was| Answers { failed: was.failed + 1, ..was }));
}
