//! What clients look for in an installed tree, and the order in which they call the library.
//!
//! *Takes*: `programs/clients.c`, projects for CMake that this file writes. *Gives*: what a client would meet.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use urma_c_tests::{GCC, Prefix, finish, root, scratch};

use crate::{INSTALLED, command, profiles::B081};

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
