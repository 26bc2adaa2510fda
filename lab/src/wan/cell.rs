//! Runs all seeds of a grid and summarises each cell.
//!
//! - owns: which seed of which cell a job is. takes: cells, seeds, workers. gives: one result per cell.
//! - must not: let the number of workers reach a result.

use std::fmt::Debug;

use serde::{Serialize, de::DeserializeOwned};

use super::formula::PathNumbers;
use super::grid::GridCell;
use super::path::{self, PathTrace, RunCounts};
use super::results::{CellResult, RunMetrics};
use crate::clock::Stopwatch;
use crate::stats::{middle, percentile_99};
use crate::sweep::{self, Sweep};
use crate::units::GridError;

/// Seeds of a grid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seeds {
    /// Seed of the first run.
    pub first: u64,
    /// How many follow it, itself included.
    pub count: u64,
}

/// Runs every seed of every cell of a grid; `each` gets a cell when all of its runs are there, unless the sweep is a part
/// of one.
pub fn run_grid(
    cells: &[GridCell],
    seeds: Seeds,
    sweep: &mut Sweep,
    on_run: impl Fn() + Sync,
    mut each: impl FnMut(CellResult) + Send,
) -> Result<(), GridError> {
    let run = |cell: &GridCell, seed| timed(|| path::run(&cell.run, seed));
    run_each("wan", (cells, seeds), sweep, (on_run, run), |cell, runs| {
        each(summarise(cell, seeds, &runs));
    })
}

/// Runs every seed of every cell by `run`, under keys of the experiment `name`; `each` gets a cell with its runs as
/// [`run_grid`] does.
pub(crate) fn run_each<C: Debug + Sync, R: Serialize + DeserializeOwned + Send>(
    name: &str,
    (cells, seeds): (&[C], Seeds),
    sweep: &mut Sweep,
    (on_run, run): (impl Fn() + Sync, impl Fn(&C, u64) -> R + Sync),
    mut each: impl FnMut(&C, Vec<R>) + Send,
) -> Result<(), GridError> {
    let count = usize::try_from(seeds.count.max(1)).unwrap_or(usize::MAX);
    let of = |job: usize| (&cells[job / count], seeds.first.wrapping_add((job % count) as u64));
    let key = |job: usize| {
        let (cell, seed) = of(job);
        sweep::key(&format!("{name} {cell:?} {seed}"))
    };
    let keys: Vec<String> = (0..cells.len() * count).map(key).collect();
    let make = |job: usize| {
        let (cell, seed) = of(job);
        Ok(run(cell, seed))
    };
    let mut runs = Vec::with_capacity(count);
    sweep.run(&keys, make, |job, run| {
        on_run();
        runs.push(run);
        if job % count == count - 1 {
            let runs = std::mem::take(&mut runs);
            if runs.len() == count {
                each(&cells[job / count], runs);
            }
        }
    })
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
    let runs = runs.iter().map(|(counts, seconds)| measured(cell, counts, *seconds)).collect();
    CellResult::new(cell, (seeds.first, seeds.count), runs, formula(cell, &cell.numbers))
}

