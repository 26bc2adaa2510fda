//! `cargo xtask mutants`: faults that are planted one at a time, each of which a test must find.
//!
//! Mutants come from the lists tests/mutants/*.toml; given a revision, only those that are new since or whose file
//! changed run. Must not change a file of the work tree.

mod generated;
mod trial;

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    path::Path,
    time::{Duration, Instant},
};

use clap::Args;
use serde::{Deserialize, Serialize};
use trial::{Scratch, git};

use self::trial::{Baseline, Bounds, MutantResult, Trials};
use crate::{
    cargo,
    clock::now,
    say::{Failure, TaskResult, say},
    step::{RunningStep, StepResult},
};

/// Which mutants, and what to do with them.
#[derive(Debug, Default, Args)]
pub(crate) struct MutantsPlan {
    /// Print the mutants, and run none
    #[arg(long)]
    list: bool,
    /// Print the list as JSON
    #[arg(long, requires = "list")]
    json: bool,
    /// Run only this mutant, or those of this area (file of tests/mutants); may be repeated
    #[arg(long, value_name = "NAME|AREA")]
    only: Vec<String>,
    /// Run only mutants that are new, or whose file changed, since REV
    #[arg(long, value_name = "REV", num_args = 0..=1, default_missing_value = "")]
    changed: Option<String>,
    /// Run the mutants that cargo-mutants makes of these packages, or of those in crates.toml
    #[arg(long, value_name = "PACKAGE", num_args = 0.., conflicts_with = "only")]
    crates: Option<Vec<String>>,
    /// Start no mutant after this many seconds; those left out are named
    #[arg(long)]
    seconds: Option<u64>,
}

/// Seconds after which CI starts no further mutant, from the end of the first build on.
const CI_SECONDS: u64 = 45;
/// Mutants of one target that follow a build without one.
const GROUP_MAX: usize = 8;

/// Counts of killed, surviving and failed mutants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Tally {
    killed: Vec<String>,
    /// Survivors and entries that show nothing, each with what it means.
    failed: Vec<(String, String)>,
    left_out: Vec<String>,
}

/// Runs the mutants that the plan names.
pub(crate) fn run(what: &MutantsPlan) -> TaskResult {
    if let Some(names) = &what.crates {
        return end(&of_crates(what, names)?);
    }
    if what.list {
        return print(&chosen(&cargo::root(), what)?, what.json);
    }
    end(&tried(what, say)?)
}

/// Runs mutants that cargo-mutants makes.
fn of_crates(what: &MutantsPlan, names: &[String]) -> Result<Tally, Failure> {
    let (root, home) = (cargo::root(), cargo::target_dir()?.join("mutants"));
    let (crates, diff) = match &what.changed {
        None => (generated::crates(&root, names)?, None),
        Some(rev) => {
            let rev = if rev.is_empty() { start(&root)? } else { rev.clone() };
            let (crates, diff) = generated::difference(&root, &home, &rev)?;
            (crates, Some(diff))
        }
    };
    if crates.is_empty() {
        return Ok(Tally::default());
    }
    let _alone = alone(&home)?;
    let scratch = Scratch::sync(&root, &home.join("tree"), &trial::tracked(&root)?)?;
    generated::run(&root, &scratch, &home, &crates, (diff.as_deref(), what.seconds))
}

/// Runs the mutants that are asked for.
fn tried(what: &MutantsPlan, line: fn(&str)) -> Result<Tally, Failure> {
    let root = cargo::root();
    let mutants = chosen(&root, what)?;
    if mutants.is_empty() {
        return Ok(Tally::default());
    }
    let home = cargo::target_dir()?.join("mutants");
    let _alone = alone(&home)?;
    let scratch = Scratch::sync(&root, &home.join("tree"), &trial::tracked(&root)?)?;
    let bounds = Bounds { total: what.seconds.map(Duration::from_secs), ..Bounds::default() };
    Ok(all(&Trials { scratch: &scratch, home: &home, bounds, line }, &mutants))
}

/// Locks the folder of copy and builds while the result lives: a second run would change the files
/// that this one tests.
fn alone(home: &Path) -> Result<File, Failure> {
    fs::create_dir_all(home).map_err(Failure::system("making a folder"))?;
    let lock = File::create(home.join("lock")).map_err(Failure::system("making a lock"))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(why) => Err(Failure(format!("{}: in use by another run ({why})", cargo::shown(home)))),
    }
}

/// A step: mutants of what changed since the work began, as far as the time goes.
pub(crate) fn changed(_step: &mut RunningStep) -> StepResult {
    let what = MutantsPlan {
        changed: Some(String::new()),
        seconds: Some(CI_SECONDS),
        ..MutantsPlan::default()
    };
    let tally = match tried(&what, |_| {}) {
        Ok(tally) => tally,
        Err(failure) => return StepResult::one("mutants", Err(failure)),
    };
    let mut found = StepResult { passed: tally.killed, ..StepResult::default() };
    for (name, why) in tally.failed {
        found = found.plus(StepResult::one(&name, Err(Failure(why))));
    }
    if !tally.left_out.is_empty() {
        let left = tally.left_out.join(", ");
        found.skipped.push(format!("mutants: not run in {CI_SECONDS} s: {left}"));
    }
    found
}

