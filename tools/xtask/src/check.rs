//! `cargo xtask test` and its parts.
//!
//! *Owns*: which checks there are and in which order. *Takes*: nothing: it does its own set-up.
//! *Gives*: a count. *Must not*: pass over a check silently.

use std::{path::Path, process::Command};

use crate::{
    cargo,
    say::{Done, Failure},
    step::{Counts, Steps},
    tidy,
};

/// Version of cargo-deny that is installed when there is none.
const DENY_VERSION: &str = "0.20.2";
/// Version of cargo-fuzz that is installed when there is none.
const FUZZ_VERSION: &str = "0.13.1";
/// Seconds per fuzz target in `test`.
const FUZZ_SECONDS: u32 = 10;
/// Seeds of the simulation in `test`.
const SIM_SEEDS: u32 = 500;
/// Features with which a device can be made to die or to err.
const FAULT_FEATURES: [&str; 2] = ["planted-faults", "fault-hooks"];
/// Features of the C face's second run: the other release, and panics where tests plant them.
const C_FACE: &str = "abi-25-12-0-b081,planted-faults";
/// The package with the simulation.
const TESTS: &str = "urma-tests";

/// Everything.
pub(crate) fn test() -> Done {
    let mut steps = Steps::new(11);
    steps.step("tools", || Counts::one(tools()));
    steps.step("format", || of(&["fmt", "--all", "--", "--check"]));
    steps.step("tidy", tidy_counts);
    steps.step("clippy", || {
        of(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])
    });
    steps.step("licences, sources, advisories", deny);
    steps.step("unit, property, conformance tests", || {
        let mut command = cargo::command(&["test", "--workspace", "--no-fail-fast"]);
        command.env("URMA_SEEDS", SIM_SEEDS.to_string());
        Counts::of(command)
    });
    steps.step("planted faults and kills", faults);
    steps.step("the C face for 25.12.0.B081", || {
        of(&["test", "-p", "urma-ffi", "--features", C_FACE, "--no-fail-fast"])
    });
    steps.step("loom models", loom_counts);
    steps.step("documentation", || {
        let mut command = cargo::command(&["doc", "--workspace", "--no-deps", "--quiet"]);
        command.env("RUSTDOCFLAGS", "-D warnings");
        Counts::of(command)
    });
    steps.step("fuzz targets", || fuzz_counts(FUZZ_SECONDS));
    steps.end()
}

/// The house rules only.
pub(crate) fn tidy() -> Done {
    let mut steps = Steps::new(1);
    steps.step("tidy", tidy_counts);
    steps.end()
}

/// The loom models only.
pub(crate) fn loom() -> Done {
    let mut steps = Steps::new(1);
    steps.step("loom models", loom_counts);
    steps.end()
}

/// The fuzz targets only.
pub(crate) fn fuzz(seconds: u32) -> Done {
    let mut steps = Steps::new(2);
    steps.step("fuzz targets", || fuzz_counts(seconds));
    steps.step("fuzzed calls of the C functions", || c_fuzz_counts(seconds));
    steps.end()
}

/// The simulation only.
pub(crate) fn sim(seeds: u32) -> Done {
    let mut steps = Steps::new(1);
    steps.step("simulation", || {
        let args = ["test", "-p", TESTS, "--release", "--test", "simulation"];
        let mut command = cargo::command(&args);
        command.env("URMA_SEEDS", seeds.to_string());
        Counts::of(command)
    });
    steps.end()
}

fn of(args: &[&str]) -> Counts {
    Counts::of(cargo::command(args))
}

/// What rustup should have brought (rust-toolchain.toml names it), and what the system should have.
fn tools() -> Done {
    for (tool, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        let output = cargo::command(&[tool, "--version"]).output();
        if !output.is_ok_and(|output| output.status.success()) {
            return Err(Failure(format!(
                "cargo {tool} is missing: rustup component add {component}"
            )));
        }
    }
    SYSTEM.iter().try_for_each(|(tool, package)| system_tool(tool, package))
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

/// Installs a program when it is missing and may be.
fn system_tool(tool: &str, package: &str) -> Done {
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

fn tidy_counts() -> Counts {
    let rules = tidy::check(&cargo::root());
    rules.into_iter().map(Counts::one).fold(Counts::default(), Counts::plus)
}

/// Licences, bans and sources need no network. Advisories need their database: where it cannot
/// be had, the step says so, loudly.
fn deny() -> Counts {
    let dir = match cargo::tool("deny", DENY_VERSION) {
        Ok(dir) => dir,
        Err(failure) => return Counts::one(Err(failure)),
    };
    let check = |what: &[&str]| {
        let mut command = cargo::command(&["deny", "--log-level", "error", "check"]);
        command.args(what).env("PATH", cargo::path_with(&dir));
        Counts::of(command)
    };
    let offline = check(&["licenses", "bans", "sources"]);
    let mut advisories = check(&["advisories"]);
    let is_unreachable = advisories.notes.contains("failed to fetch advisory database");
    if is_unreachable {
        advisories = Counts {
            notes: "        NOT CHECKED: advisories; their database cannot be reached\n".to_owned(),
            ..Counts::default()
        };
    }
    offline.plus(advisories)
}

/// The tests that need a device with hooks and faults built in: every package that declares such
/// a feature is tested with all of them.
fn faults() -> Counts {
    let packages = match cargo::packages_with(&FAULT_FEATURES) {
        Ok(packages) => packages,
        Err(failure) => return Counts::one(Err(failure)),
    };
    if packages.is_empty() {
        let why = format!("no package declares one of {}", FAULT_FEATURES.join(", "));
        return Counts::one(Err(Failure(why)));
    }
    let test = |(package, features): &(String, String)| {
        let mut args = vec!["test", "-p", package, "--features", features, "--no-fail-fast"];
        if package == TESTS {
            // What needs no fault has run without the features.
            args.extend(["--test", "planted", "--test", "simulation"]);
        }
        of(&args)
    };
    packages.iter().map(test).fold(Counts::default(), Counts::plus)
}

/// Models run in a build of their own, for `--cfg loom` changes every crate.
fn loom_counts() -> Counts {
    let target = match cargo::target_dir() {
        Ok(target) => target.join("loom"),
        Err(failure) => return Counts::one(Err(failure)),
    };
    let mut command = cargo::command(&["test", "-p", "urma-mem", "--lib", "--release"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target);
    Counts::of(command)
}

fn fuzz_counts(seconds: u32) -> Counts {
    let folder = cargo::root().join("tests/fuzz");
    let targets = fuzz_targets(&folder);
    let tool = targets.and_then(|names| Ok((names, cargo::tool("fuzz", FUZZ_VERSION)?)));
    let (names, dir) = match tool {
        Ok(found) => found,
        Err(failure) => return Counts::one(Err(failure)),
    };
    let run = |name: &String| Counts::of(fuzz_command(&folder, &dir, name, seconds));
    names.iter().map(run).fold(Counts::default(), Counts::plus)
}

/// Random calls of the C functions, under libFuzzer of clang.
fn c_fuzz_counts(seconds: u32) -> Counts {
    let args = ["test", "-p", "urma-c-tests", "--test", "installed", "--", "--ignored"];
    let mut command = cargo::command(&[&args[..], &["calls_under_libfuzzer"]].concat());
    command.env("URMA_C_FUZZ_SECONDS", seconds.to_string());
    Counts::of(command)
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

/// The pinned compiler takes coverage flags only when told that it may (RUSTC_BOOTSTRAP).
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
