//! The designs: where their source is, how each is named, what is built of one.
//!
//! Three tools read every top module in every width; a warning is an error.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde::Deserialize;

use crate::{
    cargo,
    say::Failure,
    step::{RunningStep, StepResult},
};

/// Where the designs are, from the workspace's folder.
pub(super) const FOLDER: &str = "lab/splice/rtl";
/// Bytes per beat that the designs are made for.
pub(super) const WIDTHS: [u32; 4] = [32, 64, 128, 256];

/// Scheme of the packet engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scheme {
    /// Data FIFO and sideband FIFO (scheme 3)
    Fifo,
    /// Two banks (scheme 1)
    Pingpong,
    /// One ring for two messages (scheme 2)
    Single,
}

impl Scheme {
    /// Every scheme, the default first.
    pub(super) const ALL: [Self; 3] = [Self::Fifo, Self::Pingpong, Self::Single];

    /// Its name in options, files and records.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Pingpong => "pingpong",
            Self::Single => "single",
        }
    }

    /// Name of its top module.
    pub(super) fn top(self) -> String {
        format!("urma_engine_{}", self.name())
    }
}

/// Parameters of a top module.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Parameters {
    /// Scheme of the top module.
    pub(super) scheme: Scheme,
    /// `W`: bytes per beat.
    pub(super) width: u32,
    /// `D`: beats of data memory.
    pub(super) depth: u32,
    /// `B`: entries of the sideband FIFO.
    pub(super) entries: u32,
    /// `H`: cycles of a hand-over.
    pub(super) hand: u32,
    /// `STOP`: 1 if a message beyond the memory stops the engine.
    pub(super) stop: u32,
}

impl Parameters {
    /// Names and values, in the order of the module's declaration.
    pub(super) const fn values(&self) -> [(&'static str, u32); 5] {
        let Self { width, depth, entries, hand, stop, .. } = *self;
        [("W", width), ("D", depth), ("B", entries), ("H", hand), ("STOP", stop)]
    }

    /// A name for files of this design.
    pub(super) fn name(&self) -> String {
        let numbers = self.values().map(|(name, value)| format!("{name}{value}"));
        format!("{}-{}", self.scheme.name(), numbers.join("-"))
    }
}

/// The folder of the sources.
pub(super) fn folder() -> PathBuf {
    cargo::root().join(FOLDER)
}

/// The synthesisable files of `folder`, sorted.
pub(super) fn sources(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let files = folder.read_dir().map_err(Failure::system("reading the folder of designs"))?;
    let mut paths: Vec<PathBuf> = files.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "sv"));
    paths.sort();
    Ok(paths)
}

/// The folder of what is built of the designs: `part` below the build folder.
pub(super) fn work(part: &str) -> Result<PathBuf, Failure> {
    let path = cargo::target_dir()?.join("xtask/rtl").join(part);
    fs::create_dir_all(&path).map_err(Failure::system("making a folder"))?;
    Ok(path)
}

/// As [`work`], which is emptied before.
pub(super) fn fresh(part: &str) -> Result<PathBuf, Failure> {
    let path = work(part)?;
    fs::remove_dir_all(&path).map_err(Failure::system("emptying a folder"))?;
    work(part)
}

/// Runs a command and fails if it prints anything.
const QUIET: &str = r#"out=$("$@" 2>&1) && [ -z "$out" ] || { printf '%s\n' "$out"; exit 1; }"#;

/// Reads every top module in every width by three tools.
pub(super) fn check(step: &mut RunningStep) -> Result<StepResult, Failure> {
    let files = sources(&folder())?;
    let mut commands = Vec::new();
    for (scheme, width) in Scheme::ALL.iter().flat_map(|scheme| WIDTHS.map(|width| (scheme, width)))
    {
        let named = |tool: &str| format!("{tool} reads {} of {width} bytes", scheme.name());
        commands.push((named("Verilator"), verilator(*scheme, width, &files)));
        commands.push((named("Icarus"), icarus(*scheme, width, &files)));
        commands.push((named("yosys"), yosys(*scheme, width, &files)));
    }
    Ok(step.checks(commands))
}

fn verilator(scheme: Scheme, width: u32, files: &[PathBuf]) -> Command {
    let mut command = quiet("verilator");
    command.args(["--lint-only", "-Wall", &format!("-GW={width}"), "--top-module", &scheme.top()]);
    command.args(files);
    command
}

fn icarus(scheme: Scheme, width: u32, files: &[PathBuf]) -> Command {
    let (top, parameter) = (scheme.top(), format!("-P{}.W={width}", scheme.top()));
    let mut command = quiet("iverilog");
    command.args(["-g2012", "-Wall", "-t", "null", "-s", &top, &parameter]).args(files);
    command
}

/// Reads, elaborates, finds latches and loops.
fn yosys(scheme: Scheme, width: u32, files: &[PathBuf]) -> Command {
    let top = scheme.top();
    let script = format!(
        "chparam -set W {width} {top}; hierarchy -check -top {top}; proc; select -assert-none t:$dlatch; \
         flatten; opt_clean; check -assert"
    );
    let mut command = quiet("yosys");
    command.args(["-q", "-f", "verilog -sv", "-p", &script]).args(files);
    command
}

fn quiet(tool: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", QUIET, "sh", tool]);
    command
}
