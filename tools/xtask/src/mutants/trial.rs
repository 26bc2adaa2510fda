//! One test with one mutant, in a copy of the work tree that is as git has it between mutants.
//!
//! A build that fails, or a test that does not run, is not taken for a killed mutant. Must not write outside the
//! copy, or touch a file that is the same (builds go on).

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::Mutant;
use crate::{
    cargo,
    child::{self, ChildEnd},
    clock::now,
    report::Report,
    say::{Failure, TaskResult},
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

/// Copy of the tree in which mutants are planted.
#[derive(Debug)]
pub(super) struct Scratch {
    tree: PathBuf,
}

/// Files that git has, and new ones that it does not ignore.
pub(super) fn tracked(root: &Path) -> Result<Vec<String>, Failure> {
    let text = git(root, &["ls-files", "-co", "--exclude-standard"])?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Output of a git command in `root`.
pub(super) fn git(root: &Path, args: &[&str]) -> Result<String, Failure> {
    child::output(Command::new("git").args(args).current_dir(root))
}

impl Scratch {
    /// Makes the copy in `tree` equal to `files` of `root`.
    pub(super) fn sync(root: &Path, tree: &Path, files: &[String]) -> Result<Self, Failure> {
        fs::create_dir_all(tree).map_err(Failure::system("making the copy's folder"))?;
        for file in files {
            // A file that was deleted and is still in the index.
            let Ok(bytes) = fs::read(root.join(file)) else { continue };
            let to = tree.join(file);
            if fs::read(&to).is_ok_and(|there| there == bytes) {
                continue;
            }
            let folder = to.parent().unwrap_or(tree);
            fs::create_dir_all(folder).map_err(Failure::system("making a folder of the copy"))?;
            // Keeps the mode: scripts stay executable.
            fs::copy(root.join(file), &to).map_err(Failure::system("copying a file"))?;
            touch(&to)?;
        }
        let is_kept =
            |path: &str| files.iter().any(|file| file == path) && root.join(path).exists();
        remove_others(tree, tree, &is_kept)?;
        Ok(Self { tree: tree.to_path_buf() })
    }

    /// Folder of the copy.
    pub(super) fn tree(&self) -> &Path {
        &self.tree
    }

    /// Plants `mutant`, calls `work`, restores the file.
    pub(super) fn with<T>(&self, mutant: &Mutant, work: impl FnOnce() -> T) -> Result<T, Failure> {
        let path = self.tree.join(&mutant.file);
        let text = fs::read_to_string(&path).map_err(Failure::system("reading"))?;
        match text.matches(&mutant.find).count() {
            1 => {}
            n => return Err(Failure(format!("stale: `find` occurs {n} times, not once"))),
        }
        if mutant.find == mutant.replace {
            return Err(Failure("`replace` is the same as `find`".to_owned()));
        }
        write(&path, &text.replacen(&mutant.find, &mutant.replace, 1))?;
        let result = work();
        write(&path, &text)?;
        Ok(result)
    }
}

fn write(path: &Path, text: &str) -> TaskResult {
    fs::write(path, text).map_err(Failure::system("writing to the copy"))
}

/// Gives a copied file the present as its time, so that cargo sees the change.
fn touch(path: &Path) -> TaskResult {
    let bytes = fs::read(path).map_err(Failure::system("reading the copy"))?;
    fs::write(path, bytes).map_err(Failure::system("writing to the copy"))
}

/// Removes files below `folder` that are not to be kept; paths count from `tree`.
fn remove_others(tree: &Path, folder: &Path, is_kept: &dyn Fn(&str) -> bool) -> TaskResult {
    let entries = folder.read_dir().map_err(Failure::system("reading the copy"))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            remove_others(tree, &path, is_kept)?;
        } else if !path.strip_prefix(tree).is_ok_and(|path| is_kept(&path.to_string_lossy())) {
            fs::remove_file(&path).map_err(Failure::system("removing from the copy"))?;
        }
    }
    Ok(())
}
