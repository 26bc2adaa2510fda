//! Reading every top module in every width by three tools; a warning is an error.
//!
//! *Owns*: the commands. *Gives*: one check per tool, scheme and width.

use std::{path::PathBuf, process::Command};

use super::design::{self, Scheme, WIDTHS};
use crate::{
    say::Failure,
    step::{RunningStep, StepResult},
};

/// Runs a command and fails if it prints anything.
const QUIET: &str = r#"out=$("$@" 2>&1) && [ -z "$out" ] || { printf '%s\n' "$out"; exit 1; }"#;

/// Checks all of them.
pub(super) fn check(step: &mut RunningStep) -> Result<StepResult, Failure> {
    let files = design::sources(&design::folder())?;
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
