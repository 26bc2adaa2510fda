//! Checks, one after the other.
//!
//! *Owns*: the counts. *Takes*: results. *Gives*: lines.

use crate::say;

/// Why a check failed.
pub(crate) type CheckResult = Result<(), String>;

/// What passed and failed.
#[derive(Debug, Default)]
pub(crate) struct Suite {
    passed: u32,
    failed: u32,
}

impl Suite {
    /// Notes and prints the result of the check `name`.
    pub(crate) fn check(&mut self, name: &str, result: CheckResult) {
        match result {
            Ok(()) => {
                self.passed += 1;
                say(&format!("[guest] pass {name}"));
            }
            Err(why) => {
                self.failed += 1;
                say(&format!("[guest] FAIL {name} -- {}", why.replace('\n', " ")));
            }
        }
    }

    /// The line of the result.
    pub(crate) fn line(&self) -> String {
        let Self { passed, failed } = self;
        let rc = u8::from(*failed > 0 || *passed == 0);
        format!("[guest] test rc={rc} passed={passed} failed={failed}")
    }
}

/// An error, with what was tried in front.
pub(crate) fn during<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}

/// Whether a value is the expected one.
pub(crate) fn expect<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: T,
    wanted: T,
) -> CheckResult {
    if found == wanted {
        return Ok(());
    }
    Err(format!("{what} is {found:x?}, should be {wanted:x?}"))
}
