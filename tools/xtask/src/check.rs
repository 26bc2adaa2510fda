//! `cargo xtask test` and its parts.
//!
//! *Owns*: which checks there are and in which order. *Takes*: nothing: it does its own set-up.
//! *Gives*: a count. *Must not*: pass over a check without a line in the result.

use std::{collections::BTreeSet, path::Path, process::Command};

use crate::{
    cargo,
    clock::now,
    doc, mutants,
    say::{Failure, TaskResult, say},
    step::{Failed, RunningStep, StepResult, Steps},
    tidy,
};

/// Version of cargo-deny that is installed when there is none.
const DENY_VERSION: &str = "0.20.2";
/// Version of cargo-fuzz that is installed when there is none.
const FUZZ_VERSION: &str = "0.13.1";
/// Seconds per fuzz target in `test`.
const FUZZ_SECONDS: u32 = 10;
/// Seeds of each suite of the simulation in `test`.
const SIM_SEEDS: u32 = 500;
/// Features with which a device can be made to die or to err.
const FAULT_FEATURES: [&str; 2] = ["planted-faults", "fault-hooks"];
/// Features of the C face's second run: the other release, and panics where tests plant them.
const C_FACE: &str = "abi-25-12-0-b081,planted-faults";
/// The package with the simulation.
const TESTS: &str = "urma-tests";
/// The package with the device, whose unit tests are built by themselves.
const DEVICE: &str = "ubcore-sim";
/// In the path of every test that needs such a feature and does not lie in a program of its own.
const PLANTED: &str = "planted";
/// Test programs all of which needs such a feature, each with its package.
const FAULTED: [(&str, &str); 3] =
    [("urma-kill", "kill"), ("urma-kill", PLANTED), (TESTS, "conformance_planted")];
/// Test programs of which only the tests named `PLANTED` need a feature; the others ran in the step
/// before.
const FAULTED_IN_PART: [(&str, &str); 3] =
    [("liburma", "face"), ("urma-hostile", "bounded"), (TESTS, "simulation")];

/// Everything.
pub(crate) fn test() -> TaskResult {
    let mut steps = Steps::new("test", 12)?;
    steps.step("tools", |_| StepResult::one("tools", tools()));
    steps.step("format", |step| of(step, &["fmt", "--all", "--", "--check"]));
    steps.step("tidy", |_| tidy_found());
    steps.step("clippy", |step| {
        of(step, &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])
    });
    steps.step("licences, sources, advisories", deny);
    steps.step("unit, property, conformance tests", |step| {
        let mut command = cargo::command(&["test", "--workspace", "--no-fail-fast"]);
        command.env("URMA_SEEDS", SIM_SEEDS.to_string());
        step.all_tests(command)
    });
    steps.step("planted faults and kills", faults);
    steps.step("the C face for 25.12.0.B081", |step| {
        let args = ["test", "-p", "liburma", "--features", C_FACE, "--no-fail-fast"];
        step.all_tests(cargo::command(&args))
    });
    steps.step("loom models", loom_found);
    steps.step("documentation", doc::api);
    steps.step("fuzz targets", |step| fuzz_found(step, FUZZ_SECONDS));
    steps.step("mutants of what changed", mutants::changed);
    steps.end()
}

/// The house rules only.
pub(crate) fn tidy() -> TaskResult {
    let mut steps = Steps::new("tidy", 1)?;
    steps.step("tidy", |_| tidy_found());
    steps.end()
}

/// The loom models only.
pub(crate) fn loom() -> TaskResult {
    let mut steps = Steps::new("loom", 1)?;
    steps.step("loom models", loom_found);
    steps.end()
}

/// The fuzz targets only.
pub(crate) fn fuzz(seconds: u32) -> TaskResult {
    let mut steps = Steps::new("fuzz", 2)?;
    steps.step("fuzz targets", |step| fuzz_found(step, seconds));
    steps.step("fuzzed calls of the C functions", |step| c_fuzz_found(step, seconds));
    steps.end()
}

/// The simulation only, `seeds` worlds of each suite; progress goes where our output goes.
pub(crate) fn sim(from: u32, seeds: u32) -> TaskResult {
    let start = now();
    let args = ["test", "-p", TESTS, "--release", "--test", "simulation", "--", "--nocapture"];
    let mut command = cargo::command(&args);
    command.env("URMA_SEEDS", seeds.to_string()).env("URMA_FROM", from.to_string());
    let status = command.status();
    let is_success = status.map_err(Failure::system("starting cargo"))?.success();
    let took = start.elapsed().as_secs_f64();
    say(&format!("{seeds} seeds of each suite, from {from} on: {took:.0} s"));
    if is_success { Ok(()) } else { Err(Failure("a seed failed; see above".to_owned())) }
}

