//! What a machine printed about its checks.
//!
//! *Owns*: the format of the lines. *Takes*: lines of a console. *Gives*: results. *Must not*: take for passed what has
//! no line.

/// Front of each line of the checks.
const FRONT: &str = "[guest] ";

/// Results of a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GuestReport {
    /// Names of checks that passed.
    pub passed: Vec<String>,
    /// Names of checks that failed, each with the reason.
    pub failed: Vec<(String, String)>,
    /// What the line of the result said: return code, passed, failed.
    pub result: Option<(u32, usize, usize)>,
}

impl GuestReport {
    /// Takes a line of the console.
    pub fn on_line(&mut self, line: &str) {
        // The console may put control characters or half a message of the kernel in front.
        let Some((_, line)) = line.split_once(FRONT) else { return };
        if let Some(name) = line.strip_prefix("pass ") {
            self.passed.push(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("FAIL ") {
            let (name, why) = rest.rsplit_once(" -- ").unwrap_or((rest, "no reason"));
            self.failed.push((name.to_owned(), why.to_owned()));
        } else if let Some(rest) = line.strip_prefix("test ") {
            self.result = counts(rest);
        }
    }

    /// Returns what is wrong with the report itself.
    ///
    /// # Errors
    /// The line of the result is missing, or does not agree with the lines of the checks.
    pub fn whole(&self) -> Result<(), String> {
        let Some((code, passed, failed)) = self.result else {
            let seen = self.passed.len() + self.failed.len();
            return Err(format!("no line with the result came; {seen} checks ended"));
        };
        if (passed, failed) != (self.passed.len(), self.failed.len()) {
            let (here, there) = (self.passed.len(), self.failed.len());
            return Err(format!(
                "the result says {passed} passed, {failed} failed; the lines say {here} and {there}"
            ));
        }
        if (code == 0) == (failed == 0 && passed > 0) {
            return Ok(());
        }
        Err(format!("the result says rc={code} with {passed} passed, {failed} failed"))
    }
}

fn counts(rest: &str) -> Option<(u32, usize, usize)> {
    let mut words = rest.split_whitespace();
    let code = words.next()?.strip_prefix("rc=")?.parse().ok()?;
    let passed = words.next()?.strip_prefix("passed=")?.parse().ok()?;
    let failed = words.next()?.strip_prefix("failed=")?.parse().ok()?;
    Some((code, passed, failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(lines: &[&str]) -> GuestReport {
        let mut report = GuestReport::default();
        lines.iter().for_each(|line| report.on_line(line));
        report
    }

    #[test]
    fn a_report_has_each_check_and_the_result() {
        let found = report(&[
            "[    0.1] noise",
            "\u{1b}[0m[guest] pass edu: liveness",
            "[guest] FAIL edu: reset -- the device is gone",
            "[guest] test rc=1 passed=1 failed=1",
        ]);
        assert_eq!(found.whole(), Ok(()));
        assert_eq!(found.passed, ["edu: liveness"]);
        let failed = ("edu: reset".to_owned(), "the device is gone".to_owned());
        assert_eq!(found.failed, [failed]);
    }

    #[test]
    fn no_result_or_a_wrong_one_is_a_failure() {
        for lines in [
            &[][..],
            &["[guest] pass a"],
            &["[guest] test rc=0 passed=1 failed=0"],
            &["[guest] test rc=0 passed=0 failed=0"],
            &["[guest] pass a", "[guest] test rc=1 passed=1 failed=0"],
            &["[guest] FAIL a -- why", "[guest] test rc=0 passed=0 failed=1"],
            &["[guest] pass a", "[guest] test rc=0 passed=1"],
        ] {
            assert!(report(lines).whole().is_err(), "{lines:?}");
        }
    }
}
