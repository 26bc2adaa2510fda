//! `urma-lab node`: its options and output.
//!
//! - owns: options. takes: the command line. gives: runs as they end, files, a failure if a promise was broken.
//! - must not: change a result.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use lab::node::grid::{NodeCell, NodeCommon, NodeGrid};
use lab::node::results::{self, NodeResult};
use lab::node::{plot, run};
use lab::units::GridError;
use lab::wan::cell::Seeds;
use serde_json::json;
use ubcore_sim::{CongestionChoice, Strategy};

use crate::command::{SweepArgs, SweepEnd, complain};

/// Most seeds of a cell.
const SEEDS_MAX: u64 = 1_000_000;

/// Lists are separated by commas. Chances are of datagrams: 0.01 or 1%, at most 50%. Times have a unit: 250us, 10ms.
#[derive(Args, Debug)]
pub(crate) struct FabricArgs {
    /// Numbers of nodes, 2 to 16.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "3")]
    nodes: Vec<u32>,
    /// Hosts of the nodes: one each (own), one for two (pairs), or the same (one). Nodes of a host share memory, others a network.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "own")]
    hosts: Vec<String>,
    /// What requests do: write, read, send, add, or all of these.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "all")]
    mix: Vec<String>,
    /// Chances that the network loses a datagram.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "0")]
    loss: Vec<String>,
    /// Chances that a burst of losses begins.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "0")]
    burst: Vec<String>,
    /// Chances that a datagram comes twice.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "0")]
    duplicate: Vec<String>,
    /// Chances that a datagram is held back, so that others overtake it.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "0")]
    reorder: Vec<String>,
    /// Chances that a bit of a datagram flips.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "0")]
    corrupt: Vec<String>,
    /// One-way delays of the network, at most 1s.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "5us")]
    delay: Vec<String>,
    /// Loss recovery: knitting, seed, irn, selective-repeat, go-back-n.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = Strategy::default().name())]
    strategy: Vec<String>,
    /// Congestion control: delay, cubic, none.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = CongestionChoice::default().name())]
    congestion: Vec<String>,
    /// How often a node dies and comes back, 0 to 100.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "0")]
    restarts: Vec<u32>,
    /// Requests of each node, 1 to 1000000.
    #[arg(long, default_value_t = 200)]
    requests: u32,
    /// Requests of a node that may be under way, 1 to 256.
    #[arg(long, default_value_t = 16)]
    depth: u32,
    /// Most bytes of a request, 8 to 1048576; each has a length from 8 on.
    #[arg(long, default_value_t = 4096)]
    size: u32,
    /// Path MTU in bytes: a power of two, 256 to 8192.
    #[arg(long, default_value_t = 1024)]
    mtu: u32,
    /// Rate of each direction between two nodes, 1M to 1T; no limit without it.
    #[arg(long)]
    rate: Option<String>,
    /// Largest extra delay that keeps the order, at most 1s.
    #[arg(long, default_value = "0us")]
    jitter: String,
    /// Longest time that a datagram is held back, at most 1s.
    #[arg(long, default_value = "100us")]
    reorder_by: String,
    /// Mean length of a burst of losses in datagrams, 1 to 1000000.
    #[arg(long, default_value_t = 10)]
    burst_length: u32,
    /// Longest time that a node is dead.
    #[arg(long, default_value = "40ms")]
    down: String,
    /// Virtual time in which every request must end.
    #[arg(long, default_value = "600s")]
    bound: String,
    /// Seed of the first run.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds each cell runs, 1 to 1000000.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// File for the event log. Of one cell and one seed.
    #[arg(long)]
    log: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
}

