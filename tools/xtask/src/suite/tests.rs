//! Programs are read from cargo's messages, run as cargo would run them, and none is passed over.

use serde_json::json;

use super::*;
use crate::step::Steps;

/// A program that is a script of the shell with the body `body`, in a folder of the test `test`.
pub(crate) fn script(test: &str, package: &str, target: &str, body: &str) -> TestProgram {
    let dir = folder(test);
    fs::create_dir_all(&dir).unwrap();
    let file = dir.join(format!("{target}-1"));
    // A file that this process writes is busy while another thread starts a program.
    let mut write = Command::new("sh");
    write.args(["-c", "printf '#!/bin/sh\n%s\n' \"$BODY\" > \"$FILE\" && chmod 755 \"$FILE\""]);
    assert!(write.env("BODY", body).env("FILE", &file).status().unwrap().success());
    TestProgram {
        package: package.to_owned(),
        target: target.to_owned(),
        is_unit: false,
        source: format!("tests/{target}.rs"),
        version: "0.1.0".to_owned(),
        dir,
        file,
    }
}

fn folder(test: &str) -> PathBuf {
    cargo::target_dir().unwrap().join("tmp").join(test)
}

/// What a test program prints for `names`, all of which pass.
fn ok(names: &[&str]) -> String {
    let lines: String = names.iter().map(|name| format!("echo 'test {name} ... ok'\n")).collect();
    format!("{lines}echo 'test result: ok. {} passed; 0 failed;'", names.len())
}

/// Runs `programs` in a step of their own.
fn ran(task: &str, programs: &[TestProgram], arguments: &[&str]) -> (StepResult, Vec<String>) {
    let jobs: Vec<ProgramJob<'_>> = programs.iter().map(|program| (program, arguments)).collect();
    let mut result = None;
    let mut steps = Steps::new(task, 1).unwrap();
    steps.step("programs", |step| {
        result = Some(run(step, &jobs, &[("MORE", "more")]));
        StepResult::default()
    });
    result.unwrap()
}

#[test]
fn only_test_programs_are_read_from_messages() {
    let root = cargo::root();
    let message = |is_test: bool, kind: &str, id: &str| {
        json!({
            "reason": "compiler-artifact",
            "package_id": id,
            "manifest_path": root.join("tests/kill/Cargo.toml"),
            "target": { "kind": [kind], "name": "x", "src_path": root.join("tests/kill/x.rs") },
            "profile": { "test": is_test },
            "executable": is_test.then_some("/built/deps/x-1"),
        })
    };
    let read = |kind, id| TestProgram::of(&message(true, kind, id)).unwrap();
    let integration = read("test", "path+file:///a/tests/kill#urma-kill@0.2.0");
    assert_eq!((&*integration.package, &*integration.version), ("urma-kill", "0.2.0"));
    assert_eq!(integration.line(), "     Running tests/kill/x.rs (/built/deps/x-1)\n");
    assert_eq!(integration.dir, root.join("tests/kill"));
    let unit = read("lib", "path+file:///a/urma-mem#0.1.0");
    assert_eq!((&*unit.package, &*unit.version), ("urma-mem", "0.1.0"));
    assert_eq!(unit.line(), "     Running unittests tests/kill/x.rs (/built/deps/x-1)\n");
    assert_eq!(TestProgram::of(&message(false, "bin", "path+file:///a/b#0.1.0")), None);
}

#[test]
fn programs_run_as_cargo_runs_them() {
    let script_text = format!(
        "[ \"$(basename \"$PWD\")\" = test-suite-env ] && [ \"$CARGO_MANIFEST_DIR\" = \"$PWD\" ] || exit 1
         [ \"$CARGO_PKG_NAME $1 $MORE\" = 'suite-env planted more' ] || exit 2
         case $LD_LIBRARY_PATH in \"$PWD\":*) ;; *) exit 3;; esac\n{}",
        ok(&["a"])
    );
    let (found, empty) = ran(
        "test-suite-env",
        &[script("test-suite-env", "suite-env", "env", &script_text)],
        &["planted"],
    );
    assert_eq!((found.failed, empty), (Vec::new(), Vec::new()));
    assert_eq!(found.passed, ["env tests/env.rs::a"]);
}

#[test]
fn every_program_runs_and_is_named_in_its_results() {
    let skips = "echo 'SKIPPED: a: no reason' >> $URMA_SKIPS\n";
    let programs = [
        script("test-suite-all", "urma-kill", "planted", &format!("sleep 0.1; {}", ok(&["w"]))),
        script("test-suite-all", "x", "one", &ok(&["a", "b"])),
        script("test-suite-all", "x", "two", &format!("{skips}{}", ok(&["a", "b"]))),
        script("test-suite-all", "x", "three", "echo 'test c ... ok'; kill -9 $$"),
        script("test-suite-all", "x", "four", &ok(&[])),
        script("test-suite-all", "urma-budget", "budget", &ok(&["alone"])),
    ];
    let (mut found, empty) = ran("test-suite-all", &programs, &[]);
    found.passed.sort();
    let passed = [
        "budget tests/budget.rs::alone",
        "one tests/one.rs::a",
        "one tests/one.rs::b",
        "planted tests/planted.rs::w",
        "two tests/two.rs::b",
    ];
    assert_eq!(found.passed, passed);
    assert_eq!(found.skipped, ["a: no reason"]);
    let failed: Vec<_> = found.failed.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(failed, ["three tests/three.rs"]);
    assert_eq!(empty, ["four tests/four.rs"]);
    let log = found.failed[0].log.clone().unwrap();
    assert!(log.ends_with("xtask/logs/test-suite-all/01-programs.x.three.log"), "{log:?}");
}

#[test]
fn programs_that_wait_run_beside_others_and_some_run_alone() {
    let mark = folder("test-suite-beside").join("beside");
    let _ = fs::remove_dir_all(&mark);
    fs::create_dir_all(&mark).unwrap();
    // Each sees what runs beside it: the first two wait for each other, the last one sees neither.
    let meets = |own: &str, other: &str| {
        format!(
            "touch beside/{own}; for i in 1 2 3 4 5 6 7 8 9 10; do [ -e beside/{other} ] && break; \
             sleep 0.2; done; [ -e beside/{other} ] || exit 1; sleep 0.1; touch beside/{own}-ended\n{}",
            ok(&[own])
        )
    };
    let alone =
        format!("[ -e beside/one-ended ] && [ -e beside/two-ended ] || exit 1\n{}", ok(&["x"]));
    let programs = [
        script("test-suite-beside", "urma-budget", "budget", &alone),
        script("test-suite-beside", "urma-kill", "planted", &meets("one", "two")),
        script("test-suite-beside", "x", "usual", &meets("two", "one")),
    ];
    let (found, _) = ran("test-suite-beside", &programs, &[]);
    assert_eq!(found.failed, []);
}
