//! `cargo xtask cross`: the libraries for aarch64, checked on another machine.
//!
//! *Owns*: what is needed for that, and what an emulator of programs can show. *Takes*: a C compiler
//! for aarch64, `qemu-aarch64`. *Gives*: a count. *Must not*: pass over a missing tool silently.
//!
//! The emulator runs one program on this machine's kernel and processor. It shows that code and
//! layouts are right; it does not show what a weaker memory order does (the loom models do), and it
//! lacks some system calls, which the library must do without.

use std::{fs, path::Path, process::Command};

use crate::{
    cargo,
    child::output,
    say::{Failure, TaskResult},
    step::{RunningStep, StepResult, Steps},
};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const COMPILER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
/// The folder of the C library for aarch64.
const SYSTEM: &str = "/usr/aarch64-linux-gnu";
const LIBRARIES: [&str; 3] = ["liburma", "liburma-common", "libtpsa"];
const FEATURE: &str = "liburma/abi-25-12-0-b081";

/// Tests of system calls that the emulator does not have, and which.
const LEFT_OUT: [(&str, &str); 3] = [
    ("procvm::", "process_vm_readv"),
    ("adopt::tests::content_stays_and_is_seen_on_both_sides", "mremap that leaves a hole"),
    ("adopt::tests::overlapping_adoptions_agree_with_an_array", "mremap that leaves a hole"),
];

/// Examples in C, and a line that each says when all is well.
const EXAMPLES: [(&str, &str); 5] = [
    ("write", "the other side now holds: written from afar"),
    ("read", "read: known over there"),
    ("send_recv", "14 bytes: who is there? (immediate 42)"),
    ("atomics", "compared with 30, was 30, is 7"),
    ("events", "woken by: wake up"),
];

/// Builds and tests for each of the other targets.
pub(crate) fn run() -> TaskResult {
    tools()?;
    let mut steps = Steps::new("cross", 4)?;
    steps.step("libraries for aarch64", |step| {
        let names = LIBRARIES.iter().flat_map(|name| ["-p", *name]);
        let args: Vec<_> = ["build"].into_iter().chain(names).collect();
        // The layouts of the other release are assertions of the compiler.
        let other = ["check", "-p", "liburma", "--features", FEATURE];
        step.check("build", there(&args)).plus(step.check("the other release", there(&other)))
    });
    steps.step("layouts of the headers there", |step| {
        step.tests(cargo::command(&["test", "-p", "liburma", "--test", "abi", "aarch64"]))
    });
    steps.step("unit tests, emulated", unit_tests);
    steps.step("C examples, emulated", |_| {
        EXAMPLES
            .iter()
            .map(|one| StepResult::one(one.0, example(one)))
            .fold(StepResult::default(), StepResult::plus)
    });
    steps.end()
}

/// All that is missing, with how to get it.
fn tools() -> TaskResult {
    let says = |program: &str, args: &[&str]| output(Command::new(program).args(args)).ok();
    let folder = says("rustc", &["--print", "target-libdir", "--target", TARGET]);
    let has_std = folder.is_some_and(|folder| Path::new(folder.trim()).is_dir());
    let has_c = Path::new(SYSTEM).join("lib/ld-linux-aarch64.so.1").is_file();
    let needed = [
        (has_std, "Rust for the target", format!("rustup target add {TARGET}")),
        (says(COMPILER, &["--version"]).is_some(), COMPILER, apt("gcc-aarch64-linux-gnu")),
        (has_c, "the C library for aarch64", apt("libc6-dev-arm64-cross")),
        (says(EMULATOR, &["--version"]).is_some(), EMULATOR, apt("qemu-user")),
    ];
    let missing = needed.into_iter().filter(|(is_there, ..)| !is_there);
    let missing: Vec<_> =
        missing.map(|(_, what, how)| format!("{what} is missing: {how}")).collect();
    if missing.is_empty() { Ok(()) } else { Err(Failure(missing.join("\nxtask: "))) }
}

fn apt(package: &str) -> String {
    format!("apt-get install {package} (as root)")
}

/// A call of cargo for the target.
fn there(args: &[&str]) -> Command {
    let mut command = cargo::command(args);
    command.args(["--target", TARGET]);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", COMPILER);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("{EMULATOR} -L {SYSTEM}"));
    command
}

fn unit_tests(step: &mut RunningStep) -> StepResult {
    let mut command = there(&["test", "--no-fail-fast", "--lib"]);
    let packages = ["urma-mem", "udma-abi", "urma-packet", "liburma"];
    command.args(packages.iter().flat_map(|name| ["-p", *name])).arg("--");
    for (name, _) in LEFT_OUT {
        command.args(["--skip", name]);
    }
    let mut found = step.all_tests(command);
    let left_out = LEFT_OUT.iter().map(|(name, call)| format!("{name}: the emulator lacks {call}"));
    found.skipped.extend(left_out);
    found
}

/// Compiles and runs one.
fn example((name, says): &(&str, &str)) -> TaskResult {
    let built = cargo::target_dir()?.join(TARGET).join("debug");
    let folder = built.join("c-examples");
    let library = folder.join("liburma.so.0");
    fs::create_dir_all(&folder).map_err(Failure::system("the folder of the examples"))?;
    fs::copy(built.join("libliburma.so"), &library).map_err(Failure::system("the library"))?;
    let common = folder.join("liburma_common.so.0");
    fs::copy(built.join("liburma_common.so"), common).map_err(Failure::system("the library"))?;
    let root = cargo::root();
    let include = root.join("liburma/include");
    let source = root.join("examples/c").join(name).with_extension("c");
    let program = folder.join(name);
    let mut compiler = Command::new(COMPILER);
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]);
    compiler.arg("-I").arg(&include).arg("-I").arg(include.join("ub/umdk/urma"));
    compiler.arg("-o").arg(&program).arg(source).arg(&library);
    output(&mut compiler)?;
    let out = output(&mut emulated(&program, &folder))?;
    if out.contains(says) { Ok(()) } else { Err(Failure(format!("{name} said: {out}"))) }
}

/// At most five minutes, for programs that hang.
fn emulated(program: &Path, library: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["300", EMULATOR, "-L", SYSTEM, "-E"]);
    command.arg(format!("LD_LIBRARY_PATH={}", library.display())).arg(program);
    command
}
