//! Output, and the one error of this program.
//!
//! *Owns*: standard output. A closed pipe is not an error of the task.

use std::io::{self, Write};

/// Why a task failed; for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure(pub(crate) String);

impl Failure {
    /// A system error with what was tried.
    pub(crate) fn system(what: &str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

/// Result of a task: nothing, or why it failed.
pub(crate) type TaskResult = Result<(), Failure>;

/// Prints a line to standard output.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Prints without a newline, at once.
pub(crate) fn say_part(part: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(part.as_bytes()).and_then(|()| out.flush());
}
