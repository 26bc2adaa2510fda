//! `urma-lab`: runs experiments.
//!
//! - owns: arguments, progress, files, exit code. takes: a grid. gives: results on stdout and in files.
//! - must not: change a result.
#![forbid(unsafe_code)]

mod splice_args;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use lab::wan::cell::{self, Seeds, run_grid};
use lab::wan::grid::{GridCell, GridError, GridText, STRATEGIES};
use lab::wan::path::JsonTrace;
use lab::wan::results::{self, CellResult};
use lab::{output, plot};
use serde_json::json;

/// Most seeds of a cell.
const SEEDS_MAX: u64 = 1_000_000;

/// Experiments on the code of the stack, in virtual time.
#[derive(Parser, Debug)]
#[command(name = "urma-lab", version)]
struct LabCli {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand, Debug)]
enum Experiment {
    /// Prints the names of all experiments.
    List,
    /// Loss recovery on long and lossy paths: every combination of the lists, times the seeds.
    Wan(Box<WanArgs>),
    /// Packet engines: how three designs join and cut messages, cycle by cycle.
    Splice(Box<splice_args::SpliceArgs>),
}

/// Lists are separated by commas.
#[derive(Args, Debug)]
struct WanArgs {
    /// Rates of the link.
    #[arg(long, value_delimiter = ',', default_value = "100G")]
    rate: Vec<String>,
    /// Round-trip times without queues.
    #[arg(long, value_delimiter = ',', default_value = "10ms")]
    rtt: Vec<String>,
    /// Loss models with their mean: none, iid:0.01, amazon:1%, google, microsoft, ge.
    #[arg(long, value_delimiter = ',', default_value = "iid:0.01")]
    loss: Vec<String>,
    /// Payload that all TPs together send: 200MB, 12bdp for that many bandwidth-delay products, or 100losses for so many
    /// packets that as many are lost in the mean.
    #[arg(long, value_delimiter = ',', default_value = "200MB")]
    size: Vec<String>,
    /// Numbers of TPs that share the link.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    tps: Vec<u32>,
    /// Strategies: gbn, irn, seed, ours.
    #[arg(long, value_delimiter = ',', default_value = "ours")]
    strategy: Vec<String>,
    /// How many seeds each cell runs.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// Seed of the first run.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Window of strategies without one of their own, in bandwidth-delay products.
    #[arg(long)]
    window_bdps: Option<f64>,
    /// Payload bytes of a packet.
    #[arg(long, default_value_t = 4096)]
    payload: u64,
    /// Header bytes of a packet on the wire.
    #[arg(long, default_value_t = 82)]
    overhead: u64,
    /// Part of acknowledgements, reports and tail marks that is lost.
    #[arg(long, default_value_t = 0.0)]
    feedback_loss: f64,
    /// Part of the data packets that is late.
    #[arg(long, default_value_t = 0.0)]
    late: f64,
    /// By up to how many packets they are late.
    #[arg(long, default_value_t = 64)]
    late_by: u64,
    /// Latency of a DMA read of the pool.
    #[arg(long, default_value = "1us")]
    dma_latency: String,
    /// Repair packets behind what is sent last (ours): for a loss that is known from earlier traffic of the path
    /// (known), for what this run measures (learnt), or none (off).
    #[arg(long, default_value = "known")]
    tail: String,
    /// DMA reads that may be under way.
    #[arg(long, default_value_t = 64)]
    dma_reads: usize,
    /// One of so many DMA reads of the pool has no answer and is made again after 50 us, up to four times; 0: each has one.
    #[arg(long, default_value_t = 0)]
    dma_silent: u64,
    /// Lines of lists that the NIC holds for all TPs together (ours).
    #[arg(long, default_value_t = 4096)]
    nic_lines: usize,
    /// Packets with a bit in an Adamap (seed).
    #[arg(long, default_value_t = 32)]
    adamap_bits: u8,
    /// First nodes of the list that the NIC holds (seed).
    #[arg(long, default_value_t = 3)]
    list_nodes: u8,
    /// Transmissions after which a run ends, finished or not.
    #[arg(long, default_value_t = 20_000_000)]
    budget: u64,
    /// Threads; all cores without it.
    #[arg(long)]
    workers: Option<usize>,
    /// Folder for cells.jsonl, cells.csv and plots.
    #[arg(long)]
    out: Option<PathBuf>,
    /// File for a line of JSON per event: packets sent and arrived, reports, acknowledgements. Of one cell and one seed.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// One JSON object per cell instead of a table.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match LabCli::parse().experiment {
        Experiment::List => say(
            &mut io::stdout(),
            "wan\tloss recovery on long and lossy paths\n\
             splice\tpacket engines, cycle by cycle",
        ),
        Experiment::Splice(args) => splice_args::splice(&args),
        Experiment::Wan(args) => wan(&args),
    }
}

fn wan(args: &WanArgs) -> ExitCode {
    let cells = match grid(args).cells().and_then(|cells| check_runs(args, cells)) {
        Ok(cells) => cells,
        Err(error) => return refuse(args, &error),
    };
    let results = match &args.trace {
        None => run_all(args, &cells),
        Some(file) => match run_traced(file, &cells[0], args.seed) {
            Ok(result) => vec![result],
            Err(error) => {
                let _ = writeln!(io::stderr(), "urma-lab: {}: {error}", file.display());
                return ExitCode::from(1);
            }
        },
    };
    let hash = results::hash(&results);
    if let Some(folder) = &args.out
        && let Err(error) = write_files(folder, &results, &hash)
    {
        let _ = writeln!(io::stderr(), "urma-lab: {}: {error}", folder.display());
        return ExitCode::from(1);
    }
    let text = if args.json { json_lines(&results, &hash) } else { table(&results, &hash) };
    say(&mut io::stdout(), &text)
}