/// A call of cargo that is one check.
fn of(step: &mut RunningStep, args: &[&str]) -> StepResult {
    let what = format!("cargo {}", args.first().unwrap_or(&""));
    step.check(&what, cargo::command(args))
}

/// What rustup should have brought (rust-toolchain.toml names it), and what the system should have.
fn tools() -> TaskResult {
    for (tool, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        let output = cargo::command(&[tool, "--version"]).output();
        if !output.is_ok_and(|output| output.status.success()) {
            return Err(Failure(format!(
                "cargo {tool} is missing: rustup component add {component}"
            )));
        }
    }
    SYSTEM.iter().try_for_each(|(tool, package)| system_tool(tool, package))?;
    if std::env::var_os("CI").is_some_and(|ci| ci == "true") {
        // A test that is skipped for its lack fails there.
        system_tool(CROSS.0, CROSS.1)?;
    }
    Ok(())
}

/// Programs of the system that tests call, with Debian's packages: strace counts system calls,
/// valgrind and the compilers judge C programs.
const SYSTEM: [(&str, &str); 5] = [
    ("strace", "strace"),
    ("gcc", "gcc"),
    ("g++", "g++"),
    ("clang", "clang"),
    ("valgrind", "valgrind"),
];

/// A compiler for another machine, without which tests are skipped.
const CROSS: (&str, &str) = ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu");

/// Installs a program when it is missing and may be.
fn system_tool(tool: &str, package: &str) -> TaskResult {
    let is_there =
        || Command::new(tool).arg("--version").output().is_ok_and(|out| out.status.success());
    if is_there() {
        return Ok(());
    }
    for args in [&["update"][..], &["install", "-y", package]] {
        // What became of it shows below: without the right to install, or without apt, nothing.
        let _ =
            Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive").output();
    }
    if is_there() {
        return Ok(());
    }
    Err(Failure(format!("{tool} is missing: apt-get install {package} (as root)")))
}

fn tidy_found() -> StepResult {
    let rules = tidy::check(&cargo::root()).into_iter();
    rules
        .map(|(name, result)| StepResult::one(name, result))
        .fold(StepResult::default(), StepResult::plus)
}

/// Licences, bans and sources need no network. Advisories need their database: where it cannot
/// be had, the check is skipped, also with `CI=true`, for no machine can do anything about it.
fn deny(step: &mut RunningStep) -> StepResult {
    let dir = match cargo::tool("deny", DENY_VERSION) {
        Ok(dir) => dir,
        Err(failure) => return StepResult::one("cargo deny", Err(failure)),
    };
    let mut check = |what: &[&str]| {
        let mut command = cargo::command(&["deny", "--log-level", "error", "check"]);
        command.args(what).env("PATH", cargo::path_with(&dir));
        step.check(&what.join(", "), command)
    };
    let offline = check(&["licenses", "bans", "sources"]);
    let mut advisories = check(&["advisories"]);
    let is_unreachable =
        |failed: &Failed| failed.message.contains("failed to fetch advisory database");
    if advisories.failed.iter().any(is_unreachable) {
        let why = "advisories: their database cannot be reached".to_owned();
        advisories = StepResult { skipped: vec![why], ..StepResult::default() };
    }
    offline.plus(advisories)
}

/// The tests that need a device with hooks and faults built in: those of every package that
/// declares such a feature, with all of them.
fn faults(step: &mut RunningStep) -> StepResult {
    let packages = match cargo::packages_with(&FAULT_FEATURES) {
        Ok(packages) => packages,
        Err(failure) => return StepResult::one("planted faults", Err(failure)),
    };
    let command =
        |args: &Vec<String>| cargo::command(&args.iter().map(String::as_str).collect::<Vec<_>>());
    match faulted(&packages) {
        Ok(calls) => faults_of(step, calls.iter().map(command).collect()),
        Err(failure) => StepResult::one("planted faults", Err(failure)),
    }
}

