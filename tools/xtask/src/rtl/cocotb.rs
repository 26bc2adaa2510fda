//! The test benches in Python, run by cocotb on Icarus Verilog.
//!
//! *Owns*: where cocotb is looked for, the commands. *Gives*: one check per scheme, or why there is none.
//! *Must not*: install into the system's Python.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    design::{self, Parameters, Scheme},
    golden,
};
use crate::{
    cargo,
    say::Failure,
    step::{RunningStep, StepResult},
};

/// Version that is installed where there is none.
const VERSION: &str = "cocotb==2.1.0";
/// Beats of memory: a FIFO of 8 KiB, banks and a ring that hold the longest message of the golden file.
const DEPTHS: [(Scheme, u32); 3] =
    [(Scheme::Fifo, 128), (Scheme::Pingpong, 256), (Scheme::Single, 100)];
/// Runs the simulator; a test that failed does not change its exit code, so the last line of counts is read.
const RUN: &str = r#"out=$("$@" 2>&1); printf '%s\n' "$out"; printf '%s\n' "$out" | grep -q 'PASS=3 FAIL=0 SKIP=0'"#;

/// Runs all of them; skipped, with the reason, where cocotb is not there and cannot be had.
pub(super) fn check(step: &mut RunningStep) -> Result<StepResult, Failure> {
    let python = match python() {
        Ok(python) => python,
        Err(Failure(why)) => {
            let why = format!("test benches of cocotb: {why}");
            return Ok(StepResult { skipped: vec![why], ..StepResult::default() });
        }
    };
    let work = design::work("cocotb")?;
    let asked = |what: &[&str]| asked(&python, what, &work);
    let users = format!("{};{}", asked(&["--libpython"])?, asked(&["--pygpi-entry-point"])?);
    let binary = asked(&["--python-bin"])?;
    let library = asked(&["--lib-entry", "vpi", "icarus"])?;
    let mut commands = Vec::new();
    for (scheme, depth) in DEPTHS {
        let program = built(scheme, depth, &work)?;
        let mut command = Command::new("sh");
        command.args(["-c", RUN, "sh", "vvp", "-m", &library]).arg(&program).current_dir(&work);
        command.env("GPI_USERS", &users).env("PYGPI_PYTHON_BIN", &binary);
        command
            .env("PYTHONPATH", design::folder().join("test"))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("COCOTB_TEST_MODULES", "urma_cocotb").env("COCOTB_TOPLEVEL", scheme.top());
        command.env("COCOTB_RESULTS_FILE", work.join(format!("{}.xml", scheme.name())));
        command.env("TOPLEVEL_LANG", "verilog").env("URMA_SCHEME", scheme.name());
        command.env("URMA_GOLDEN", golden::path()).env("URMA_CASE", "five messages");
        commands.push((format!("cocotb, {}: three tests", scheme.name()), command));
    }
    Ok(step.checks(commands))
}

/// A Python that has cocotb: that of the path, or one of an environment below the build folder.
fn python() -> Result<PathBuf, Failure> {
    let has = |python: &Path| {
        let mut command = Command::new(python);
        command.args(["-c", "import cocotb"]).output().is_ok_and(|out| out.status.success())
    };
    let system = PathBuf::from("python3");
    if has(&system) {
        return Ok(system);
    }
    let folder = cargo::target_dir()?.join("xtask/rtl/python");
    let own = folder.join("bin/python3");
    if !has(&own) {
        // What became of it shows below: without a registry, nothing.
        let _ = Command::new("python3").args(["-m", "venv"]).arg(&folder).output();
        let _ = Command::new(&own).args(["-m", "pip", "install", "--quiet", VERSION]).output();
    }
    let why =
        format!("no Python has it: pip install {VERSION} (3.9 or later, with a shared library)");
    if has(&own) { Ok(own) } else { Err(Failure(why)) }
}

/// What cocotb says of itself.
fn asked(python: &Path, what: &[&str], work: &Path) -> Result<String, Failure> {
    let mut command = Command::new(python);
    command.args(["-m", "cocotb_tools.config"]).args(what);
    golden::of(command, work).map(|said| said.trim().to_owned())
}

fn built(scheme: Scheme, depth: u32, work: &Path) -> Result<PathBuf, Failure> {
    let parameters = Parameters { scheme, width: 64, depth, entries: 8, hand: 3, stop: 0 };
    let program = work.join(parameters.name()).with_extension("vvp");
    let top = scheme.top();
    let mut command = Command::new("iverilog");
    command.args(["-g2012", "-Wall", "-s", &top, "-o"]).arg(&program);
    command.args(parameters.values().map(|(name, value)| format!("-P{top}.{name}={value}")));
    command.args(design::sources(&design::folder())?);
    golden::of(command, work)?;
    Ok(program)
}
