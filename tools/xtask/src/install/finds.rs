//! What build systems of clients look for beside the libraries.
//!
//! *Owns*: the CMake package, libraries of hardware that clients look for by name. *Takes*: where the tree will lie.
//! *Gives*: texts, and empty libraries that the C compiler makes. *Must not*: build anything of the project.
//!
//! `liburma_ubagg`, `liburma-udma` and `libummu` are providers of hardware and what they need: the built-in provider
//! does without. Clients link the first for `urma_write_affinity`, and only look whether the others are there. All
//! three hand lookups on to `liburma.so.0`, as filters of the loader (`DT_FILTER`), which they need.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use super::Abi;
use crate::say::{Failure, TaskResult};

/// A library that stands for one of hardware.
pub(super) struct StandIn {
    /// The file that the loader looks for.
    pub(super) file: &'static str,
    /// The name that the linker looks for, where that is another one.
    pub(super) link: Option<&'static str>,
    /// What clients link from it; `liburma.so.0` has the function.
    functions: &'static [&'static str],
}

pub(super) const STAND_INS: [StandIn; 3] = [
    StandIn {
        file: "liburma_ubagg.so.0",
        link: Some("liburma_ubagg.so"),
        functions: &["urma_write_affinity"],
    },
    StandIn { file: "liburma-udma.so", link: None, functions: &[] },
    StandIn { file: "libummu.so.0", link: Some("libummu.so"), functions: &[] },
];

impl StandIn {
    /// Makes the library at `path`, which lies beside `liburma.so.0`.
    pub(super) fn make(&self, path: &Path) -> TaskResult {
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut command = Command::new(compiler);
        command.args(["-shared", "-nostdlib", "-x", "assembler", "-", "-o"]).arg(path);
        command.arg(format!("-Wl,-soname,{}", self.file));
        command.args(["-Wl,-F,liburma.so.0", "-Wl,--enable-new-dtags,-rpath,$ORIGIN"]);
        let beside = path.with_file_name("liburma.so.0");
        command.arg("-Wl,--no-as-needed").args(["-x", "none"]).arg(beside);
        let failed =
            Failure::system("the C compiler (cc, or CC), which makes libraries to look for");
        let mut child = command.stdin(Stdio::piped()).spawn().map_err(failed)?;
        let mut source = String::from(".text\n");
        for function in self.functions {
            source.push_str(&format!(
                ".globl {function}\n.type {function}, %function\n{function}:\n.long 0\n"
            ));
        }
        let input = child.stdin.take();
        let written = input.map(|mut input| input.write_all(source.as_bytes()));
        let status = child.wait().map_err(Failure::system("the C compiler"))?;
        if !status.success() || written.is_some_and(|written| written.is_err()) {
            return Err(Failure(format!("{}: the C compiler made none: {status}", path.display())));
        }
        Ok(())
    }
}

/// Libraries as CMake targets: name of the target, file, what it needs.
const TARGETS: [(&str, &str); 3] =
    [("urma_common", "liburma_common.so"), ("urma", "liburma.so"), ("tpsa", "libtpsa.so")];

/// Folder of the package below that of the libraries; `find_package` finds it as `urma` and as `URMA`.
pub(super) const CMAKE: &str = "cmake/urma";

/// `urma-config.cmake`. Paths follow from its own, so that the tree can be moved; `up` leads from its folder to
/// the prefix.
pub(super) fn cmake(lib: &str, abi: Abi) -> String {
    let up = "/..".repeat(Path::new(lib).join(CMAKE).components().count());
    let mut text = format!(
        "# The URMA C API, release {abi}: find_package(urma), then link urma::urma.\n\
         get_filename_component(URMA_PREFIX \"${{CMAKE_CURRENT_LIST_DIR}}{up}\" ABSOLUTE)\n\
         set(URMA_FOUND TRUE)\n\
         set(URMA_ABI \"{abi}\")\n\
         set(URMA_INCLUDE_DIR \"${{URMA_PREFIX}}/include\")\n\
         set(URMA_INCLUDE_DIRS \"${{URMA_PREFIX}}/include\" \"${{URMA_PREFIX}}/include/ub/umdk/urma\")\n\
         set(URMA_LIB_LOCATION \"${{URMA_PREFIX}}/{lib}\")\n\
         set(URMA_LIBRARY \"${{URMA_LIB_LOCATION}}/liburma.so\")\n\
         set(URMA_LIBRARIES \"${{URMA_LIBRARY}}\" \"${{URMA_LIB_LOCATION}}/liburma_common.so\")\n",
        abi = abi.name(),
    );
    for (target, file) in TARGETS {
        let needs = if target == "urma" { "urma::urma_common" } else { "" };
        text.push_str(&format!(
            "if(NOT TARGET urma::{target})\n  add_library(urma::{target} SHARED IMPORTED)\n  \
             set_target_properties(urma::{target} PROPERTIES\n    \
             IMPORTED_LOCATION \"${{URMA_LIB_LOCATION}}/{file}\"\n    \
             INTERFACE_INCLUDE_DIRECTORIES \"${{URMA_INCLUDE_DIRS}}\"\n    \
             INTERFACE_LINK_LIBRARIES \"{needs}\")\nendif()\n"
        ));
    }
    text
}

/// `urma-config-version.cmake`: any version up to this one.
pub(super) fn cmake_version() -> String {
    format!(
        "set(PACKAGE_VERSION \"{}\")\n\
         if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)\n  \
         set(PACKAGE_VERSION_COMPATIBLE FALSE)\nelse()\n  set(PACKAGE_VERSION_COMPATIBLE TRUE)\n  \
         if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)\n    \
         set(PACKAGE_VERSION_EXACT TRUE)\n  endif()\nendif()\n",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_finds_the_prefix_from_its_own_place() {
        let text = cmake("lib/x86_64-linux-gnu", Abi::B081);
        assert!(text.contains("${CMAKE_CURRENT_LIST_DIR}/../../../..\" ABSOLUTE"), "{text}");
        assert!(text.contains("set(URMA_ABI \"25.12.0.B081\")"), "{text}");
        assert!(cmake("lib", Abi::V2606).contains("LIST_DIR}/../../..\" ABSOLUTE"));
    }
}
