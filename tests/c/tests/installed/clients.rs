//! The installed tree as clients meet it: what they look for, the order in which they call the library, how they
//! end.
//!
//! Also the tree itself: what is in it, what is left after `uninstall`, the Debian package. Programs are in
//! `programs/clients.c`; this file writes the projects for CMake.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use urma_c_tests::{GCC, Prefix, finish, root, scratch, xtask};

use crate::{INSTALLED, command, releases::B081};

/// The name of the device that clients look for.
const BONDING: &str = "bonding_dev_0";

/// Runs the sequence of one client on every path: on the device that it looks for, on the bonding device by its name, and on
/// that which the EID of the node names.
fn is_served(tree: &Prefix, who: &str, paths: &[&str]) {
    let own = if matches!(who, "yuanrong" | "hcom") { BONDING } else { "udma0" };
    let ends = format!("-I{}", root().join("liburma/tests/c").display());
    let source = root().join("tests/c/programs/clients.c");
    let program = GCC.build(tree, &source, &["-std=gnu11", "-Wno-pedantic", &ends]);
    for path in paths {
        let environment = [("URMA_DEVICE_ALIAS", BONDING), ("URMA_PATH", path)];
        for (words, device) in [
            (&[who][..], own),
            (&[who, BONDING], BONDING),
            // As UBSocket chooses.
            (&[who, "eid"], BONDING),
        ] {
            let said = finish(&command(&program, words, &environment));
            let served = format!("{who} is served by {device}\n");
            assert_eq!(said.out, served, "{words:?}, {path}: {}", said.err);
        }
    }
}

#[test]
fn yuanrong_is_served() {
    is_served(&INSTALLED, "yuanrong", &["auto", "packets"]);
}

#[test]
fn hcom_is_served() {
    is_served(&INSTALLED, "hcom", &["auto", "packets"]);
}

#[test]
fn brpc_is_served() {
    is_served(&INSTALLED, "brpc", &["auto", "packets"]);
}

#[test]
fn tent_is_served() {
    is_served(&INSTALLED, "tent", &["auto", "packets"]);
}

/// The calls that UMDK's guide for programs of ibverbs puts in the places of theirs.
#[test]
fn a_program_that_was_one_of_verbs_is_served() {
    is_served(&INSTALLED, "verbs", &["auto", "packets"]);
}

#[test]
fn clients_are_served_in_release_25_12_0_b081() {
    for who in ["yuanrong", "hcom", "brpc", "tent", "verbs"] {
        is_served(&B081, who, &["auto"]);
    }
}

/// A library that `flags` link, from a source among the programs.
fn library(tree: &Prefix, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let target = scratch(name).join(format!("lib{name}.so"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-shared", "-fPIC", "-o"])
        .arg(&target)
        .arg(root().join("tests/c/programs").join(source));
    gcc.arg("-I").arg(tree.path.join("include/urma")).arg("-L").arg(tree.lib()).args(flags);
    gcc.arg(format!("-Wl,-rpath,{}", tree.lib().display()));
    let output = gcc.output().expect("gcc starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target
}

/// As `libumq` does: `liburma.so.0` needs `liburma_common.so.0`, which lies beside it.
#[test]
fn who_links_liburma_alone_finds_the_other_functions_through_it() {
    for tree in [&*INSTALLED, &*B081] {
        let part = library(tree, "alone.c", "alone", &["-DPART", "-lurma"]);
        let source = root().join("tests/c/programs/alone.c");
        let program =
            GCC.build_alone(&INSTALLED, &source, &["-std=gnu11", "-Wno-pedantic", "-ldl"]);
        let said = finish(&command(&program, &[&part.to_string_lossy()], &[]));
        assert_eq!(said.out, "found\n", "{}", said.err);
    }
}

/// The second release of a tree lies two folders below the libraries that both have.
#[test]
fn the_second_release_finds_what_it_needs_above() {
    let both = crate::releases::NEWER_FIRST.lib();
    let output = Command::new("ldd")
        .arg(both.join("urma-abi/25.12.0.B081/liburma.so.0"))
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .expect("ldd");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.contains("liburma_common.so.0 =>")).expect("a line");
    assert!(line.contains("liburma_common.so.0 => /") && !line.contains("not found"), "{text}");
}

/// A file of a project for CMake, and a program that says which kind of device it got.
const PROGRAM: &str = "#include <stdio.h>\n#include <ub/umdk/urma/urma_api.h>\n\
    #include <ub/umdk/urma/urma_ubagg.h>\n\
    int main(void)\n{\n    int count = 0;\n    if (urma_init(NULL) != URMA_SUCCESS) {\n        return 1;\n    }\n\
    \x20   urma_device_t **list = urma_get_device_list(&count);\n    printf(\"%s\\n\", list[0]->name);\n\
    \x20   urma_free_device_list(list);\n    USE;\n    return urma_uninit();\n}\n";

/// Configures, builds and runs a project; `None` where there is no CMake.
fn project(name: &str, lines: &str, defines: &[String]) -> Option<String> {
    if Command::new("cmake").arg("--version").output().is_err() {
        urma_skip::skip("no cmake");
        return None;
    }
    let folder = scratch(name);
    fs::write(folder.join("main.c"), PROGRAM).expect("a source");
    let text = format!("cmake_minimum_required(VERSION 3.13)\nproject(client C)\n{lines}\n");
    fs::write(folder.join("CMakeLists.txt"), text).expect("a project");
    let build = folder.join("build");
    let run = |command: &mut Command| {
        let output = command.output().expect("cmake starts");
        let said = [&output.stdout[..], &output.stderr].concat();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&said));
    };
    run(Command::new("cmake").arg("-S").arg(&folder).arg("-B").arg(&build).args(defines));
    run(Command::new("cmake").arg("--build").arg(&build));
    Some(finish(&command(&build.join("client"), &[], &[])).out)
}

