//! The process of a machine, the lines of its console, and what they say about its checks.
//!
//! The process ends with the value. Each line has a bound: nothing waits for ever. A check without a line has not
//! passed.

use std::{
    io::{self, BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

/// A machine at work.
#[derive(Debug)]
pub struct Console {
    machine: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

/// What a console gave within a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConsoleLine {
    /// A line, without its end.
    Text(String),
    /// No line came within the bound.
    Silence,
    /// The machine ended; no line follows.
    End,
}

impl Drop for Console {
    fn drop(&mut self) {
        // It has nothing to save.
        let _ = self.machine.kill();
        let _ = self.machine.wait();
    }
}

impl Console {
    /// Starts a machine whose console is its standard output.
    ///
    /// # Errors
    /// The system's error.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut machine = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipe = || io::Error::other("the console has no pipe");
        let input = machine.stdin.take().ok_or_else(pipe)?;
        let output = machine.stdout.take().ok_or_else(pipe)?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            // A machine may print bytes that are no text.
            while matches!(output.read_until(b'\n', &mut line), Ok(1..)) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(text).is_err() {
                    return;
                }
                line.clear();
            }
        });
        Ok(Self { machine, input, lines })
    }

    /// Waits for the next line, at most `bound`.
    pub fn line(&mut self, bound: Duration) -> ConsoleLine {
        match self.lines.recv_timeout(bound) {
            Ok(line) => ConsoleLine::Text(line),
            Err(RecvTimeoutError::Timeout) => ConsoleLine::Silence,
            Err(RecvTimeoutError::Disconnected) => ConsoleLine::End,
        }
    }

    /// Types a line.
    ///
    /// # Errors
    /// The machine ended; no line follows.
    pub fn write_line(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.input, "{line}")?;
        self.input.flush()
    }
}

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
