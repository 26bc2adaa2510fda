//! Runs cells: one policy over one trace.
//!
//! - owns: counts over time. takes: cells. gives: hits, misses, cost. must not: let the clock change a count.

use std::hash::Hasher;

use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128, SipHasher24};
use urma_contexts::policy::kind::PolicyError;
use urma_contexts::replay::{CacheCounts, CacheReplay};

use super::grid::{CacheCell, policy_error};
use super::tiers::{self, TierResult};
use crate::clock::Stopwatch;
use crate::stats::middle;
use crate::sweep::{self, Sweep};
use crate::units::GridError;

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
    fn new(cell: &CacheCell, run: CacheRun) -> Self {
        let CacheRun { counts, misses, ns_per_access, tiers } = run;
        Self { cell: cell.clone(), counts, misses, ns_per_access, tiers }
    }

    /// Hits of 100 accesses.
    #[must_use]
    pub fn percent(&self) -> f64 {
        100.0 * self.counts.hits as f64 / self.counts.accesses as f64
    }
}

/// What a run leaves in a file.
#[derive(Serialize, Deserialize)]
struct CacheRun {
    #[serde(with = "CountsText")]
    counts: CacheCounts,
    misses: Vec<(u64, u64)>,
    ns_per_access: f64,
    tiers: Option<TierResult>,
}

/// [`CacheCounts`] in files: the crate that counts has no need of serde.
#[derive(Serialize, Deserialize)]
#[serde(remote = "CacheCounts")]
struct CountsText {
    accesses: u64,
    hits: u64,
    misses: u64,
    evicted: u64,
    refused: u64,
}

/// Runs all cells; `each` gets their numbers and results, in their order.
pub fn run(
    cells: &[CacheCell],
    sweep: &mut Sweep,
    mut each: impl FnMut(usize, CacheResult) + Send,
) -> Result<(), GridError> {
    let keys: Vec<String> = cells.iter().map(key).collect();
    sweep.run(
        &keys,
        |cell| run_cell(&cells[cell]).map_err(policy_error),
        |at, run| each(at, CacheResult::new(&cells[at], run)),
    )
}

/// All that a run follows from, the accesses of the trace too.
fn key(cell: &CacheCell) -> String {
    let mut handles = SipHasher24::new();
    cell.trace.trace.handles().iter().for_each(|handle| handles.write_u32(*handle));
    let trace = format!("{} {:032x}", cell.trace.name, handles.finish128().as_u128());
    let CacheCell { policy, rule, capacity, tiers, .. } = cell;
    sweep::key(&format!("cache {trace} {policy:?} {rule:?} {capacity} {tiers:?}"))
}

fn run_cell(cell: &CacheCell) -> Result<CacheRun, PolicyError> {
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
    let tiers = cell.tiers.as_ref().map(|setting| tiers::run(cell, setting)).transpose()?;
    Ok(CacheRun { counts: cache.counts(), misses, ns_per_access, tiers })
}

/// Hash of all results but their times.
#[must_use]
pub fn hash(results: &[CacheResult]) -> String {
    let mut hasher = SipHasher24::new();
    for CacheResult { cell, counts, misses, tiers, .. } in results {
        let text = format!("{} {:?} {:?}", cell.trace.name, cell.policy, cell.rule);
        hasher.write(format!("{text} {} {counts:?} {misses:?}", cell.capacity).as_bytes());
        if let Some(tiers) = tiers {
            hasher.write(
                format!("{:?} {:?} {:?}", cell.tiers, tiers.counters, tiers.waits).as_bytes(),
            );
        }
    }
    format!("{:032x}", hasher.finish128().as_u128())
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use urma_contexts::policy::kind::PolicyKind;
    use urma_contexts::policy::seed::SeedRule;
    use urma_contexts::trace::HandleTrace;

    use super::super::grid::{HandleKinds, NamedTrace};
    use super::super::options::TierSetting;
    use super::*;

    /// A cell of this trace under LRU.
    pub(in crate::cache) fn cell(name: &str, handles: Vec<u32>, capacity: u32) -> CacheCell {
        let trace = HandleTrace::new(handles).expect("some handles");
        CacheCell {
            trace: Arc::new(NamedTrace::new(name, trace, HandleKinds::Generated)),
            given: capacity.to_string(),
            capacity,
            policy: PolicyKind::Lru,
            rule: SeedRule::AGED,
            tiers: None,
        }
    }

    pub(in crate::cache) fn result(cell: &CacheCell) -> CacheResult {
        CacheResult::new(cell, run_cell(cell).expect("a policy with sound parameters"))
    }

    #[test]
    fn counts_of_a_short_trace_are_those_counted_by_hand() {
        // In two slots: 1 and 2 miss, 1 hits, 3 drives out 2, 1 hits, 2 drives out 3.
        let found = result(&cell("short", vec![1, 2, 1, 3, 1, 2], 2));
        let counts = CacheCounts { accesses: 6, hits: 2, misses: 4, evicted: 2, refused: 0 };
        assert_eq!(found.counts, counts);
        assert_eq!(found.misses, [(1, 1), (1, 1), (1, 0), (1, 1), (1, 0), (1, 1)]);
        assert!((found.percent() - 100.0 / 3.0).abs() < 1e-9);
        // 250 accesses are 83 points of three and one of one; the first access is the only miss.
        let found = result(&cell("long", vec![5; 250], 1));
        assert_eq!((found.misses.len(), found.misses[0], found.misses[83]), (84, (3, 1), (1, 0)));
        assert_eq!((found.counts.hits, found.percent()), (249, 99.6));
    }

    type Change = fn(&mut CacheResult);

    #[test]
    fn the_hash_is_of_all_counts_and_of_no_time() {
        let tiers = TierSetting { accesses_per_s: 1e6, window: 4, ..TierSetting::new(true) };
        let handles: Vec<u32> = (0..80).chain(0..80).collect();
        let plain = result(&CacheCell { tiers: Some(tiers), ..cell("trace", handles, 64) });
        let of = |change: Change| {
            let mut changed = plain.clone();
            change(&mut changed);
            hash(&[changed])
        };
        let wanted = hash(std::slice::from_ref(&plain));
        assert_eq!(of(|r| r.ns_per_access += 1.0), wanted);
        let changes: [Change; 16] = [
            |r| r.counts.accesses += 1,
            |r| r.counts.hits += 1,
            |r| r.counts.misses += 1,
            |r| r.counts.evicted += 1,
            |r| r.counts.refused += 1,
            |r| r.misses[7].0 += 1,
            |r| r.misses[7].1 += 1,
            |r| r.cell.capacity += 1,
            |r| r.cell.policy = PolicyKind::Fifo,
            |r| r.cell.rule.alpha += 1,
            |r| r.cell.tiers.as_mut().expect("on").window += 1,
            |r| r.cell.tiers.as_mut().expect("on").cfg.promote_l1 += 1,
            |r| r.tiers.as_mut().expect("on").waits.p50 += 1,
            |r| r.tiers.as_mut().expect("on").counters[4].1 += 1,
            |r| r.tiers.as_mut().expect("on").counters.swap(0, 1),
            |r| r.cell.trace = cell("other", vec![1], 1).trace,
        ];
        let mut hashes: Vec<String> = changes.into_iter().map(of).collect();
        hashes.push(wanted);
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), 17, "each change gives another one");
    }
}