/// What a run of `cell` that took so many seconds of this machine measured.
fn measured(cell: &GridCell, run: &RunCounts, seconds: f64) -> RunMetrics {
    let numbers = cell.numbers;
    let bits = 8.0 * numbers.payload;
    let dma = run.dma.reads + run.dma.writes;
    let accesses = run.dma.hits + run.dma.misses;
    let bound = numbers.completion_bound_s(cell.size_bytes);
    let first = run.completions_s.first().copied();
    // Runs that lack a message have no figure of the later ones.
    let is_whole = run.completions_s.len() as u64 == u64::from(cell.run.messages);
    let mut later: Vec<f64> = run.completions_s.iter().skip(1).map(|s| s / bound).collect();
    later.sort_by(f64::total_cmp);
    let later = Some(later).filter(|later| is_whole && !later.is_empty());
    RunMetrics {
        goodput_over_limit: run.packets_per_s.map(|rate| rate * bits / numbers.limit_bps()),
        fct_s: first,
        fct_over_bound: first.map(|s| s / bound),
        later_fct_over_bound: later.as_deref().map(middle),
        later_fct_over_bound_p99: later.as_deref().map(percentile_99),
        extra_bytes_ratio: extra_bytes(cell, run),
        transmissions: Some(run.transmissions as f64),
        nic_bytes_per_tp: Some(nic_bytes(cell, run)),
        nic_cache_bytes: Some(run.nic_cache_bytes as f64),
        nic_cache_lines_peak: Some(run.nic_lines_max as f64),
        host_bytes_peak: Some((run.blocks_max * 64) as f64),
        dma_ops_per_lost_packet: (run.lost > 0).then(|| dma as f64 / run.lost as f64),
        list_hit_ratio: (accesses > 0).then(|| run.dma.hits as f64 / accesses as f64),
        dma_timeouts: Some(run.dma.timeouts as f64),
        dma_failed: Some(f64::from(u8::from(run.dma_failed))),
        timeouts: Some(run.timeouts as f64),
        packets_per_second: Some(run.transmissions as f64 / seconds.max(1e-9)),
    }
}

