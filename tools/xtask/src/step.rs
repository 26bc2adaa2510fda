//! Steps of a long task: progress, time, counts, one last line.
//!
//! *Owns*: the sum of what passed, failed and was skipped; the logs. *Takes*: commands and checks.
//! *Gives*: lines. *Must not*: interpret a step, count a test twice, take for passed what did
//! not run.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use crate::{
    cargo,
    child::{ChildEnd, LOOK, RunningChild},
    clock::{now, pause},
    report::Report,
    say::{Failure, LogTail, StepLine, TaskResult, say},
};

/// Time that one command may take.
pub(crate) const COMMAND_MAX: Duration = Duration::from_secs(3600);
/// Variable with the file to which tests that cannot run append a line (crate urma-skip).
pub(crate) const SKIPS: &str = "URMA_SKIPS";
/// Cargo's variable for builds in parts.
const INCREMENTAL: &str = "CARGO_INCREMENTAL";

/// What one step found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct StepResult {
    /// Checks that passed, by name.
    pub(crate) passed: Vec<String>,
    /// Checks that failed, with their messages.
    pub(crate) failed: Vec<Failed>,
    /// Checks that could not run, each with the reason.
    pub(crate) skipped: Vec<String>,
    /// Tests marked as ignored, each with the reason.
    pub(crate) ignored: Vec<String>,
}

/// A check that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failed {
    /// Name of the check.
    pub(crate) name: String,
    /// Message of the failure.
    pub(crate) message: String,
    /// The file with the whole output, if there is one.
    pub(crate) log: Option<PathBuf>,
}

/// A run of steps.
#[derive(Debug)]
pub(crate) struct Steps {
    total: usize,
    done: usize,
    /// Part of the names of the steps that run; the others are left out.
    only: String,
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
    progress: StepLine,
}

impl Steps {
    /// A run of `total` steps, with a folder of logs for `task`.
    pub(crate) fn new(task: &str, total: usize) -> Result<Self, Failure> {
        let logs = cargo::target_dir()?.join("xtask/logs").join(task);
        // Logs of an earlier run would be taken for this one's.
        let _ = fs::remove_dir_all(&logs);
        let (seen, sum) = (BTreeSet::new(), StepResult::default());
        let only = String::new();
        Ok(Self { total, done: 0, only, start: now(), logs, seen, again: 0, sum })
    }

    /// These, with only those steps whose name contains `part`.
    pub(crate) fn only(self, part: &str) -> Self {
        Self { only: part.to_owned(), ..self }
    }

    /// Whether the step `name` runs, as far as its name says.
    pub(crate) fn is_selected(&self, name: &str) -> bool {
        name.contains(&self.only)
    }

