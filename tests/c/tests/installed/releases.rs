//! Two releases of the C API: both install, both run, and the loader tells one from the other.
//!
//! Programs built with other headers choose by `URMA_ABI`. `programs/release.c` is right on a library of its own
//! release only.

use std::{fs, path::PathBuf, sync::LazyLock};

use urma_c_tests::{GCC, Prefix, Running, built, finish, root, scratch, start};

use crate::{INSTALLED, command, example};

/// As people write it, and as the headers number it.
const RELEASES: [(&str, &str); 2] = [("26.06", "2606"), ("25.12.0.B081", "2512")];

/// Release 26.06 first, as the command installs it.
pub(crate) static NEWER_FIRST: LazyLock<Prefix> = LazyLock::new(|| {
    let folder = built().to_string_lossy().into_owned();
    let options = ["--abi", "26.06", "--abi", "25.12.0.B081", "--built", &folder];
    install_with_b081("newer-first", &options, "--built-other")
});

/// Release 25.12.0.B081 first. The other is copied: cargo would have to build it once more.
static OLDER_FIRST: LazyLock<Prefix> = LazyLock::new(|| {
    let tree = install_b081("older-first");
    let folder = tree.lib().join("urma-abi/26.06");
    fs::create_dir_all(&folder).expect("a folder");
    let newer = INSTALLED.lib().join("liburma.so.0");
    fs::copy(newer, folder.join("liburma.so.0")).expect("a copy");
    tree
});

/// Built with headers of a release, without anything that names it.
fn program(tree: &Prefix, number: &str) -> PathBuf {
    program_with(tree, &[&format!("-DURMA_ABI_PROFILE={number}"), "-DURMA_NO_ABI_MARKER"])
}

fn program_with(tree: &Prefix, more: &[&str]) -> PathBuf {
    let include = format!("-I{}", root().join("examples/c").display());
    let source = root().join("tests/c/programs/release.c");
    GCC.build(tree, &source, &[&[&*include], more].concat())
}

fn run(program: &PathBuf, environment: &[(&str, &str)]) -> Running {
    start(&command(program, &[], environment))
}

