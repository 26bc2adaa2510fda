//! `urma-lab cache`: arguments, files, progress.
//!
//! - owns: options, exit code. takes: the command line. gives: results on stdout and in a folder.
//! - must not: change a result.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use lab::cache::cell::{self, CacheResult};
use lab::cache::grid::{self, CacheCell, CacheText, NamedTrace};
use lab::cache::{output, plot};
use lab::wan::grid::GridError;
use serde_json::json;
use urma_contexts::policy::seed::SeedRule;
use urma_contexts::trace::read::TraceFormat;
use urma_contexts::trace::synthetic::SyntheticTrace;

/// Bytes of memory that a byte of a file of handles takes: the file, handles, numbers, next uses.
const MEMORY_PER_BYTE: u64 = 6;

/// Lists are separated by commas.
#[derive(Args, Debug)]
pub(crate) struct CacheArgs {
    /// Traces to generate: uniform10k, zipf0.99_10k, burst16_10k, 256active_pareto (all of them without --trace and --file),
    /// or a family such as phases, loop-zipf, drift (docs/nic-internals.md lists them).
    #[arg(long, value_delimiter = ',')]
    trace: Vec<String>,
    /// Trace files to read, each in the format that `--format` names.
    #[arg(long)]
    file: Vec<PathBuf>,
    /// Format of the files: u32, csv, oracleGeneral.
    #[arg(long, default_value = "u32")]
    format: String,
    /// Policies: fifo, lru, clock, lfu, 2q, sieve, s3fifo, arc, lirs, wtinylfu, seed, ours, opt, opt-bypass. The last one, the
    /// bound, always runs.
    #[arg(long, value_delimiter = ',', default_value = "ours,s3fifo,lru,opt")]
    policy: Vec<String>,
    /// Capacities: entries (2048), bytes (256K), or percent of the different handles (10%).
    #[arg(long, value_delimiter = ',', default_value = "10%")]
    capacity: Vec<String>,
    /// Bytes of a slot, for capacities in bytes: 16, 32 or 64.
    #[arg(long, default_value_t = 32)]
    slot_bytes: u32,
    /// The seed's rule: counts are halved each time so many times the capacity were accessed; 0: never.
    #[arg(long, default_value_t = 10)]
    aging: u32,
    /// The seed's rule: weight of recency.
    #[arg(long, default_value_t = 0)]
    alpha: u32,
    /// The seed's rule: a full cache takes a handle at its miss of this number; 0: always.
    #[arg(long, default_value_t = 0)]
    admit: u32,
    /// Run each trace through the tiers of the model as well: off, l3 (chip and host memory), l2 (with CXL memory between).
    #[arg(long, default_value = "off")]
    tiers: String,
    /// With the tiers: accesses that begin in a second at most.
    #[arg(long, default_value = "120M")]
    rate: String,
    /// With the tiers: accesses that may be under way.
    #[arg(long, default_value_t = 64)]
    window: usize,
    /// Seed of the synthetic traces instead of each one's own.
    #[arg(long)]
    seed: Option<u64>,
    /// Threads; all cores without it.
    #[arg(long)]
    workers: Option<usize>,
    /// Folder for cells.jsonl, cells.csv and plots.
    #[arg(long)]
    out: Option<PathBuf>,
    /// One JSON object per cell instead of a table.
    #[arg(long)]
    json: bool,
}

/// Runs the experiment `cache` and returns the exit code.
pub(crate) fn run(args: &CacheArgs) -> ExitCode {
    let results = match cells(args).and_then(|cells| run_cells(args, &cells)) {
        Ok(results) => results,
        Err(error) => return refuse(args, &error),
    };
    let hash = cell::hash(&results);
    if let Some(folder) = &args.out
        && let Err(error) = write_files(folder, &results, &hash)
    {
        let _ = writeln!(io::stderr(), "urma-lab: {}: {error}", folder.display());
        return ExitCode::from(1);
    }
    let text = if args.json { json_lines(&results, &hash) } else { output::table(&results, &hash) };
    crate::say(&mut io::stdout(), &text)
}

/// All cells: everything is checked and read before the first one runs.
fn cells(args: &CacheArgs) -> Result<Vec<CacheCell>, GridError> {
    let refused = |field, value: &str, want: &str| {
        Err(GridError { field, value: value.to_owned(), want: want.to_owned() })
    };
    if args.workers == Some(0) {
        return refused("workers", "0", "at least 1");
    }
    let grid = CacheText {
        policies: args.policy.clone(),
        capacities: args.capacity.clone(),
        slot_bytes: args.slot_bytes,
        rule: SeedRule { aging: args.aging, alpha: args.alpha, admit: args.admit },
        tiers: args.tiers.clone(),
        rate: args.rate.clone(),
        window: args.window,
    }
    .check()?;
    let format = grid::format(&args.format)?;
    let all = SyntheticTrace::ALL.map(|trace| trace.name().to_owned());
    let none = args.trace.is_empty() && args.file.is_empty();
    let mut traces = grid::generated(if none { &all } else { &args.trace }, args.seed)?;
    for file in &args.file {
        traces.push(Arc::new(read(file, format)?));
    }
    grid.cells(&traces)
}

/// A trace file; one that does not fit into memory is refused before it is read.
fn read(file: &Path, format: TraceFormat) -> Result<NamedTrace, GridError> {
    let name = file.display().to_string();
    let unreadable = |error: io::Error| GridError {
        field: "file",
        value: format!("{name}: {error}"),
        want: "a file that can be read".to_owned(),
    };
    let bytes = std::fs::metadata(file).map_err(unreadable)?.len();
    let free = free_memory();
    if bytes.saturating_mul(MEMORY_PER_BYTE) > free {
        let want = format!("at most {} bytes with the memory that is free", free / MEMORY_PER_BYTE);
        return Err(GridError { field: "file", value: format!("{name}: {bytes} bytes"), want });
    }
    let bytes = std::fs::read(file).map_err(unreadable)?;
    let trace = format.read(&bytes).map_err(|error| GridError {
        field: "file",
        value: format!("{name}: {} {}", error.field, error.value),
        want: error.want,
    })?;
    Ok(NamedTrace::new(&name, trace))
}

/// Free memory in bytes as the kernel estimates it; without an estimate, no limit.
fn free_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024))
}

fn run_cells(args: &CacheArgs, cells: &[CacheCell]) -> Result<Vec<CacheResult>, GridError> {
    let bar = ProgressBar::new(cells.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} cells, {eta} left") {
        bar.set_style(style);
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let results = cell::run(cells, args.workers.unwrap_or(cores), &|| bar.inc(1));
    bar.finish_and_clear();
    results.map_err(|error| GridError { field: error.field, value: error.value, want: error.want })
}

fn refuse(args: &CacheArgs, error: &GridError) -> ExitCode {
    if args.json {
        let GridError { field, value, want } = error;
        let line = json!({ "kind": "error", "field": field, "value": value, "want": want });
        crate::say(&mut io::stdout(), &line.to_string());
    }
    let _ = writeln!(io::stderr(), "urma-lab: {error}");
    ExitCode::from(2)
}

fn json_lines(results: &[CacheResult], hash: &str) -> String {
    let cells = results.iter().map(|result| output::json_cell(results, result).to_string());
    let mut lines: Vec<String> = cells.collect();
    let count = results.len();
    let last = json!({ "schema": "urma-lab/1", "kind": "grid", "cells": count, "hash": hash });
    lines.push(last.to_string());
    lines.join("\n")
}

fn write_files(
    folder: &Path,
    results: &[CacheResult],
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
