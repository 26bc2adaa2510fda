//! Who refuses a bad call: this crate, or the provider below.
//!
//! *Owns*: what this crate's rules said of one call that is left to the provider. *Takes*: answers of
//! rules, then the provider's. *Gives*: the answer of the call. *Must not*: let a call through that a
//! rule forbids, whoever answers it.

use crate::Status;

/// Who answers bad calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checks {
    /// urma-core: the provider does not see them.
    #[default]
    Core,
    /// The provider, which has rules of its own: its answer is the caller's. A bad call that it
    /// accepts answers `Fail`.
    Provider,
}

/// What the rules said of one call.
#[derive(Debug)]
pub(crate) struct Verdict {
    checks: Checks,
    is_bad: bool,
}

impl Verdict {
    pub(crate) fn new(checks: Checks) -> Self {
        Self { checks, is_bad: false }
    }

    /// The answer of a rule; a refusal ends the call here, or is left to the provider.
    pub(crate) fn hear(&mut self, rule: Result<(), Status>) -> Result<(), Status> {
        match (self.checks, rule) {
            (Checks::Core, rule) => rule,
            (Checks::Provider, rule) => {
                self.is_bad |= rule.is_err();
                Ok(())
            }
        }
    }

    /// [`Self::hear`] for a rule that also finds a value; `or` goes to the provider where it does not.
    pub(crate) fn hear_or<T>(&mut self, rule: Result<T, Status>, or: T) -> Result<T, Status> {
        match rule {
            Ok(found) => Ok(found),
            Err(status) => self.hear(Err(status)).map(|()| or),
        }
    }

    /// The provider's answer.
    pub(crate) fn settle<T>(self, answer: Result<T, Status>) -> Result<T, Status> {
        let made = answer?;
        if self.is_bad {
            tracing::error!(target: "urma", "the provider accepts a call that the rules forbid");
            return Err(Status::Fail);
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_refuses_at_once() {
        let mut verdict = Verdict::new(Checks::Core);
        assert_eq!(verdict.hear(Err(Status::Invalid)), Err(Status::Invalid));
    }

    #[test]
    fn the_provider_answers_what_is_left_to_it() {
        let bad = || {
            let mut verdict = Verdict::new(Checks::Provider);
            assert_eq!(verdict.hear(Err(Status::Invalid)), Ok(()));
            assert_eq!(verdict.hear_or(Err(Status::Invalid), 7), Ok(7));
            verdict
        };
        assert_eq!(bad().settle::<()>(Err(Status::Exists)), Err(Status::Exists));
        assert_eq!(bad().settle(Ok(())), Err(Status::Fail), "nothing bad gets through");
        let good = Verdict::new(Checks::Provider);
        assert_eq!(good.settle(Ok(1)), Ok(1));
    }
}
