//! The runner says no: to a mutant that survives, to an entry that shows nothing.

use std::{fs, path::PathBuf};

use super::*;

/// A package of its own, with one function that tests find right and one that none looks at.
struct Package {
    home: PathBuf,
    scratch: Scratch,
}

const SOURCE: &str = "\
//! Functions that tests of mutants change.
pub fn twice(n: u32) -> u32 { n * 2 }
pub fn thrice(n: u32) -> u32 { n * 3 }
pub fn down(mut n: u32) { while n > 0 { n -= 1; } }
#[test] fn doubles() { assert_eq!(twice(3), 6); down(2); }
#[test] fn fails() { assert_eq!(thrice(1), 4); }
";

impl Package {
    fn new(name: &str) -> Self {
        let home = cargo::target_dir().unwrap().join("mutants-tests").join(name);
        let root = home.join("root");
        fs::create_dir_all(root.join("src")).unwrap();
        let manifest = format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n[workspace]\n");
        fs::write(root.join("Cargo.toml"), manifest).unwrap();
        fs::write(root.join("src/lib.rs"), SOURCE).unwrap();
        let files = ["Cargo.toml", "src/lib.rs"].map(str::to_owned);
        let scratch = Scratch::sync(&root, &home.join("tree"), &files).unwrap();
        Self { home, scratch }
    }

    fn outcome(&self, find: &str, replace: &str, test: &str) -> MutantResult {
        self.outcome_within(Bounds::default(), find, replace, test)
    }

    fn outcome_within(
        &self,
        bounds: Bounds,
        find: &str,
        replace: &str,
        test: &str,
    ) -> MutantResult {
        self.outcome_of(bounds, &mutant(find, replace, test))
    }

    fn outcome_of(&self, bounds: Bounds, mutant: &Mutant) -> MutantResult {
        let trials = self.trials(bounds);
        let baselines = baselines(&trials, &[mutant], (&Cell::default(), &|| false));
        let baseline = baselines.get(mutant.test.as_slice());
        let outcome = one(&trials, mutant, baseline.unwrap());
        let there = fs::read_to_string(self.scratch.tree().join("src/lib.rs")).unwrap();
        assert_eq!(there, SOURCE, "the copy is as before");
        outcome
    }

    fn trials(&self, bounds: Bounds) -> Trials<'_> {
        Trials { scratch: &self.scratch, home: &self.home, bounds, line: say }
    }
}

fn mutant(find: &str, replace: &str, test: &str) -> Mutant {
    let [find, replace, why] = [find, replace, "a test"].map(str::to_owned);
    let [name, area] = ["m", "a"].map(str::to_owned);
    let test = ["--lib", test].map(str::to_owned).to_vec();
    Mutant {
        name,
        area,
        file: "src/lib.rs".to_owned(),
        find,
        replace,
        test,
        why,
        hangs_after: None,
    }
}