fn define(name: &str, value: &Path) -> String {
    format!("-D{name}={}", value.display())
}

#[test]
fn cmake_finds_the_package_in_either_spelling() {
    for (name, lines) in [
        ("urma", "find_package(urma 0.1 CONFIG REQUIRED)"),
        (
            "URMA",
            "find_package(URMA REQUIRED)\nif(NOT URMA_FOUND)\n  message(FATAL_ERROR none)\nendif()",
        ),
    ] {
        let lines = format!(
            "{lines}\nadd_executable(client main.c)\ntarget_compile_definitions(client PRIVATE \"USE=(void)0\")\n\
             target_link_libraries(client PRIVATE urma::urma urma::tpsa)"
        );
        let prefix = [define("CMAKE_PREFIX_PATH", &INSTALLED.path)];
        let Some(out) = project(&format!("cmake-{name}"), &lines, &prefix) else { return };
        assert_eq!(out, "udma0\n");
    }
}

/// As clients with a module of their own look: header below `ub/umdk/urma`, three libraries by name, `libummu` by a
/// pattern of files; in the default places, and in one that they get alone.
#[test]
fn cmake_modules_of_clients_find_all_libraries() {
    let look = |how: &str| {
        format!(
            "find_path(INCLUDED ub/umdk/urma/urma_api.h {how})\n\
             find_library(PLAIN urma {how})\nfind_library(BONDING urma_ubagg {how})\n\
             find_library(HARDWARE urma-udma {how})\n\
             if(NOT INCLUDED OR NOT PLAIN OR NOT BONDING OR NOT HARDWARE)\n  \
             message(FATAL_ERROR \"missing: ${{INCLUDED}} ${{PLAIN}} ${{BONDING}} ${{HARDWARE}}\")\nendif()\n\
             get_filename_component(PLACE \"${{PLAIN}}\" DIRECTORY)\n\
             file(GLOB OTHERS \"${{PLACE}}/libummu.so*\" \"${{PLACE}}/libtpsa.so*\")\n\
             list(LENGTH OTHERS COUNT)\nif(COUNT LESS 4)\n  message(FATAL_ERROR \"${{OTHERS}}\")\nendif()\n\
             add_executable(client main.c)\ntarget_include_directories(client PRIVATE \"${{INCLUDED}}\")\n\
             target_compile_definitions(client PRIVATE \
             \"USE=if (urma_write_affinity(0, 0, 0, 0, 0, 0, 0, (urma_jfs_wr_flag_t){{0}}, 0, 0, 0) != URMA_EINVAL) return 3\")\n\
             target_link_libraries(client PRIVATE \"${{BONDING}}\" \"${{HARDWARE}}\" \"${{PLAIN}}\")"
        )
    };
    let prefix = [define("CMAKE_PREFIX_PATH", &INSTALLED.path)];
    let Some(out) = project("cmake-module", &look(""), &prefix) else { return };
    assert_eq!(out, "udma0\n");
    let places = [
        define("WHERE_INCLUDED", &INSTALLED.path.join("include")),
        define("WHERE_LIBRARIES", &INSTALLED.lib()),
    ];
    let how = "PATHS ${WHERE_INCLUDED} ${WHERE_LIBRARIES} NO_DEFAULT_PATH";
    assert_eq!(project("cmake-places", &look(how), &places).as_deref(), Some("udma0\n"));
}