/// Rules of seeds, workers and the trace.
fn check_runs(args: &WanArgs, cells: Vec<GridCell>) -> Result<Vec<GridCell>, GridError> {
    let error =
        |field, value: String, want: &str| Err(GridError { field, value, want: want.to_owned() });
    if !(1..=SEEDS_MAX).contains(&args.seeds) {
        return error("seeds", args.seeds.to_string(), "1 to 1000000");
    }
    if args.workers == Some(0) {
        return error("workers", "0".to_owned(), "at least 1");
    }
    if args.trace.is_some() && (cells.len() != 1 || args.seeds != 1) {
        let value = format!("{} cells, {} seeds", cells.len(), args.seeds);
        return error("trace", value, "one cell and --seeds 1");
    }
    Ok(cells)
}

fn run_all(args: &WanArgs, cells: &[GridCell]) -> Vec<CellResult> {
    let seeds = Seeds { first: args.seed, count: args.seeds };
    let bar = ProgressBar::new(cells.len() as u64 * args.seeds);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} runs, {eta} left") {
        bar.set_style(style);
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let results = run_grid(cells, seeds, args.workers.unwrap_or(cores), &|| bar.inc(1));
    bar.finish_and_clear();
    results
}

fn run_traced(file: &Path, cell: &GridCell, seed: u64) -> io::Result<CellResult> {
    let mut trace = JsonTrace::new(BufWriter::with_capacity(1 << 16, File::create(file)?));
    let result = cell::run_traced(cell, seed, &mut trace);
    trace.finish()?;
    Ok(result)
}

fn grid(args: &WanArgs) -> GridText {
    GridText {
        rates: args.rate.clone(),
        rtts: args.rtt.clone(),
        losses: args.loss.clone(),
        sizes: args.size.clone(),
        tps: args.tps.clone(),
        strategies: args.strategy.clone(),
        window_bdps: args.window_bdps,
        packet: (args.payload, args.overhead),
        feedback_loss: args.feedback_loss,
        late: (args.late, args.late_by),
        dma_latency: args.dma_latency.clone(),
        tail: args.tail.clone(),
        dma_reads: args.dma_reads,
        dma_silent: args.dma_silent,
        nic_lines: args.nic_lines,
        adamap: (args.adamap_bits, args.list_nodes),
        budget: args.budget,
    }
}

fn refuse(args: &WanArgs, error: &GridError) -> ExitCode {
    if args.json {
        let GridError { field, value, want } = error;
        let line = json!({ "kind": "error", "field": field, "value": value, "want": want });
        say(&mut io::stdout(), &line.to_string());
    }
    let _ = writeln!(io::stderr(), "urma-lab: {error}");
    ExitCode::from(2)
}

fn json_lines(results: &[CellResult], hash: &str) -> String {
    let mut lines: Vec<String> =
        results.iter().map(|result| output::json_cell(result).to_string()).collect();
    let cells = results.len();
    let last = json!({ "schema": "urma-lab/1", "kind": "grid", "cells": cells, "hash": hash });
    lines.push(last.to_string());
    lines.join("\n")
}

fn table(results: &[CellResult], hash: &str) -> String {
    let head = "strategy  Gb/s  RTT ms  loss            goodput/limit [95 %]      formula  FCT/bound  p99   extra  DMA/lost  M packets/s";
    let mut lines = vec![format!("model; {} strategies known", STRATEGIES.len()), head.to_owned()];
    for result in results {
        let (cell, metrics) = (&result.cell, &result.metrics);
        let number = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"))
        };
        let median = |summary: Option<lab::stats::Summary>| number(summary.map(|s| s.median));
        let goodput = metrics.goodput_over_limit.map_or_else(
            || "-".to_owned(),
            |s| format!("{:.4} [{:.4}, {:.4}]", s.median, s.lo, s.hi),
        );
        lines.push(format!(
            "{:8} {:>5} {:>7} {:15} {:25} {:>8.4} {:>9} {:>6} {:>6} {:>8} {:>8}",
            cell.strategy,
            cell.numbers.rate_bps / 1e9,
            cell.numbers.rtt_s * 1e3,
            cell.loss,
            goodput,
            result.formula,
            median(metrics.fct_over_bound),
            number(metrics.fct_over_bound.map(|s| s.p99)),
            median(metrics.extra_bytes_ratio),
            median(metrics.dma_ops_per_lost_packet),
            number(metrics.packets_per_second.map(|s| s.median / 1e6)),
        ));
    }
    lines.push(format!("hash {hash}"));
    lines.join("\n")
}

fn write_files(
    folder: &Path,
    results: &[CellResult],
    hash: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("cells.jsonl"), json_lines(results, hash) + "\n")?;
    std::fs::write(folder.join("cells.csv"), output::csv(results))?;
    for (name, svg) in plot::of(results)? {
        std::fs::write(folder.join(name + ".svg"), svg)?;
    }
    Ok(())
}

fn say(to: &mut dyn Write, text: &str) -> ExitCode {
    match writeln!(to, "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that left, such as `head`, is no failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(1),
    }
}
