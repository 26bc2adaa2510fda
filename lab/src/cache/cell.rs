//! Runs cells: one policy over one trace.
//!
//! - owns: counts over time. takes: cells. gives: hits, misses, cost. must not: let the clock change a count.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};
use urma_contexts::policy::kind::PolicyError;
use urma_contexts::replay::{CacheCounts, CacheReplay};

use super::grid::CacheCell;
use super::tiers::{self, TierResult};
use crate::clock::Stopwatch;
use crate::stats::middle;
use crate::workers::run_all;

/// Points of a curve over time.
const POINTS: usize = 100;

/// What a cell gave.
#[derive(Clone, Debug)]
pub struct CacheResult {
    /// The cell that was run.
    pub cell: CacheCell,
    /// Counts of accesses, hits and misses.
    pub counts: CacheCounts,
    /// Misses of each hundredth of the trace: accesses, misses.
    pub misses: Vec<(u64, u64)>,
    /// Time of an access in ns on this machine, table of handles and policy together: the median of the hundredths of the
    /// trace, which other programs on the machine disturb less than the mean.
    pub ns_per_access: f64,
    /// The same trace through the tiers of the model, if they are on.
    pub tiers: Option<TierResult>,
}

impl CacheResult {
    /// Hits of 100 accesses.
    #[must_use]
    pub fn percent(&self) -> f64 {
        100.0 * self.counts.hits as f64 / self.counts.accesses as f64
    }
}

/// Results of all cells, in their order; `on_done` is called after each.
pub fn run(
    cells: &[CacheCell],
    workers: usize,
    on_done: &(dyn Fn() + Sync),
) -> Result<Vec<CacheResult>, PolicyError> {
    run_all(cells.len(), workers, |cell| run_cell(&cells[cell]), on_done).into_iter().collect()
}

fn run_cell(cell: &CacheCell) -> Result<CacheResult, PolicyError> {
    let trace = &cell.trace.trace;
    let policy = cell.policy.build(cell.capacity, cell.rule, &cell.trace.next)?;
    let mut cache = CacheReplay::new(policy, cell.capacity, trace.distinct());
    let length = trace.handles().len().div_ceil(POINTS);
    let mut misses = Vec::with_capacity(POINTS);
    let mut times = Vec::with_capacity(POINTS);
    for (numbers, handles) in trace.numbers().chunks(length).zip(trace.handles().chunks(length)) {
        let (before, watch) = (cache.counts(), Stopwatch::start());
        for (number, handle) in numbers.iter().zip(handles) {
            cache.access(*number, *handle);
        }
        times.push(watch.passed().as_secs_f64() * 1e9 / numbers.len() as f64);
        let now = cache.counts();
        misses.push((now.accesses - before.accesses, now.misses - before.misses));
    }
    times.sort_by(f64::total_cmp);
    // A trace has an access at least.
    let ns_per_access = middle(&times);
    let tiers = cell.tiers.map(|setting| tiers::run(cell, setting)).transpose()?;
    Ok(CacheResult { cell: cell.clone(), counts: cache.counts(), misses, ns_per_access, tiers })
}

/// Hash of all results but their times.
#[must_use]
pub fn hash(results: &[CacheResult]) -> String {
    let mut hasher = SipHasher24::new();
    for CacheResult { cell, counts, misses, tiers, .. } in results {
        let text = format!("{} {:?} {:?}", cell.trace.name, cell.policy, cell.rule);
        hasher.write(format!("{text} {} {counts:?} {misses:?}", cell.capacity).as_bytes());
        if let Some(tiers) = tiers {
            hasher.write(format!("{:?} {:?}", cell.tiers, tiers.counts.list()).as_bytes());
        }
    }
    format!("{:032x}", hasher.finish128().as_u128())
}
