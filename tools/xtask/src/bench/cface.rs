//! What the C face costs: size, start, and what it adds to a post and to a poll.
//!
//! *Owns*: the runs of the bench `cost` of liburma, of callgrind and of a C program. *Gives*: one
//! number for each line. *Must not*: compare runs of different minutes: both paths are in one run.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::built;
use crate::{cargo, child::output, pair, say::Failure};

/// Number of the loop's output that a line shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    /// Nanoseconds that C adds to one call of a loop.
    Time(CLoop),
    /// Instructions that C adds to it.
    Instructions(CLoop),
    /// Bytes of liburma.so, in MB (10^6), without debug information.
    Size,
    /// `urma_init` to the first context, milliseconds.
    Start,
}

/// A loop of the bench.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CLoop {
    /// One WRITE of 8 bytes, and the polls until it is complete.
    WriteAndPoll,
    /// The post of one.
    Post,
    /// The poll that takes one completion.
    TakingPoll,
    /// A poll of an empty queue.
    EmptyPoll,
}

impl CLoop {
    /// How its line begins, and its name in arguments.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::WriteAndPoll => ("write and poll:", "write"),
            Self::Post => ("post:", "post"),
            Self::TakingPoll => ("taking poll:", "take"),
            Self::EmptyPoll => ("empty poll:", "poll"),
        }
    }
}

/// Calls of a run that is counted.
const CALLS: u32 = 2_000;

/// Whether the line can be measured here.
pub(super) fn is_possible(of: Of) -> bool {
    let tool = match of {
        Of::Time(_) => return true,
        Of::Instructions(_) => "valgrind",
        Of::Size => "strip",
        Of::Start => "gcc",
    };
    Command::new(tool).arg("--version").output().is_ok_and(|out| out.status.success())
}

/// One value; `bin` is where the release build lies.
pub(super) fn measure(bin: &Path, of: Of) -> Result<f64, Failure> {
    match of {
        Of::Time(of) => added_time(of.names().0),
        Of::Instructions(of) => {
            let name = of.names().1;
            Ok(instructions(&format!("c-{name}"))? - instructions(&format!("rust-{name}"))?)
        }
        Of::Size => size(bin),
        Of::Start => start(bin),
    }
}

fn bench() -> Result<PathBuf, Failure> {
    built("liburma", "cost")
}

/// The library of the release build.
fn library(bin: &Path) -> Result<PathBuf, Failure> {
    cargo::run(&["build", "--release", "--quiet", "-p", "liburma", "-p", "liburma-common"])?;
    Ok(bin.join("libliburma.so"))
}

/// Of a line `what rust A ns, C B ns; ...`, B - A.
fn difference(text: &str, what: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(what))?;
    let (numbers, _) = line.split_once(';')?;
    let numbers = numbers.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
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

/// Instructions of one call of a loop: what is counted outside of the loops is left out.
fn instructions(of: &str) -> Result<f64, Failure> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg("--toggle-collect=cost::loops::*");
    command.arg(bench()?).args([of, &CALLS.to_string()]);
    let output = pair::finish(pair::spawn(command)?)?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let count = text.lines().find_map(|line| line.split_once("Collected : "));
    let count = count.and_then(|(_, number)| number.trim().parse::<f64>().ok());
    let total = count.filter(|count| *count > 0.0);
    let total = total
        .ok_or_else(|| Failure(format!("callgrind counts nothing in {of}: {}", text.trim())))?;
    Ok((total / f64::from(CALLS)).round())
}

fn size(bin: &Path) -> Result<f64, Failure> {
    let copy = cargo::target_dir()?.join("liburma-stripped.so");
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&copy).arg(library(bin)?);
    output(&mut strip)?;
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
    // The library needs it beside itself.
    let common = bin.join("liburma_common.so");
    std::fs::copy(common, folder.join("liburma_common.so.0"))
        .map_err(Failure::system("a copy of the library"))?;
    let mut compile = Command::new("gcc");
    compile.args(["-O2", "-o"]).arg(&program).arg(root.join("tests/c/programs/start.c"));
    compile.arg("-I").arg(root.join("liburma/include")).arg(&soname);
    compile.arg(format!("-Wl,-rpath,{}", folder.display()));
    output(&mut compile)?;
    let text = output(&mut Command::new(&program))?;
    let micros = text.trim().parse::<f64>();
    micros.map(|micros| micros / 1e3).map_err(|_| Failure(format!("no number: {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_c_adds_is_read_from_the_line() {
        let text = "write and poll: rust 100.5 ns, C 112.0 ns; +11.5 is within 30\n\
                    empty poll:     rust 3.0 ns, C 8.0 ns; +5.0 is within 15\n";
        assert_eq!(difference(text, "write and poll:"), Some(11.5));
        assert_eq!(difference(text, "empty poll:"), Some(5.0));
        assert_eq!(difference("write and poll: none", "write and poll:"), None);
    }
}
