//! Output of this program, its one error, and the line of the step at work.
//!
//! A closed pipe is not an error of the task. On a terminal the line is rewritten; elsewhere a further line comes
//! now and then, from the growing logs of children. Must not judge a result.

use std::{
    fs::File,
    io::{self, IsTerminal, Read, Seek, SeekFrom, Write, stdout},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{clock::now, report};

/// Why a task failed; for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure(pub(crate) String);

impl Failure {
    /// A system error with what was tried.
    pub(crate) fn system(what: &str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

/// Result of a task: nothing, or why it failed.
pub(crate) type TaskResult = Result<(), Failure>;

/// Prints a line to standard output.
pub(crate) fn say(line: &str) {
    let _ = writeln!(stdout(), "{line}");
}

/// Prints without a newline, at once.
pub(crate) fn say_part(part: &str) {
    let mut out = stdout();
    let _ = out.write_all(part.as_bytes()).and_then(|()| out.flush());
}

/// Time between two states of a line on a terminal.
const REWRITE: Duration = Duration::from_millis(200);
/// Time between two lines elsewhere.
const LINE: Duration = Duration::from_secs(15);
/// Columns that a line on a terminal may take: a longer one could not be rewritten.
const COLUMNS: usize = 79;

/// The line of the step at work.
#[derive(Debug)]
pub(crate) struct StepLine {
    heading: String,
    is_terminal: bool,
    shown: Instant,
    /// Whether the line has more on it than the heading, or others came below it.
    is_over: bool,
}

impl StepLine {
    /// Prints the heading of the step and leaves the line open.
    pub(crate) fn new(heading: &str) -> Self {
        say_part(heading);
        let is_terminal = stdout().is_terminal();
        Self { heading: heading.to_owned(), is_terminal, shown: now(), is_over: false }
    }

    /// Shows the state of the work, if it is time for that. `state` is asked for only then.
    pub(crate) fn show(&mut self, state: impl FnOnce() -> String) {
        if self.shown.elapsed() < if self.is_terminal { REWRITE } else { LINE } {
            return;
        }
        let state = state();
        if self.is_terminal {
            say_part(&rewritten(&self.heading, &state));
        } else {
            say(&format!("{}        {state}", if self.is_over { "" } else { "\n" }));
        }
        (self.shown, self.is_over) = (now(), true);
    }

    /// Ends the line with `result`.
    pub(crate) fn end(&self, result: &str) {
        let before = match (self.is_over, self.is_terminal) {
            (false, _) => String::new(),
            (true, true) => rewritten(&self.heading, ""),
            (true, false) => self.heading.clone(),
        };
        say(&format!("{before}{result}"));
    }
}

/// The heading and `state` in place of what the terminal's line holds.
fn rewritten(heading: &str, state: &str) -> String {
    let room = COLUMNS.saturating_sub(heading.chars().count());
    let state: String = state.chars().take(room).collect();
    format!("\r{heading}{state}\x1b[K")
}

/// A log that a child still writes, and what its lines say about the progress.
#[derive(Debug)]
pub(crate) struct LogTail {
    path: PathBuf,
    read: u64,
    /// The last line, as far as it is there.
    rest: Vec<u8>,
    state: LogState,
}

/// How far a child came.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct LogState {
    /// Crates that were compiled.
    crates: usize,
    /// The program that runs, if a line named it.
    program: String,
    /// Its tests that ended.
    tests: usize,
    /// Its tests in all.
    all: usize,
}

impl LogState {
    fn add(&mut self, line: &str) {
        let word = line.trim_start().split(' ').next();
        if line.starts_with(' ') && matches!(word, Some("Compiling" | "Checking")) {
            self.crates += 1;
        } else if let Some(program) = report::program(line) {
            let program = program.split(' ').next().unwrap_or_default().to_owned();
            *self = Self { program, crates: self.crates, ..Self::default() };
        } else if let Some(all) = line.strip_prefix("running ") {
            let number = all.split(' ').next().and_then(|all| all.parse().ok());
            self.all = number.unwrap_or(self.all);
        } else if report::outcome(line).is_some() {
            self.tests += 1;
        }
    }
}

impl LogTail {
    /// Begins at the start of the file `path`, which may not be there yet.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf(), read: 0, rest: Vec::new(), state: LogState::default() }
    }

    /// Reads what the file has more; returns the state in words.
    pub(crate) fn state(&mut self) -> String {
        let mut more = Vec::new();
        let read = File::open(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.read))?;
            file.read_to_end(&mut more)
        });
        // A log that cannot be read fails the step when the child has ended.
        self.read += read.unwrap_or(0) as u64;
        self.rest.extend(more);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.state.add(String::from_utf8_lossy(&line).trim_end());
        }
        let LogState { crates, program, tests, all } = &self.state;
        match (*all, *crates) {
            (0, 0) => program.clone(),
            (0, crates) if program.is_empty() => format!("{crates} crates compiled"),
            (0, _) => program.clone(),
            (all, _) => format!("{program} {tests}/{all}").trim_start().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use super::*;

    #[test]
    fn a_growing_log_shows_crates_then_programs_and_their_tests() {
        let path = crate::cargo::target_dir().unwrap().join("tmp-progress.log");
        let _ = fs::remove_file(&path);
        let mut tail = LogTail::new(&path);
        assert_eq!(tail.state(), "");
        let mut file = File::create(&path).unwrap();
        let mut after = |text: &str| {
            file.write_all(text.as_bytes()).unwrap();
            tail.state()
        };
        assert_eq!(after("   Compiling a v0.1.0\n   Compi"), "1 crates compiled");
        assert_eq!(after("ling b v0.1.0\n"), "2 crates compiled");
        let run = "     Running tests/b.rs (target/debug/deps/b-4567)\n";
        assert_eq!(after(run), "b");
        assert_eq!(after("running 3 tests\ntest x ... ok\ntest y ... FAI"), "b 1/3");
        assert_eq!(after("LED\n"), "b 2/3");
        assert_eq!(after("   Doc-tests a\nrunning 1 test\n"), "a 0/1");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_line_fits_a_terminal() {
        let line = rewritten("[ 1/12] heading ", &"long ".repeat(50));
        assert_eq!(line.chars().count(), COLUMNS + "\r\x1b[K".len());
    }
}
