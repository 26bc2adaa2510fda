//! Steps of a long task: progress, time, counts, one last line.
//!
//! *Owns*: the sum of what passed and failed. *Takes*: commands and checks. *Gives*: lines.
//! *Must not*: know what a step means.

use std::{process::Command, time::Instant};

use crate::{
    clock::now,
    say::{Done, Failure, say, say_part},
};

/// What one step found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Tests that failed.
    pub(crate) failed: u64,
    /// What to show when something failed, or was left out.
    pub(crate) notes: String,
}

/// A run of steps.
#[derive(Debug)]
pub(crate) struct Steps {
    total: usize,
    done: usize,
    passed: u64,
    failed: u64,
    start: Instant,
}

impl Steps {
    /// A run of `total` steps.
    pub(crate) fn new(total: usize) -> Self {
        Self { total, done: 0, passed: 0, failed: 0, start: now() }
    }

    /// Runs one step and says how it went.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Counts) {
        self.done += 1;
        say_part(&format!("[{:>2}/{}] {name:<34}", self.done, self.total));
        let start = now();
        let counts = work();
        let seconds = start.elapsed().as_secs_f64();
        let verdict = if counts.failed == 0 { "ok" } else { "FAILED" };
        let (passed, failed) = (counts.passed, counts.failed);
        say(&format!(" {verdict:<7}{seconds:>7.1} s  {passed} passed, {failed} failed"));
        if !counts.notes.is_empty() {
            say(counts.notes.trim_end());
        }
        self.passed += passed;
        self.failed += failed;
    }

    /// The last line, alone: `N passed, N failed`.
    pub(crate) fn end(self) -> Done {
        say(&format!("{:.1} s in all", self.start.elapsed().as_secs_f64()));
        say(&format!("{} passed, {} failed", self.passed, self.failed));
        if self.failed == 0 {
            Ok(())
        } else {
            Err(Failure("see the steps marked FAILED".to_owned()))
        }
    }
}

impl Counts {
    /// One check by itself.
    pub(crate) fn one(result: Done) -> Self {
        match result {
            Ok(()) => Self { passed: 1, ..Self::default() },
            Err(Failure(notes)) => Self { failed: 1, notes, ..Self::default() },
        }
    }

    /// A command: its tests when it runs tests, else itself.
    pub(crate) fn of(mut command: Command) -> Self {
        match command.output() {
            Err(error) => Self::one(Err(Failure(format!("cannot start: {error}")))),
            Ok(output) => {
                let text = [&output.stdout[..], b"\n", &output.stderr[..]].concat();
                let text = String::from_utf8_lossy(&text);
                Self::from_output(&text, output.status.success())
            }
        }
    }

    /// Sums up the lines in which test programs say what they found.
    fn from_output(text: &str, is_success: bool) -> Self {
        let (mut passed, mut failed) = (0, 0);
        for line in text.lines() {
            let Some((_, counts)) = line.split_once("test result: ") else { continue };
            passed += number_before(counts, " passed");
            failed += number_before(counts, " failed");
        }
        match (is_success, passed + failed) {
            (true, 0) => passed = 1,
            (false, _) if failed == 0 => failed = 1,
            _ => {}
        }
        let notes = if failed == 0 { String::new() } else { tail(text) };
        Self { passed, failed, notes }
    }

    /// Both.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            notes: self.notes + &other.notes,
        }
    }
}

/// Number of tests that the programs with this output ran.
pub(crate) fn ran(text: &str) -> u64 {
    let counts = text.lines().filter_map(|line| line.split_once("test result: "));
    counts.map(|(_, line)| number_before(line, " passed") + number_before(line, " failed")).sum()
}

/// The number that stands before `word`.
fn number_before(text: &str, word: &str) -> u64 {
    let Some((before, _)) = text.split_once(word) else { return 0 };
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// What matters of a failed command's output: the parts that name failures, then its end.
fn tail(text: &str) -> String {
    const LINES: usize = 80;
    let lines: Vec<&str> = text.lines().filter(|line| !line.ends_with(" ... ok")).collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_programs_add_up() {
        let text = "test result: ok. 35 passed; 0 failed; 1 ignored; 0 measured\nnoise\n\
                    test result: ok. 7 passed; 0 failed; 0 ignored";
        let counts = Counts::from_output(text, true);
        assert_eq!((counts.passed, counts.failed), (42, 0));
    }

    #[test]
    fn failures_count_and_are_shown() {
        let text = "test a ... ok\ntest b ... FAILED\n\
                    test result: FAILED. 1 passed; 1 failed; 0 ignored";
        let counts = Counts::from_output(text, false);
        assert_eq!((counts.passed, counts.failed), (1, 1));
        assert!(counts.notes.contains("test b") && !counts.notes.contains("test a"));
    }

    #[test]
    fn a_program_that_dies_is_a_failure() {
        assert_eq!(Counts::from_output("", false).failed, 1);
        let died = Counts::from_output("test result: ok. 3 passed; 0 failed;", false);
        assert_eq!((died.passed, died.failed), (3, 1));
    }

    #[test]
    fn a_command_without_tests_counts_as_one() {
        assert_eq!(Counts::from_output("Finished", true).passed, 1);
        assert_eq!(Counts::of(Command::new("/nonexistent")).failed, 1);
    }
}
