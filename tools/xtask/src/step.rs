//! Steps of a long task: progress, time, counts, one last line.
//!
//! *Owns*: the sum of what passed, failed and was skipped; the logs. *Takes*: commands and checks.
//! *Gives*: lines. *Must not*: interpret a step, count a test twice, take for passed what did
//! not run.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use crate::{
    cargo, child,
    clock::now,
    report::Report,
    say::{Failure, TaskResult, say, say_part},
};

/// Time that one command may take.
const COMMAND_MAX: Duration = Duration::from_secs(3600);
/// Variable with the file to which tests that cannot run append a line (crate urma-skip).
const SKIPS: &str = "URMA_SKIPS";

/// What one step found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct StepResult {
    /// Checks that passed, by name.
    pub(crate) passed: Vec<String>,
    /// Checks that failed.
    pub(crate) failed: Vec<Failed>,
    /// Checks that could not run, each with the reason.
    pub(crate) skipped: Vec<String>,
    /// Tests marked as ignored, each with the reason.
    pub(crate) ignored: Vec<String>,
}

/// A check that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failed {
    /// Its name.
    pub(crate) name: String,
    /// Why.
    pub(crate) message: String,
    /// The file with the whole output, if there is one.
    pub(crate) log: Option<PathBuf>,
}

/// A run of steps.
#[derive(Debug)]
pub(crate) struct Steps {
    total: usize,
    done: usize,
    start: Instant,
    logs: PathBuf,
    seen: BTreeSet<String>,
    again: usize,
    sum: StepResult,
}

/// A step at work.
#[derive(Debug)]
pub(crate) struct RunningStep {
    name: String,
    logs: PathBuf,
    commands: usize,
}

impl Steps {
    /// A run of `total` steps, with a folder of logs for `task`.
    pub(crate) fn new(task: &str, total: usize) -> Result<Self, Failure> {
        let logs = cargo::target_dir()?.join("xtask/logs").join(task);
        // Logs of an earlier run would be taken for this one's.
        let _ = fs::remove_dir_all(&logs);
        let (seen, sum) = (BTreeSet::new(), StepResult::default());
        Ok(Self { total, done: 0, start: now(), logs, seen, again: 0, sum })
    }

    /// Runs one step and says how it went.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce(&mut RunningStep) -> StepResult) {
        self.done += 1;
        say_part(&format!("[{:>2}/{}] {name:<34}", self.done, self.total));
        let logs = self.logs.join(format!("{:02}-{}", self.done, file_name(name)));
        let (name, start) = (name.to_owned(), now());
        let found = work(&mut RunningStep { name, logs, commands: 0 });
        let seconds = start.elapsed().as_secs_f64();
        let verdict = if found.failed.is_empty() { "ok" } else { "FAILED" };
        say(&format!(" {verdict:<7}{seconds:>7.1} s  {}", found.counts()));
        found.failed.iter().for_each(Failed::say);
        self.add(found);
    }

    fn add(&mut self, found: StepResult) {
        for name in found.passed {
            if self.seen.insert(name.clone()) {
                self.sum.passed.push(name);
            } else {
                self.again += 1;
            }
        }
        self.sum.failed.extend(found.failed);
        let fresh = |there: &[String], more: Vec<String>| -> Vec<String> {
            more.into_iter().filter(|line| !there.contains(line)).collect()
        };
        let (skipped, ignored) = (&mut self.sum.skipped, &mut self.sum.ignored);
        skipped.extend(fresh(skipped, found.skipped));
        ignored.extend(fresh(ignored, found.ignored));
    }

    /// What did not run; the last line, alone: `N passed, N failed, N skipped`.
    pub(crate) fn end(self) -> TaskResult {
        list("skipped", &self.sum.skipped);
        list("ignored", &self.sum.ignored);
        let failed = self.sum.failed.iter().map(|failed| failed.name.clone()).collect::<Vec<_>>();
        list("failed", &failed);
        let seconds = self.start.elapsed().as_secs_f64();
        say(&format!("{seconds:.1} s in all; {} repeated runs are not counted", self.again));
        say(&self.sum.counts());
        if failed.is_empty() {
            Ok(())
        } else {
            Err(Failure("see the steps marked FAILED".to_owned()))
        }
    }
}

