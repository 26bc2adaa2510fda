//! Random sequences of calls (`programs/fuzz_calls.c`), under AddressSanitizer.
//!
//! `URMA_C_SEEDS` says how many seeds, 1 by default: `URMA_C_SEEDS=1000 cargo test -p urma-c-tests
//! sequences`. `cargo xtask fuzz` runs the same source under libFuzzer, with the library compiled for
//! it: coverage and AddressSanitizer inside of it too.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use urma_c_tests::{CLANG, GCC, Prefix, finish, root, scratch};

use crate::{
    INSTALLED, command,
    releases::B081,
    table::{Function, functions},
};

/// Sequences of a seed; each is some hundred calls.
const RUNS: &str = "60";

/// The folder of the older release, and what its headers do not declare.
const OLDER: &str = "sequences-b081";
const LATER: [&str; 4] =
    ["urma_get_rjetty 0", "urma_put_rjetty 0", "urma_get_seg_ctx 0", "urma_put_seg_ctx 0"];

/// Folders of sources and of the table.
fn includes(prefix: &Prefix, name: &str) -> [String; 2] {
    let folder = scratch(name);
    let rows: String = functions(prefix).iter().map(Function::row).collect();
    fs::write(folder.join("rows.h"), rows).expect("a table");
    [folder, root().join("liburma/tests/c")].map(|folder| format!("-I{}", folder.display()))
}

fn source() -> PathBuf {
    root().join("tests/c/programs/fuzz_calls.c")
}

/// Runs seeds of the bounded program: nothing fails, and every function was called.
fn run(prefix: &Prefix, name: &str, more: &[&str]) {
    let include = includes(prefix, name);
    let lib = format!("-L{}", prefix.lib().display());
    let flags = ["-std=gnu11", "-Wno-pedantic", "-ldl", &lib];
    let beside = ["-Wl,--no-as-needed", "-ltpsa", "-lurma_common", &include[0], &include[1]];
    let all = [&flags[..], &beside[..], more].concat();
    let program = GCC.build(prefix, &source(), &all);
    let seeds = std::env::var("URMA_C_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for seed in 1..=seeds {
        let (seed, quiet) = (u32::to_string(&seed), [("ASAN_OPTIONS", "detect_leaks=0")]);
        let said = finish(&command(&program, &[&seed, RUNS], &quiet));
        // Shown by `--nocapture`: how often each function was called.
        let _ = writeln!(std::io::stdout(), "seed {seed}: {}", said.out);
        let (calls, counts) = said.out.trim_end().rsplit_once('\n').expect("lines");
        let is_known = |line: &&str| LATER.contains(line) && name == OLDER;
        let never = calls.lines().filter(|line| line.ends_with(" 0") && !is_known(line));
        let never: Vec<_> = never.collect();
        assert!(never.is_empty(), "seed {seed} never calls {never:?}");
        // What reaches nothing finds nothing.
        let numbers = counts.split([' ', ',']).filter_map(|word| word.parse::<u32>().ok());
        let numbers: Vec<u32> = numbers.collect();
        let is_reached = numbers.len() == 3 && numbers.iter().all(|number| *number >= 20);
        assert!(is_reached, "seed {seed}: {counts}");
    }
}

#[test]
fn random_sequences_of_calls() {
    run(&INSTALLED, "sequences", &["-fsanitize=address"]);
}

/// Without the sanitizer, whose allocator does not survive it, children are forked too.
#[test]
fn random_sequences_of_calls_with_forks() {
    run(&INSTALLED, "sequences-forks", &[]);
}

#[test]
fn random_sequences_of_calls_in_release_25_12_0_b081() {
    run(&B081, OLDER, &["-fsanitize=address"]);
}

/// Coverage counters that libFuzzer reads, and AddressSanitizer, in all of the Rust code.
const FLAGS: [&str; 8] = [
    "-Zsanitizer=address",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions",
    "-Coverflow-checks",
];

/// The library as an archive, compiled for the fuzzer. The pinned compiler takes these flags only
/// when `RUSTC_BOOTSTRAP` allows it; with a target named they are not build scripts' too.
fn archive() -> PathBuf {
    let target = urma_c_tests::built().join("c-tests-fuzz");
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["rustc", "--quiet", "--release", "-p", "liburma", "--lib"]);
    command.args(["--crate-type", "staticlib", "--target", &host]).current_dir(root());
    command.env("RUSTFLAGS", FLAGS.join(" ")).env("RUSTC_BOOTSTRAP", "1");
    let built = command.env("CARGO_TARGET_DIR", &target).output().expect("cargo starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    target.join(host).join("release/libliburma.a")
}

fn has_fuzzer(folder: &Path) -> bool {
    let empty = folder.join("empty.c");
    let body = "int LLVMFuzzerTestOneInput(const char *d, long n);\n\
                int LLVMFuzzerTestOneInput(const char *d, long n) { return d == 0 && n != 0; }\n";
    fs::write(&empty, body).expect("a source");
    let mut clang = Command::new("clang");
    clang.args(["-fsanitize=fuzzer,address", "-o"]).arg(folder.join("empty")).arg(&empty);
    clang.output().is_ok_and(|output| output.status.success())
}

/// `cargo xtask fuzz` runs this, for `URMA_C_FUZZ_SECONDS`.
#[test]
#[ignore = "takes minutes; cargo xtask fuzz runs it"]
fn calls_under_libfuzzer() {
    let include = includes(&INSTALLED, "libfuzzer");
    let folder = urma_c_tests::built().join("c-tests/libfuzzer");
    let needed = "clang with libFuzzer and AddressSanitizer is needed: apt-get install clang (and \
                  libclang-rt-dev where that is a package of its own)";
    assert!(has_fuzzer(&folder), "{needed}");
    let archive = archive().to_string_lossy().into_owned();
    let whole = ["-Wl,--whole-archive", &archive, "-Wl,--no-whole-archive", "-rdynamic"];
    let flags = ["-std=gnu11", "-Wno-pedantic", "-DLIBFUZZER", "-fsanitize=fuzzer,address", "-lm"];
    let all = [&flags[..], &whole[..], &["-lrt", "-ldl", &include[0], &include[1]]].concat();
    let program = CLANG.build_alone(&INSTALLED, &source(), &all);
    let seconds = std::env::var("URMA_C_FUZZ_SECONDS").unwrap_or_else(|_| "60".to_owned());
    // What was found to be new is kept, for the next run.
    let corpus = urma_c_tests::built().join("c-tests-corpus");
    fs::create_dir_all(&corpus).expect("a folder");
    let mut command = Command::new(program);
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", folder.display()));
    command.args(["-max_len=3000", "-timeout=120", "-rss_limit_mb=3000"]).arg(corpus);
    let ran = command.env("ASAN_OPTIONS", "detect_leaks=0").output().expect("the fuzzer starts");
    let said = String::from_utf8_lossy(&ran.stderr);
    let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with("urma: ")).collect();
    let end = lines[lines.len().saturating_sub(60)..].join("\n");
    println!("{}", lines.last().unwrap_or(&""));
    assert!(ran.status.success(), "{end}");
}
