//! What did not run is not counted as passed; what ran twice counts once.

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
