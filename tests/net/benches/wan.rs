//! Ten paths between two hosts, as `urma_perftest` has them, beside the model of `urma-lab wan`, which is told what packets cost
//! this machine.
//!
//! *Owns*: hosts, rounds. *Gives*: a table of both, in MiB/s. *Must not*: fit anything to what it compares with.
//!
//! `cargo xtask bench-wan` runs it: `wan PERFTEST ROUNDS RTTS MESSAGES`, with round trips in microseconds and commas between
//! them. The best of the rounds counts, since other
//! processes only take time.
#![expect(clippy::print_stdout, reason = "a bench talks to its user")]

use std::error::Error;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use urma_net::{Host, Lab, LabPlan};

#[path = "../tests/wan/side.rs"]
mod side;

use side::{WanCell, probed};

/// Round trips between the begin of `urma_perftest` and the open TP: half of the last one of the handshake.
const ACCEPTED: f64 = 0.5;
/// Messages of the flows that are measured for the costs.
const CALIBRATED: u32 = 6000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let perftest = args.next().ok_or("the first argument is the path of urma_perftest")?;
    let mut next = |what| args.next().ok_or_else(|| format!("{what} is missing"));
    let rounds: u32 = next("the number of rounds")?.parse()?;
    let rtts = next("the list of round-trip times")?;
    let messages: u32 = next("the number of messages")?.parse()?;
    let mut cells = Vec::new();
    for rtt_us in rtts.split(',') {
        let rtt_us = rtt_us.parse()?;
        cells.extend([0, 1].map(|loss_percent| WanCell { rtt_us, loss_percent }));
    }
    let lab = Lab::new(LabPlan::cable(1500)).map_err(|refused| refused.to_string())?;
    let calibrated = side::calibrated(&lab, CALIBRATED, rounds)?;
    let mut wires_s = vec![f64::INFINITY; cells.len()];
    for _ in 0..rounds {
        for (cell, least) in cells.iter().zip(&mut wires_s) {
            *least = least.min(wire_s(&lab, *cell, (&perftest, messages))?);
        }
    }
    println!("--cpu {}", calibrated.costs);
    println!(
        "payload {}, {messages} messages of 64 KiB, best of {rounds} rounds",
        calibrated.payload
    );
    println!("rtt ms  loss  model MiB/s  wire MiB/s  model/wire");
    let mib = f64::from(messages) / 16.0;
    for (cell, wire_s) in cells.iter().zip(wires_s) {
        let model_s = side::model_s(
            (*cell, ACCEPTED + probed(*cell)),
            messages,
            calibrated.payload,
            calibrated.costs,
            "learnt",
        )?;
        println!(
            "{:>6}  {:>3}%  {:>11.0}  {:>10.0}  {:>10.3}",
            f64::from(cell.rtt_us) / 1000.0,
            cell.loss_percent,
            mib / model_s,
            mib / wire_s,
            wire_s / model_s
        );
    }
    Ok(())
}

/// Time of as many messages of 64 KiB by `urma_perftest`, in s.
fn wire_s(
    lab: &Lab,
    cell: WanCell,
    (perftest, messages): (&str, u32),
) -> Result<f64, Box<dyn Error>> {
    let count = messages.to_string();
    let command = |host: &Host| {
        let mut command = host.command(perftest);
        command.args(["write_bw", "-s", "65536", "-n", &count, "-T", "1024", "--json"]);
        command.env("URMA_LINK_FAULTS", cell.faults());
        command
    };
    let server = start(lab.host(1), command(lab.host(1)))?;
    let mut client = command(lab.host(0));
    client.args(["-S", &lab.host(1).address().to_string()]);
    let client = start(lab.host(0), client)?.wait_with_output()?;
    let server = server.wait_with_output()?;
    for output in [&client, &server] {
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("urma_perftest, {cell:?}: {said}").into());
        }
    }
    let document: Value = serde_json::from_slice(&client.stdout)?;
    let mib_s = document.pointer("/results/0/BW average[MB~1sec]").and_then(Value::as_f64);
    Ok(f64::from(messages) / 16.0 / mib_s.ok_or("urma_perftest names no bandwidth")?)
}

fn start(host: &Host, mut command: Command) -> Result<Child, Box<dyn Error>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(host.run(|| command.spawn())?)
}
