//! The step of planted faults fails when a fault is not looked for.

use super::*;
use crate::step::Steps;

/// Packages as cargo names them.
fn packages(names: &[&str]) -> Vec<(String, String)> {
    names.iter().map(|name| ((*name).to_owned(), "planted-faults".to_owned())).collect()
}

#[test]
fn every_package_with_faults_is_tested_with_them() {
    let all = [DEVICE, "lab", "liburma", "urma-hostile", "urma-kill", TESTS];
    let arguments = fault_arguments(&packages(&all)).unwrap();
    assert_eq!(arguments[0], "--workspace", "features of others stay as they are elsewhere");
    let with = |wanted: &str| arguments.iter().filter(|argument| *argument == wanted).count();
    for (package, program) in FAULTED.iter().chain(&FAULTED_IN_PART) {
        assert_eq!(with(&format!("--test={program}")), 1, "{program}");
        assert_eq!(with(&format!("-F{package}/planted-faults")), 1, "{package}");
    }
    let more = packages(&[&all[..], &["urma-new"]].concat());
    assert!(fault_arguments(&more).unwrap_err().0.contains("urma-new"));
    assert!(fault_arguments(&packages(&all[1..])).unwrap_err().0.contains(DEVICE));
    assert!(fault_arguments(&cargo::packages_with(&FAULT_FEATURES).unwrap()).is_ok());
}

/// A program for each entry of the tables, of which `empty` runs no test.
fn tabled(test: &str, empty: &str) -> Vec<TestProgram> {
    let tables = FAULTED.iter().chain(&FAULTED_IN_PART);
    let programs = tables.map(|(package, target)| {
        let count = usize::from(*target != empty);
        let tests = "echo 'test x ... ok'\n".repeat(count);
        let says = format!("{tests}echo 'test result: ok. {count} passed; 0 failed;'");
        suite::tests::script(test, package, target, &says)
    });
    programs.collect()
}

/// Names of what fails when `programs` run with what the tables say.
fn failed(task: &str, programs: &[TestProgram]) -> Vec<String> {
    let mut found = StepResult::default();
    let mut steps = Steps::new(task, 1).unwrap();
    steps.step("faults", |step| {
        found = chosen(step, programs, &fault_jobs(programs));
        StepResult::default()
    });
    found.failed.into_iter().map(|one| one.name).collect()
}

#[test]
fn a_named_program_that_runs_no_test_fails() {
    assert_eq!(failed("test-faults-all", &tabled("test-faults-all", "")), [""; 0]);
    assert_eq!(
        failed("test-faults-none", &tabled("test-faults-none", "bounded")),
        ["bounded tests/bounded.rs"]
    );
    let programs = tabled("test-faults-few", "");
    assert_eq!(failed("test-faults-few", &programs[1..]), ["programs with planted faults"]);
}

#[test]
fn of_some_programs_only_the_tests_with_faults_run() {
    let programs = tabled("test-faults-part", "");
    for (program, arguments) in fault_jobs(&programs) {
        let is_in_part = program.is_of(&FAULTED_IN_PART);
        assert_eq!(arguments, if is_in_part { &[PLANTED][..] } else { &[] }, "{program:?}");
    }
}

#[test]
fn a_repository_that_cannot_be_read_is_known_in_time() {
    let log = cargo::target_dir().unwrap().join("xtask/logs/test-reach.log");
    let start = now();
    assert!(!is_there("file:///nonexistent/advisories", &log));
    assert!(start.elapsed() < ANSWER);
    assert!(is_there(&format!("file://{}", cargo::root().display()), &log), "this one can");
}

/// Name of the test, or of the inline module, that has an attribute with one of the features.
fn gated(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let gates = FAULT_FEATURES.map(|feature| format!("#[cfg(feature = \"{feature}\")]"));
    let at = (0..lines.len()).filter(|&at| gates.iter().any(|gate| lines[at] == gate));
    let item = |at: usize| {
        let is_attribute = |line: &&&str| line.starts_with("#[");
        let before = lines[..at].iter().rev().take_while(is_attribute);
        let after = lines[at..].iter().take_while(is_attribute);
        let is_test = before.chain(after).any(|line| *line == "#[test]");
        let item = lines[at..].iter().find(|line| !line.starts_with("#["))?;
        if is_test {
            item.strip_prefix("fn ")?.split('(').next()
        } else {
            item.strip_prefix("mod ")?.strip_suffix(" {")
        }
    };
    at.filter_map(item).collect()
}

#[test]
fn every_test_that_needs_a_fault_is_found_by_its_name() {
    let text = "#[test]\n#[cfg(feature = \"fault-hooks\")]\nfn one() {\n    \
                #[cfg(feature = \"planted-faults\")]\n    mod two {\n\
                #[cfg(feature = \"planted-faults\")]\nlet x = 1;\n";
    assert_eq!(gated(text), ["one", "two"], "the search finds tests and modules only");
    let listed = Command::new("git").args(["ls-files", "*.rs"]).current_dir(cargo::root()).output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let mut seen = 0;
    for file in listed.lines() {
        // A program that cargo builds only with the feature runs whole.
        if file.ends_with("tests/planted.rs") || file.starts_with("tools/xtask") {
            continue;
        }
        let text = fs::read_to_string(cargo::root().join(file)).unwrap_or_default();
        for name in gated(&text) {
            assert!(name.contains(PLANTED), "{file}: {name} does not run: {PLANTED} is not in it");
            seen += 1;
        }
    }
    assert!(seen >= 3, "{seen}");
}