fn why(outcome: MutantResult) -> String {
    match outcome {
        MutantResult::Invalid(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn mutants_are_killed_or_survive() {
    let package = Package::new("killed");
    assert_eq!(package.outcome("n * 2", "n * 4", "doubles"), MutantResult::Killed);
    assert_eq!(package.outcome("n * 3", "n * 5", "doubles"), MutantResult::Survived);
    let bounds = Bounds { test: Duration::ZERO, ..Bounds::default() };
    let endless = package.outcome_within(bounds, "n -= 1;", "", "doubles");
    assert_eq!(endless, MutantResult::Hung);
}

#[test]
fn an_entry_may_have_a_limit_of_its_own() {
    let package = Package::new("limit");
    let endless = Mutant { hangs_after: Some(1), ..mutant("n -= 1;", "", "doubles") };
    assert_eq!(package.outcome_of(Bounds::default(), &endless), MutantResult::Hung);
}

/// Writes down each build; the tests of the package write down that they run.
const BUILD: &str = "\
fn main() {
    println!(\"cargo:rerun-if-changed=src/lib.rs\");
    let steps = std::fs::OpenOptions::new().append(true).create(true).open(\"steps\");
    std::io::Write::write_all(&mut steps.unwrap(), b\"build \").unwrap();
}
";

const STEPS: &str = "\
#[cfg(test)]
fn step(name: &str) {
    let steps = std::fs::OpenOptions::new().append(true).open(\"steps\");
    std::io::Write::write_all(&mut steps.unwrap(), format!(\"{name} \").as_bytes()).unwrap();
}
pub fn one() -> u32 { 1 }
pub fn two() -> u32 { 2 }
#[test] fn finds_one() { step(\"one\"); assert_eq!(one(), 1); }
#[test] fn finds_two() { step(\"two\"); assert_eq!(two(), 2); }
#[test] fn fails() { step(\"fails\"); panic!() }
";

#[test]
fn a_target_is_built_once_before_its_mutants() {
    let mut package = Package::new("once");
    let root = package.home.join("root");
    fs::write(root.join("src/lib.rs"), STEPS).unwrap();
    fs::write(root.join("build.rs"), BUILD).unwrap();
    let files = ["Cargo.toml", "src/lib.rs", "build.rs"].map(str::to_owned);
    package.scratch = Scratch::sync(&root, &package.home.join("tree"), &files).unwrap();
    let mutants = [
        mutant("{ 1 }", "{ 3 }", "finds_one"),
        mutant("{ 2 }", "{ 3 }", "finds_two"),
        mutant("{ 2 }", "{ 4 }", "fails"),
        mutant("{ 1 }", "{ 4 }", "finds_one"),
    ];
    let tally = all(&package.trials(Bounds::default()), &mutants);
    assert_eq!((tally.killed.len(), tally.failed.len()), (3, 1), "{tally:?}");
    let steps = fs::read_to_string(package.scratch.tree().join("steps")).unwrap();
    assert_eq!(steps, "build one two fails build one build two build one ");
}

#[test]
fn the_target_is_what_the_options_select() {
    let target = |line: &str| {
        let test: Vec<_> = line.split(' ').map(str::to_owned).collect();
        trial::target(&test).join(" ")
    };
    assert_eq!(target("-p a --lib x::finds"), "-p a --lib");
    assert_eq!(target("-p a --test b finds -- --exact"), "-p a --test b");
    assert_eq!(target("-p a --features f --test b finds"), "-p a --features f --test b");
}

#[test]
fn an_entry_that_shows_nothing_is_invalid() {
    let package = Package::new("invalid");
    assert!(why(package.outcome("n * 9", "n * 4", "doubles")).contains("occurs 0 times"));
    assert!(why(package.outcome("u32", "u64", "doubles")).contains("occurs 5 times"));
    assert!(why(package.outcome("n * 2", "n * 2", "doubles")).contains("the same"));
    assert!(why(package.outcome("n * 2", "n * \"\"", "doubles")).contains("does not compile"));
    assert!(why(package.outcome("n * 2", "n * 4", "none")).contains("runs no test"));
    assert!(why(package.outcome("n * 2", "n * 4", "fails")).contains("fails without"));
}

#[test]
fn a_survivor_and_an_invalid_entry_fail_the_task() {
    let mut tally = Tally::default();
    tally.add(&mutant("", "", ""), MutantResult::Killed);
    tally.add(&mutant("", "", ""), MutantResult::Hung);
    assert_eq!((tally.killed.len(), end(&tally).is_ok()), (2, true));
    for outcome in [MutantResult::Survived, MutantResult::Invalid(String::new())] {
        let mut tally = tally.clone();
        tally.add(&mutant("", "", ""), outcome);
        assert!(end(&tally).is_err());
    }
}

#[test]
fn what_the_time_does_not_allow_is_left_out_and_named() {
    let package = Package::new("late");
    let bounds = Bounds { total: Some(Duration::ZERO), ..Bounds::default() };
    let tally = all(&package.trials(bounds), &[mutant("n * 2", "n * 4", "doubles")]);
    assert_eq!((tally.killed.len(), tally.left_out), (0, vec!["m".to_owned()]));
}

#[test]
fn one_run_at_a_time_uses_the_copy() {
    let home = cargo::target_dir().unwrap().join("mutants-tests").join("alone");
    let first = alone(&home).unwrap();
    let Failure(why) = alone(&home).unwrap_err();
    assert!(why.contains("in use by another run"), "{why}");
    drop(first);
    alone(&home).unwrap();
}

#[test]
fn the_copy_follows_the_tree() {
    let package = Package::new("copy");
    let root = package.home.join("root");
    fs::write(root.join("new.txt"), "1").unwrap();
    let with = ["Cargo.toml", "src/lib.rs", "new.txt"].map(str::to_owned);
    let tree = package.home.join("tree");
    Scratch::sync(&root, &tree, &with).unwrap();
    assert_eq!(fs::read_to_string(tree.join("new.txt")).unwrap(), "1");
    let before = tree.join("src/lib.rs").metadata().unwrap().modified().unwrap();
    Scratch::sync(&root, &tree, &with[..2]).unwrap();
    assert!(!tree.join("new.txt").exists());
    assert_eq!(tree.join("src/lib.rs").metadata().unwrap().modified().unwrap(), before);
}

#[test]
fn lists_are_read() {
    let entry = "[[mutant]]\nname = \"m\"\nfile = \"src/lib.rs\"\nfind = \"n * 2\"\n\
                 replace = \"n * 4\"\ntest = [\"--lib\", \"doubles\"]\nwhy = \"a test\"\n";
    assert_eq!(parse("a", entry).unwrap(), [mutant("n * 2", "n * 4", "doubles")]);
    assert!(parse("a", &entry.replace("why", "wy")).is_err());
    let limited = parse("a", &format!("{entry}hangs_after = 5\n")).unwrap();
    assert_eq!(limited[0].hangs_after, Some(5));
    // Those of the project are well-formed, and none is stale.
    let root = cargo::root();
    for mutant in read(&root.join(FOLDER)).unwrap() {
        let text = fs::read_to_string(root.join(&mutant.file)).unwrap_or_default();
        assert_eq!(text.matches(&mutant.find).count(), 1, "{}: {}", mutant.name, mutant.file);
        assert!(!mutant.test.is_empty() && !mutant.why.is_empty(), "{}", mutant.name);
    }
}

#[test]
fn a_survivor_needs_a_reason_and_a_reason_a_survivor() {
    let place = |line| generated::without_place(line).unwrap();
    let missed = place("a/src/x.rs:12:5: replace f -> bool with true");
    assert_eq!(missed, "a/src/x.rs: replace f -> bool with true");
    let known: generated::Survivor = toml::from_str(
        "file = \"a/src/x.rs\"\nmutation = \"replace f -> bool with true\"\nreason = \"none\"\n",
    )
    .unwrap();
    let failures = |missed: &[String], known: &[generated::Survivor], is_all| {
        let outcome =
            generated::CrateMutants { caught: vec!["c".to_owned()], missed: missed.to_vec() };
        let mut tally = Tally::default();
        generated::judge(&outcome, known, is_all, &mut tally);
        assert_eq!(tally.killed, ["c"]);
        tally.failed.len()
    };
    let (one, known) = ([missed], [known]);
    assert_eq!(failures(&one, &known, true), 0);
    assert_eq!(failures(&one, &[], true), 1);
    // Stale only when every mutant ran.
    assert_eq!(failures(&[], &known, true), 1);
    assert_eq!(failures(&[], &known, false), 0);
}
