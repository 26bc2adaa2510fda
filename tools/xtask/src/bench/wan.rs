//! `cargo xtask bench-wan`: paths with delay and loss between two hosts, beside the model with the costs of this machine.
//!
//! *Owns*: what is built and started. *Takes*: paths and rounds. *Gives*: the table of the bench `wan` of `urma-net`.
//! *Must not*: measure by itself.

use std::process::Command;

use clap::Args;

use super::built;
use crate::cargo;
use crate::say::{Failure, TaskResult, say};

/// What a run of the bench does.
#[derive(Debug, Args)]
pub(crate) struct WanBenchPlan {
    /// Rounds of measurements, the best of which counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Round-trip times in microseconds, each without loss and with 1 %
    #[arg(long, value_delimiter = ',', default_values_t = [200, 2000, 10_000, 30_000, 100_000], value_parser = clap::value_parser!(u32).range(20..=1_000_000))]
    rtt_us: Vec<u32>,
    /// Messages of 64 KiB over each path
    #[arg(long, default_value_t = 6000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    messages: u32,
}

/// Measures this machine, both of each path, and prints one table.
pub(crate) fn run(plan: &WanBenchPlan) -> TaskResult {
    say("Building for release...");
    let bin = cargo::build_release(&["urma_perftest"])?;
    let rtts: Vec<String> = plan.rtt_us.iter().map(u32::to_string).collect();
    let mut command = Command::new(built("urma-net", "wan")?);
    command.arg(bin.join("urma_perftest")).arg(plan.rounds.to_string());
    command.arg(rtts.join(",")).arg(plan.messages.to_string());
    let status = command.status().map_err(Failure::system("starting the bench"))?;
    if status.success() { Ok(()) } else { Err(Failure("the bench wan failed".to_owned())) }
}