/// The library for bonding devices hands its function on to the one that serves.
#[test]
fn the_library_for_bonding_devices_has_the_function_of_liburma() {
    let source = root().join("tests/c/programs/filter.c");
    let program = GCC.build_alone(&INSTALLED, &source, &["-std=gnu11", "-Wno-pedantic", "-ldl"]);
    let lib = INSTALLED.lib();
    let paths = ["liburma_ubagg.so.0", "liburma.so.0"].map(|file| lib.join(file));
    let paths = paths.map(|path| path.to_string_lossy().into_owned());
    let said = finish(&command(&program, &[&paths[0], &paths[1], "urma_write_affinity"], &[]));
    assert_eq!(said.out, "the same\n", "{}", said.err);
}

/// A transfer engine: one thread submits and spins, workers post and poll. More threads than many machines have
/// processors.
#[test]
fn a_transfer_engine_moves_batches_by_any_path_with_one_worker_and_with_three() {
    let source = root().join("tests/c/programs/batches.c");
    let include = format!("-I{}", root().join("examples/c").display());
    let built = GCC.build(&INSTALLED, &source, &[&include, "-pthread"]);
    for environment in [&[][..], &[("URMA_PATH", "packets")]] {
        for args in [["-w", "1"], ["-w", "3"]] {
            for direction in [&[][..], &["-r"]] {
                let said = finish(&command(
                    &built,
                    &[&args, direction, &["-n", "20"]].concat(),
                    environment,
                ));
                assert!(said.out.contains("GB/s"), "{}", said.out);
            }
        }
    }
}

/// `URMA_CR_ACK_TIMEOUT_ERR`: the peer is gone.
const GONE: &str = "status 9";
/// `URMA_CR_REM_OPERATION_ERR`: the jetty is gone.
const NO_TARGET: &str = "status 7";
/// The program ends after 50 ms; a peer that learns nothing of it waits for the timeout of its jetty, 17 s.
const AT_ONCE_MS: u64 = 8000;

/// Time in which the message of the peer had no end, which is one of `statuses`, and what the program said.
fn ends(how: &str, statuses: &[&str]) -> (u64, String) {
    let source = root().join("tests/c/programs/leaves.c");
    let built = GCC.build(&INSTALLED, &source, &[]);
    let said = finish(&command(&built, &[how], &[("URMA_PATH", "packets")])).out;
    let is_end = |line: &&str| statuses.iter().any(|status| line.starts_with(status));
    let line = said.lines().find(is_end);
    let time = line.and_then(|line| line.split(' ').nth(3)?.parse().ok());
    (time.unwrap_or_else(|| panic!("{how}: {said}")), said)
}

#[test]
fn peers_learn_at_once_of_a_program_that_ends_with_its_contexts() {
    for how in ["return", "exit"] {
        // A machine without a processor for it may let one word be lost, but not three.
        let mut times = (0..3).map(|_| ends(how, &[GONE]).0);
        assert!(times.any(|time| time < AT_ONCE_MS), "{how}");
    }
}

/// The program's own handlers come first, and find everything as it was. The jetty goes before its node: a try of the
/// message may arrive in between.
#[test]
fn a_handler_that_deletes_everything_goes_before() {
    let (time, said) = ends("handler", &[GONE, NO_TARGET]);
    assert!(said.contains("deleted") && time < AT_ONCE_MS, "{time} ms, {said}");
}

/// Nothing is sent after `urma_uninit`, nor where no handler runs: the peer finds out by its timers.
#[test]
fn a_program_that_says_nothing_is_found_by_the_timers() {
    for how in ["_exit", "uninit"] {
        let (time, _) = ends(how, &[GONE]);
        assert!(time >= AT_ONCE_MS, "{how}: {time} ms");
    }
}