impl RunningStep {
    /// A command that is one check, which `what` names.
    pub(crate) fn check(&mut self, what: &str, command: Command) -> StepResult {
        let name = format!("{}: {what}", self.name);
        let (ended, log) = match self.run(command) {
            Ok(ended) => ended,
            Err(failure) => return StepResult::one(&name, Err(failure)),
        };
        if ended.is_success() {
            return StepResult::one(&name, Ok(()));
        }
        let [(_, message)] = &Report::of(&ended.text, false).failed[..] else {
            return StepResult::one(&name, Err(Failure(ended.text)));
        };
        StepResult::failed(Failed { name, message: message.clone(), log: Some(log) })
    }

    /// A command that runs test programs, all of which run at least one test.
    pub(crate) fn tests(&mut self, command: Command) -> StepResult {
        let (found, empty) = self.programs(command);
        let none = |name: String| Failed { message: "runs no test".to_owned(), name, log: None };
        found.plus(StepResult {
            failed: empty.into_iter().map(none).collect(),
            ..StepResult::default()
        })
    }

    /// A command that runs test programs, some of which have no test.
    pub(crate) fn all_tests(&mut self, command: Command) -> StepResult {
        self.programs(command).0
    }

    /// Results, and programs that ran no test.
    fn programs(&mut self, mut command: Command) -> (StepResult, Vec<String>) {
        let skips = self.logs.with_extension("skips");
        let _ = fs::remove_file(&skips);
        command.env(SKIPS, &skips);
        let (ended, log) = match self.run(command) {
            Ok(ended) => ended,
            Err(failure) => return (StepResult::one(&self.name, Err(failure)), Vec::new()),
        };
        let report = Report::of(&ended.text, ended.is_success());
        let skips = fs::read_to_string(&skips).unwrap_or_default();
        let empty = report.empty.clone();
        (StepResult::of(&self.name, report, &skips, &log), empty)
    }

    fn run(&mut self, command: Command) -> Result<(child::ChildEnd, PathBuf), Failure> {
        self.commands += 1;
        let log = self.logs.with_extension(format!("{}.log", self.commands));
        let ended = child::run(command, &log, COMMAND_MAX)?;
        Ok((ended, log))
    }
}

impl StepResult {
    /// One check by itself.
    pub(crate) fn one(name: &str, result: TaskResult) -> Self {
        let name = name.to_owned();
        match result {
            Ok(()) => Self { passed: vec![name], ..Self::default() },
            Err(Failure(message)) => Self::failed(Failed { name, message, log: None }),
        }
    }

    fn failed(failed: Failed) -> Self {
        Self { failed: vec![failed], ..Self::default() }
    }

    /// Both.
    pub(crate) fn plus(mut self, other: Self) -> Self {
        self.passed.extend(other.passed);
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
        self.ignored.extend(other.ignored);
        self
    }

    /// Results of a command of the step `step`, less what `skips` (lines of urma-skip) takes from
    /// them.
    fn of(step: &str, report: Report, skips: &str, log: &Path) -> Self {
        let log = Some(log.to_path_buf());
        let mut found = Self { passed: report.passed, ignored: report.ignored, ..Self::default() };
        for line in skips.lines() {
            let line = line.trim_start_matches("SKIPPED: ");
            let (name, _) = line.split_once(": ").unwrap_or((line, ""));
            let is_it = |test: &String| test.ends_with(&format!("::{name}"));
            found.passed.retain(|test| !is_it(test));
            found.ignored.retain(|test| !test.contains(&format!("::{name}: ")));
            if !found.skipped.iter().any(|there| there == line) {
                found.skipped.push(line.to_owned());
            }
        }
        let failed = |(name, message)| Failed { name, message, log: log.clone() };
        found.failed.extend(report.failed.into_iter().map(failed));
        if found.passed.len() + found.failed.len() + found.skipped.len() == 0 {
            let (name, message) = (step.to_owned(), "no test ran".to_owned());
            found.failed.push(Failed { name, message, log });
        }
        found
    }

    fn counts(&self) -> String {
        let (passed, failed) = (self.passed.len(), self.failed.len());
        format!("{passed} passed, {failed} failed, {} skipped", self.skipped.len())
    }
}

impl Failed {
    fn say(&self) {
        say(&format!("        FAILED: {}", self.name));
        self.message.lines().for_each(|line| say(&format!("          {line}")));
        if let Some(log) = &self.log {
            say(&format!("          whole output: {}", cargo::shown(log)));
        }
    }
}

fn list(word: &str, lines: &[String]) {
    if !lines.is_empty() {
        say(&format!("{word}:"));
        lines.iter().for_each(|line| say(&format!("  {line}")));
    }
}

/// `name` with hyphens for everything but letters and digits.
fn file_name(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-").to_lowercase()
}

#[cfg(test)]
mod tests;
