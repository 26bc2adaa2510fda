//! Compilers, called as users of the library call them.
//!
//! *Owns*: how strict the compilation is. *Takes*: a source, a prefix, more flags. *Gives*: programs.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::prefix::Prefix;

/// A compiler and the language that it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Compiler {
    program: &'static str,
    language: &'static [&'static str],
}

/// C11 compiled by gcc.
pub const GCC: Compiler = Compiler { program: "gcc", language: &["-std=c11"] };
/// C++17 compiled by g++.
pub const GXX: Compiler = Compiler { program: "g++", language: &["-x", "c++", "-std=c++17"] };
/// C11 compiled by clang.
pub const CLANG: Compiler = Compiler { program: "clang", language: &["-std=c11"] };

const STRICT: [&str; 6] = ["-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"];

impl Compiler {
    /// Compiles a program of one source against the shared library of `prefix`, which it will find.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    pub fn build(self, prefix: &Prefix, source: &Path, more: &[&str]) -> PathBuf {
        let rpath = format!("-Wl,-rpath,{}", prefix.lib().display());
        let mut libraries = prefix.flags(&["--libs"]);
        libraries.push(rpath);
        self.link(prefix, source, more, &libraries)
    }

    /// As [`Self::build`], against the archive.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    pub fn build_static(self, prefix: &Prefix, source: &Path) -> PathBuf {
        let all = prefix.flags(&["--libs", "--static"]);
        let archive = prefix.lib().join("liburma.a").to_string_lossy().into_owned();
        let with = |flag: String| if flag == "-lurma" { archive.clone() } else { flag };
        let libraries: Vec<String> = all.into_iter().map(with).collect();
        self.link(prefix, source, &[], &libraries)
    }

    /// Compiles a program that brings the library itself.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    pub fn build_alone(self, prefix: &Prefix, source: &Path, more: &[&str]) -> PathBuf {
        self.link(prefix, source, more, &[])
    }

    fn link(self, prefix: &Prefix, source: &Path, more: &[&str], libraries: &[String]) -> PathBuf {
        let name = source.file_stem().expect("a source has a name").to_string_lossy();
        // Tests run at once: each has its own.
        let thread = std::thread::current();
        let user = thread.name().unwrap_or("main").replace("::", "-");
        let target = prefix.path.join(format!("{name}-{}-{user}", self.program));
        let mut command = Command::new(self.program);
        command.args(self.language).args(STRICT).args(more).args(prefix.flags(&["--cflags"]));
        // `-x` ends before the libraries, which are not C++.
        command.arg(source).args(["-x", "none", "-lpthread"]).args(libraries);
        command.arg("-o").arg(&target);
        let failed = format!("{} is needed: cargo xtask test installs it", self.program);
        let output = command.output().expect(&failed);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", source.display());
        target
    }
}
