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

use design::{Scheme, WIDTHS};
use lockstep::Lockstep;

/// What `cargo xtask rtl` does.
#[derive(Debug, Args)]
pub(crate) struct RtlPlan {
    /// Compare this many beats per scheme and width with the models, instead of all checks
    #[arg(long)]
    beats: Option<u64>,
    /// Schemes of that run
    #[arg(long, value_enum, value_delimiter = ',')]
    scheme: Vec<Scheme>,
    /// Bytes per beat of that run: 32, 64, 128, 256
    #[arg(long, value_delimiter = ',', default_values_t = [64])]
    width: Vec<u32>,
    /// Seed of that run
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Beats of the lock-step in `test`, at 64 bytes per beat and at the other widths.
const BEATS: (u64, u64) = (1_000_000, 100_000);
/// Beats of the lock-step that must find a planted fault.
const FAULT_BEATS: u64 = 100_000;

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
    let models = models(step).unwrap_or_else(|failure| StepResult::one("lock-step", Err(failure)));
    lint.plus(golden).plus(planted).plus(models)
}

/// The check by itself with the table of costs, or a long run beside the models.
pub(crate) fn run(plan: &RtlPlan) -> TaskResult {
    let mut steps = Steps::new("rtl", 1)?;
    if let Some(beats) = plan.beats {
        let runs = plan.runs(beats)?;
        steps.step("lock-step with the models", |step| {
            let found = lockstep_found(step, &runs);
            found.unwrap_or_else(|failure| StepResult::one("lock-step", Err(failure)))
        });
        return steps.end();
    }
    steps.step("packet engine in SystemVerilog", found);
    let table = area::table();
    steps.end()?;
    say(&table?);
    Ok(())
}

impl RtlPlan {
    fn runs(&self, beats: u64) -> Result<Vec<Lockstep>, Failure> {
        if let Some(width) = self.width.iter().find(|width| !WIDTHS.contains(width)) {
            return Err(Failure(format!("--width {width}: want one of {WIDTHS:?}")));
        }
        let schemes = if self.scheme.is_empty() { &Scheme::ALL[..] } else { &self.scheme };
        let run = |scheme: &Scheme| {
            let (scheme, seed) = (*scheme, self.seed);
            self.width.iter().map(move |width| Lockstep { scheme, width: *width, beats, seed })
        };
        Ok(schemes.iter().flat_map(run).collect())
    }
}

/// The runs of `test` beside the models.
fn models(step: &mut RunningStep) -> Result<StepResult, Failure> {
    let run = |(scheme, width): (Scheme, u32)| {
        let beats = if width == 64 { BEATS.0 } else { BEATS.1 };
        Lockstep { scheme, width, beats, seed: 1 }
    };
    let all = Scheme::ALL.iter().flat_map(|scheme| WIDTHS.map(|width| (*scheme, width)));
    lockstep_found(step, &all.map(run).collect::<Vec<_>>())
}

fn lockstep_found(step: &mut RunningStep, runs: &[Lockstep]) -> Result<StepResult, Failure> {
    lockstep::check(step, runs, &design::folder(), &design::work("lockstep")?)
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
    let checks = Scheme::ALL.iter().flat_map(|scheme| golden.check(&simulator, *scheme));
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
