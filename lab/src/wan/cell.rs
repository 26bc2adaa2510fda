//! Runs all seeds of a grid and summarises each cell.
//!
//! - owns: which seed of which cell a job is. takes: cells, seeds, workers. gives: one result per cell.
//! - must not: let the number of workers reach a result.

use super::formula::PathNumbers;
use super::grid::GridCell;
use super::path::{self, PathTrace, RunCounts};
use super::results::{CellResult, Metrics};
use crate::clock::Stopwatch;
use crate::stats::summary;
use crate::workers::run_all;

/// Seeds of a grid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seeds {
    /// Seed of the first run.
    pub first: u64,
    /// How many follow it, itself included.
    pub count: u64,
}

/// Runs every seed of every cell; `on_done` is called after each run.
#[must_use]
pub fn run_grid(
    cells: &[GridCell],
    seeds: Seeds,
    workers: usize,
    on_done: &(dyn Fn() + Sync),
) -> Vec<CellResult> {
    let count = usize::try_from(seeds.count.max(1)).unwrap_or(usize::MAX);
    let run = |job: usize| {
        let seed = seeds.first.wrapping_add((job % count) as u64);
        timed(|| path::run(&cells[job / count].run, seed))
    };
    let runs = run_all(cells.len() * count, workers, run, on_done);
    let per_cell = cells.iter().zip(runs.chunks(count));
    per_cell.map(|(cell, runs)| summarise(cell, seeds, runs)).collect()
}

/// Runs one seed of one cell and gives each event to `trace`.
#[must_use]
pub fn run_traced<T: PathTrace>(cell: &GridCell, seed: u64, trace: &mut T) -> CellResult {
    let run = timed(|| path::run_traced(&cell.run, seed, trace));
    summarise(cell, Seeds { first: seed, count: 1 }, &[run])
}

/// What a run counted, and the time that it took, in s.
fn timed(run: impl FnOnce() -> RunCounts) -> (RunCounts, f64) {
    let watch = Stopwatch::start();
    let counts = run();
    (counts, watch.passed().as_secs_f64())
}

fn summarise(cell: &GridCell, seeds: Seeds, runs: &[(RunCounts, f64)]) -> CellResult {
    let each = |value: &dyn Fn(&RunCounts) -> Option<f64>| {
        let values: Option<Vec<f64>> = runs.iter().map(|(counts, _)| value(counts)).collect();
        values.and_then(|values| summary(&values))
    };
    let numbers = cell.numbers;
    let bits = 8.0 * numbers.payload;
    let speed: Vec<f64> =
        runs.iter().map(|(counts, s)| counts.transmissions as f64 / s.max(1e-9)).collect();
    let metrics = Metrics {
        goodput_over_limit: each(&|run| Some(run.packets_per_s? * bits / numbers.limit_bps())),
        fct_s: each(&|run| run.completion_s),
        fct_over_bound: each(&|run| {
            Some(run.completion_s? / numbers.completion_bound_s(cell.size_bytes))
        }),
        extra_bytes_ratio: each(&|run| extra_bytes(cell, run)),
        transmissions: each(&|run| Some(run.transmissions as f64)),
        nic_bytes_per_tp: each(&|run| Some(nic_bytes(cell, run))),
        nic_cache_bytes: each(&|run| Some(run.nic_cache_bytes as f64)),
        nic_cache_lines_peak: each(&|run| Some(run.nic_lines_max as f64)),
        host_bytes_peak: each(&|run| Some((run.blocks_max * 64) as f64)),
        dma_ops_per_lost_packet: each(&|run| {
            (run.lost > 0).then(|| (run.dma.reads + run.dma.writes) as f64 / run.lost as f64)
        }),
        list_hit_ratio: each(&|run| {
            let accesses = run.dma.hits + run.dma.misses;
            (accesses > 0).then(|| run.dma.hits as f64 / accesses as f64)
        }),
        dma_timeouts: each(&|run| Some(run.dma.timeouts as f64)),
        dma_failed: each(&|run| Some(f64::from(u8::from(run.dma_failed)))),
        timeouts: each(&|run| Some(run.timeouts as f64)),
        packets_per_second: summary(&speed),
    };
    CellResult::new(cell, (seeds.first, seeds.count), metrics, formula(cell, &numbers))
}

/// Bytes on the link beyond those of each packet once; only of runs that ended.
fn extra_bytes(cell: &GridCell, run: &RunCounts) -> Option<f64> {
    run.completion_s?;
    let once = cell.run.packets * (cell.run.payload + cell.run.overhead);
    Some(run.wire_bytes as f64 / once as f64 - 1.0)
}

/// IRN holds five bitmaps of its window and some 20 bytes; the others what their record measured.
fn nic_bytes(cell: &GridCell, run: &RunCounts) -> f64 {
    if cell.strategy == "irn" {
        5.0 * f64::from(cell.run.window_packets) / 8.0 + 20.0
    } else {
        run.nic_bytes as f64
    }
}

/// Goodput over the limit as the strategy's formula gives it.
fn formula(cell: &GridCell, numbers: &PathNumbers) -> f64 {
    match cell.strategy {
        "gbn" => numbers.go_back_n(),
        "irn" => numbers.left_edge(cell.window_bdps),
        _ => 1.0,
    }
}