/// Bytes on the link beyond those of each packet once; only of runs that ended.
fn extra_bytes(cell: &GridCell, run: &RunCounts) -> Option<f64> {
    let messages = u64::from(cell.run.messages);
    if run.completions_s.len() as u64 != messages {
        return None;
    }
    let once = messages * cell.run.packets * (cell.run.payload + cell.run.overhead);
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

#[cfg(test)]
mod tests {
    use urma_recovery::DmaStats;

    use super::super::grid::{GridText, tests::grid};
    use super::*;

    /// 9,000 packets of 1,000 bytes and 250 of headers over 1 Gb/s, 100 ms there and back, a tenth of them lost: at most
    /// 720 Mb/s of payload, and at least 0.2 s.
    fn cell(strategy: &str) -> GridCell {
        let list = |text: &str| vec![text.to_owned()];
        let grid = GridText {
            rates: list("1G"),
            rtts: list("100ms"),
            losses: list("iid:0.1"),
            sizes: list("9MB"),
            strategies: list(strategy),
            packet: (1000, 250),
            ..grid()
        };
        grid.cells().expect("a grid that makes sense").remove(0)
    }

    fn run() -> RunCounts {
        RunCounts {
            packets_per_s: Some(45_000.0),
            completions_s: vec![0.3],
            transmissions: 10_000,
            lost: 500,
            repairs: 17,
            repaired: 3,
            delivered: 9000,
            wire_bytes: 13_500_000,
            nic_bytes: 24,
            nic_cache_bytes: 4096,
            nic_lines_max: 7,
            blocks_max: 3,
            pool_blocks_max: 16,
            dma: DmaStats { reads: 30, writes: 20, hits: 90, misses: 10, wait_ns: 55, timeouts: 4 },
            dma_failed: false,
            timeouts: 6,
        }
    }

    fn medians(cell: &GridCell, runs: &[(RunCounts, f64)]) -> Vec<(&'static str, Option<f64>)> {
        let result = summarise(cell, Seeds { first: 1, count: runs.len() as u64 }, runs);
        let named = result.metrics.named().into_iter();
        named.map(|(name, summary)| (name, summary.map(|summary| summary.median))).collect()
    }

    #[track_caller]
    fn are_near(found: &[(&'static str, Option<f64>)], wanted: &[(&str, Option<f64>)]) {
        for (name, wanted) in wanted {
            let found = found.iter().find(|(found, _)| found == name).expect("a metric").1;
            let is_near = match (found, wanted) {
                (Some(found), Some(wanted)) => (found - wanted).abs() <= wanted.abs() * 1e-9,
                (found, wanted) => found == *wanted,
            };
            assert!(is_near, "{name}: {found:?}, by hand {wanted:?}");
        }
    }

    #[test]
    fn metrics_are_those_counted_by_hand() {
        let wanted = [
            ("goodput_over_limit", 0.5),
            ("fct_s", 0.3),
            ("fct_over_bound", 1.5),
            ("later_fct_over_bound", 2.5),
            ("later_fct_over_bound_p99", 4.0),
            ("extra_bytes_ratio", 0.2),
            ("transmissions", 10_000.0),
            ("nic_bytes_per_tp", 24.0),
            ("nic_cache_bytes", 4096.0),
            ("nic_cache_lines_peak", 7.0),
            ("host_bytes_peak", 192.0),
            ("dma_ops_per_lost_packet", 0.1),
            ("list_hit_ratio", 0.9),
            ("dma_timeouts", 4.0),
            ("dma_failed", 0.0),
            ("timeouts", 6.0),
            ("packets_per_second", 5000.0),
        ];
        let wanted = wanted.map(|(name, value)| (name, Some(value)));
        // The times of three messages, whose bytes are those of three as well.
        let mut three = cell("ours");
        three.run.messages = 3;
        let later = RunCounts {
            completions_s: vec![0.3, 0.8, 0.2],
            wire_bytes: 3 * run().wire_bytes,
            ..run()
        };
        let found = medians(&three, &[(later, 2.0)]);
        assert_eq!(found.len(), wanted.len(), "each metric has a line here");
        are_near(&found, &wanted);
        // IRN has five bitmaps of its window and 20 bytes.
        let mut irn = cell("irn");
        irn.run.window_packets = 800;
        are_near(&medians(&irn, &[(run(), 2.0)]), &[("nic_bytes_per_tp", Some(520.0))]);
    }

    #[test]
    fn a_metric_is_there_if_every_run_has_it() {
        let unfinished = RunCounts {
            packets_per_s: None,
            completions_s: Vec::new(),
            lost: 0,
            dma: DmaStats { hits: 0, misses: 0, ..run().dma },
            dma_failed: true,
            timeouts: 10,
            ..run()
        };
        let found = medians(&cell("ours"), &[(run(), 1.0), (unfinished, 3.0)]);
        let missing = [
            "goodput_over_limit",
            "fct_s",
            "fct_over_bound",
            "later_fct_over_bound",
            "later_fct_over_bound_p99",
            "extra_bytes_ratio",
            "dma_ops_per_lost_packet",
            "list_hit_ratio",
        ];
        are_near(&found, &missing.map(|name| (name, None)));
        are_near(&found, &[("dma_failed", Some(0.5)), ("timeouts", Some(8.0))]);
        are_near(&found, &[("packets_per_second", Some((10_000.0 + 10_000.0 / 3.0) / 2.0))]);
    }

    #[test]
    fn each_cell_gets_the_runs_of_its_own_seeds() {
        let sizes = ["400kB", "800kB"].map(str::to_owned).to_vec();
        let grid = GridText { sizes, losses: vec!["iid:0.3".to_owned()], ..grid() };
        let cells = grid.cells().expect("a grid that makes sense");
        let seeds = Seeds { first: 7, count: 3 };
        let mut results = Vec::new();
        let mut sweep = Sweep::plain(2);
        let done = run_grid(&cells, seeds, &mut sweep, || {}, |result| results.push(result));
        assert_eq!((done, results.len()), (Ok(()), 2));
        for (cell, result) in cells.iter().zip(&results) {
            let mut sent = [7, 8, 9].map(|seed| path::run(&cell.run, seed).transmissions);
            sent.sort_unstable();
            assert_ne!(sent[0], sent[2], "the seeds differ");
            let found = result.metrics.transmissions.expect("counted");
            assert_eq!((found.median, found.p99, found.n), (sent[1] as f64, sent[2] as f64, 3));
            assert_eq!((&result.cell, result.seeds), (cell, (7, 3)));
        }
    }
}
