//! The examples: every compiler, same host and packets, sanitizer, valgrind, archive. What the guide says about
//! continuous integration, run as it is written.

use std::{fs, path::PathBuf, process::Command};

use urma_c_tests::{
    CLANG, Compiler, GCC, GXX, Prefix, built, finish, root, scratch, start, target,
};

use crate::{INSTALLED, command, example, releases::B081};

/// An example, and a line that it says when all is well.
const EXAMPLES: [(&str, &str); 5] = [
    ("write", "the other side now holds: written from afar"),
    ("read", ""),
    ("send_recv", "14 bytes"),
    ("atomics", "compared with 30, was 30, is 7"),
    ("events", "woken by: wake up"),
];

const PACKETS: (&str, &str) = ("URMA_PATH", "packets");

fn runs(tree: &Prefix, compiler: Compiler, more: &[&str], environment: &[(&str, &str)]) {
    for (name, says) in EXAMPLES {
        let built = compiler.build(tree, &example(name), more);
        let said = finish(&command(&built, &[], environment));
        assert!(said.out.contains(says), "{name}: {}", said.out);
    }
    let sample = compiler.build(tree, &example("sample"), more);
    let wrap = |args: &[&str]| command(&sample, args, environment);
    pair(&wrap, &["-m", "rm"]);
}

/// Server and client: what the client learns is what the server did.
fn pair(run: &dyn Fn(&[&str]) -> Command, args: &[&str]) {
    let mut server = start(&run(&[args, &["-p", "0"]].concat()));
    let line = server.line();
    let Some((_, port)) = line.trim().rsplit_once(' ') else {
        let said = server.end();
        panic!("the server says {line:?}, then {}\n{}", said.status, said.err);
    };
    let client = start(&run(&[args, &["-p", port, "-i", "127.0.0.1"]].concat())).end();
    let server = server.end();
    let all =
        format!("client {}: {}server {}: {}", client.status, client.err, server.status, server.err);
    assert!(client.status.success() && server.status.success(), "{all}");
    assert!(client.out.contains("wrote and read back: put here by the client"), "{}", client.out);
    assert!(client.out.contains("the server answers: an answer"), "{}", client.out);
    assert!(server.out.contains("the client asks: a question"), "{}", server.out);
}

fn every_way(environment: &[(&str, &str)]) {
    let sample = GCC.build(&INSTALLED, &example("sample"), &[]);
    let run = |args: &[&str]| command(&sample, args, environment);
    for mode in ["rm", "rc"] {
        pair(&run, &["-m", mode]);
        pair(&run, &["-m", mode, "-e"]);
    }
}

#[test]
fn gcc_on_one_host() {
    runs(&INSTALLED, GCC, &[], &[]);
}

#[test]
fn gcc_on_one_host_in_release_25_12_0_b081() {
    runs(&B081, GCC, &[], &[]);
}

#[test]
fn gxx_on_one_host() {
    runs(&INSTALLED, GXX, &[], &[]);
}

#[test]
fn clang_on_one_host() {
    runs(&INSTALLED, CLANG, &[], &[]);
}

#[test]
fn packets() {
    runs(&INSTALLED, GCC, &[], &[PACKETS]);
}

#[test]
fn sample_in_every_way_on_one_host() {
    every_way(&[]);
}

#[test]
fn sample_in_every_way_by_packets() {
    every_way(&[PACKETS]);
}

/// Leaks are looked for too: a program that gave everything back has none.
#[test]
fn address_sanitizer() {
    let flags = ["-fsanitize=address", "-fno-omit-frame-pointer"];
    runs(&INSTALLED, GCC, &flags, &[("ASAN_OPTIONS", "detect_stack_use_after_return=1")]);
}

fn valgrind(program: &PathBuf, args: &[&str]) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["-q", "--error-exitcode=9", "--leak-check=full"]);
    command.arg("--errors-for-leak-kinds=definite").arg(program).args(args);
    command
}

#[test]
fn memcheck() {
    for (name, says) in EXAMPLES {
        let built = GCC.build(&INSTALLED, &example(name), &[]);
        let said = finish(&valgrind(&built, &[]));
        assert!(said.out.contains(says) && !said.err.contains("=="), "{name}: {}", said.err);
    }
    let sample = GCC.build(&INSTALLED, &example("sample"), &[]);
    pair(&|args: &[&str]| valgrind(&sample, args), &["-m", "rc", "-e"]);
}

#[test]
fn archive() {
    let (name, says) = EXAMPLES[0];
    let built = GCC.build_static(&INSTALLED, &example(name));
    assert!(finish(&command(&built, &[], &[])).out.contains(says));
    let needs = Command::new("readelf").arg("-d").arg(&built).output().expect("readelf");
    assert!(!String::from_utf8_lossy(&needs.stdout).contains("liburma"), "the archive is in it");
}

const PAGE: &str = "docs/guide/c-programs.md";
const SECTION: &str = "## Use it in your CI\n";

/// The clone is this checkout: nothing else is different. A function, since a script that was just
/// written is busy while a test beside this one forks, and the shell would take the real git.
const GIT: &str = "git() {\n\
    test \"$1\" = clone || exit 2\n\
    for folder in \"$@\"; do :; done\n\
    ln -s \"$CHECKOUT\" \"$folder\"\n\
    }\n";

#[test]
fn use_it_in_your_ci() {
    let page = fs::read_to_string(root().join(PAGE)).expect("the guide");
    let (_, section) = page.split_once(SECTION).expect("the section");
    let (_, block) = section.split_once("```sh\n").expect("its shell block");
    let (block, _) = block.split_once("```").expect("the end of the block");
    let folder = scratch("documented");
    let mut shell = Command::new("sh");
    shell.args(["-euc", &format!("{GIT}cd \"$0\"; eval \"$1\"")]).arg(&folder).arg(block);
    shell.env("CHECKOUT", root());
    shell.env("CARGO_TARGET_DIR", built().join("c-tests-build"));
    // The program of the task is there already; what it builds is not.
    let task = format!("run --quiet --package xtask --target-dir {} --", target().display());
    shell.env("CARGO_ALIAS_XTASK", task);
    let said = finish(&shell);
    for line in ["the other side now holds: written from afar", "the server answers: an answer"] {
        assert!(said.out.contains(line), "{line}: {}{}", said.out, said.err);
    }
}