/// `urma_init` answered so, and this was said about it.
fn is_refused(running: Running, answer: &str, parts: &[&str]) {
    let said = running.end();
    assert_eq!(said.status.code(), Some(3), "{}{}", said.out, said.err);
    assert!(said.out.contains(&format!("answers {answer} after 1 lines")), "{}", said.out);
    for part in parts {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
}

#[test]
fn either_library_serves_programs_of_both_releases() {
    for tree in [&*NEWER_FIRST, &*OLDER_FIRST] {
        for (name, number) in RELEASES {
            let said = run(&program(tree, number), &[("URMA_ABI", name)]).good();
            assert!(said.out.contains(&format!("right for release {number}")), "{}", said.out);
        }
    }
}

#[test]
fn a_program_on_the_other_release_goes_wrong() {
    // What the choice saves programs from: without it, or with the wrong one.
    let cases = [(&*NEWER_FIRST, RELEASES[1].1), (&*OLDER_FIRST, RELEASES[0].1)];
    for ((tree, number), (first, _)) in cases.into_iter().zip(RELEASES) {
        let program = program(tree, number);
        for environment in [&[][..], &[("URMA_ABI", first)]] {
            let said = run(&program, environment).end();
            assert!(!said.status.success() && said.err.contains("device attributes end"));
        }
    }
}

#[test]
fn an_unknown_release_is_refused() {
    for tree in [&*NEWER_FIRST, &*OLDER_FIRST] {
        let program = program(tree, RELEASES[0].1);
        let parts = ["URMA_ABI=24.12", "26.06", "25.12.0.B081"];
        is_refused(run(&program, &[("URMA_ABI", "24.12")]), "22", &parts);
    }
}

#[test]
fn a_library_that_is_not_there_is_refused_unless_its_folder_is_named() {
    let program = program(&INSTALLED, RELEASES[1].1);
    let wish = ("URMA_ABI", RELEASES[1].0);
    let beside = INSTALLED.lib().join("urma-abi/25.12.0.B081/liburma.so.0: no such file");
    let beside = beside.to_string_lossy().into_owned();
    is_refused(run(&program, &[wish]), "95", &[&beside, "URMA_ABI_PATH", wish.1, "26.06"]);
    let wrong = INSTALLED.lib().to_string_lossy().into_owned();
    let parts = ["lib/liburma.so.0: it is not of release 25.12.0.B081", &beside];
    is_refused(run(&program, &[wish, ("URMA_ABI_PATH", &wrong)]), "95", &parts);
    let right = format!("/nowhere:{wrong}:{}", OLDER_FIRST.lib().display());
    let said = run(&program, &[wish, ("URMA_ABI_PATH", &right)]).good();
    assert!(said.out.contains("right for release 2512"), "{}", said.out);
}

#[test]
fn a_library_of_another_version_is_refused() {
    let folder = scratch("lacking");
    let source = folder.join("lacking.c");
    fs::write(
        &source,
        "void urma_init_abi_25_12_0_b081(void);\nvoid urma_init_abi_25_12_0_b081(void) {}\n",
    )
    .expect("a source");
    let flags = ["-shared", "-fPIC", "-o"];
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(flags).arg(folder.join("liburma.so.0")).arg(&source);
    assert!(gcc.status().expect("gcc starts").success());
    let program = program(&INSTALLED, RELEASES[1].1);
    let path = folder.to_string_lossy().into_owned();
    let environment = [("URMA_ABI", RELEASES[1].0), ("URMA_ABI_PATH", &path)];
    is_refused(
        run(&program, &environment),
        "95",
        &["it lacks urma_init: it is of another version"],
    );
}

#[test]
fn functions_that_are_looked_up_are_those_of_the_chosen_release() {
    let source = root().join("tests/c/programs/lookup.c");
    let flags = ["-std=gnu11", "-Wno-pedantic", "-ldl"];
    let program = GCC.build(&NEWER_FIRST, &source, &flags);
    let library = NEWER_FIRST.lib().join("liburma.so.0").to_string_lossy().into_owned();
    for (release, len) in [("", 496), ("26.06", 496), ("25.12.0.B081", 488)] {
        let said = start(&command(&program, &[&library], &[("URMA_ABI", release)])).good();
        assert_eq!(said.out, format!("{len} bytes\n"), "{release}: {}", said.err);
    }
}

#[test]
fn a_program_with_the_marker_has_chosen() {
    for (tree, (_, number), (other, _)) in
        [(&*NEWER_FIRST, RELEASES[0], RELEASES[1]), (&*OLDER_FIRST, RELEASES[1], RELEASES[0])]
    {
        let said = run(&program_with(tree, &[]), &[("URMA_ABI", other)]).good();
        assert!(said.out.contains(&format!("right for release {number}")), "{}", said.out);
    }
}

#[test]
fn an_archive_serves_its_own_release() {
    let source = root().join("tests/c/programs/start.c");
    let program = GCC.build_static(&INSTALLED, &source);
    let said = run(&program, &[("URMA_ABI", "26.06")]).end();
    assert!(said.status.success(), "{}", said.err);
    let said = run(&program, &[("URMA_ABI", "25.12.0.B081")]).end();
    assert!(
        !said.status.success() && said.err.contains("is linked into the program"),
        "{}",
        said.err
    );
}

/// Installation of the ABI profile of release 25.12.0.B081.
pub(crate) static B081: LazyLock<Prefix> = LazyLock::new(|| install_b081("b081"));

/// Variable with the folder in which `cargo xtask test` built the libraries for 25.12.0.B081.
const BUILT_B081: &str = "URMA_BUILT_25_12_0_B081";

/// Installs release 25.12.0.B081 under a scratch prefix.
pub(crate) fn install_b081(name: &str) -> Prefix {
    install_with_b081(name, &["--abi", "25.12.0.B081"], "--built")
}

/// Installs libraries of releases with these options, 25.12.0.B081 among them: out of the folder that
/// the environment names, given as `option`, or else built by `install` itself, in a folder of its
/// own: the build that brought this test has the library of the other release.
pub(crate) fn install_with_b081(name: &str, options: &[&str], option: &str) -> Prefix {
    let built_before = std::env::var(BUILT_B081).ok();
    let of_before = built_before.iter().flat_map(|folder| [option, folder.as_str()]);
    let how = ["--parts", "libraries", "--profile", "dev"].into_iter().chain(of_before);
    let options: Vec<&str> = options.iter().copied().chain(how).collect();
    let target = built().join("c-tests-build");
    Prefix::install_with(name, &options, &[("CARGO_TARGET_DIR", &target)])
}

#[test]
fn each_release_runs_its_programs_and_names_those_of_the_other() {
    let trees = [(&*INSTALLED, "urma_init_abi_26_06"), (&*B081, "urma_init_abi_25_12_0_b081")];
    for (mine, other) in [(0, 1), (1, 0)] {
        let (prefix, marker) = trees[mine];
        let program = GCC.build(prefix, &example("send_recv"), &[]);
        let said = finish(&command(&program, &[], &[]));
        assert!(said.out.contains("immediate 42"), "{}", said.out);
        // The path of the environment comes after a RUNPATH, before an RPATH: bind to the other.
        let library = trees[other].0.lib().join("liburma.so.0");
        let path = library.to_string_lossy().into_owned();
        let stopped = start(&command(&program, &[], &[("LD_PRELOAD", &path)])).end();
        assert!(!stopped.status.success() && stopped.err.contains(marker), "{}", stopped.err);
    }
}
