//! What the C face costs: size, start, and what it adds to a post and to a poll.
//!
//! *Owns*: the runs of the bench `cost` of urma-ffi, of callgrind and of a C program. *Gives*: one
//! number for each line. *Must not*: compare runs of different minutes: both paths are in one run.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use serde_json::Value;

use crate::{cargo, pair, say::Failure};

/// Which number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    /// Nanoseconds that C adds to one WRITE of 8 bytes and the polls until it is complete.
    WriteTime,
    /// Nanoseconds that C adds to one poll of an empty queue.
    PollTime,
    /// Instructions that C adds to the WRITE and its polls.
    WriteInstructions,
    /// Instructions that C adds to the poll.
    PollInstructions,
    /// Bytes of liburma.so, in MB (10^6), without debug information.
    Size,
    /// `urma_init` to the first context, milliseconds.
    Start,
}

/// Calls of the shorter of two runs that are counted.
const CALLS: u32 = 2_000;

/// Whether the line can be measured here.
pub(super) fn is_possible(of: Of) -> bool {
    let tool = match of {
        Of::WriteTime | Of::PollTime => return true,
        Of::WriteInstructions | Of::PollInstructions => "valgrind",
        Of::Size => "strip",
        Of::Start => "gcc",
    };
    Command::new(tool).arg("--version").output().is_ok_and(|out| out.status.success())
}

/// One value; `bin` is where the release build lies.
pub(super) fn measure(bin: &Path, of: Of) -> Result<f64, Failure> {
    match of {
        Of::WriteTime => added_time("write and poll:"),
        Of::PollTime => added_time("empty poll:"),
        Of::WriteInstructions => Ok(instructions("c")? - instructions("rust")?),
        Of::PollInstructions => Ok(instructions("c-poll")? - instructions("rust-poll")?),
        Of::Size => size(bin),
        Of::Start => start(bin),
    }
}

/// The bench, built once.
fn bench() -> Result<&'static Path, Failure> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    if let Some(path) = BUILT.get() {
        return Ok(path);
    }
    let args = ["bench", "-p", "urma-ffi", "--bench", "cost", "--no-run", "--message-format=json"];
    let output = said(cargo::command(&args))?;
    let mut programs = output.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    });
    let path =
        programs.next_back().ok_or_else(|| Failure("no bench `cost` was built".to_owned()))?;
    Ok(BUILT.get_or_init(|| path))
}

/// The library of the release build.
fn library(bin: &Path) -> Result<PathBuf, Failure> {
    cargo::run(&["build", "--release", "--quiet", "-p", "urma-ffi"])?;
    Ok(bin.join("liburma.so"))
}

fn said(command: Command) -> Result<String, Failure> {
    let name = format!("{:?}", command.get_program());
    let mut command = command;
    let output = command.output().map_err(|error| Failure(format!("{name}: {error}")))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(Failure(format!("{name}: {}", why.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Of a line `what rust A ns, C B ns`, B - A.
fn difference(text: &str, what: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(what))?;
    let numbers = line.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
    match numbers.collect::<Vec<_>>()[..] {
        [rust, c] => Some(c - rust),
        _ => None,
    }
}

fn added_time(what: &str) -> Result<f64, Failure> {
    let output = pair::finish(pair::spawn(Command::new(bench()?))?)?;
    let text = String::from_utf8_lossy(&output.stdout);
    difference(&text, what).ok_or_else(|| Failure(format!("no line {what:?} in {text:?}")))
}

/// Instructions of one call: two runs of different length have the same beginning and end.
fn instructions(path: &str) -> Result<f64, Failure> {
    let total = |calls: u32| {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        command.arg(bench()?).args([path, &calls.to_string()]);
        let output = pair::finish(pair::spawn(command)?)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let count = text.lines().find_map(|line| line.split_once("Collected : "));
        let count = count.and_then(|(_, number)| number.trim().parse::<f64>().ok());
        count.ok_or_else(|| Failure(format!("callgrind counts nothing: {}", text.trim())))
    };
    let (once, twice) = (total(CALLS)?, total(2 * CALLS)?);
    Ok((twice - once) / f64::from(CALLS))
}

fn size(bin: &Path) -> Result<f64, Failure> {
    let copy = cargo::target_dir()?.join("liburma-stripped.so");
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&copy).arg(library(bin)?);
    said(strip)?;
    let bytes = std::fs::metadata(&copy).map_err(Failure::system("its size"))?.len();
    Ok(f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) / 1e6)
}

fn start(bin: &Path) -> Result<f64, Failure> {
    let (root, library) = (cargo::root(), library(bin)?);
    let program = cargo::target_dir()?.join("start");
    let folder = cargo::target_dir()?.join("start-libraries");
    std::fs::create_dir_all(&folder).map_err(Failure::system("a folder"))?;
    let soname = folder.join("liburma.so.0");
    std::fs::copy(&library, &soname).map_err(Failure::system("a copy of the library"))?;
    let mut compile = Command::new("gcc");
    compile.args(["-O2", "-o"]).arg(&program).arg(root.join("tests/c/programs/start.c"));
    compile.arg("-I").arg(root.join("urma-core/ffi/include")).arg(&soname);
    compile.arg(format!("-Wl,-rpath,{}", folder.display()));
    said(compile)?;
    let text = said(Command::new(&program))?;
    let micros = text.trim().parse::<f64>();
    micros.map(|micros| micros / 1e3).map_err(|_| Failure(format!("no number: {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_c_adds_is_read_from_the_line() {
        let text =
            "write and poll: rust 100.5 ns, C 112.0 ns\nempty poll:     rust 3.0 ns, C 8.0 ns\n";
        assert_eq!(difference(text, "write and poll:"), Some(11.5));
        assert_eq!(difference(text, "empty poll:"), Some(5.0));
        assert_eq!(difference("write and poll: none", "write and poll:"), None);
    }
}
