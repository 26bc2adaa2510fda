//! `urma-lab cache`: its options and output.
//!
//! - owns: options, which files are read. takes: the command line. gives: cells as they end, files.
//! - must not: change a result.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use lab::cache::cell;
use lab::cache::grid::{self, CacheCell, CacheText, HandleKinds, NamedTrace};
use lab::cache::options::{GivenOptions, TIER_OPTIONS};
use lab::cache::{output, plot};
use lab::units::GridError;
use serde_json::json;
use urma_contexts::trace::TraceError;
use urma_contexts::trace::read::TraceFormat;
use urma_contexts::trace::synthetic::SyntheticTrace;

use crate::command::{SweepArgs, SweepEnd};

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
    #[arg(long, value_delimiter = ',')]
    file: Vec<PathBuf>,
    /// Format of the files: u32, csv, oracleGeneral.
    #[arg(long, default_value = "u32")]
    format: String,
    /// Policies: fifo, lru, clock, lfu, 2q, sieve, s3fifo, arc, lirs, wtinylfu, seed, ours, opt, opt-bypass. The last one, the
    /// bound, always runs.
    #[arg(
        long,
        value_delimiter = ',',
        allow_hyphen_values = true,
        default_value = "ours,s3fifo,lru,opt"
    )]
    policy: Vec<String>,
    /// Capacities: entries (2048), bytes (256K), or percent of the different handles (10%).
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "10%")]
    capacity: Vec<String>,
    /// Bytes of a slot, for capacities in bytes: 16, 32 or 64.
    #[arg(long, default_value_t = 32)]
    slot_bytes: u32,
    /// The seed's rule: counts are halved each time so many times the capacity were accessed; 0: never [default: 10].
    #[arg(long, value_delimiter = ',')]
    aging: Vec<u32>,
    /// The seed's rule: weight of recency [default: 0].
    #[arg(long, value_delimiter = ',')]
    alpha: Vec<u32>,
    /// The seed's rule: a full cache takes a handle at its miss of this number; 0: always [default: 0].
    #[arg(long, value_delimiter = ',')]
    admit: Vec<u32>,
    /// Run each trace through the tiers of the model as well: off, l3 (chip and host memory), l2 (with CXL memory between).
    #[arg(long, default_value = "off")]
    tiers: String,
    #[command(flatten)]
    tier_options: TierArgs,
    /// Seed of the synthetic traces instead of each one's own.
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
}

/// Options that act on the tiers, as many as the model has.
#[derive(Debug)]
struct TierArgs {
    given: GivenOptions,
}

impl Args for TierArgs {
    fn augment_args(command: Command) -> Command {
        TIER_OPTIONS.iter().fold(command, |command, option| {
            let arg = Arg::new(option.name)
                .long(option.name)
                .help(option.help())
                .help_heading("Options of --tiers l2 and l3, each a list")
                .action(ArgAction::Append)
                .value_delimiter(',')
                .allow_hyphen_values(true);
            command.arg(arg)
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for TierArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = TIER_OPTIONS.iter().filter_map(|option| {
            let texts = matches.get_many::<String>(option.name)?;
            Some((option, texts.cloned().collect()))
        });
        Ok(Self { given: given.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Runs the experiment `cache` and returns the exit code.
pub(crate) fn run(args: &CacheArgs) -> ExitCode {
    let opened = cells(args).and_then(|cells| {
        let running = args.sweep.open(cells.len() as u64, "cells")?;
        Ok((cells, running))
    });
    let (cells, mut running) = match opened {
        Ok(opened) => opened,
        Err(error) => return args.sweep.refuse(&error),
    };
    let (sweep, mut printer) = running.printer();
    printer.head(output::HEAD);
    let (mut results, mut printed) = (Vec::new(), 0);
    let done = cell::run(&cells, sweep, |at, result| {
        printer.run();
        results.push(result);
        // Rows of a trace at a capacity compare with one of them, the bound.
        let is_last = cells.get(at + 1).is_none_or(|next| !next.is_beside(&cells[at]));
        let group = if is_last { &results[printed..] } else { &[] };
        printed += group.len();
        let mut before: Option<&CacheCell> = None;
        for result in group {
            let hash = cell::hash(std::slice::from_ref(result));
            // What differs in the tiers alone is one row here.
            let is_new =
                before.replace(&result.cell).is_none_or(|before| !result.cell.is_replay_of(before));
            let row = if is_new { output::row(group, result) } else { String::new() };
            printer.cell(output::json_cell(group, result), &hash, &row);
        }
    });
    if let Err(error) = done {
        return args.sweep.refuse(&error);
    }
    running.end(|| {
        let hash = cell::hash(&results);
        let mut files = vec![("cells.csv".to_owned(), output::csv(&results))];
        files.extend(plot::of(&results)?.into_iter().map(|(name, svg)| (name + ".svg", svg)));
        let count = results.len();
        let json = json!({ "schema": "urma-lab/1", "kind": "grid", "cells": count, "hash": hash });
        let text = format!("{}hash {hash}", output::tier_table(&results));
        Ok(SweepEnd { files, json: Some(json), text })
    })
}

/// All cells: everything is checked and read before the first one runs.
fn cells(args: &CacheArgs) -> Result<Vec<CacheCell>, GridError> {
    let grid = CacheText {
        policies: args.policy.clone(),
        capacities: args.capacity.clone(),
        slot_bytes: args.slot_bytes,
        rule: [args.aging.clone(), args.alpha.clone(), args.admit.clone()],
        tiers: args.tiers.clone(),
        tier_options: args.tier_options.given.clone(),
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
    let metadata = std::fs::metadata(file).map_err(unreadable)?;
    if !metadata.is_file() {
        let want = "a regular file: what has no end cannot be a trace".to_owned();
        return Err(GridError { field: "file", value: name, want });
    }
    let bytes = metadata.len();
    let wrong = |error: TraceError| GridError {
        field: "file",
        value: format!("{name}: {} {}", error.field, error.value),
        want: error.want,
    };
    format.check_len(bytes).map_err(wrong)?;
    let free = free_memory();
    if bytes.saturating_mul(MEMORY_PER_BYTE) > free {
        let want = format!("at most {} bytes with the memory that is free", free / MEMORY_PER_BYTE);
        return Err(GridError { field: "file", value: format!("{name}: {bytes} bytes"), want });
    }
    let bytes = std::fs::read(file).map_err(unreadable)?;
    let trace = format.read(&bytes).map_err(wrong)?;
    Ok(NamedTrace::new(&name, trace, HandleKinds::Tokens))
}

/// Free memory in bytes as the kernel estimates it; without an estimate, no limit.
fn free_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024))
}