fn chosen(root: &Path, what: &MutantsPlan) -> Result<Vec<Mutant>, Failure> {
    let mut mutants = read(&root.join(FOLDER))?;
    if let Some(name) = what.only.iter().find(|name| !mutants.iter().any(|m| m.is(name))) {
        return Err(Failure(format!("{name}: no mutant and no area of {}", FOLDER)));
    }
    mutants.retain(|mutant| what.only.is_empty() || what.only.iter().any(|name| mutant.is(name)));
    match &what.changed {
        Some(rev) => since(root, rev, mutants),
        None => Ok(mutants),
    }
}

/// Runs `mutants`, those of one package and test target together: before a few of them the target is built
/// once without a mutant, and each of their tests runs in that build.
fn all(trials: &Trials<'_>, mutants: &[Mutant]) -> Tally {
    let mut groups: BTreeMap<Vec<&str>, Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        groups.entry(trial::target(&mutant.test)).or_default().push(mutant);
    }
    // The first build takes most of the time, and proves nothing.
    let start = Cell::new(None);
    let is_over = || {
        let passed = start.get().map(|start: Instant| start.elapsed());
        trials.bounds.total.is_some_and(|total| passed.is_some_and(|passed| passed >= total))
    };
    let mut tally = Tally::default();
    for group in groups.values().flat_map(|group| group.chunks(GROUP_MAX)) {
        let baselines = baselines(trials, group, (&start, &is_over));
        for mutant in group {
            match baselines.get(mutant.test.as_slice()) {
                Some(baseline) if !is_over() => tally.add(mutant, one(trials, mutant, baseline)),
                _ => tally.left_out.push(mutant.name.clone()),
            }
        }
    }
    tally
}

/// Builds the target that the mutants of `group` have in common and runs each of their tests once,
/// without a mutant. Tests that the time does not allow are missing.
fn baselines<'a>(
    trials: &Trials<'_>,
    group: &[&'a Mutant],
    (begun, is_over): (&Cell<Option<Instant>>, &dyn Fn() -> bool),
) -> BTreeMap<&'a [String], Baseline> {
    let mut prepared = None;
    let mut baselines = BTreeMap::new();
    for test in group.iter().map(|mutant| mutant.test.as_slice()) {
        if baselines.contains_key(test) || is_over() {
            continue;
        }
        let prepared = prepared.get_or_insert_with(|| trials.prepare(test));
        begun.set(begun.get().or_else(|| Some(now())));
        baselines.insert(test, prepared.clone().and_then(|()| trials.baseline(test)));
    }
    baselines
}

/// Runs one mutant and prints its line.
fn one(trials: &Trials<'_>, mutant: &Mutant, baseline: &Baseline) -> MutantResult {
    let start = now();
    let outcome = match baseline {
        Ok(seconds) => trials.mutant(mutant, *seconds),
        Err(Failure(why)) => MutantResult::Invalid(why.clone()),
    };
    let seconds = start.elapsed().as_secs_f64();
    let Mutant { name, file, .. } = mutant;
    let (word, more) = match &outcome {
        MutantResult::Killed => ("killed", String::new()),
        MutantResult::Hung => ("killed", " (by its time limit)".to_owned()),
        MutantResult::Survived => ("SURVIVED", format!(": {file}: {}", mutant.why)),
        MutantResult::Invalid(why) => ("INVALID", format!(": {file}: {why}")),
    };
    (trials.line)(&format!("{word:<9} {seconds:>6.1} s  {name}{more}"));
    outcome
}

fn end(tally: &Tally) -> TaskResult {
    if !tally.left_out.is_empty() {
        say(&format!("out of time, not run: {}", tally.left_out.join(", ")));
    }
    for (name, why) in &tally.failed {
        say(&format!("{name}: {why}"));
    }
    let (killed, failed, left) = (tally.killed.len(), tally.failed.len(), tally.left_out.len());
    say(&format!("{killed} killed, {failed} failed, {left} left out"));
    if failed == 0 {
        return Ok(());
    }
    let names: Vec<_> = tally.failed.iter().map(|(name, _)| name.as_str()).collect();
    Err(Failure(names.join(", ")))
}

impl Tally {
    fn add(&mut self, mutant: &Mutant, outcome: MutantResult) {
        let name = mutant.name.clone();
        match outcome {
            MutantResult::Killed | MutantResult::Hung => self.killed.push(name),
            MutantResult::Survived => self.failed.push((name, format!("survives: {}", mutant.why))),
            MutantResult::Invalid(why) => self.failed.push((name, why)),
        }
    }
}

