//! Programs of the machine, and of this side.
//!
//! *Owns*: how they are built. *Gives*: their files.

use std::{path::PathBuf, process::Command};

use urma_vm::vfio::GuestProgram;

use crate::{
    cargo,
    say::Failure,
    step::{RunningStep, StepResult},
    suite::{self, TestProgram},
};

/// Target of the program that is the machine's first process: named, so that macros are built without its flags.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Package and name of that program.
const GUEST: &str = "urma-guest";
/// Test programs that are needed, or whose build brings a program that is. As in the other steps, the whole workspace is
/// selected, so that what it shares is not built once more.
const TESTS: [&str; 7] =
    ["--workspace", "--test", "conformance", "--test", "daemon", "--test", "loopback"];

/// Files of the programs.
pub(super) struct VmPrograms {
    /// The machine's first process, a static program.
    pub(super) init: PathBuf,
    /// The server of the machine's NIC.
    pub(super) server: PathBuf,
    pub(super) perftest: PathBuf,
    /// Tests of the server.
    pub(super) daemon: TestProgram,
    conformance: TestProgram,
}

impl VmPrograms {
    /// Builds them. What fails is a result.
    pub(super) fn build(step: &mut RunningStep) -> Result<Self, StepResult> {
        let built = step.check("build of the first process", guest());
        if !built.failed.is_empty() {
            return Err(built);
        }
        let programs = suite::build(step, &TESTS)?;
        Self::of(programs)
            .map_err(|failure| StepResult::one("programs of the machine", Err(failure)))
    }

    fn of(programs: Vec<TestProgram>) -> Result<Self, Failure> {
        let target = cargo::target_dir()?;
        let programs = programs.into_iter();
        let test = |package: &str, name: &str| {
            let found = programs.clone().find(|program| program.is_of(&[(package, name)]));
            found.ok_or_else(|| {
                Failure(format!("the test program {name} of {package} was not built"))
            })
        };
        Ok(Self {
            init: target.join(TARGET).join("debug").join(GUEST),
            server: target.join("debug/ubcored"),
            perftest: target.join("debug/urma_perftest"),
            daemon: test("ubcored", "daemon")?,
            conformance: test("urma-tests", "conformance")?,
        })
    }

    /// Programs in the machine beside the first one.
    pub(super) fn inside(&self) -> [GuestProgram<'_>; 3] {
        [
            GuestProgram { file: self.conformance.file(), name: "conformance" },
            GuestProgram { file: self.daemon.file(), name: "daemon" },
            GuestProgram { file: &self.perftest, name: "urma_perftest" },
        ]
    }
}

fn guest() -> Command {
    let mut command = cargo::command(&["build", "-p", GUEST, "-F", "iommufd", "--target", TARGET]);
    command.env("RUSTFLAGS", "-C target-feature=+crt-static");
    command
}
