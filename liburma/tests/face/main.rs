//! C programs of `tests/c` against the built library, and what it exports against the list `src/symbols.txt`.
//!
//! Each program is compiled by gcc against `include/` and is its own process, so that each starts without a library
//! that runs.

mod provider;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    process::{Command, Stdio},
    sync::OnceLock,
};

/// The folder of the crate.
fn here(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Where cargo put the library for this test.
fn library_dir() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let dir = test.parent().expect("in a folder").to_path_buf();
    assert!(dir.join("libliburma.so").exists(), "no libliburma.so in {}", dir.display());
    dir
}

/// The library under the name that programs look for, with the one that it needs beside it.
fn soname() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let _ = link_as("liburma_common.so", "liburma_common.so.0");
        link_as("libliburma.so", "liburma.so.0")
    };
    MADE.get_or_init(make).clone()
}

/// A built library under another name in the folder for tests.
fn link_as(built: &str, name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (link, soname) = (folder.join(format!("{built}.new")), folder.join(name));
    // What is there may be of another build, or not be there.
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(library_dir().join(built), &link).expect("a link");
    std::fs::rename(&link, &soname).expect("a link in its place");
    soname
}

/// Compiles `tests/c/<name>.c`, strictly, against the headers and the library.
fn build(name: &str, target: &str, more: &[&str]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let target = folder.join(format!("face-{target}"));
    let soname = soname();
    let mut command = Command::new("gcc");
    command.args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"]);
    if cfg!(feature = "abi-25-12-0-b081") {
        command.arg("-DURMA_ABI_PROFILE=2512");
    }
    command.arg("-I").arg(here("include")).arg("-I").arg(here("tests/c"));
    command.arg("-o").arg(&target).arg(here("tests/c").join(format!("{name}.c")));
    // Both: a program with more rights than its user gets none from `$ORIGIN` of another.
    let common = soname.with_file_name("liburma_common.so.0");
    command.arg("-Wl,--no-as-needed").args(more).arg(&soname).arg(common);
    command.args(["-lpthread", "-ldl"]);
    command.arg(format!("-Wl,-rpath,{}", folder.display()));
    let built = command.output().expect("gcc starts");
    assert!(built.status.success(), "{name}: {}", String::from_utf8_lossy(&built.stderr));
    target
}

/// Runs a program to its end, which must come within five minutes.
fn run(program: &PathBuf, environment: &[(&str, &str)]) {
    // A generous limit: a program that hangs fails here, and not the whole run.
    let mut command = Command::new("timeout");
    command.arg("300").arg(program);
    command.envs(environment.iter().copied()).stdin(Stdio::null());
    let run = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{}: {}\n{said}", program.display(), run.status);
}

macro_rules! programs {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            run(&build(stringify!($name), stringify!($name), &[]), &[]);
        }
    )*};
}

programs! {
    again, atomics, batch, compact, counted, data, events, first, lifecycle, limits, names, odd, pings, rare, refusals, rules,
    threads, words,
}

/// Panics are planted: none leaves the library, and what comes next works.
#[cfg(feature = "planted-faults")]
#[test]
fn planted_panics() {
    run(&build("panics", "panics", &[]), &[]);
}

#[test]
fn first_with_packets() {
    run(&build("first", "first-packets", &[]), &[("URMA_PATH", "packets")]);
}

/// One device under two names: its own, and that of a bonding device.
const ALIAS: &[(&str, &str)] = &[("URMA_DEVICE_ALIAS", "bonding_dev_0")];

#[test]
fn paths() {
    run(&build("paths", "paths", &[]), ALIAS);
}

#[test]
fn psns() {
    run(&build("psns", "psns", &[]), &[("URMA_RC", "roce")]);
}

#[test]
fn family() {
    run(&build("family", "family", &[]), &[]);
}

#[test]
fn commands() {
    run(&build("commands", "commands", &[]), &[]);
}

#[test]
fn describe() {
    run(&build("describe", "describe", &[]), ALIAS);
}

#[test]
fn states() {
    run(&build("states", "states", &[]), ALIAS);
}

fn lines(path: &str) -> Vec<String> {
    let text = std::fs::read_to_string(here(path)).expect("a list");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// The release that the library is built for.
const OWN: &str = if cfg!(feature = "abi-25-12-0-b081") { "25.12.0.B081" } else { "26.06" };

/// Symbols of the library that only `release` has, or that all have.
fn listed_for(release: &str) -> BTreeSet<String> {
    let of = |line: &String| {
        let mut words = line.split(' ');
        let (library, symbol, of) = (words.next()?, words.next()?, words.next()?);
        (library == "liburma" && of == release).then(|| symbol.to_owned())
    };
    lines("src/symbols.txt").iter().filter_map(of).collect()
}

fn listed() -> BTreeSet<String> {
    listed_for("all").union(&listed_for(OWN)).cloned().collect()
}

fn exported() -> BTreeSet<String> {
    let library = library_dir().join("libliburma.so");
    let nm = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output();
    let text = String::from_utf8(nm.expect("nm starts").stdout).expect("names");
    let all = text.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned);
    // Calls that a later release added do no harm in the library of an earlier one; its marker would.
    let later = if OWN == "26.06" { BTreeSet::new() } else { listed_for("26.06") };
    all.filter(|symbol| symbol.contains("_abi_") || !later.contains(symbol)).collect()
}

/// What only one side has.
fn differences(listed: &BTreeSet<String>, exported: &BTreeSet<String>) -> Vec<String> {
    let missing = listed.difference(exported).map(|symbol| format!("missing: {symbol}"));
    let beside = exported.difference(listed).map(|symbol| format!("not listed: {symbol}"));
    missing.chain(beside).collect()
}

#[test]
fn exports_are_what_is_listed() {
    let (listed, exported) = (listed(), exported());
    assert!(listed.len() > 200, "{}", listed.len());
    assert_eq!(differences(&listed, &exported), Vec::<String>::new());
}

#[test]
fn a_symbol_on_one_side_only_is_reported() {
    let (mut listed, mut exported) = (listed(), exported());
    listed.insert("urma_planted_in_the_list".to_owned());
    exported.insert("urma_planted_in_the_library".to_owned());
    exported.remove("urma_poll_jfc");
    let wanted = [
        "missing: urma_planted_in_the_list",
        "missing: urma_poll_jfc",
        "not listed: urma_planted_in_the_library",
    ];
    assert_eq!(differences(&listed, &exported), wanted);
}
