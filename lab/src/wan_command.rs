//! `urma-lab wan`: its options and output.
//!
//! - owns: options, columns. takes: the command line. gives: cells as they end, files.
//! - must not: change a result.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use lab::output;
use lab::units::GridError;
use lab::wan::cell::{self, Seeds, run_grid};
use lab::wan::grid::{GridCell, GridText, STRATEGIES};
use lab::wan::path::JsonTrace;
use lab::wan::plot;
use lab::wan::results::{self, CellResult};
use serde_json::json;

use crate::bottleneck_command::{self, BottleneckArgs, BottleneckPath};
use crate::command::{SweepArgs, SweepEnd};

/// Most seeds of a cell.
const SEEDS_MAX: u64 = 1_000_000;

/// Lists are separated by commas.
#[derive(Args, Debug)]
pub(crate) struct WanArgs {
    /// Rates of the link.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "100G")]
    rate: Vec<String>,
    /// Round-trip times without queues.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "10ms")]
    rtt: Vec<String>,
    /// Loss models with their mean: none, iid:0.01, amazon:1%, google, microsoft, ge.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "iid:0.01")]
    loss: Vec<String>,
    /// Payload that all TPs together send: 200MB, 12bdp for that many bandwidth-delay products, or 100losses for so many
    /// packets that as many are lost in the mean.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "200MB")]
    size: Vec<String>,
    /// Numbers of TPs that share the link.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "1")]
    tps: Vec<u32>,
    /// Strategies: gbn, irn, seed, ours.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "ours")]
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
    /// Window of all strategies in packets, instead.
    #[arg(long, conflicts_with = "window_bdps")]
    window_packets: Option<u32>,
    /// Congestion control of the senders: none, delay, cubic; with --flows a list. Without it none, with --flows delay.
    #[arg(long, value_delimiter = ',')]
    congestion: Vec<String>,
    /// Round trips before the first packet, as a TP takes to be opened.
    #[arg(long, default_value_t = 0.0)]
    setup: f64,
    /// Processor time of the ends: of a packet sent, what it costs more for each thousand packets on the path and when it goes
    /// again; of a packet received and what it costs more when it is kept behind a gap; of each packet that a repair packet covers; of a packet brought back for each
    /// of its group. `urma-lab calibrate` measures it.
    #[arg(
        long,
        value_name = "send=700ns,flight=50ns,again=5us,receive=600ns,kept=90ns,repair=40ns,repaired=40ns"
    )]
    cpu: Option<String>,
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
    /// Messages of a run: each begins when the one before has ended.
    #[arg(long, default_value_t = 1)]
    messages: u32,
    /// Repair packets behind what is sent last (ours): for the loss that this run measures (learnt), from a first estimate on
    /// (learnt:0.05); for the true one, which no sender knows (oracle); or none (off).
    #[arg(long, default_value = "learnt")]
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
    /// Packets with a bit in an Adamap, first nodes of the list that the NIC holds, how many of these are left when it reads
    /// further ones, entries of the table that it holds (seed).
    #[arg(long, default_value = "bits=32,list=3,watermark=2,table=2")]
    adamap: String,
    /// Transmissions after which a run ends, finished or not.
    #[arg(long, default_value_t = 20_000_000)]
    budget: u64,
    /// File for a line of JSON per event: packets sent and arrived, reports, acknowledgements. Of one cell and one seed.
    #[arg(long)]
    trace: Option<PathBuf>,
    #[command(flatten)]
    bottleneck: BottleneckArgs,
    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
}

/// Runs the experiment `wan` and returns the exit code.
pub(crate) fn run(args: &WanArgs) -> ExitCode {
    if !args.bottleneck.flows.is_empty() {
        return run_bottleneck(args);
    }
    let cells = grid(args).cells().and_then(|cells| check_runs(args, cells));
    let opened = cells.and_then(|cells| {
        let runs = args.seeds * cells.len() as u64;
        let trace = args.trace.as_deref().map(TraceFile::create).transpose()?;
        Ok((cells, args.sweep.open(runs, "runs")?, trace))
    });
    let (cells, mut running, trace) = match opened {
        Ok(opened) => opened,
        Err(error) => return args.sweep.refuse(&error),
    };
    let seeds = Seeds { first: args.seed, count: args.seeds };
    let bar = running.bar.clone();
    let (sweep, mut printer) = running.printer();
    printer.head(&head());
    let mut results = Vec::new();
    let each = |result: CellResult| {
        let hash = results::hash(std::slice::from_ref(&result));
        printer.cell(output::json_cell(&result), &hash, &row(&result));
        results.push(result);
    };
    let done = match trace {
        None => run_grid(&cells, seeds, sweep, || bar.inc(1), each),
        Some(trace) => trace.run(&cells[0], args.seed).map(each),
    };
    if let Err(error) = done {
        return args.sweep.refuse(&error);
    }
    running.end(|| {
        let hash = results::hash(&results);
        let mut files = vec![("cells.csv".to_owned(), output::csv(&results))];
        files.extend(plot::of(&results)?.into_iter().map(|(name, svg)| (name + ".svg", svg)));
        let count = results.len();
        let json = json!({ "schema": "urma-lab/1", "kind": "grid", "cells": count, "hash": hash });
        Ok(SweepEnd { files, json: Some(json), text: format!("hash {hash}") })
    })
}

