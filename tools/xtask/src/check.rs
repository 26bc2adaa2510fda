//! `cargo xtask test` and its parts.
//!
//! *Owns*: which checks there are and in which order. *Takes*: nothing: it does its own set-up.
//! *Gives*: a count. *Must not*: pass over a check without a line in the result.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    cargo,
    child::{self, RunningChild},
    clock::now,
    doc, mutants, rtl,
    say::{Failure, TaskResult, say},
    step::{Failed, RunningStep, StepResult, Steps},
    suite::{self, ProgramJob, TestProgram},
    tidy, vm,
};

/// Step that needs cargo-deny.
const LICENCES: &str = "licences, sources, advisories";
/// Version of cargo-deny that is installed when there is none.
const DENY_VERSION: &str = "0.20.2";
/// Flags of the compiler by which libFuzzer sees what an input reached.
const COVERAGE: [&str; 8] = [
    "--cfg fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-sanitizer-coverage-stack-depth",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
];
/// Seconds per fuzz target in `test`.
const FUZZ_SECONDS: u32 = 10;
/// Profile of tests/fuzz for `test`, and for campaigns.
const FUZZ_QUICK: &str = "quick";
const FUZZ_CAMPAIGN: &str = "release";
/// Seeds of each suite of the simulation in `test`.
const SIM_SEEDS: u32 = 200;
/// Features with which a device can be made to die or to err.
const FAULT_FEATURES: [&str; 2] = ["planted-faults", "fault-hooks"];
/// Features of the C face's other run: the other release, and panics where tests plant them.
const C_FACE: &str = "liburma/abi-25-12-0-b081,liburma/planted-faults";
/// The package with the simulation.
const TESTS: &str = "urma-tests";
/// The package with the device, whose unit tests have its faults in every build.
const DEVICE: &str = "ubcore-sim";
/// The package of the C face.
const FACE: &str = "liburma";
/// In the path of every test that needs such a feature and does not lie in a program of its own.
const PLANTED: &str = "planted";
/// Test programs all of which needs such a feature, each with its package.
const FAULTED: [(&str, &str); 4] = [
    ("urma-kill", "kill"),
    ("urma-kill", PLANTED),
    (TESTS, "conformance_planted"),
    ("lab", "planted_node"),
];
/// Test programs of which only the tests named `PLANTED` need a feature; the others run in another
/// step.
const FAULTED_IN_PART: [(&str, &str); 3] =
    [("liburma", "face"), ("urma-hostile", "bounded"), (TESTS, "simulation")];

