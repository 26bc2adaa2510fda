//! The packet engine in SystemVerilog: read by three tools, compared with golden vectors and models.
//!
//! *Owns*: the parts of the check and their order. *Takes*: installed tools. *Gives*: results by name.
//! *Must not*: take for passed what a missing tool left out.

use std::env;

use clap::Args;

use crate::{
    say::{Failure, TaskResult, say},
    step::{RunningStep, StepResult, Steps},
    system,
};

mod area;
mod design;
mod faults;
mod golden;
mod lint;
mod lockstep;
mod netlist;
mod output;
mod stimulus;

/// What `cargo xtask rtl` does.
#[derive(Debug, Args)]
pub(crate) struct RtlPlan {}

/// Programs of the check, each with Debian's package.
const TOOLS: [(&str, &str); 3] =
    [("verilator", "verilator"), ("iverilog", "iverilog"), ("yosys", "yosys")];

/// The check of `cargo xtask test`.
pub(crate) fn found(step: &mut RunningStep) -> StepResult {
    if let Err(result) = tools() {
        return result;
    }
    let lint = lint::check(step).unwrap_or_else(|failure| StepResult::one("lint", Err(failure)));
    let golden = vectors().unwrap_or_else(|failure| StepResult::one("golden", Err(failure)));
    let planted = planted().unwrap_or_else(|failure| StepResult::one("faults", Err(failure)));
    lint.plus(golden).plus(planted)
}

/// The check by itself.
pub(crate) fn run(_: &RtlPlan) -> TaskResult {
    let mut steps = Steps::new("rtl", 1)?;
    steps.step("packet engine in SystemVerilog", found);
    let table = area::table();
    steps.end()?;
    say(&table?);
    Ok(())
}

/// Whether all tools are there. One that is missing and cannot be installed is a failure where
/// `CI=true`, else the whole check is skipped.
fn tools() -> Result<(), StepResult> {
    let missing = TOOLS.iter().find_map(|(tool, package)| system::tool(tool, package).err());
    let Some(Failure(why)) = missing else { return Ok(()) };
    if env::var_os("CI").is_some_and(|ci| ci == "true") {
        return Err(StepResult::one("tools", Err(Failure(why))));
    }
    let why = format!("packet engine in SystemVerilog: {why}");
    Err(StepResult { skipped: vec![why], ..StepResult::default() })
}

/// The golden vectors on every scheme.
fn vectors() -> Result<StepResult, Failure> {
    let golden = golden::Golden::read()?;
    let simulator = golden::Simulator::new(&design::folder(), design::fresh("golden")?)?;
    let checks = design::Scheme::ALL.iter().flat_map(|scheme| golden.check(&simulator, *scheme));
    let checks = checks.map(|(name, result)| StepResult::one(&name, result));
    Ok(checks.fold(StepResult::default(), StepResult::plus))
}

/// The planted faults that the golden vectors find.
fn planted() -> Result<StepResult, Failure> {
    let golden = golden::Golden::read()?;
    let mut found = StepResult::default();
    for fault in faults::read()?.iter().filter(|fault| fault.is_for(golden::PREFIX)) {
        let folder = design::fresh("fault")?;
        let simulator = golden::Simulator::new(&fault.plant(&folder)?, folder.clone())?;
        let result = fault.is_found_by(&golden.check(&simulator, fault.scheme));
        found = found.plus(StepResult::one(&format!("planted: {}", fault.name), result));
    }
    Ok(found)
}
