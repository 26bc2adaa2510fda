//! `urma-lab wan --flows`: options and output of flows that share a router's queue.
//!
//! - owns: options. takes: the command line. gives: cells as they end, files. must not: change a result.

use std::process::ExitCode;

use clap::Args;
use lab::units::GridError;
use lab::wan::bottleneck::grid::{BottleneckCell, BottleneckText};
use lab::wan::bottleneck::picture;
use lab::wan::bottleneck::results::{self, BottleneckResult, run_bottlenecks};
use lab::wan::cell::Seeds;
use serde_json::json;
use urma_recovery::CongestionChoice;

use crate::command::{SweepArgs, SweepEnd};

/// Options of a bottleneck.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sharing a bottleneck")]
pub(crate) struct BottleneckArgs {
    /// Numbers of flows that share a link behind a router's queue, for ever or by messages, under congestion control.
    #[arg(long, value_delimiter = ',', conflicts_with_all = [
        "size", "tps", "window_bdps", "feedback_loss", "late", "late_by", "dma_latency", "messages", "dma_reads", "dma_silent",
        "nic_lines", "adamap", "trace", "window_packets", "cpu",
    ])]
    pub(crate) flows: Vec<u32>,
    /// Lengths of the queue, whose newest packet is dropped: in packets (200) or bandwidth-delay products (0.5bdp).
    #[arg(long, value_delimiter = ',', default_value = "1bdp", requires = "flows")]
    queue: Vec<String>,
    /// Flows of others beside them, which start last: none, cubic, bbr, or several as cubic+bbr.
    #[arg(long, value_delimiter = ',', default_value = "none", requires = "flows")]
    beside: Vec<String>,
    /// Traffic that heeds nothing: its rate, how long it sends and how long it is silent, such as 100M,1s,500ms.
    #[arg(long, default_value = "none", requires = "flows")]
    cross: String,
    /// Payload of a message, behind whose end a flow begins the next one (1MB); without it flows have no end.
    #[arg(long, requires = "flows")]
    message: Option<String>,
    /// Length of a run.
    #[arg(long, default_value = "25s", requires = "flows")]
    time: String,
    /// Time after which a run is measured.
    #[arg(long, default_value = "15s", requires = "flows")]
    after: String,
    /// Time between the starts of two flows.
    #[arg(long, default_value = "100ms", requires = "flows")]
    stagger: String,
}

/// What a bottleneck takes of the options that both kinds of path have.
#[derive(Clone, Debug)]
pub(crate) struct BottleneckPath {
    pub(crate) rates: Vec<String>,
    pub(crate) rtts: Vec<String>,
    pub(crate) losses: Vec<String>,
    pub(crate) strategies: Vec<String>,
    /// None: as nodes have it.
    pub(crate) congestions: Vec<String>,
    pub(crate) packet: (u64, u64),
    pub(crate) tail: String,
    pub(crate) budget: u64,
    pub(crate) seeds: Seeds,
}

/// Runs the experiment and returns the exit code.
pub(crate) fn run(
    args: &BottleneckArgs,
    path: &BottleneckPath,
    sweep_args: &SweepArgs,
) -> ExitCode {
    let opened = cells(args, path).and_then(|cells| {
        let runs = path.seeds.count * cells.len() as u64;
        Ok((cells, sweep_args.open(runs, "runs")?))
    });
    let (cells, mut running) = match opened {
        Ok(opened) => opened,
        Err(error) => return sweep_args.refuse(&error),
    };
    let bar = running.bar.clone();
    let (sweep, mut printer) = running.printer();
    printer.head(&results::head());
    let mut all = Vec::new();
    let each = |result: BottleneckResult| {
        let hash = results::hash(std::slice::from_ref(&result));
        printer.cell(result.json(), &hash, &result.rows());
        all.push(result);
    };
    if let Err(error) = run_bottlenecks(&cells, path.seeds, sweep, || bar.inc(1), each) {
        return sweep_args.refuse(&error);
    }
    running.end(|| {
        let hash = results::hash(&all);
        let mut files = vec![("cells.csv".to_owned(), results::csv(&all))];
        for (number, result) in all.iter().enumerate() {
            files.push((format!("flows-{}.svg", number + 1), picture::of(result)?));
        }
        let count = all.len();
        let json = json!({ "schema": "urma-lab/1", "kind": "grid", "cells": count, "hash": hash });
        Ok(SweepEnd { files, json: Some(json), text: format!("hash {hash}") })
    })
}

fn cells(args: &BottleneckArgs, path: &BottleneckPath) -> Result<Vec<BottleneckCell>, GridError> {
    if path.strategies != ["ours"] {
        let (value, want) = (path.strategies.join(","), "ours with --flows".to_owned());
        return Err(GridError { field: "strategy", value, want });
    }
    let text = BottleneckText {
        rates: path.rates.clone(),
        rtts: path.rtts.clone(),
        losses: path.losses.clone(),
        queues: args.queue.clone(),
        flows: args.flows.clone(),
        congestions: match path.congestions.is_empty() {
            true => vec![CongestionChoice::default().name().to_owned()],
            false => path.congestions.clone(),
        },
        besides: args.beside.clone(),
        cross: args.cross.clone(),
        message: args.message.clone(),
        packet: path.packet,
        tail: path.tail.clone(),
        time: (args.time.clone(), args.after.clone()),
        stagger: args.stagger.clone(),
        budget: path.budget,
    };
    text.cells()
}
