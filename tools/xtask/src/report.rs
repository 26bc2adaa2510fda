//! What test programs print, as results.
//!
//! *Owns*: the format of libtest's output. *Takes*: the output of `cargo test`. *Gives*: results by
//! test, each with its program's name. *Must not*: run anything.

/// Lines of a failed test's message that are shown.
const MESSAGE_LINES: usize = 16;
/// Lines of the output of a program that ended without a result.
const END_LINES: usize = 30;

/// Results of the programs that one command ran.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Report {
    /// Names of the tests that passed.
    pub(crate) passed: Vec<String>,
    /// Tests that failed, each with its message.
    pub(crate) failed: Vec<(String, String)>,
    /// Tests that are marked as ignored, with the reason.
    pub(crate) ignored: Vec<String>,
    /// Programs that ran no test.
    pub(crate) empty: Vec<String>,
}

/// A part of the output: one program.
#[derive(Debug)]
struct Program<'a> {
    name: String,
    lines: Vec<&'a str>,
}

impl Report {
    /// Reads the output of a command that ended with or without success.
    pub(crate) fn of(text: &str, is_success: bool) -> Self {
        let mut report = Self::default();
        let programs = programs(text);
        for program in &programs {
            report.add(program);
        }
        if !is_success && report.failed.is_empty() {
            report.failed.push(("the command".to_owned(), end_of(text.lines().collect())));
        }
        report
    }

    /// Number of tests that ran.
    pub(crate) fn ran(&self) -> usize {
        self.passed.len() + self.failed.len()
    }

    fn add(&mut self, Program { name, lines }: &Program<'_>) {
        let Some((passed, failed)) = lines.iter().rev().find_map(|line| result(line)) else {
            let why = format!("ended without a result:\n{}", end_of(lines.clone()));
            return self.failed.push((name.clone(), why));
        };
        let (before_passed, before_failed) = (self.passed.len(), self.failed.len());
        for (test, word) in lines.iter().filter_map(|line| outcome(line)) {
            let test = format!("{name}::{test}");
            match word.split_once(", ") {
                _ if word == "ok" => self.passed.push(test),
                _ if word == "FAILED" => {
                    self.failed.push((test.clone(), message(&test, name, lines)))
                }
                Some(("ignored", reason)) => self.ignored.push(format!("{test}: {reason}")),
                _ if word == "ignored" => self.ignored.push(test),
                _ => {}
            }
        }
        // A line that another process wrote into still counts.
        for number in self.passed.len() - before_passed..passed {
            self.passed.push(format!("{name}::unnamed {number}"));
        }
        for _ in self.failed.len() - before_failed..failed {
            self.failed.push((name.clone(), end_of(lines.clone())));
        }
        if passed + failed == 0 {
            self.empty.push(name.clone());
        }
    }
}

/// Divides output where cargo names the next program.
fn programs(text: &str) -> Vec<Program<'_>> {
    let mut programs: Vec<Program<'_>> = Vec::new();
    for line in text.lines() {
        if let Some(name) = program(line) {
            programs.push(Program { name, lines: Vec::new() });
        } else if let Some(last) = programs.last_mut() {
            last.lines.push(line);
        }
    }
    programs
}

/// Returns the program of `Running tests/x.rs (target/debug/deps/x-0123456789abcdef)`: file and
/// `x`.
pub(crate) fn program(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(package) = line.strip_prefix("Doc-tests ") {
        return Some(format!("{package} (documentation)"));
    }
    let (source, path) = line.strip_prefix("Running ")?.strip_suffix(')')?.split_once(" (")?;
    let source = source.trim_start_matches("unittests ");
    let file = path.rsplit('/').next()?;
    let (name, _hash) = file.rsplit_once('-')?;
    Some(format!("{name} {source}"))
}

/// Returns name and outcome in `test NAME ... OUTCOME`.
pub(crate) fn outcome(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("test ")?.rsplit_once(" ... ")
}

