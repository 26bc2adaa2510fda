//! Bounded proofs: no input of so many cycles breaks a property of the packet engine.
//!
//! *Owns*: sizes of the engines, the commands of yosys and its ABC. *Takes*: a folder of designs. *Gives*: one
//! check per scheme, and one that the rule of the memory is needed. *Must not*: say more than its cycles.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::design::{self, Scheme};
use crate::{
    say::Failure,
    step::{RunningStep, StepResult},
};

/// Beginning of the names of these checks.
pub(super) const PREFIX: &str = "proof";
/// Cycles of the proofs in `test`.
pub(super) const CYCLES: u32 = 9;
/// Cycles in which an engine with too little memory stops.
const STOP_CYCLES: u32 = 12;
/// Seconds that one proof may take.
const SECONDS: u32 = 3600;
/// What ABC prints where no input breaks a property, and where one does.
const HOLDS: &str = "No output asserted in";
const BREAKS: &str = "was asserted in frame";

/// An engine of 4-byte beats with MTUs of 8 and 16 bytes.
#[derive(Clone, Copy, Debug)]
struct SmallEngine {
    scheme: Scheme,
    /// Beats of data memory.
    depth: u32,
    /// Bytes of the longest message.
    longest: u32,
    /// Cycles without progress that are a stop.
    still: u32,
}

/// Two entries and one cycle of hand-over; schemes 1 and 2 hold each message.
const ENGINES: [SmallEngine; 3] = [
    SmallEngine { scheme: Scheme::Fifo, depth: 4, longest: 20, still: 6 },
    SmallEngine { scheme: Scheme::Pingpong, depth: 4, longest: 8, still: 10 },
    SmallEngine { scheme: Scheme::Single, depth: 2, longest: 8, still: 10 },
];
/// One beat less than an MTU.
const TOO_SMALL: SmallEngine =
    SmallEngine { scheme: Scheme::Fifo, depth: 1, longest: 20, still: 6 };

/// The proofs of all schemes over `cycles` cycles, and the input that stops an engine without room for an MTU.
pub(super) fn check(step: &mut RunningStep, cycles: u32) -> Result<StepResult, Failure> {
    let (folder, work) = (design::folder(), design::fresh("proof")?);
    let mut commands = Vec::new();
    for engine in ENGINES {
        commands.push(engine.proof(&folder, &work, cycles)?);
    }
    let name = format!("{PREFIX}: memory of one beat less than an MTU stops");
    commands.push((name, TOO_SMALL.command(&folder, &work, STOP_CYCLES, BREAKS)?));
    Ok(step.checks(commands))
}

/// The proof of one scheme with the designs of `folder`.
pub(super) fn check_one(
    step: &mut RunningStep,
    scheme: Scheme,
    folder: &Path,
) -> Result<StepResult, Failure> {
    let engines = ENGINES.iter().filter(|engine| engine.scheme == scheme);
    let proofs: Result<Vec<_>, _> =
        engines.map(|engine| engine.proof(folder, folder, CYCLES)).collect();
    Ok(step.checks(proofs?))
}

impl SmallEngine {
    fn proof(&self, folder: &Path, work: &Path, cycles: u32) -> Result<(String, Command), Failure> {
        let name = format!("{PREFIX}, {}: {cycles} cycles", self.scheme.name());
        Ok((name, self.command(folder, work, cycles, HOLDS)?))
    }

    /// Makes the netlist and asks ABC; fails unless it prints `wanted`.
    fn command(
        &self,
        folder: &Path,
        work: &Path,
        cycles: u32,
        wanted: &str,
    ) -> Result<Command, Failure> {
        let Self { scheme, depth, longest, still } = *self;
        let net = work.join(format!("{}-{depth}.aig", scheme.name()));
        let script = format!(
            "chparam -set D {depth} -set LONGEST {longest} -set STILL {still} urma_proof; \
             hierarchy -check -top urma_proof; proc; flatten; memory_collect; memory_map; opt -full; \
             async2sync; dffunmap; setundef -undriven -anyseq; techmap; opt -fast; dffunmap; \
             abc -g AND -fast; opt_clean; write_aiger -zinit {}",
            net.display()
        );
        let ask = format!("read_aiger {}; fold; bmc3 -F {cycles} -T {SECONDS}", net.display());
        let mut sources: Vec<PathBuf> = design::sources(folder)?;
        sources.push(design::folder().join("test/urma_proof.sv"));
        let mut command = Command::new("sh");
        command.args(["-c", RUN, "sh", &script, &ask, wanted]);
        command.arg(format!("verilog -sv -formal -DENGINE={}", scheme.top())).args(sources);
        Ok(command)
    }
}

/// The netlist by yosys, then the answer of ABC, of which one line must be there.
const RUN: &str = r#"script=$1 ask=$2 wanted=$3 reader=$4; shift 4
yosys -q -f "$reader" -p "$script" "$@" || exit 1
out=$(yosys-abc -c "$ask" 2>&1); printf '%s\n' "$out"
printf '%s\n' "$out" | grep -q "$wanted""#;