fn run_bottleneck(args: &WanArgs) -> ExitCode {
    if let Err(error) = check_seeds(args) {
        return args.sweep.refuse(&error);
    }
    let path = BottleneckPath {
        rates: args.rate.clone(),
        rtts: args.rtt.clone(),
        losses: args.loss.clone(),
        strategies: args.strategy.clone(),
        congestions: args.congestion.clone(),
        packet: (args.payload, args.overhead),
        tail: args.tail.clone(),
        budget: args.budget,
        seeds: Seeds { first: args.seed, count: args.seeds },
    };
    bottleneck_command::run(&args.bottleneck, &path, &args.sweep)
}

fn check_seeds(args: &WanArgs) -> Result<(), GridError> {
    if (1..=SEEDS_MAX).contains(&args.seeds) {
        return Ok(());
    }
    let (value, want) = (args.seeds.to_string(), "1 to 1000000".to_owned());
    Err(GridError { field: "seeds", value, want })
}

/// Rules of seeds, workers and the trace.
fn check_runs(args: &WanArgs, cells: Vec<GridCell>) -> Result<Vec<GridCell>, GridError> {
    let error =
        |field, value: String, want: &str| Err(GridError { field, value, want: want.to_owned() });
    check_seeds(args)?;
    if args.trace.is_some() && (cells.len() != 1 || args.seeds != 1) {
        let value = format!("{} cells, {} seeds", cells.len(), args.seeds);
        return error("trace", value, "one cell and --seeds 1");
    }
    if args.trace.is_some() && args.sweep.is_divided() {
        return error("trace", "of a shard".to_owned(), "a whole sweep: it is of one run");
    }
    Ok(cells)
}

/// A file for the events of a run.
struct TraceFile<'a>(&'a Path, File);

impl<'a> TraceFile<'a> {
    fn create(path: &'a Path) -> Result<Self, GridError> {
        File::create(path).map(|file| Self(path, file)).map_err(|error| Self::cannot(path, &error))
    }

    /// Runs the one cell and writes each of its events.
    fn run(self, cell: &GridCell, seed: u64) -> Result<CellResult, GridError> {
        let Self(path, file) = self;
        let mut trace = JsonTrace::new(BufWriter::with_capacity(1 << 16, file));
        let result = cell::run_traced(cell, seed, &mut trace);
        trace.finish().map_err(|error| Self::cannot(path, &error))?;
        Ok(result)
    }

    fn cannot(path: &Path, error: &io::Error) -> GridError {
        let value = format!("{}: {error}", path.display());
        GridError { field: "trace", value, want: "a file that can be written".to_owned() }
    }
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
        window_packets: args.window_packets,
        setup: args.setup,
        congestion: match args.congestion.is_empty() {
            true => "none".to_owned(),
            false => args.congestion.join(","),
        },
        cpu: args.cpu.clone(),
        packet: (args.payload, args.overhead),
        feedback_loss: args.feedback_loss,
        late: (args.late, args.late_by),
        dma_latency: args.dma_latency.clone(),
        messages: args.messages,
        tail: args.tail.clone(),
        dma_reads: args.dma_reads,
        dma_silent: args.dma_silent,
        nic_lines: args.nic_lines,
        adamap: args.adamap.clone(),
        budget: args.budget,
    }
}

fn head() -> String {
    let head = "strategy  Gb/s  RTT ms  loss            goodput/limit [95 %]      formula  FCT/bound  p99  later   extra  DMA/lost  M packets/s";
    format!("model; {} strategies known\n{head}", STRATEGIES.len())
}

/// Row of the table.
fn row(result: &CellResult) -> String {
    let (cell, metrics) = (&result.cell, &result.metrics);
    let number =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
    let median = |summary: Option<lab::stats::Summary>| number(summary.map(|s| s.median));
    let goodput = metrics
        .goodput_over_limit
        .map_or_else(|| "-".to_owned(), |s| format!("{:.4} [{:.4}, {:.4}]", s.median, s.lo, s.hi));
    format!(
        "{:8} {:>5} {:>7} {:15} {:25} {:>8.4} {:>9} {:>6} {:>6} {:>6} {:>8} {:>8}",
        cell.strategy,
        cell.numbers.rate_bps / 1e9,
        cell.numbers.rtt_s * 1e3,
        cell.loss,
        goodput,
        result.formula,
        median(metrics.fct_over_bound),
        number(metrics.fct_over_bound.map(|s| s.p99)),
        median(metrics.later_fct_over_bound),
        median(metrics.extra_bytes_ratio),
        median(metrics.dma_ops_per_lost_packet),
        number(metrics.packets_per_second.map(|s| s.median / 1e6)),
    )
}
