//! Arguments and output of `urma-lab splice`.
//!
//! - owns: its options, progress, files, exit code. takes: arguments. gives: results on stdout and in files.
//! - must not: change a result.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use indicatif::ProgressBar;
use lab::splice::cells::{SpliceGrid, SpliceResult, run_cells};
use lab::splice::{picture, results};
use lab::wan::grid::GridError;
use serde_json::json;

/// Lists are separated by commas.
#[derive(Args, Debug)]
pub(crate) struct SpliceArgs {
    /// Schemes: fifo, pingpong, single.
    #[arg(long, value_delimiter = ',', default_value = "fifo,pingpong,single")]
    scheme: Vec<String>,
    /// Mixes: rpc, or the length of every message in bytes such as 256 or 64K.
    #[arg(long, value_delimiter = ',', default_value = "rpc")]
    mix: Vec<String>,
    /// Bytes of a beat: 32, 64, 128, 256.
    #[arg(long, value_delimiter = ',', default_value = "64")]
    width: Vec<u32>,
    /// Data memory in bytes, of both banks together.
    #[arg(long, value_delimiter = ',', default_value = "8K,128K")]
    ram: Vec<String>,
    /// Cycles of a hand-over (pingpong, single).
    #[arg(long, value_delimiter = ',', default_value = "3")]
    handover: Vec<u32>,
    /// Parts of the beats that are late by a cycle.
    #[arg(long, value_delimiter = ',', default_value = "0")]
    bubble: Vec<f64>,
    /// Parts of the cycles in which the output takes nothing.
    #[arg(long, value_delimiter = ',', default_value = "0")]
    backpressure: Vec<f64>,
    /// Entries of the sideband FIFO (fifo).
    #[arg(long, value_delimiter = ',', default_value = "8")]
    entries: Vec<u32>,
    /// Path MTU in bytes.
    #[arg(long, default_value_t = 4096)]
    mtu: u32,
    /// Messages of a run.
    #[arg(long, default_value_t = 2000)]
    messages: usize,
    /// Seed of all draws.
    #[arg(long, default_value_t = 11)]
    seed: u64,
    /// What happens to a message that cannot fit: drop, or stop as the plain designs do.
    #[arg(long, default_value = "drop")]
    too_long: String,
    /// Reserve room when a read is issued, whose bytes come after so many cycles (fifo).
    #[arg(long)]
    reserve_issue: Option<u64>,
    /// Threads; all cores without it.
    #[arg(long)]
    workers: Option<usize>,
    /// Folder for cells.jsonl, cells.csv, cycles.txt and cycles.svg.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Print the first 200 cycles of every cell instead of a table.
    #[arg(long)]
    picture: bool,
    /// One JSON object per cell instead of a table.
    #[arg(long)]
    json: bool,
}

pub(crate) fn splice(args: &SpliceArgs) -> ExitCode {
    match run(args) {
        Ok(text) => crate::say(&mut io::stdout(), &text),
        Err(error) => {
            if args.json {
                let GridError { field, value, want } = &error;
                let line = json!({ "kind": "error", "field": field, "value": value, "want": want });
                crate::say(&mut io::stdout(), &line.to_string());
            }
            let _ = writeln!(io::stderr(), "urma-lab: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &SpliceArgs) -> Result<String, GridError> {
    if args.workers == Some(0) {
        let (value, want) = ("0".to_owned(), "at least 1".to_owned());
        return Err(GridError { field: "workers", value, want });
    }
    let cells = grid(args).cells()?;
    let bar = ProgressBar::new(cells.len() as u64);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let results = run_cells(&cells, args.workers.unwrap_or(cores), &|| bar.inc(1))?;
    bar.finish_and_clear();
    let shown = args.picture || args.out.is_some();
    let rows = if shown { picture::rows(&cells)? } else { Vec::new() };
    if let Some(folder) = &args.out {
        write_files(folder, &results, &rows).map_err(|error| GridError {
            field: "out",
            value: folder.display().to_string(),
            want: format!("a folder that can be written: {error}"),
        })?;
    }
    Ok(match (args.json, args.picture) {
        (true, _) => results::json_lines(&results),
        (false, true) => picture::text(&rows),
        (false, false) => results::table(&results),
    })
}

fn grid(args: &SpliceArgs) -> SpliceGrid {
    SpliceGrid {
        schemes: args.scheme.clone(),
        mixes: args.mix.clone(),
        widths: args.width.clone(),
        rams: args.ram.clone(),
        handovers: args.handover.clone(),
        bubbles: args.bubble.clone(),
        backpressures: args.backpressure.clone(),
        entries: args.entries.clone(),
        mtu: args.mtu,
        messages: args.messages,
        seed: args.seed,
        too_long: args.too_long.clone(),
        reserve_issue: args.reserve_issue,
    }
}

fn write_files(
    folder: &Path,
    results: &[SpliceResult],
    rows: &[picture::CycleRow],
) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("cells.jsonl"), results::json_lines(results) + "\n")?;
    std::fs::write(folder.join("cells.csv"), results::csv(results))?;
    std::fs::write(folder.join("cycles.txt"), picture::text(rows))?;
    std::fs::write(folder.join("cycles.svg"), picture::svg(rows))
}