/// Passed and failed in the line with a program's result.
fn result(line: &str) -> Option<(usize, usize)> {
    let (_, counts) = line.split_once("test result: ")?;
    Some((number_before(counts, " passed"), number_before(counts, " failed")))
}

/// The number that stands before `word`.
fn number_before(text: &str, word: &str) -> usize {
    let Some((before, _)) = text.split_once(word) else { return 0 };
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// What a failed test printed, without the path to it.
fn message(test: &str, program: &str, lines: &[&str]) -> String {
    let name = test.strip_prefix(program).map_or(test, |rest| rest.trim_start_matches("::"));
    let heads = [format!("---- {name} stdout ----"), format!("---- {name} ----")];
    let body = lines.iter().skip_while(|line| !heads.iter().any(|head| head == *line)).skip(1);
    let is_over =
        |line: &str| (line.starts_with("---- ") && line.ends_with(" ----")) || line == "failures:";
    let mut shown: Vec<&str> = Vec::new();
    for line in body.take_while(|line| !is_over(line)) {
        if line.starts_with("stack backtrace:") {
            break;
        }
        if !line.is_empty() {
            shown.push(line);
        }
    }
    // What failed is said last.
    shown[shown.len().saturating_sub(MESSAGE_LINES)..].join("\n")
}

/// The last lines that say something.
fn end_of(mut lines: Vec<&str>) -> String {
    lines.retain(|line| !line.is_empty() && !line.ends_with(" ... ok"));
    lines[lines.len().saturating_sub(END_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "\
   Compiling a v0.1.0
     Running unittests src/lib.rs (target/debug/deps/a-0123)

running 3 tests
test x::good ... ok
test x::slow ... ignored, takes minutes
test x::other ... ok

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out

     Running tests/b.rs (target/debug/deps/b-4567)

running 2 tests
test good ... ok
test bad ... FAILED

failures:

---- bad stdout ----
thread 'bad' panicked at tests/b.rs:3:5:
left: 1
stack backtrace:
   0: std
---- other stdout ----
none


failures:
    bad

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured
   Doc-tests a

running 0 tests

test result: ok. 0 passed; 0 failed; 0 ignored
error: test failed
";

    #[test]
    fn tests_are_named_by_their_program() {
        let report = Report::of(TWO, false);
        let passed = ["a src/lib.rs::x::good", "a src/lib.rs::x::other", "b tests/b.rs::good"];
        assert_eq!(report.passed, passed);
        assert_eq!(report.ignored, ["a src/lib.rs::x::slow: takes minutes"]);
        assert_eq!(report.empty, ["a (documentation)"]);
        assert_eq!(report.ran(), 4);
    }

    #[test]
    fn a_failure_comes_with_its_message() {
        let report = Report::of(TWO, false);
        let message = "thread 'bad' panicked at tests/b.rs:3:5:\nleft: 1".to_owned();
        assert_eq!(report.failed, [("b tests/b.rs::bad".to_owned(), message)]);
    }

    #[test]
    fn a_program_that_dies_is_a_failure() {
        let died = "     Running tests/b.rs (target/debug/deps/b-4567)\nrunning 2 tests\n\
                    test good ... ok\nerror: signal: 11\n";
        let report = Report::of(died, false);
        assert_eq!(report.failed[0].0, "b tests/b.rs");
        assert!(report.failed[0].1.contains("signal: 11"), "{report:?}");
        let report = Report::of("error: could not compile `x`\n", false);
        assert!(report.failed[0].1.contains("could not compile"), "{report:?}");
    }

    #[test]
    fn a_line_that_another_process_wrote_into_counts() {
        let text = "     Running tests/b.rs (target/debug/deps/b-4567)\nnoise test good ... ok\n\
                    test bad ...noise FAILED\n\
                    test result: FAILED. 1 passed; 1 failed; 0 ignored\n";
        let report = Report::of(text, false);
        assert_eq!((report.passed.len(), report.failed.len()), (1, 1));
    }
}
