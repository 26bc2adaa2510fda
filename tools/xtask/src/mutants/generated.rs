//! Mutants that cargo-mutants makes, for the crates of tests/mutants/crates.toml or any that are named.
//!
//! *Owns*: which crates, and survivors with the reason why nothing can see them. *Takes*: the copy.
//! *Gives*: counts. *Must not*: let a survivor without a reason pass, nor a reason without a survivor.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, de::DeserializeOwned};

use super::{
    FOLDER, Tally,
    trial::{Scratch, git},
};
use crate::{cargo, child, clock::now, say::Failure};

/// Version of cargo-mutants that is installed when there is none.
const VERSION: &str = "27.1.0";
/// Time for the mutants of all crates, if no other is asked for.
const ALL_MAX: Duration = Duration::from_secs(24 * 3600);
/// Exit codes with which cargo-mutants ends when it did its work: all caught, some missed, some
/// timed out.
const WORKED: [i32; 3] = [0, 2, 3];

/// A crate of the list.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Crate {
    package: String,
    /// Folder of its sources, from the workspace's folder.
    folder: String,
    /// Arguments of `cargo test`.
    #[serde(default)]
    test: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Crates {
    #[serde(default, rename = "crate")]
    all: Vec<Crate>,
}

/// A mutant that no test can see.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Survivor {
    file: String,
    /// As cargo-mutants names it, without line and column.
    mutation: String,
    /// Why nothing can see it.
    reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Survivors {
    #[serde(default)]
    survivor: Vec<Survivor>,
}

/// What became of a crate's mutants, each as `file: mutation`.
#[derive(Debug, Default)]
pub(super) struct CrateMutants {
    pub(super) caught: Vec<String>,
    pub(super) missed: Vec<String>,
}

/// The crates of the list, or the packages called `names` if there are any; one that is not listed is run
/// with all of its tests.
pub(super) fn crates(root: &Path, names: &[String]) -> Result<Vec<Crate>, Failure> {
    let listed = read::<Crates>(root, "crates")?.all;
    if names.is_empty() {
        return Ok(listed);
    }
    let find = |name: &String| match listed.iter().find(|one| one.package == *name) {
        Some(one) => Ok(one.clone()),
        None => {
            let (package, test) = (name.clone(), vec!["--tests".to_owned()]);
            let folder = cargo::shown(&cargo::folder_of(name)?.join("src"));
            Ok(Crate { package, folder, test })
        }
    };
    names.iter().map(find).collect()
}

/// Changes of the crates' sources since `rev`: those crates, and the file with the difference.
pub(super) fn difference(
    root: &Path,
    home: &Path,
    rev: &str,
) -> Result<(Vec<Crate>, PathBuf), Failure> {
    let mut all = crates(root, &[])?;
    let mut text = String::new();
    let mut failed = Ok(());
    all.retain(|one| match git(root, &["diff", rev, "--", &one.folder]) {
        Ok(part) => {
            text.push_str(&part);
            !part.is_empty()
        }
        Err(failure) => {
            failed = Err(failure);
            false
        }
    });
    failed?;
    let path = home.join("changed.diff");
    fs::create_dir_all(home).map_err(Failure::system("making a folder"))?;
    fs::write(&path, text).map_err(Failure::system("writing the difference"))?;
    Ok((all, path))
}

/// Runs the mutants of `crates`, of the lines in `diff` only if there is one, for at most `seconds`.
pub(super) fn run(
    root: &Path,
    scratch: &Scratch,
    home: &Path,
    crates: &[Crate],
    (diff, seconds): (Option<&Path>, Option<u64>),
) -> Result<Tally, Failure> {
    let survivors = read::<Survivors>(root, "survivors")?.survivor;
    let mut tally = Tally::default();
    let end = now() + seconds.map_or(ALL_MAX, Duration::from_secs);
    for one in crates {
        let left = end.saturating_duration_since(now());
        if left.is_zero() {
            tally.left_out.push(one.package.clone());
            continue;
        }
        let (outcome, is_whole) = mutate(scratch, home, one, diff, left)?;
        if !is_whole {
            tally.left_out.push(format!("some of {}", one.package));
        }
        let known = survivors.iter().filter(|known| known.file.starts_with(&one.folder));
        let known: Vec<_> = known.cloned().collect();
        judge(&outcome, &known, is_whole && diff.is_none(), &mut tally);
    }
    Ok(tally)
}

