//! The packet engine in SystemVerilog: read by three tools, compared with golden vectors and models.
//!
//! *Owns*: the parts of the check and their order. *Takes*: installed tools. *Gives*: results by name.
//! *Must not*: take for passed what a missing tool left out.

use std::{env, path::Path, thread};

use clap::Args;

use crate::{
    child,
    say::{Failure, TaskResult, say},
    step::{RunningStep, StepResult, Steps},
};

mod cocotb;
mod design;
mod faults;
mod golden;
mod lockstep;
mod netlist;
mod proof;
use design::{Scheme, WIDTHS};
use lockstep::Lockstep;

/// What `cargo xtask rtl` does.
#[derive(Debug, Args)]
pub(crate) struct RtlPlan {
    /// Compare this many beats per scheme and width with the models, instead of all checks
    #[arg(long)]
    beats: Option<u64>,
    /// Prove the properties for this many cycles, instead of all checks
    #[arg(long, conflicts_with = "beats", value_parser = clap::value_parser!(u32).range(1..=1000))]
    cycles: Option<u32>,
    /// Run the test benches of cocotb, instead of all checks
    #[arg(long, conflicts_with_all = ["beats", "cycles"])]
    cocotb: bool,
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
    let lint = design::check(step).unwrap_or_else(|failure| StepResult::one("lint", Err(failure)));
    // Both use one processor most of the time.
    let (golden, planted) = thread::scope(|scope| {
        let golden = scope.spawn(vectors);
        let planted = planted(step);
        let panicked = |_| Err(Failure("the check of the golden vectors panicked".to_owned()));
        (golden.join().unwrap_or_else(panicked), planted)
    });
    let golden = golden.unwrap_or_else(|failure| StepResult::one("golden", Err(failure)));
    let planted = planted.unwrap_or_else(|failure| StepResult::one("faults", Err(failure)));
    let models = models(step).unwrap_or_else(|failure| StepResult::one("lock-step", Err(failure)));
    let benches = cocotb::check(step);
    let benches = benches.unwrap_or_else(|failure| StepResult::one("cocotb", Err(failure)));
    let proofs = proof::check(step, proof::CYCLES);
    let proofs = proofs.unwrap_or_else(|failure| StepResult::one("proof", Err(failure)));
    lint.plus(golden).plus(benches).plus(proofs).plus(planted).plus(models)
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
    if let Some(cycles) = plan.cycles {
        steps.step("bounded proofs", |step| {
            let found = proof::check(step, cycles);
            found.unwrap_or_else(|failure| StepResult::one("proof", Err(failure)))
        });
        return steps.end();
    }
    if plan.cocotb {
        steps.step("test benches of cocotb", |step| {
            let found = cocotb::check(step);
            found.unwrap_or_else(|failure| StepResult::one("cocotb", Err(failure)))
        });
        return steps.end();
    }
    steps.step("packet engine in SystemVerilog", found);
    let table = netlist::table();
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
    let missing = TOOLS.iter().find_map(|(tool, package)| child::tool(tool, package).err());
    let Some(Failure(why)) = missing else { return Ok(()) };
    if env::var_os("CI").is_some_and(|ci| ci == "true") {
        return Err(StepResult::one("tools", Err(Failure(why))));
    }
    let why = format!("packet engine in SystemVerilog: {why}");
    Err(StepResult { skipped: vec![why], ..StepResult::default() })
}

/// The golden vectors and wrong input on every scheme.
fn vectors() -> Result<StepResult, Failure> {
    let golden = golden::GoldenFile::read()?;
    let simulator = golden::Simulator::new(&design::folder(), design::fresh("golden")?)?;
    let checks = Scheme::ALL.iter().flat_map(|scheme| {
        let right = golden.check(&simulator, *scheme, "").into_iter();
        right.chain(golden::check(&simulator, *scheme, ""))
    });
    let checks = checks.map(|(name, result)| StepResult::one(&name, result));
    Ok(checks.fold(StepResult::default(), StepResult::plus))
}

/// The planted faults, each in a copy of the designs of its own.
fn planted(step: &mut RunningStep) -> Result<StepResult, Failure> {
    let golden = golden::GoldenFile::read()?;
    let mut found = StepResult::default();
    for fault in faults::read()? {
        let folder = design::fresh("fault")?;
        let sources = fault.plant(&folder)?;
        let checks = if fault.is_for(lockstep::PREFIX) {
            lockstep_checks(step, fault.scheme, &sources)?
        } else if fault.is_for(proof::PREFIX) {
            named(proof::check_one(step, fault.scheme, &sources)?)
        } else {
            let simulator = golden::Simulator::new(&sources, folder.clone())?;
            if fault.is_for(golden::PREFIX) {
                golden.check(&simulator, fault.scheme, &fault.check)
            } else {
                golden::check(&simulator, fault.scheme, &fault.check)
            }
        };
        let result = fault.is_found_by(&checks);
        found = found.plus(StepResult::one(&format!("planted: {}", fault.name), result));
    }
    Ok(found)
}

/// A lock-step with the designs of `folder`, as checks by name.
fn lockstep_checks(
    step: &mut RunningStep,
    scheme: Scheme,
    folder: &Path,
) -> Result<Vec<(String, TaskResult)>, Failure> {
    let run = Lockstep { scheme, width: 64, beats: FAULT_BEATS, seed: 1 };
    Ok(named(lockstep::check(step, &[run], folder, folder)?))
}

/// Results by the names of their checks.
fn named(StepResult { passed, failed, .. }: StepResult) -> Vec<(String, TaskResult)> {
    let bare = |name: &str| name.split_once(": ").map_or("", |(_, bare)| bare).to_owned();
    let passed = passed.iter().map(|name| (bare(name), Ok(())));
    let failed = failed.into_iter().map(|one| (bare(&one.name), Err(Failure(one.message))));
    passed.chain(failed).collect()
}