/// What a tree has at least; the package has the libraries in a folder of their own.
const FILES: [&str; 22] = [
    "liburma.so.0",
    "liburma.so",
    "liburma.a",
    "liburma_common.so.0",
    "libtpsa.so.0",
    "pkgconfig/urma.pc",
    "cmake/urma/urma-config.cmake",
    "cmake/urma/urma-config-version.cmake",
    "liburma_ubagg.so.0",
    "liburma_ubagg.so",
    "liburma-udma.so",
    "libummu.so",
    "include/ub/umdk/urma/urma_api.h",
    "include/ub/umdk/urma/urma_types.h",
    "include/ub/umdk/urma/urma_opcode.h",
    "include/ub/umdk/urma/urma_provider.h",
    "include/ub/umdk/urma/urma_cmd.h",
    "include/ub/umdk/urma/urma_types_str.h",
    "include/ub/umdk/urma/urma_perf.h",
    "include/ub/umdk/urma/urma_ubagg.h",
    "include/ub/umdk/urma/uvs_api.h",
    "include/ub/umdk/urma/udma/udma_u_ctl.h",
];

fn below(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let one = |path: &Path| {
        if path.is_dir() { below(path) } else { vec![path.to_string_lossy().into_owned()] }
    };
    entries.flat_map(|entry| one(&entry.expect("an entry").path())).collect()
}

fn has_all(files: &[String]) {
    for wanted in FILES {
        assert!(files.iter().any(|file| file.ends_with(wanted)), "{wanted} is not in {files:#?}");
    }
}

#[test]
fn what_is_installed_goes_and_nothing_else() {
    let prefix = Prefix::install("goes", &[]);
    has_all(&below(&prefix.path));
    let own = prefix.lib().join("own.txt");
    fs::write(&own, "a user's file").expect("a file");
    let path = prefix.path.to_string_lossy().into_owned();
    let gone = xtask(&["uninstall", "--prefix", &path], &[]);
    assert!(gone.status.success(), "{}", String::from_utf8_lossy(&gone.stderr));
    assert_eq!(below(&prefix.path), [own.to_string_lossy()]);
    let entries: Vec<_> = fs::read_dir(&prefix.path).expect("a folder").flatten().collect();
    assert_eq!(entries.len(), 1, "empty folders are gone: {entries:?}");
    let again = xtask(&["uninstall", "--prefix", &path], &[]);
    assert!(!again.status.success(), "what is not installed cannot go");
}

#[test]
fn a_second_installation_takes_the_place_of_the_first() {
    let first = Prefix::install("twice", &[]);
    let path = first.path.to_string_lossy().into_owned();
    let manifest = first.path.join("share/urma/installed-files");
    let stale = first.path.join("lib/stale.txt");
    fs::write(&stale, "of an older release").expect("a file");
    let list = fs::read_to_string(&manifest).expect("a list");
    fs::write(&manifest, format!("{list}lib/stale.txt\n../outside.txt\n")).expect("a list");
    let outside = first.path.with_file_name("outside.txt");
    fs::write(&outside, "not ours").expect("a file");
    let built = urma_c_tests::built().to_string_lossy().into_owned();
    let again = ["install", "--prefix", &path, "--built", &built, "--parts", "libraries"];
    assert!(xtask(&again, &[]).status.success());
    assert!(!stale.exists() && outside.exists() && first.lib().join("liburma.so").exists());
}

#[test]
fn debian_package() {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        return urma_skip::skip("no dpkg-deb");
    }
    let built = urma_c_tests::built().to_string_lossy().into_owned();
    let made = xtask(&["deb", "--built", &built, "--parts", "libraries"], &[]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let text = String::from_utf8_lossy(&made.stdout).into_owned();
    let package = text.lines().find(|line| line.ends_with(".deb")).expect("its path is said");
    let said = |option: &str| {
        let output = Command::new("dpkg-deb").args([option, package]).output().expect("dpkg-deb");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // A link's line ends with what it points to.
    let names = |line: &str| line.split(" -> ").next().unwrap_or(line).to_owned();
    let files: Vec<String> = said("-c").lines().map(names).collect();
    has_all(&files);
    assert!(files.iter().all(|line| line.contains("root/root")), "owners: {files:#?}");
    let control = said("-f");
    assert!(
        control.contains("Package: urma\n") && control.contains("Conflicts: urma-25.12.0.b081")
    );
}
