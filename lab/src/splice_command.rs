//! `urma-lab splice`: its options and output.
//!
//! - owns: options. takes: the command line. gives: cells as they end, files.
//! - must not: change a result.

use std::process::ExitCode;

use clap::Args;
use lab::splice::cells::SpliceGrid;
use lab::splice::{picture, plot, results};

use crate::command::{SweepArgs, SweepEnd};

/// Lists are separated by commas.
#[derive(Args, Debug)]
pub(crate) struct SpliceArgs {
    /// Schemes: fifo, pingpong, single.
    #[arg(
        long,
        value_delimiter = ',',
        allow_hyphen_values = true,
        default_value = "fifo,pingpong,single"
    )]
    scheme: Vec<String>,
    /// Mixes: rpc, or the length of every message in bytes such as 256 or 64K.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "rpc")]
    mix: Vec<String>,
    /// Bytes of a beat: 32, 64, 128, 256.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "64")]
    width: Vec<u32>,
    /// Data memory in bytes, of both banks together.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "8K,128K")]
    ram: Vec<String>,
    /// Cycles of a hand-over (pingpong, single).
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "3")]
    handover: Vec<u32>,
    /// Parts of the beats that are late by a cycle.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "0")]
    bubble: Vec<f64>,
    /// Parts of the cycles in which the output takes nothing.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "0")]
    backpressure: Vec<f64>,
    /// Entries of the sideband FIFO (fifo).
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "8")]
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
    /// Print the first 200 cycles of every cell instead of a table.
    #[arg(long)]
    picture: bool,
    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
}

/// Runs the experiment `splice` and returns the exit code.
pub(crate) fn run(args: &SpliceArgs) -> ExitCode {
    let opened = grid(args).cells().and_then(|cells| {
        let is_shown = args.picture || args.sweep.has_folder();
        let rows = if is_shown { picture::rows(&cells)? } else { Vec::new() };
        Ok((args.sweep.open(cells.len() as u64, "cells")?, cells, rows))
    });
    let (mut running, cells, rows) = match opened {
        Ok(opened) => opened,
        Err(error) => return args.sweep.refuse(&error),
    };
    let (sweep, mut printer) = running.printer();
    if !args.picture {
        printer.head(results::HEAD);
    }
    let mut found = Vec::new();
    let done = results::run_cells(&cells, sweep, |result| {
        printer.run();
        let hash = results::hash(std::slice::from_ref(&result));
        let row = if args.picture { String::new() } else { results::row(&result) };
        printer.cell(results::json_cell(&result), &hash, &row);
        found.push(result);
    });
    if let Err(error) = done {
        return args.sweep.refuse(&error);
    }
    running.end(|| {
        let files = [
            ("cells.csv", results::csv(&found)),
            ("cycles.txt", picture::text(&rows)),
            ("cycles.svg", picture::svg(&rows)),
        ];
        let mut files = files.map(|(name, text)| (name.to_owned(), text)).to_vec();
        files.extend(plot::of(&found)?.into_iter().map(|(name, svg)| (name + ".svg", svg)));
        let text = if args.picture { picture::text(&rows) } else { String::new() };
        Ok(SweepEnd { files, json: None, text })
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