/// Everything, or only the steps whose name contains `only`.
pub(crate) fn test(only: &str) -> TaskResult {
    let mut steps = Steps::new("test", 14)?.only(only);
    steps.step("tools", |_| StepResult::one("tools", tools()));
    // Built while the next steps leave a processor idle; ready before any test runs.
    let deny_tool = steps.is_selected(LICENCES).then(|| thread::spawn(deny_tool));
    steps.step("format", |step| of(step, &["fmt", "--all", "--", "--check"]));
    steps.step("tidy", |_| tidy_found());
    steps.step("clippy", |step| {
        of(step, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
    });
    steps.step(LICENCES, |step| deny(step, deny_tool));
    steps.step("the C face for 25.12.0.B081", other_face);
    steps.step("unit, property, conformance tests", whole);
    steps.step("planted faults and kills", faults);
    steps.step("real VFIO in a virtual machine", vm::found);
    steps.step("packet engine in SystemVerilog", rtl::found);
    steps.step("loom models", loom_found);
    steps.step("documentation", documentation);
    steps.step("fuzz targets", |step| fuzz_found(step, FUZZ_QUICK, FUZZ_SECONDS));
    steps.step("mutants of what changed", mutants::changed);
    steps.end()
}

/// The pages of the API, and the examples in them.
fn documentation(step: &mut RunningStep) -> StepResult {
    let pages = doc::api(step);
    let examples = ["test", "--doc", "--workspace", "--no-fail-fast"];
    pages.plus(step.all_tests(cargo::command(&examples)))
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
    steps.step("fuzz targets", |step| fuzz_found(step, FUZZ_CAMPAIGN, seconds));
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
    SYSTEM.iter().try_for_each(|(tool, package)| child::tool(tool, package))?;
    if std::env::var_os("CI").is_some_and(|ci| ci == "true") {
        // A test that is skipped for its lack fails there.
        child::tool(CROSS.0, CROSS.1)?;
    }
    Ok(())
}

/// Programs of the system that tests call, with Debian's packages: strace counts system calls,
/// valgrind and the compilers judge C programs, cmake builds some as clients do, ip joins the hosts of tests, tshark reads captures, etcd keeps
/// what controllers know; the others make the virtual machine with Linux rxe.
const SYSTEM: [(&str, &str); 13] = [
    ("strace", "strace"),
    ("gcc", "gcc"),
    ("g++", "g++"),
    ("clang", "clang"),
    ("cmake", "cmake"),
    ("valgrind", "valgrind"),
    ("ip", "iproute2"),
    ("tshark", "tshark"),
    ("etcd", "etcd-server"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("cpio", "cpio"),
    ("/bin/busybox", "busybox-static"),
    ("/usr/include/infiniband/verbs.h", "libibverbs-dev"),
];

/// A compiler for another machine, without which tests are skipped.
const CROSS: (&str, &str) = ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu");

fn tidy_found() -> StepResult {
    let rules = tidy::check(&cargo::root()).into_iter();
    rules
        .map(|(name, result)| StepResult::one(name, result))
        .fold(StepResult::default(), StepResult::plus)
}

/// The folder of cargo-deny, which is installed when it is missing.
fn deny_tool() -> Result<PathBuf, Failure> {
    cargo::tool("deny", DENY_VERSION)
}

/// Licences, bans and sources need no network. Advisories need their database: where it cannot
/// be had, the check is skipped, also with `CI=true`, for no machine can do anything about it.
fn deny(step: &mut RunningStep, tool: Option<JoinHandle<Result<PathBuf, Failure>>>) -> StepResult {
    let tool = tool.and_then(|tool| tool.join().ok()).unwrap_or_else(deny_tool);
    let dir = match tool {
        Ok(dir) => dir,
        Err(failure) => return StepResult::one("cargo deny", Err(failure)),
    };
    let log = step.log_of("reach.log");
    let mut check = |what: &[&str]| {
        let mut command = cargo::command(&["deny", "--log-level", "error", "check"]);
        command.args(what).env("PATH", cargo::path_with(&dir));
        step.check(&what.join(", "), command)
    };
    let offline = check(&["licenses", "bans", "sources"]);
    let unreachable = || {
        let why = "advisories: their database cannot be reached".to_owned();
        StepResult { skipped: vec![why], ..StepResult::default() }
    };
    if !is_there(ADVISORIES, &log) {
        return offline.plus(unreachable());
    }
    let advisories = check(&["advisories"]);
    let is_unreachable =
        |failed: &Failed| failed.message.contains("failed to fetch advisory database");
    let is_lost = advisories.failed.iter().any(is_unreachable);
    offline.plus(if is_lost { unreachable() } else { advisories })
}

/// Where cargo-deny has the advisories from.
const ADVISORIES: &str = "https://github.com/RustSec/advisory-db";
/// Time in which a server of git must answer; cargo-deny itself tries for minutes.
const ANSWER: Duration = Duration::from_secs(10);

/// Whether the repository at `url` can be read: git is asked, as cargo-deny asks it.
fn is_there(url: &str, log: &Path) -> bool {
    let mut git = Command::new("git");
    git.args(["ls-remote", "--quiet", "--exit-code", url, "HEAD"]);
    git.env("GIT_TERMINAL_PROMPT", "0").current_dir(cargo::root());
    let ended = RunningChild::start(git, log, ANSWER).and_then(|running| running.wait(|| {}));
    ended.is_ok_and(|ended| ended.is_success())
}

/// Builds test programs. Cargo has one name for the C library whatever its features, and would take
/// what another build left there for this one's.
fn build(step: &mut RunningStep, arguments: &[&str]) -> Result<Vec<TestProgram>, StepResult> {
    let made = cargo::target_dir().map(|target| target.join("debug/deps"));
    let made = made.map_err(|failure| StepResult::one("test programs", Err(failure)))?;
    for end in ["so", "a", "rlib"] {
        let _ = fs::remove_file(made.join(format!("libliburma.{end}")));
    }
    suite::build(step, arguments)
}

/// Variable by which the tests of installed trees find the libraries for 25.12.0.B081, which need not
/// be built once more for them.
const BUILT_B081: &str = "URMA_BUILT_25_12_0_B081";

/// Copies libraries out of the folder of the last build, for [`BUILT_B081`]. Gives that folder.
fn keep(names: &[&str]) -> Result<PathBuf, Failure> {
    let target = cargo::target_dir()?;
    let folder = target.join("xtask/25.12.0.B081");
    fs::create_dir_all(&folder).map_err(Failure::system("making a folder"))?;
    for name in names {
        let copied = fs::copy(target.join("debug/deps").join(name), folder.join(name));
        copied.map_err(Failure::system(&format!("copying {name}")))?;
    }
    Ok(folder)
}

/// Every test program as it is, with more seeds than a developer's run has.
fn whole(step: &mut RunningStep) -> StepResult {
    let programs = match build(step, &["--workspace"]) {
        Ok(programs) => programs,
        Err(found) => return found,
    };
    // These are the same in both releases.
    let b081 = match keep(&["libtpsa.so", "liburma_common.so"]) {
        Ok(folder) => folder.to_string_lossy().into_owned(),
        Err(failure) => return StepResult::one("libraries for 25.12.0.B081", Err(failure)),
    };
    let jobs: Vec<ProgramJob<'_>> = programs.iter().map(|program| (program, &[][..])).collect();
    let seeds = SIM_SEEDS.to_string();
    let (found, _) = suite::run(step, &jobs, &[("URMA_SEEDS", &seeds), (BUILT_B081, &b081)]);
    found.or_nothing("test programs", &step.log_of("times"))
}

/// The tests that need a device with hooks and faults built in: those of every package that
/// declares such a feature, with all of them. The whole workspace is selected, so that what does not
/// depend on the device is not built again.
fn faults(step: &mut RunningStep) -> StepResult {
    let arguments = cargo::packages_with(&FAULT_FEATURES).and_then(|all| fault_arguments(&all));
    let arguments = match &arguments {
        Ok(arguments) => arguments.iter().map(String::as_str).collect::<Vec<_>>(),
        Err(failure) => return StepResult::one("planted faults", Err(failure.clone())),
    };
    match build(step, &arguments) {
        Ok(programs) => chosen(step, &programs, &fault_jobs(&programs)),
        Err(found) => found,
    }
}

/// Arguments that build the programs of the tables with every feature of `packages`, which must be
/// those of the tables.
fn fault_arguments(packages: &[(String, String)]) -> Result<Vec<String>, Failure> {
    let tables = || FAULTED.iter().chain(&FAULTED_IN_PART);
    let listed: BTreeSet<&str> = tables().map(|(package, _)| *package).chain([DEVICE]).collect();
    let declaring = packages.iter().map(|(package, _)| package.as_str()).collect();
    if listed != declaring {
        let odd: Vec<&str> = listed.symmetric_difference(&declaring).copied().collect();
        return Err(Failure(format!("tables and features disagree about {}", odd.join(", "))));
    }
    let mut arguments = vec!["--workspace".to_owned()];
    for (package, features) in packages.iter().filter(|(package, _)| package != DEVICE) {
        arguments.extend(features.split(',').map(|feature| format!("-F{package}/{feature}")));
    }
    arguments.extend(tables().map(|(_, name)| format!("--test={name}")));
    Ok(arguments)
}

/// The programs of the tables among `programs`, whole or in part.
fn fault_jobs(programs: &[TestProgram]) -> Vec<ProgramJob<'_>> {
    let of = |list: &[(&str, &str)], arguments: &'static [&'static str]| {
        let chosen = programs.iter().filter(|program| program.is_of(list));
        chosen.map(|program| (program, arguments)).collect::<Vec<_>>()
    };
    [of(&FAULTED, &[]), of(&FAULTED_IN_PART, &[PLANTED])].concat()
}

