//! One test with one mutant.
//!
//! *Owns*: what counts as killed. *Takes*: the copy. *Gives*: verdicts.
//! *Must not*: take a build that fails, or a test that does not run, for a killed mutant.

use std::{path::Path, process::Command, time::Duration};

use super::{list::Mutant, scratch::Scratch};
use crate::{
    cargo,
    child::{self, ChildEnd},
    clock::now,
    report::Report,
    say::Failure,
};

/// What became of a mutant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum MutantResult {
    /// The test failed, as it must.
    Killed,
    /// The test ran into its time limit.
    Hung,
    /// The test passed although the fault was planted.
    Survived,
    /// The entry shows nothing: stale, does not compile, its test fails without it.
    Invalid(String),
}

/// Time that an unmodified test took, or why it shows nothing.
pub(super) type Baseline = Result<Duration, Failure>;

/// Packages that the workspace's tests optimise most. Here they are built once more for each mutant, for a test
/// or two: the optimiser would take five times what it saves.
const OPTIMISED: [&str; 5] = ["ubcore-sim", "urma-mem", "urma-packet", "urma-rc", "urma-tests"];

/// Options of `cargo test` that select the target and are followed by a value.
const VALUED: [&str; 6] = ["-p", "--test", "--bin", "--example", "--bench", "--features"];

/// The part of `cargo test`'s arguments that selects package, target and features: all options
/// before `--`, without the name of a test.
pub(super) fn target(test: &[String]) -> Vec<&str> {
    let mut parts = test.iter().map(String::as_str).take_while(|part| *part != "--");
    let mut target = Vec::new();
    while let Some(part) = parts.next() {
        if part.starts_with('-') {
            target.push(part);
        }
        if VALUED.contains(&part) {
            target.extend(parts.next());
        }
    }
    target
}

/// Limits of time of one trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// After this no further mutant starts.
    pub(super) total: Option<Duration>,
    /// Most time of a build.
    pub(super) build: Duration,
    /// A test: this, or ten times what it takes without a mutant if that is more. An entry may
    /// have a limit of its own.
    pub(super) test: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { total: None, build: Duration::from_secs(900), test: Duration::from_secs(60) }
    }
}

/// Where mutants are tried.
#[derive(Debug)]
pub(super) struct Trials<'a> {
    /// Copy of the tree in which the mutant is planted.
    pub(super) scratch: &'a Scratch,
    /// Folder for builds and logs.
    pub(super) home: &'a Path,
    /// Limits of time of the trial.
    pub(super) bounds: Bounds,
    /// Prints a line per mutant.
    pub(super) line: fn(&str),
}

impl Trials<'_> {
    /// Builds the target of `test` without a mutant.
    pub(super) fn prepare(&self, test: &[String]) -> Result<(), Failure> {
        self.build(test, "unmodified")
    }

    /// Runs a test of the target that was prepared last.
    pub(super) fn baseline(&self, test: &[String]) -> Baseline {
        let start = now();
        let ended = self.run(test, self.bounds.build, "unmodified")?;
        if !ended.is_success() {
            return Err(Failure("its test fails without the mutant, too".to_owned()));
        }
        if Report::of(&ended.text, true).ran() == 0 {
            return Err(Failure(format!("cargo test {} runs no test", test.join(" "))));
        }
        Ok(start.elapsed())
    }

    /// Plants `mutant` and runs its test, which takes `usual` without it.
    pub(super) fn mutant(&self, mutant: &Mutant, usual: Duration) -> MutantResult {
        let Mutant { test, name, .. } = mutant;
        let own = mutant.hangs_after.map(Duration::from_secs);
        let bound = own.unwrap_or_else(|| self.bounds.test.max(usual * 10));
        let judged = self.scratch.with(mutant, || {
            self.build(test, name)?;
            Ok(match self.run(test, bound, name)? {
                ChildEnd { status: None, .. } => MutantResult::Hung,
                ended if ended.is_success() => MutantResult::Survived,
                _ => MutantResult::Killed,
            })
        });
        judged.and_then(|outcome| outcome).unwrap_or_else(|Failure(why)| MutantResult::Invalid(why))
    }

    fn build(&self, test: &[String], name: &str) -> Result<(), Failure> {
        let log = self.home.join(format!("logs/{name}.build.log"));
        let mut command = self.cargo();
        command.args(["test", "--no-run"]).args(test.iter().take_while(|part| *part != "--"));
        let ended = child::run(command, &log, self.bounds.build)?;
        if ended.is_success() {
            return Ok(());
        }
        Err(Failure(format!("does not compile: see {}", cargo::shown(&log))))
    }

    fn run(&self, test: &[String], bound: Duration, name: &str) -> Result<ChildEnd, Failure> {
        let log = self.home.join(format!("logs/{name}.log"));
        let mut command = self.cargo();
        command.arg("test").args(test);
        child::run(command, &log, bound)
    }

    fn cargo(&self) -> Command {
        let mut command = cargo::command(&[]);
        for package in OPTIMISED {
            command.args(["--config", &format!("profile.test.package.{package}.opt-level=0")]);
        }
        command.current_dir(self.scratch.tree()).env("CARGO_TARGET_DIR", self.home.join("build"));
        command
    }
}
