//! The step of planted faults fails when a fault is not looked for.

use super::*;
use crate::step::Steps;

/// Packages as cargo names them.
fn packages(names: &[&str]) -> Vec<(String, String)> {
    names.iter().map(|name| ((*name).to_owned(), "planted-faults".to_owned())).collect()
}

#[test]
fn every_package_with_faults_is_tested_with_them() {
    let all = [DEVICE, "liburma", "urma-hostile", "urma-kill", TESTS];
    let calls = faulted(&packages(&all)).unwrap();
    let with = |args: &[&str]| {
        calls.iter().filter(|call| call.windows(args.len()).any(|part| part == args)).count()
    };
    for (package, program) in FAULTED.iter().chain(&FAULTED_IN_PART) {
        assert_eq!(with(&["--test", program]), 1, "{program}");
        assert_eq!(with(&[&format!("-F{package}/planted-faults")]), 2, "{package}");
    }
    assert_eq!(with(&["-p", DEVICE, "--all-features", "--lib", PLANTED]), 1);
    let more = packages(&[&all[..], &["urma-new"]].concat());
    assert!(faulted(&more).unwrap_err().0.contains("urma-new"));
    assert!(faulted(&packages(&all[1..])).unwrap_err().0.contains(DEVICE));
    assert!(faulted(&cargo::packages_with(&FAULT_FEATURES).unwrap()).is_ok());
}

#[test]
fn a_named_program_that_runs_no_test_fails() {
    let ran = |name: &str, tests: &str| {
        format!("Running tests/{name}.rs (x/{name}-1)\n{tests}test result: ok. 0 passed; 0 failed;")
    };
    let prints = |text: String| {
        let mut command = Command::new("printf");
        command.args(["%s\n", &text]);
        command
    };
    let (one, none) = (ran("a", "test planted::x ... ok\n"), ran("b", ""));
    let one = one.replace("0 passed", "1 passed");
    let mut found = Vec::new();
    let mut steps = Steps::new("test-faults", 2).unwrap();
    for commands in
        [vec![prints(one.clone())], vec![prints(one.clone()), prints(one + "\n" + &none)]]
    {
        steps.step("faults", |step| {
            found.push(faults_of(step, commands));
            StepResult::default()
        });
    }
    assert_eq!(found[0].failed, []);
    let failed: Vec<_> = found[1].failed.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(failed, ["b tests/b.rs"]);
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
        let text = std::fs::read_to_string(cargo::root().join(file)).unwrap_or_default();
        for name in gated(&text) {
            assert!(name.contains(PLANTED), "{file}: {name} does not run: {PLANTED} is not in it");
            seen += 1;
        }
    }
    assert!(seen >= 4, "{seen}");
}