/// Calls of cargo for `packages`, given with their features, which must be those of the tables.
/// Those above the device are selected together, so that they are built once.
fn faulted(packages: &[(String, String)]) -> Result<Vec<Vec<String>>, Failure> {
    let listed: BTreeSet<&str> = FAULTED
        .iter()
        .chain(&FAULTED_IN_PART)
        .map(|(package, _)| *package)
        .chain([DEVICE])
        .collect();
    let declaring = packages.iter().map(|(package, _)| package.as_str()).collect();
    if listed != declaring {
        let odd: Vec<&str> = listed.symmetric_difference(&declaring).copied().collect();
        return Err(Failure(format!("tables and features disagree about {}", odd.join(", "))));
    }
    let call = |programs: &[(&str, &str)], filter: &[&str]| {
        let mut args = vec!["test".to_owned(), "--no-fail-fast".to_owned()];
        for (package, features) in packages.iter().filter(|(package, _)| package != DEVICE) {
            args.extend(["-p".to_owned(), package.clone()]);
            args.extend(features.split(',').map(|feature| format!("-F{package}/{feature}")));
        }
        args.extend(
            programs.iter().flat_map(|(_, name)| ["--test".to_owned(), (*name).to_owned()]),
        );
        args.extend(filter.iter().map(|&word| word.to_owned()));
        args
    };
    let device = ["test", "-p", DEVICE, "--all-features", "--lib", PLANTED];
    let device = device.map(str::to_owned).to_vec();
    Ok(vec![device, call(&FAULTED, &[]), call(&FAULTED_IN_PART, &[PLANTED])])
}

/// Runs what needs a fault: a program that runs no test shows nothing.
fn faults_of(step: &mut RunningStep, commands: Vec<Command>) -> StepResult {
    commands
        .into_iter()
        .map(|command| step.tests(command))
        .fold(StepResult::default(), StepResult::plus)
}

/// Models run in a build of their own, for `--cfg loom` changes every crate.
fn loom_found(step: &mut RunningStep) -> StepResult {
    let target = match cargo::target_dir() {
        Ok(target) => target.join("loom"),
        Err(failure) => return StepResult::one("models", Err(failure)),
    };
    let mut command = cargo::command(&["test", "-p", "urma-mem", "--lib", "--release"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target);
    step.tests(command)
}

fn fuzz_found(step: &mut RunningStep, seconds: u32) -> StepResult {
    let folder = cargo::root().join("tests/fuzz");
    let targets = fuzz_targets(&folder);
    let tool = targets.and_then(|names| Ok((names, cargo::tool("fuzz", FUZZ_VERSION)?)));
    let (names, dir) = match tool {
        Ok(found) => found,
        Err(failure) => return StepResult::one("fuzz targets", Err(failure)),
    };
    let run = |name: &String| step.check(name, fuzz_command(&folder, &dir, name, seconds));
    names.iter().map(run).fold(StepResult::default(), StepResult::plus)
}

/// Random calls of the C functions, under libFuzzer of clang.
fn c_fuzz_found(step: &mut RunningStep, seconds: u32) -> StepResult {
    let args = ["test", "-p", "urma-c-tests", "--test", "installed", "--", "--ignored"];
    let mut command = cargo::command(&[&args[..], &["calls_under_libfuzzer"]].concat());
    command.env("URMA_C_FUZZ_SECONDS", seconds.to_string());
    step.tests(command)
}

/// Names of the fuzz targets: one file each.
fn fuzz_targets(folder: &Path) -> Result<Vec<String>, Failure> {
    let files = folder.join("fuzz_targets").read_dir();
    let files = files.map_err(Failure::system("reading tests/fuzz/fuzz_targets"))?;
    let paths = files.flatten().map(|entry| entry.path());
    let sources = paths.filter(|path| path.extension().is_some_and(|end| end == "rs"));
    let names = sources.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()));
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

/// The pinned compiler takes coverage flags only with RUSTC_BOOTSTRAP.
fn fuzz_command(folder: &Path, tool: &Path, name: &str, seconds: u32) -> Command {
    let mut command = cargo::command(&["fuzz", "run", "--sanitizer", "none", name, "--"]);
    command
        .arg(format!("-max_total_time={seconds}"))
        .args(["-rss_limit_mb=2048", "-timeout=10"])
        .env("RUSTC_BOOTSTRAP", "1")
        .env("PATH", cargo::path_with(tool))
        .current_dir(folder.parent().unwrap_or(folder));
    command.arg("-print_final_stats=0");
    command
}

#[cfg(test)]
mod tests;
