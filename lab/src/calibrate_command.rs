//! `urma-lab calibrate`: what a packet costs this machine.
//!
//! - owns: options and output. takes: the command line. gives: a line for `urma-lab wan --cpu`.
//! - must not: measure by itself.

use std::process::ExitCode;

use clap::Args;
use lab::calibrate::{self, CalibratePlan};
use serde_json::json;

use crate::command::{complain, say};

/// Arguments of `urma-lab calibrate`.
#[derive(Args, Debug)]
pub(crate) struct CalibrateArgs {
    /// Payload bytes of a packet, a power of two.
    #[arg(long, default_value_t = 1024)]
    mtu: u32,
    /// Messages of 64 KiB of each flow.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    messages: u32,
    /// How often each flow is measured; the least time counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// A JSON object instead of the line.
    #[arg(long)]
    json: bool,
}

/// Measures this machine and returns the exit code.
pub(crate) fn run(args: &CalibrateArgs) -> ExitCode {
    let CalibrateArgs { mtu, messages, rounds, json } = *args;
    let plan = CalibratePlan { mtu: Some(mtu), messages, rounds };
    // Both are on the loopback of this host, at addresses of their own.
    let open = |_, cfg| urma::open_node(cfg).map_err(|error| error.to_string());
    match calibrate::measure(&plan, &open) {
        Ok(found) if json => say(&json!({
            "schema": "urma-lab/1",
            "kind": "calibration",
            "mtu": mtu,
            "payload_bytes": found.payload,
            "cpu": found.costs.to_string(),
        })
        .to_string()),
        Ok(found) => say(&found.costs.to_string()),
        Err(error) => {
            complain(&error.to_string());
            ExitCode::from(1)
        }
    }
}
