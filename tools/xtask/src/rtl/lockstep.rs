//! The designs beside the Rust models, cycle by cycle.
//!
//! *Owns*: what is built by Verilator, which runs there are. *Takes*: the model's program. *Gives*: commands,
//! one check each. *Must not*: compare anything itself.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::design::{self, Parameters, Scheme};
use crate::{
    cargo,
    say::{Failure, TaskResult},
    step::{RunningStep, StepResult},
};

/// Beginning of the names of these checks.
pub(super) const PREFIX: &str = "lock-step";
/// The crate with the models.
const MODELS: &str = "urma-splice";
/// Its program that writes the records.
const MODEL: &str = "lockstep";
/// Messages of a hundred that have a wrong beat.
const WRONG: u64 = 5;
/// Only what runs in each cycle is worth the compiler's time.
const OPTIMISED: &str = "OPT_GLOBAL=-O0 OPT_SLOW=-O0 OPT_FAST=-O1";
/// Verilator's own objects, which are the same for every design.
const RUNTIME: [&str; 2] = ["verilated.o", "verilated_threads.o"];
/// Bytes of data memory of scheme 3, and of the others.
const MEMORY: [(Scheme, u32); 3] =
    [(Scheme::Fifo, 8 << 10), (Scheme::Pingpong, 128 << 10), (Scheme::Single, 128 << 10)];

/// One run of a design beside its model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lockstep {
    /// Scheme of the design.
    pub(super) scheme: Scheme,
    /// Bytes per beat of the design.
    pub(super) width: u32,
    /// Input beats to compare.
    pub(super) beats: u64,
    /// Seed of the draws.
    pub(super) seed: u64,
}

impl Lockstep {
    /// Name of the check.
    pub(super) fn name(&self) -> String {
        format!("{PREFIX}, {}: {} beats of {} bytes", self.scheme.name(), self.beats, self.width)
    }

    fn parameters(&self) -> Parameters {
        let memory = MEMORY.into_iter().find(|(of, _)| *of == self.scheme);
        let depth = memory.map_or(8 << 10, |(_, bytes)| bytes) / self.width;
        let Self { scheme, width, .. } = *self;
        Parameters { scheme, width, depth, entries: 8, hand: 3, stop: 0 }
    }

    /// The command that builds the design of `sources` below `work`.
    fn build(&self, sources: &[PathBuf], work: &Path) -> Command {
        let mut command = Command::new("verilator");
        command.args(["--cc", "--exe", "--build", "-O3", "--prefix", "Vengine", "-j", "1"]);
        command.args(["--top-module", &self.scheme.top(), "-CFLAGS"]);
        command.arg(format!("-DW={}", self.width)).arg("--Mdir").arg(self.folder(work));
        command.args(["-MAKEFLAGS", OPTIMISED]);
        command.args(self.parameters().values().map(|(name, value)| format!("-G{name}={value}")));
        command.arg(design::folder().join("test/urma_lockstep.cpp")).args(sources);
        command
    }

    fn folder(&self, work: &Path) -> PathBuf {
        work.join(self.parameters().name())
    }

    /// The command that runs it beside `model`.
    fn run(&self, model: &Path, work: &Path) -> Command {
        let Parameters { depth, entries, hand, .. } = self.parameters();
        let mut arguments = vec!["--scheme".to_owned(), self.scheme.name().to_owned()];
        let numbers = [
            ("--width", u64::from(self.width)),
            ("--depth", u64::from(depth)),
            ("--entries", u64::from(entries)),
            ("--handover", u64::from(hand)),
            ("--mtu-log2-max", 13),
            ("--wrong", WRONG),
            ("--beats", self.beats),
            ("--seed", self.seed),
        ];
        for (name, value) in numbers {
            arguments.extend([name.to_owned(), value.to_string()]);
        }
        let mut command = Command::new("sh");
        command.args(["-c", r#"model=$1 design=$2 beats=$3; shift 3; "$model" "$@" | "$design" "$beats" "$model" "$@""#]);
        command.arg("sh").arg(model).arg(self.folder(work).join("Vengine"));
        command.arg(self.beats.to_string()).args(arguments);
        command
    }
}

/// The model's program, built.
pub(super) fn model() -> Result<PathBuf, Failure> {
    cargo::run(&["build", "--release", "--quiet", "-p", MODELS, "--example", MODEL])?;
    Ok(cargo::target_dir()?.join("release/examples").join(MODEL))
}

/// Builds and runs all of `runs`, with the designs of `folder`, below `work`.
pub(super) fn check(
    step: &mut RunningStep,
    runs: &[Lockstep],
    folder: &Path,
    work: &Path,
) -> Result<StepResult, Failure> {
    let (model, sources) = (model()?, design::sources(folder)?);
    let build = |run: &Lockstep| (format!("build for {}", run.name()), run.build(&sources, work));
    let (first, others) = runs.split_at(1.min(runs.len()));
    let built = step.checks(first.iter().map(build).collect());
    for run in others {
        share_runtime(&first[0].folder(work), &run.folder(work))?;
    }
    let built = built.plus(step.checks(others.iter().map(build).collect()));
    if !built.failed.is_empty() {
        return Ok(built);
    }
    let run = |run: &Lockstep| (run.name(), run.run(&model, work));
    Ok(built.plus(step.checks(runs.iter().map(run).collect())))
}

/// Puts the objects of Verilator's runtime into the folder of another design, whose build then takes them: they
/// are most of what a build compiles.
fn share_runtime(from: &Path, to: &Path) -> TaskResult {
    fs::create_dir_all(to).map_err(Failure::system("making a folder"))?;
    for name in RUNTIME.iter().filter(|name| from.join(name).is_file()) {
        fs::copy(from.join(name), to.join(name)).map_err(Failure::system("copying an object"))?;
    }
    Ok(())
}