/// Runs `jobs`, each of which must run a test; as many as the tables have entries.
fn chosen(step: &mut RunningStep, programs: &[TestProgram], jobs: &[ProgramJob<'_>]) -> StepResult {
    let (found, empty) = suite::run(step, jobs, &[]);
    let wanted = FAULTED.len() + FAULTED_IN_PART.len();
    let all = if jobs.len() == wanted {
        StepResult::default()
    } else {
        let why = format!(
            "{} of {} programs are in the tables, {wanted} should be",
            jobs.len(),
            programs.len()
        );
        StepResult::one("programs with planted faults", Err(Failure(why)))
    };
    found.or_empty(empty).plus(all)
}

/// The C face for the other release; its library is kept for the tests of installed trees.
fn other_face(step: &mut RunningStep) -> StepResult {
    let arguments = ["--workspace", "-F", C_FACE, "--lib", "--test", "abi", "--test", "face"];
    let programs = match build(step, &arguments) {
        Ok(programs) => programs,
        Err(found) => return found,
    };
    if let Err(failure) = keep(&["libliburma.so", "libliburma.a"]) {
        return StepResult::one("libraries for 25.12.0.B081", Err(failure));
    }
    let of_face = programs.iter().filter(|program| program.package == FACE);
    let jobs: Vec<ProgramJob<'_>> = of_face.map(|program| (program, &[][..])).collect();
    let (found, empty) = suite::run(step, &jobs, &[]);
    found.or_nothing("programs of the C face", &step.log_of("times")).or_empty(empty)
}

/// Models run in a build of their own, for `--cfg loom` changes every crate.
fn loom_found(step: &mut RunningStep) -> StepResult {
    let target = match cargo::target_dir() {
        Ok(target) => target.join("loom"),
        Err(failure) => return StepResult::one("models", Err(failure)),
    };
    let mut command = cargo::command(&["test", "-p", "urma-mem", "-p", "urma-contexts", "--lib"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target);
    step.tests(command)
}

fn fuzz_found(step: &mut RunningStep, profile: &str, seconds: u32) -> StepResult {
    let folder = cargo::root().join("tests/fuzz");
    let names = match fuzz_targets(&folder) {
        Ok(names) => names,
        Err(failure) => return StepResult::one("fuzz targets", Err(failure)),
    };
    let built = step.check("build", fuzz_cargo(&folder, "build", profile));
    if !built.failed.is_empty() {
        return built;
    }
    let run = |name: &String| Ok((name.clone(), fuzz_command(&folder, name, profile, seconds)?));
    match names.iter().map(run).collect() {
        Ok(commands) => built.plus(step.checks(commands)),
        Err(failure) => built.plus(StepResult::one("fuzz targets", Err(failure))),
    }
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

/// Cargo in the workspace of the fuzz targets. A named target keeps the flags from build scripts and
/// macros, which run without libFuzzer.
fn fuzz_cargo(folder: &Path, task: &str, profile: &str) -> Command {
    let mut command = cargo::command(&[task, "--profile", profile, "--target", "host-tuple"]);
    command.env("RUSTFLAGS", COVERAGE.join(" ")).current_dir(folder);
    command
}

/// A run of a target for `seconds`, from the inputs of earlier runs; an input that fails is kept.
fn fuzz_command(
    folder: &Path,
    name: &str,
    profile: &str,
    seconds: u32,
) -> Result<Command, Failure> {
    let (corpus, artifacts) = (format!("corpus/{name}"), format!("artifacts/{name}/"));
    for path in [&corpus, &artifacts] {
        fs::create_dir_all(folder.join(path)).map_err(Failure::system("making a folder"))?;
    }
    let mut command = fuzz_cargo(folder, "run", profile);
    command.args(["--bin", name, "--", &corpus, &format!("-artifact_prefix={artifacts}")]);
    command.arg(format!("-max_total_time={seconds}"));
    command.args(["-rss_limit_mb=2048", "-timeout=10", "-print_final_stats=0"]);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::Steps;

    /// Packages as cargo names them.
    fn packages(names: &[&str]) -> Vec<(String, String)> {
        names.iter().map(|name| ((*name).to_owned(), "planted-faults".to_owned())).collect()
    }

    #[test]
    fn every_package_with_faults_is_tested_with_them() {
        let all = [DEVICE, "lab", "liburma", "urma-hostile", "urma-kill", TESTS];
        let arguments = fault_arguments(&packages(&all)).unwrap();
        assert_eq!(arguments[0], "--workspace", "features of others stay as they are elsewhere");
        let with = |wanted: &str| arguments.iter().filter(|argument| *argument == wanted).count();
        for (package, program) in FAULTED.iter().chain(&FAULTED_IN_PART) {
            assert_eq!(with(&format!("--test={program}")), 1, "{program}");
            assert_eq!(with(&format!("-F{package}/planted-faults")), 1, "{package}");
        }
        let more = packages(&[&all[..], &["urma-new"]].concat());
        assert!(fault_arguments(&more).unwrap_err().0.contains("urma-new"));
        assert!(fault_arguments(&packages(&all[1..])).unwrap_err().0.contains(DEVICE));
        assert!(fault_arguments(&cargo::packages_with(&FAULT_FEATURES).unwrap()).is_ok());
    }

    /// A program for each entry of the tables, of which `empty` runs no test.
    fn tabled(test: &str, empty: &str) -> Vec<TestProgram> {
        let tables = FAULTED.iter().chain(&FAULTED_IN_PART);
        let programs = tables.map(|(package, target)| {
            let count = usize::from(*target != empty);
            let tests = "echo 'test x ... ok'\n".repeat(count);
            let says = format!("{tests}echo 'test result: ok. {count} passed; 0 failed;'");
            suite::tests::script(test, package, target, &says)
        });
        programs.collect()
    }

    /// Names of what fails when `programs` run with what the tables say.
    fn failed(task: &str, programs: &[TestProgram]) -> Vec<String> {
        let mut found = StepResult::default();
        let mut steps = Steps::new(task, 1).unwrap();
        steps.step("faults", |step| {
            found = chosen(step, programs, &fault_jobs(programs));
            StepResult::default()
        });
        found.failed.into_iter().map(|one| one.name).collect()
    }

    #[test]
    fn a_named_program_that_runs_no_test_fails() {
        assert_eq!(failed("test-faults-all", &tabled("test-faults-all", "")), [""; 0]);
        assert_eq!(
            failed("test-faults-none", &tabled("test-faults-none", "bounded")),
            ["bounded tests/bounded.rs"]
        );
        let programs = tabled("test-faults-few", "");
        assert_eq!(failed("test-faults-few", &programs[1..]), ["programs with planted faults"]);
    }

    #[test]
    fn of_some_programs_only_the_tests_with_faults_run() {
        let programs = tabled("test-faults-part", "");
        for (program, arguments) in fault_jobs(&programs) {
            let is_in_part = program.is_of(&FAULTED_IN_PART);
            assert_eq!(arguments, if is_in_part { &[PLANTED][..] } else { &[] }, "{program:?}");
        }
    }

    #[test]
    fn a_repository_that_cannot_be_read_is_known_in_time() {
        let log = cargo::target_dir().unwrap().join("xtask/logs/test-reach.log");
        let start = now();
        assert!(!is_there("file:///nonexistent/advisories", &log));
        assert!(start.elapsed() < ANSWER);
        assert!(is_there(&format!("file://{}", cargo::root().display()), &log), "this one can");
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
        let listed =
            Command::new("git").args(["ls-files", "*.rs"]).current_dir(cargo::root()).output();
        let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
        let mut seen = 0;
        for file in listed.lines() {
            // A program that cargo builds only with the feature runs whole.
            if file.ends_with("tests/planted.rs") || file.starts_with("tools/xtask") {
                continue;
            }
            let text = fs::read_to_string(cargo::root().join(file)).unwrap_or_default();
            for name in gated(&text) {
                assert!(
                    name.contains(PLANTED),
                    "{file}: {name} does not run: {PLANTED} is not in it"
                );
                seen += 1;
            }
        }
        assert!(seen >= 3, "{seen}");
    }
}
