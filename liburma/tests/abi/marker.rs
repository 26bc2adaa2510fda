//! A program for one release on a library of another: the loader names it.
//!
//! *Owns*: two libraries of one function, programs in C and C++.

use std::{
    path::Path,
    process::{Command, Output},
};

use crate::{
    compilers::{Compiler, installed},
    facts::{RELEASES, Release},
};

const PROGRAM: &str = "#include <ub/umdk/urma/urma_api.h>\n\
    int main(void) { return urma_init(NULL) == URMA_SUCCESS ? 0 : 1; }\n";

/// Looks its functions up, as some clients do, and so needs no library to link.
const BY_NAME: &str = "#include <ub/umdk/urma/urma_api.h>\n\
    #include <dlfcn.h>\n\
    int main(int count, char **args) {\n\
        urma_status_t (*init)(urma_init_attr_t *) = NULL;\n\
        void *library = count > 1 ? dlopen(args[1], RTLD_NOW) : NULL;\n\
        if (library == NULL) { return 2; }\n\
        *(void **)&init = dlsym(library, \"urma_init\");\n\
        return init != NULL && init(NULL) == URMA_SUCCESS ? 0 : 1;\n\
    }\n";

/// What strips unreferenced sections must not strip the reference.
const SECTIONS: [&str; 4] = ["-O2", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"];

/// A library, for one test, with the plain name, and with the marker of its release.
fn library(user: &str, release: Release) -> std::path::PathBuf {
    let text = format!(
        "int {0}(void *conf);\nint urma_init(void *conf);\n\
         int {0}(void *conf) {{ return conf != 0; }}\nint urma_init(void *conf) {{ return {0}(conf); }}\n",
        release.marker
    );
    let flags = ["-shared", "-fPIC", "-Wl,-soname,liburma-marker-test.so.0"];
    let built = installed()[0].compile(&format!("library-{user}"), &text, release, &flags);
    let folder = built.target.with_extension("dir");
    std::fs::create_dir_all(&folder).expect("a folder");
    let place = folder.join("liburma-marker-test.so.0");
    std::fs::copy(built.expect("a library"), &place).expect("a copy");
    place
}

fn run(program: &Path, library: &Path, now: &str) -> Output {
    let mut command = Command::new(program);
    command.arg(library).env("LD_LIBRARY_PATH", library.parent().unwrap_or(library));
    command.env("LD_BIND_NOW", now).env("LC_ALL", "C");
    command.output().expect("the program starts")
}

fn built(compiler: Compiler, release: Release, library: &Path) -> std::path::PathBuf {
    let name = format!("marker-{}", release.number);
    let path = library.to_string_lossy();
    let flags: Vec<&str> = SECTIONS.into_iter().chain([&*path]).collect();
    compiler.compile(&name, PROGRAM, release, &flags).expect("a program").to_path_buf()
}

#[test]
fn the_loader_names_a_library_of_another_release() {
    let libraries = RELEASES.map(|release| library("named", release));
    for compiler in installed() {
        for (mine, other) in [(0, 1), (1, 0)] {
            let program = built(compiler, RELEASES[mine], &libraries[mine]);
            for now in ["", "1"] {
                assert!(run(&program, &libraries[mine], now).status.success());
                let stopped = run(&program, &libraries[other], now);
                let said = String::from_utf8_lossy(&stopped.stderr);
                assert!(
                    !stopped.status.success() && said.contains(RELEASES[mine].marker),
                    "{said}"
                );
            }
        }
    }
}

#[test]
fn programs_that_look_functions_up_are_not_bound() {
    let libraries = RELEASES.map(|release| library("looked-up", release));
    let compiler = installed()[0];
    let flags = ["-Wno-pedantic", "-ldl"];
    let build = compiler.compile("marker-by-name", BY_NAME, RELEASES[0], &flags);
    let program = build.expect("no library is linked");
    for library in &libraries {
        assert!(run(program, library, "").status.success());
    }
}

#[test]
fn the_plain_name_is_there_for_those_who_ask() {
    let libraries = RELEASES.map(|release| library("plain", release));
    let path = libraries[0].to_string_lossy();
    let flags = ["-DURMA_NO_ABI_MARKER", &*path];
    let build = installed()[0].compile("marker-plain", PROGRAM, RELEASES[0], &flags);
    assert!(run(build.expect("a program"), &libraries[1], "1").status.success());
}
