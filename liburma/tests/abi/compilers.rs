//! The C and C++ compilers of this machine, called as programs call them.
//!
//! *Owns*: flags, the folder for results. *Gives*: the outcome of a compilation.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::facts::{Release, here};

/// A compiler and the language that it is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compiler {
    /// Name of its program.
    pub(crate) program: &'static str,
    /// Its name of the standard.
    pub(crate) standard: &'static str,
    /// File name ending of the language.
    pub(crate) ending: &'static str,
}

const KNOWN: [Compiler; 4] = [
    Compiler { program: "gcc", standard: "-std=c11", ending: "c" },
    Compiler { program: "g++", standard: "-std=c++17", ending: "cpp" },
    Compiler { program: "clang", standard: "-std=c11", ending: "c" },
    Compiler { program: "clang++", standard: "-std=c++17", ending: "cpp" },
];

/// What compiles for aarch64, when it is installed.
pub(crate) fn for_aarch64() -> Option<Compiler> {
    let program = "aarch64-linux-gnu-gcc";
    let cross = Compiler { program, standard: "-std=c11", ending: "c" };
    cross.answers().then_some(cross)
}

/// Those that are installed; gcc and g++ are needed, clang is used when it is there.
pub(crate) fn installed() -> Vec<Compiler> {
    let found: Vec<Compiler> = KNOWN.into_iter().filter(|one| one.answers()).collect();
    let has = |name: &str| found.iter().any(|one| one.program == name);
    assert!(has("gcc") && has("g++"), "gcc and g++ are needed to check the headers");
    found
}

impl Compiler {
    fn answers(&self) -> bool {
        let version = Command::new(self.program).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    }

    /// Compiles `text` for a release, as strictly as the headers promise to be usable.
    pub(crate) fn compile(self, name: &str, text: &str, release: Release, more: &[&str]) -> Build {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let base = folder.join(format!("{name}-{}-{}", self.program, release.number));
        let source = base.with_extension(self.ending);
        std::fs::write(&source, text).expect("a file in the folder for tests");
        let target = base.with_extension("out");
        let mut command = Command::new(self.program);
        command.args([self.standard, "-Wall", "-Wextra", "-Werror", "-pedantic"]);
        command.arg(format!("-DURMA_ABI_PROFILE={}", release.number));
        command.arg("-I").arg(here("include")).arg("-I").arg(here("include/ub/umdk/urma"));
        command.arg("-o").arg(&target).arg(&source).args(more);
        Build { output: command.output().expect("the compiler starts"), target }
    }
}

/// What became of a compilation.
#[derive(Debug)]
pub(crate) struct Build {
    output: Output,
    /// The result, when there is one.
    pub(crate) target: PathBuf,
}

impl Build {
    /// Whether the compiler succeeded.
    pub(crate) fn is_good(&self) -> bool {
        self.output.status.success()
    }

    /// What the compiler said.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// The result of a compilation that must succeed.
    pub(crate) fn expect(&self, what: &str) -> &Path {
        assert!(self.is_good(), "{what}: {}", self.said());
        &self.target
    }
}