    /// Runs one step and says how it went.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce(&mut RunningStep) -> StepResult) {
        self.done += 1;
        if !self.is_selected(name) {
            return;
        }
        let progress = StepLine::new(&format!("[{:>2}/{}] {name:<34}", self.done, self.total));
        let logs = self.logs.join(format!("{:02}-{}", self.done, file_name(name)));
        let (name, start) = (name.to_owned(), now());
        let mut step = RunningStep { name, logs, commands: 0, progress };
        let found = work(&mut step);
        let seconds = start.elapsed().as_secs_f64();
        let outcome = if found.failed.is_empty() { "ok" } else { "FAILED" };
        step.progress.end(&format!(" {outcome:<7}{seconds:>7.1} s  {}", found.counts()));
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
        if !self.only.is_empty() && self.sum == StepResult::default() {
            return Err(Failure(format!("no step has {:?} in its name", self.only)));
        }
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
        let ended = self.run(command);
        self.checked(what, ended)
    }

    /// Commands that are a check each, two at a time.
    pub(crate) fn checks(&mut self, commands: Vec<(String, Command)>) -> StepResult {
        let mut waiting = commands.into_iter();
        let mut found = StepResult::default();
        let mut lanes = [None, None];
        loop {
            for lane in &mut lanes {
                if lane.is_none()
                    && let Some((what, command)) = waiting.next()
                {
                    let (running, log) = self.start(command);
                    *lane = Some((what, running, log));
                }
                let Some((_, running, _)) = lane else { continue };
                let ended = running.as_mut().map_err(|failure| failure.clone());
                let ended = match ended.and_then(RunningChild::ended) {
                    Ok(None) => continue,
                    Ok(Some(ended)) => Ok(ended),
                    Err(failure) => Err(failure),
                };
                if let Some((what, _, log)) = lane.take() {
                    found = found.plus(self.checked(&what, ended.map(|ended| (ended, log))));
                }
            }
            if lanes.iter().all(Option::is_none) && waiting.len() == 0 {
                return found;
            }
            let names = lanes.iter().flatten().map(|(what, ..)| what.as_str());
            let names = names.collect::<Vec<_>>().join(", ");
            self.progress.show(|| names);
            pause(LOOK);
        }
    }

    /// The result of a command that is one check.
    fn checked(&self, what: &str, ended: Result<(ChildEnd, PathBuf), Failure>) -> StepResult {
        let name = format!("{}: {what}", self.name);
        let (ended, log) = match ended {
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

    /// A command whose standard output is wanted; what it prints else goes to a log. Gives a failed
    /// check if the command fails.
    pub(crate) fn output(&mut self, command: Command) -> Result<String, StepResult> {
        self.commands += 1;
        let log = self.log_of(&format!("{}.log", self.commands));
        let out = self.log_of(&format!("{}.out", self.commands));
        let ended = RunningChild::start_apart(whole(command), &log, &out, COMMAND_MAX)
            .and_then(|running| self.watched(running, &log))
            .map_err(|failure| StepResult::one(&self.name, Err(failure)))?;
        if !ended.is_success() {
            let report = Report::of(&ended.text, false);
            return Err(StepResult::of(report, "", &log));
        }
        let text = fs::read_to_string(&out).map_err(Failure::system("reading a command's output"));
        text.map_err(|failure| StepResult::one(&self.name, Err(failure)))
    }

    /// A command that runs test programs, all of which run at least one test.
    pub(crate) fn tests(&mut self, command: Command) -> StepResult {
        let (found, empty) = self.programs(command);
        found.or_empty(empty)
    }

    /// A command that runs test programs, some of which have no test.
    pub(crate) fn all_tests(&mut self, command: Command) -> StepResult {
        self.programs(command).0
    }

    /// Results, and programs that ran no test.
    fn programs(&mut self, mut command: Command) -> (StepResult, Vec<String>) {
        let skips = self.log_of("skips");
        let _ = fs::remove_file(&skips);
        command.env(SKIPS, &skips);
        let (ended, log) = match self.run(command) {
            Ok(ended) => ended,
            Err(failure) => return (StepResult::one(&self.name, Err(failure)), Vec::new()),
        };
        let report = Report::of(&ended.text, ended.is_success());
        let skips = fs::read_to_string(&skips).unwrap_or_default();
        let empty = report.empty.clone();
        (StepResult::of(report, &skips, &log).or_nothing(&self.name, &log), empty)
    }

    fn run(&mut self, command: Command) -> Result<(ChildEnd, PathBuf), Failure> {
        let (running, log) = self.start(command);
        Ok((self.watched(running?, &log)?, log))
    }

    /// Starts a command, with the next log.
    fn start(&mut self, command: Command) -> (Result<RunningChild, Failure>, PathBuf) {
        self.commands += 1;
        let log = self.log_of(&format!("{}.log", self.commands));
        (RunningChild::start(whole(command), &log, COMMAND_MAX), log)
    }

    /// Waits for the end of `running`, which writes `log`, and shows how far it is.
    fn watched(&mut self, running: RunningChild, log: &Path) -> Result<ChildEnd, Failure> {
        let mut tail = LogTail::new(log);
        running.wait(|| self.progress.show(|| tail.state()))
    }

    /// Path of a log of this step with the ending `end`.
    pub(crate) fn log_of(&self, end: &str) -> PathBuf {
        self.logs.with_extension(end)
    }

    /// The line of this step.
    pub(crate) const fn progress(&mut self) -> &mut StepLine {
        &mut self.progress
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

    /// Adds up the results of two steps.
    pub(crate) fn plus(mut self, other: Self) -> Self {
        self.passed.extend(other.passed);
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
        self.ignored.extend(other.ignored);
        self
    }

    /// Results of a command, less what `skips` (lines of urma-skip) takes from them.
    pub(crate) fn of(report: Report, skips: &str, log: &Path) -> Self {
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
        found
    }

    /// These, with a failure if nothing ran at all.
    pub(crate) fn or_nothing(mut self, step: &str, log: &Path) -> Self {
        if self.passed.len() + self.failed.len() + self.skipped.len() == 0 {
            let (name, message) = (step.to_owned(), "no test ran".to_owned());
            self.failed.push(Failed { name, message, log: Some(log.to_path_buf()) });
        }
        self
    }

    /// These, with a failure for each program in `empty`: it ran no test and had to.
    pub(crate) fn or_empty(mut self, empty: Vec<String>) -> Self {
        let none = |name: String| Failed { message: "runs no test".to_owned(), name, log: None };
        self.failed.extend(empty.into_iter().map(none));
        self
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

/// `command`, in which cargo compiles crates as a whole, unless the environment says otherwise: what
/// is built for the first time is not built in parts for the sake of a second time.
pub(crate) fn whole(mut command: Command) -> Command {
    if env::var_os(INCREMENTAL).is_none() {
        command.env(INCREMENTAL, "0");
    }
    command
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
mod tests {
    use super::*;

    fn steps(task: &str) -> Steps {
        Steps::new(task, 1).unwrap()
    }

    /// A command that prints `text` as a test program does, and ends with `code`.
    fn prints(text: &str, code: i32) -> Command {
        skips_and_prints("", text, code)
    }

    /// The same, after `skip` was appended to the file of skipped tests, twice.
    fn skips_and_prints(skip: &str, text: &str, code: i32) -> Command {
        let mut command = Command::new("sh");
        let script = "[ -z \"$SKIP\" ] || printf '%s\n' \"$SKIP\" \"$SKIP\" >> $URMA_SKIPS
                  printf '%s\n' \"$TEXT\"; exit $CODE";
        command.args(["-c", script]).env("SKIP", skip).env("TEXT", text);
        command.env("CODE", code.to_string());
        command
    }

    fn ok(names: &[&str]) -> String {
        let lines: String = names.iter().map(|name| format!("test {name} ... ok\n")).collect();
        let count = names.len();
        format!(" Running tests/b.rs (x/b-1)\n{lines}test result: ok. {count} passed; 0 failed;")
    }

    #[test]
    fn a_test_that_runs_twice_counts_once() {
        let mut steps = steps("test-twice");
        steps.step("one", |step| step.tests(prints(&ok(&["x", "y"]), 0)));
        steps.step("two", |step| step.tests(prints(&ok(&["y", "z"]), 0)));
        assert_eq!((steps.sum.passed.len(), steps.again), (3, 1));
        assert!(steps.end().is_ok());
    }

    #[test]
    fn steps_that_are_not_asked_for_are_left_out() {
        let mut steps = steps("test-only").only("wo");
        for name in ["one", "two"] {
            steps.step(name, |_| StepResult::one(name, Ok(())));
        }
        assert_eq!((steps.sum.passed.as_slice(), steps.done), (&["two".to_owned()][..], 2));
        assert!(steps.end().is_ok());
        assert!(self::steps("test-only").only("three").end().is_err(), "nothing ran");
    }

    #[test]
    fn a_step_that_runs_no_test_fails() {
        let mut steps = steps("test-none");
        steps.step("whole", |step| step.all_tests(prints("Finished", 0)));
        steps.step("empty", |step| step.all_tests(prints(&ok(&[]), 0)));
        assert_eq!(steps.sum.failed.len(), 2);
        // One of two programs.
        let both = format!("{}\n{}", ok(&["x"]), ok(&[]).replace("b-1", "c-1"));
        steps.step("filtered", |step| step.tests(prints(&both, 0)));
        assert_eq!(steps.sum.failed.len(), 3);
        steps.step("all", |step| step.all_tests(prints(&both, 0)));
        assert_eq!(steps.sum.failed.len(), 3);
        assert!(steps.end().is_err());
    }

    #[test]
    fn a_skipped_test_has_not_passed() {
        let mut steps = steps("test-skip");
        let command = skips_and_prints("SKIPPED: a::x: no reason", &ok(&["a::x", "a::y"]), 0);
        steps.step("one", |step| step.tests(command));
        assert_eq!(steps.sum.passed, ["b tests/b.rs::a::y"]);
        assert_eq!(steps.sum.skipped, ["a::x: no reason"]);
        // Skips of an earlier run do not count again.
        steps.step("one", |step| step.tests(prints(&ok(&["a::x"]), 0)));
        assert_eq!(steps.sum.passed.len(), 2);
    }

    #[test]
    fn a_failure_names_test_message_and_log() {
        let text = " Running tests/b.rs (x/b-1)\ntest bad ... FAILED\n---- bad stdout ----\nwhy\n\
                failures:\ntest result: FAILED. 0 passed; 1 failed;";
        let mut steps = steps("test-failure");
        steps.step("with a name", |step| step.tests(prints(text, 101)));
        let failed = &steps.sum.failed[0];
        assert_eq!((failed.name.as_str(), failed.message.as_str()), ("b tests/b.rs::bad", "why"));
        let log = failed.log.clone().unwrap();
        assert!(log.ends_with("xtask/logs/test-failure/01-with-a-name.1.log"), "{log:?}");
        assert!(fs::read_to_string(log).unwrap().contains("test result: FAILED"));
    }

    #[test]
    fn checks_that_run_two_at_a_time_are_all_counted() {
        let mut steps = steps("test-checks");
        steps.step("all", |step| {
            let mut commands: Vec<_> = [("a", 0), ("b", 1), ("c", 0)]
                .map(|(what, code)| (what.to_owned(), prints("error: x", code)))
                .into();
            commands.push(("d".to_owned(), Command::new("/nonexistent")));
            step.checks(commands)
        });
        steps.sum.passed.sort();
        assert_eq!(steps.sum.passed, ["all: a", "all: c"]);
        let mut failed: Vec<_> = steps.sum.failed.iter().map(|one| one.name.as_str()).collect();
        failed.sort_unstable();
        assert_eq!(failed, ["all: b", "all: d"]);
    }

    #[test]
    fn a_check_that_is_no_test_counts_as_one() {
        let mut steps = steps("test-check");
        steps.step("good", |step| step.check("it", prints("", 0)));
        steps.step("bad", |step| step.check("it", prints("error: x", 1)));
        steps.step("none", |step| step.check("it", Command::new("/nonexistent")));
        assert_eq!(steps.sum.passed, ["good: it"]);
        let messages: Vec<&str> = steps.sum.failed.iter().map(|one| one.message.as_str()).collect();
        assert!(messages[0].contains("error: x") && messages[1].contains("cannot start"));
    }
}