/// Where the lists are, from the workspace's folder.
const FOLDER: &str = "tests/mutants";
/// Lists for cargo-mutants, in the same folder.
const GENERATED: [&str; 2] = ["crates", "survivors"];

/// One fault, and the test that must find it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutant {
    /// Name of the mutant, unique in all lists.
    name: String,
    /// Name of the list, without its ending.
    #[serde(default)]
    area: String,
    /// The file that is changed, from the workspace's folder.
    file: String,
    /// Text that the file holds once.
    find: String,
    /// What stands there instead.
    replace: String,
    /// Arguments of `cargo test`.
    test: Vec<String>,
    /// What the fault would do to a user.
    why: String,
    /// Seconds after which the mutated test counts as hung, instead of the usual limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hangs_after: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MutantList {
    #[serde(default)]
    mutant: Vec<Mutant>,
}

impl Mutant {
    /// Whether `name` is this mutant's name or area.
    fn is(&self, name: &str) -> bool {
        self.name == name || self.area == name
    }
}

/// Reads all lists of the folder.
fn read(folder: &Path) -> Result<Vec<Mutant>, Failure> {
    let files = folder.read_dir().map_err(Failure::system("reading the lists of mutants"))?;
    let mut paths: Vec<_> = files.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    paths.sort();
    let mut mutants = Vec::new();
    for path in paths {
        let area = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if GENERATED.contains(&area.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(Failure::system("reading a list"))?;
        mutants.extend(parse(&area, &text)?);
    }
    let mut names = BTreeSet::new();
    match mutants.iter().find(|mutant| !names.insert(&mutant.name)) {
        Some(twice) => Err(Failure(format!("{}: two mutants have this name", twice.name))),
        None => Ok(mutants),
    }
}

/// Mutants of one list.
fn parse(area: &str, text: &str) -> Result<Vec<Mutant>, Failure> {
    let list: MutantList =
        toml::from_str(text).map_err(|error| Failure(format!("{FOLDER}/{area}.toml: {error}")))?;
    let named = |mutant| Mutant { area: area.to_owned(), ..mutant };
    Ok(list.mutant.into_iter().map(named).collect())
}

/// Prints name, file and test of each.
fn print(mutants: &[Mutant], is_json: bool) -> TaskResult {
    if is_json {
        let json = serde_json::to_string_pretty(mutants);
        say(&json.map_err(|error| Failure(format!("writing JSON: {error}")))?);
        return Ok(());
    }
    for Mutant { name, file, test, .. } in mutants {
        say(&format!("{name}\n    {file}\n    cargo test {}", test.join(" ")));
    }
    say(&format!("{} mutants", mutants.len()));
    Ok(())
}

/// Commits looked back where a branch has no commits of its own.
const BACK: u32 = 20;
/// Names of the branch that work starts from.
const TRUNKS: [&str; 4] = ["origin/main", "main", "origin/master", "master"];

/// Those of `mutants` that are new, or whose file changed, since `rev`; an empty `rev` is where
/// the branch left the main one, or some commits back.
fn since(root: &Path, rev: &str, mutants: Vec<Mutant>) -> Result<Vec<Mutant>, Failure> {
    let rev = if rev.is_empty() { start(root)? } else { rev.to_owned() };
    let changed = files(root, &rev)?;
    let mut chosen = Vec::new();
    for mutant in mutants {
        let is_changed = changed.contains(&mutant.file);
        if is_changed || is_new(root, &rev, &mutant) {
            chosen.push(mutant);
        }
    }
    Ok(chosen)
}

/// Paths that differ between `rev` and the work tree.
fn files(root: &Path, rev: &str) -> Result<Vec<String>, Failure> {
    let text = git(root, &["diff", "--name-only", rev, "--"])?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The commit that the changes at hand are counted from.
fn start(root: &Path) -> Result<String, Failure> {
    let head = git(root, &["rev-parse", "HEAD"])?;
    for trunk in TRUNKS {
        match git(root, &["merge-base", "HEAD", trunk]) {
            Ok(base) if base != head => return Ok(base.trim().to_owned()),
            _ => {}
        }
    }
    // At least one commit back, as many as there are up to the limit: a clone may be shallow.
    let count = git(root, &["rev-list", "--count", "--first-parent", "HEAD"])?;
    let back = count.trim().parse::<u32>().unwrap_or(1).saturating_sub(1).min(BACK);
    Ok(format!("HEAD~{back}"))
}

/// Whether the mutant's list lacked it, as it is, at `rev`.
fn is_new(root: &Path, rev: &str, mutant: &Mutant) -> bool {
    let Mutant { area, .. } = mutant;
    let Ok(text) = git(root, &["show", &format!("{rev}:{FOLDER}/{area}.toml")]) else {
        return true;
    };
    parse(area, &text).map_or(true, |before| !before.contains(mutant))
}

#[cfg(test)]
mod tests;