/// Runs the experiment `node` and returns the exit code.
pub(crate) fn run(args: &FabricArgs) -> ExitCode {
    let opened = grid(args).cells().and_then(|cells| check_runs(args, cells)).and_then(|cells| {
        let runs = args.seeds * cells.len() as u64;
        Ok((args.sweep.open(runs, "runs")?, cells))
    });
    let (mut running, cells) = match opened {
        Ok(opened) => opened,
        Err(error) => return args.sweep.refuse(&error),
    };
    let (sweep, mut printer) = running.printer();
    printer.head(results::HEAD);
    let mut found = Vec::new();
    let each = |result: NodeResult| {
        printer.run();
        let hash = results::hash(std::slice::from_ref(&result));
        printer.cell(results::json_cell(&result), &hash, &results::row(&result));
        found.push(result);
    };
    let seeds = Seeds { first: args.seed, count: args.seeds };
    let done = match &args.log {
        None => results::run_cells(&cells, seeds, sweep, each),
        Some(path) => logged(&cells[0], args.seed, path).map(each),
    };
    if let Err(error) = done {
        return args.sweep.refuse(&error);
    }
    let code = running.end(|| {
        let hash = results::hash(&found);
        let mut files = vec![("cells.csv".to_owned(), results::csv(&found))];
        files.extend(plot::of(&found)?.into_iter().map(|(name, svg)| (name + ".svg", svg)));
        let count = found.len();
        let json = json!({ "schema": "urma-lab/1", "kind": "grid", "cells": count, "hash": hash });
        Ok(SweepEnd { files, json: Some(json), text: format!("hash {hash}") })
    });
    let broken = found.iter().filter(|result| result.run.broken.is_some());
    let broken: Vec<String> = broken.map(|result| result.seed.to_string()).collect();
    if broken.is_empty() {
        return code;
    }
    let runs = found.len();
    complain(&format!(
        "{} of {runs} runs broke a promise: seed {}",
        broken.len(),
        broken.join(", ")
    ));
    ExitCode::from(1)
}

/// Rules of seeds and the log.
fn check_runs(args: &FabricArgs, cells: Vec<NodeCell>) -> Result<Vec<NodeCell>, GridError> {
    let error =
        |field, value: String, want: &str| Err(GridError { field, value, want: want.to_owned() });
    if !(1..=SEEDS_MAX).contains(&args.seeds) {
        return error("seeds", args.seeds.to_string(), "1 to 1000000");
    }
    if args.log.is_some() && (cells.len() != 1 || args.seeds != 1 || args.sweep.is_divided()) {
        let value = format!("{} cells, {} seeds", cells.len(), args.seeds);
        return error("log", value, "one cell, --seeds 1, no --shard");
    }
    Ok(cells)
}

/// Runs one cell and writes its log.
fn logged(cell: &NodeCell, seed: u64, path: &Path) -> Result<NodeResult, GridError> {
    let cannot = |error: std::io::Error| GridError {
        field: "log",
        value: format!("{}: {error}", path.display()),
        want: "a file that can be written".to_owned(),
    };
    // Nothing runs for a file that cannot be written.
    fs::File::create(path).map_err(cannot)?;
    let (run, log) = run::run(cell, seed, usize::MAX);
    fs::write(path, log).map_err(cannot)?;
    Ok(NodeResult { cell: cell.clone(), seed, run })
}

fn grid(args: &FabricArgs) -> NodeGrid {
    NodeGrid {
        nodes: args.nodes.clone(),
        hosts: args.hosts.clone(),
        mixes: args.mix.clone(),
        losses: args.loss.clone(),
        bursts: args.burst.clone(),
        duplicates: args.duplicate.clone(),
        reorders: args.reorder.clone(),
        corrupts: args.corrupt.clone(),
        delays: args.delay.clone(),
        strategies: args.strategy.clone(),
        congestions: args.congestion.clone(),
        restarts: args.restarts.clone(),
        common: NodeCommon {
            burst_length: args.burst_length,
            reorder_by: args.reorder_by.clone(),
            jitter: args.jitter.clone(),
            rate: args.rate.clone(),
            requests: args.requests,
            depth: args.depth,
            size: args.size,
            mtu: args.mtu,
            down: args.down.clone(),
            bound: args.bound.clone(),
        },
    }
}