/// Compares what survived with what is known to; `is_all`: whether all mutants ran.
pub(super) fn judge(outcome: &CrateMutants, known: &[Survivor], is_all: bool, tally: &mut Tally) {
    tally.killed.extend(outcome.caught.iter().cloned());
    for missed in &outcome.missed {
        if !known.iter().any(|known| known.name() == *missed && !known.reason.is_empty()) {
            let why = format!("survives, and {FOLDER}/survivors.toml does not say why");
            tally.failed.push((missed.clone(), why));
        }
    }
    let is_stale = |known: &&Survivor| is_all && !outcome.missed.contains(&known.name());
    for stale in known.iter().filter(is_stale) {
        tally.failed.push((stale.name(), format!("does not survive: {FOLDER}/survivors.toml")));
    }
}

impl Survivor {
    fn name(&self) -> String {
        format!("{}: {}", self.file, self.mutation)
    }
}

fn mutate(
    scratch: &Scratch,
    home: &Path,
    one: &Crate,
    diff: Option<&Path>,
    bound: Duration,
) -> Result<(CrateMutants, bool), Failure> {
    let tool = cargo::tool("mutants", VERSION)?;
    let output = home.join("generated").join(&one.package);
    // Results of an earlier run would be taken for this one's.
    let _ = fs::remove_dir_all(&output);
    fs::create_dir_all(&output).map_err(Failure::system("making a folder"))?;
    let mut command = cargo::command(&["mutants", "--in-place", "--colors", "never", "--no-times"]);
    command.args(["--minimum-test-timeout", "60", "--build-timeout", "600", "--no-shuffle"]);
    command.arg("--dir").arg(scratch.tree()).arg("--output").arg(&output);
    command.args(["-p", &one.package, "--file", &format!("{}/**", one.folder)]);
    if let Some(diff) = diff {
        command.arg("--in-diff").arg(diff);
    }
    for part in &one.test {
        command.arg(format!("--cargo-test-arg={part}"));
    }
    command.env("PATH", cargo::path_with(&tool)).env("CARGO_TARGET_DIR", home.join("build"));
    command.current_dir(scratch.tree());
    let log = home.join(format!("logs/{}.generated.log", one.package));
    let ended = child::run(command, &log, bound)?;
    if ended.status.is_some_and(|status| status.code().is_none_or(|code| !WORKED.contains(&code))) {
        return Err(Failure(format!("cargo mutants failed: see {}", cargo::shown(&log))));
    }
    let lines = |name: &str| {
        let text = fs::read_to_string(output.join("mutants.out").join(name)).unwrap_or_default();
        text.lines().filter_map(without_place).collect::<Vec<_>>()
    };
    let caught = [lines("caught.txt"), lines("timeout.txt")].concat();
    Ok((CrateMutants { caught, missed: lines("missed.txt") }, ended.status.is_some()))
}

/// `file: mutation` of `file:line:column: mutation`.
pub(super) fn without_place(line: &str) -> Option<String> {
    let (place, mutation) = line.split_once(": ")?;
    let file = place.split(':').next()?;
    Some(format!("{file}: {mutation}"))
}

fn read<T: DeserializeOwned + Default>(root: &Path, name: &str) -> Result<T, Failure> {
    let path = root.join(FOLDER).join(name).with_extension("toml");
    let Ok(text) = fs::read_to_string(&path) else { return Ok(T::default()) };
    toml::from_str(&text).map_err(|error| Failure(format!("{FOLDER}/{name}.toml: {error}")))
}
