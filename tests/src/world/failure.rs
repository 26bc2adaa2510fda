//! Why a behaviour did not hold, and where that was seen.
//!
//! *Owns*: [`Failure`], so that `?` works on every error of the stack and names the line.

use std::{fmt, io, panic::Location};

use urma_core::{PostError, Refused, Status};
use urma_mem::OutOfBounds;

/// What happened instead, and the line that saw it.
pub struct Failure {
    text: String,
    at: &'static Location<'static>,
}

/// What a behaviour ends in.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure seen by the caller.
    #[track_caller]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), at: Location::caller() }
    }

    /// The same failure with the step in front that it belongs to.
    #[must_use]
    pub fn during(mut self, step: impl fmt::Display) -> Self {
        self.text = format!("{step}: {}", self.text);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", self.text, self.at.file(), self.at.line())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! from {
    ($($error:ty: $name:literal;)*) => { $(
        impl From<$error> for Failure {
            #[track_caller]
            fn from(error: $error) -> Self {
                Self::new(format!("{}: {error}", $name))
            }
        }
    )* };
}

from! {
    PostError: "post";
    io::Error: "system";
    OutOfBounds: "test memory";
    ubcore_sim::node::NodeError: "node";
    String: "error";
}

impl From<Status> for Failure {
    #[track_caller]
    fn from(status: Status) -> Self {
        Self::new(format!("{status:?}"))
    }
}

impl<T> From<Refused<T>> for Failure {
    #[track_caller]
    fn from(refused: Refused<T>) -> Self {
        Self::new(format!("delete: {:?}", refused.status))
    }
}

/// A failure for `what`.
///
/// # Errors
/// Always.
#[track_caller]
pub fn fail<T>(what: impl Into<String>) -> Outcome<T> {
    Err(Failure::new(what))
}

/// `holds`, or a failure that says `what`.
///
/// # Errors
/// It does not hold.
#[track_caller]
pub fn check(holds: bool, what: impl Into<String>) -> Outcome {
    if holds { Ok(()) } else { Err(Failure::new(what)) }
}

/// `seen` is `wanted`.
///
/// # Errors
/// It is not.
#[track_caller]
pub fn same<T: PartialEq + fmt::Debug>(what: &str, seen: T, wanted: T) -> Outcome {
    if seen == wanted {
        return Ok(());
    }
    Err(Failure::new(format!("{what} is {seen:?} and should be {wanted:?}")))
}

/// A call was refused with the status `wanted`.
///
/// # Errors
/// It was not refused, or with another status.
#[track_caller]
pub fn refused<T, E: Into<Status>>(what: &str, seen: Result<T, E>, wanted: Status) -> Outcome {
    match seen.map_err(Into::into) {
        Err(status) if status == wanted => Ok(()),
        Err(status) => {
            let wanted = wanted.kind();
            Err(Failure::new(format!("{what} was refused with {status:?}; {wanted:?} is due")))
        }
        Ok(_) => Err(Failure::new(format!("{what} was not refused ({wanted:?} is due)"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(outcome: Outcome) -> String {
        outcome.expect_err("no").to_string()
    }

    #[test]
    fn checks_say_no_and_where() {
        assert!(check(true, "x").is_ok() && same("x", 1, 1).is_ok());
        let text = says(check(false, "it holds"));
        assert!(text.starts_with("it holds (") && text.contains("failure.rs:"), "{text}");
        let text = says(same("the sum", 1, 2));
        assert!(text.starts_with("the sum is 1 and should be 2"), "{text}");
        assert!(says(fail("never")).starts_with("never"));
    }

    #[test]
    fn a_refusal_is_due_and_so_is_its_status() {
        let refusal = |seen: Result<(), Status>| refused("a call", seen, Status::NoMemory);
        assert!(refusal(Err(Status::NoMemory)).is_ok());
        let text = says(refusal(Err(Status::Fail)));
        assert!(
            text.contains("refused with Fail: ") && text.contains("; NoMemory is due"),
            "{text}"
        );
        let text = says(refusal(Ok(())));
        assert!(text.contains("a call was not refused"), "{text}");
    }
}
