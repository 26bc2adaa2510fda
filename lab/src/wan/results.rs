//! Results of a grid, and their hash.
//!
//! - owns: what a result says of its cell. takes: summaries. gives: rows for files, a hash.
//! - must not: put the speed of the machine into the hash.

use std::hash::Hasher;

use serde::Serialize;
use serde_json::{Map, Value, json};
use siphasher::sip128::{Hasher128, SipHasher24};

use super::grid::GridCell;
use crate::stats::{Summary, summary};

/// What is measured: of one run a number, or none where it does not have it; of a cell the summary over its seeds, if all have one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Metrics<V = Option<Summary>> {
    /// Goodput over rate times efficiency times (1 - loss), in the steady part of the run.
    pub goodput_over_limit: V,
    /// Time until the last acknowledgement of the first message, in s.
    pub fct_s: V,
    /// The same over its lower bound.
    pub fct_over_bound: V,
    /// The same of the messages behind it: the median of the run.
    pub later_fct_over_bound: V,
    /// The time that 99 % of them do not exceed.
    pub later_fct_over_bound_p99: V,
    /// Bytes on the link beyond those of each packet once.
    pub extra_bytes_ratio: V,
    /// Data packets put on the link.
    pub transmissions: V,
    /// Loss context in the NIC, of one TP.
    pub nic_bytes_per_tp: V,
    /// Lines of all TPs in the NIC, in bytes that there is room for.
    pub nic_cache_bytes: V,
    /// Most of those lines in use.
    pub nic_cache_lines_peak: V,
    /// Most bytes of the pool in use.
    pub host_bytes_peak: V,
    /// Reads and writes of the pool per packet that the path lost.
    pub dma_ops_per_lost_packet: V,
    /// Lines that were at hand when a packet needed them.
    pub list_hit_ratio: V,
    /// DMA reads that had no answer in time.
    pub dma_timeouts: V,
    /// 1: the pool answered no read any more, which ended the run.
    pub dma_failed: V,
    /// Timeouts of all senders.
    pub timeouts: V,
    /// Packets simulated a second of this machine's time.
    pub packets_per_second: V,
}

impl<V: Copy> Metrics<V> {
    /// Each metric with its name.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, V); 17] {
        [
            ("goodput_over_limit", self.goodput_over_limit),
            ("fct_s", self.fct_s),
            ("fct_over_bound", self.fct_over_bound),
            ("later_fct_over_bound", self.later_fct_over_bound),
            ("later_fct_over_bound_p99", self.later_fct_over_bound_p99),
            ("extra_bytes_ratio", self.extra_bytes_ratio),
            ("transmissions", self.transmissions),
            ("nic_bytes_per_tp", self.nic_bytes_per_tp),
            ("nic_cache_bytes", self.nic_cache_bytes),
            ("nic_cache_lines_peak", self.nic_cache_lines_peak),
            ("host_bytes_peak", self.host_bytes_peak),
            ("dma_ops_per_lost_packet", self.dma_ops_per_lost_packet),
            ("list_hit_ratio", self.list_hit_ratio),
            ("dma_timeouts", self.dma_timeouts),
            ("dma_failed", self.dma_failed),
            ("timeouts", self.timeouts),
            ("packets_per_second", self.packets_per_second),
        ]
    }
}

impl Metrics {
    /// Summaries of all runs of a cell.
    #[must_use]
    pub fn of(runs: &[RunMetrics]) -> Self {
        let each = |value: fn(&RunMetrics) -> Option<f64>| {
            let values: Option<Vec<f64>> = runs.iter().map(value).collect();
            values.and_then(|values| summary(&values))
        };
        Self {
            goodput_over_limit: each(|run| run.goodput_over_limit),
            fct_s: each(|run| run.fct_s),
            fct_over_bound: each(|run| run.fct_over_bound),
            later_fct_over_bound: each(|run| run.later_fct_over_bound),
            later_fct_over_bound_p99: each(|run| run.later_fct_over_bound_p99),
            extra_bytes_ratio: each(|run| run.extra_bytes_ratio),
            transmissions: each(|run| run.transmissions),
            nic_bytes_per_tp: each(|run| run.nic_bytes_per_tp),
            nic_cache_bytes: each(|run| run.nic_cache_bytes),
            nic_cache_lines_peak: each(|run| run.nic_cache_lines_peak),
            host_bytes_peak: each(|run| run.host_bytes_peak),
            dma_ops_per_lost_packet: each(|run| run.dma_ops_per_lost_packet),
            list_hit_ratio: each(|run| run.list_hit_ratio),
            dma_timeouts: each(|run| run.dma_timeouts),
            dma_failed: each(|run| run.dma_failed),
            timeouts: each(|run| run.timeouts),
            packets_per_second: each(|run| run.packets_per_second),
        }
    }
}

/// What one run measured.
pub type RunMetrics = Metrics<Option<f64>>;

/// Result of a cell.
#[derive(Clone, PartialEq, Debug)]
pub struct CellResult {
    /// GridCell of the grid.
    pub cell: GridCell,
    /// First seed and number of seeds.
    pub seeds: (u64, u64),
    /// What each of them measured.
    pub runs: Vec<RunMetrics>,
    /// Summaries over the seeds.
    pub metrics: Metrics,
    /// Goodput over the limit by the strategy's formula.
    pub formula: f64,
}

impl CellResult {
    /// The result of one cell.
    #[must_use]
    pub fn new(cell: &GridCell, seeds: (u64, u64), runs: Vec<RunMetrics>, formula: f64) -> Self {
        let metrics = Metrics::of(&runs);
        Self { cell: cell.clone(), seeds, runs, metrics, formula }
    }
}

/// Hash of all that follows from grid and seeds.
#[must_use]
pub fn hash(results: &[CellResult]) -> String {
    let mut hasher = SipHasher24::new();
    for result in results {
        hasher.write(format!("{:?} {:?}", result.cell, result.seeds).as_bytes());
        for (name, summary) in result.metrics.named() {
            if name != "packets_per_second" {
                hasher.write(format!("{name} {summary:?}").as_bytes());
            }
        }
    }
    format!("{:032x}", hasher.finish128().as_u128())
}

/// The fields with which the object of a cell of `urma-lab wan` begins.
pub(crate) fn cell_object() -> Map<String, Value> {
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("schema", json!("urma-lab/1"));
    put("kind", json!("cell"));
    put("experiment", json!("wan"));
    put("model", json!(true));
    put("build", json!(env!("CARGO_PKG_VERSION")));
    object
}

#[cfg(test)]
mod tests {
    use super::super::grid::tests::grid;
    use super::*;

    /// A result whose metrics are all different.
    fn result() -> CellResult {
        let run = |value: f64| {
            let of = |at: u32| Some(value * f64::from(at));
            Metrics {
                goodput_over_limit: of(1),
                fct_s: of(2),
                fct_over_bound: of(3),
                later_fct_over_bound: of(4),
                later_fct_over_bound_p99: of(5),
                extra_bytes_ratio: of(6),
                transmissions: of(7),
                nic_bytes_per_tp: of(8),
                nic_cache_bytes: of(9),
                nic_cache_lines_peak: of(10),
                host_bytes_peak: of(11),
                dma_ops_per_lost_packet: of(12),
                list_hit_ratio: of(13),
                dma_timeouts: of(14),
                dma_failed: of(15),
                timeouts: of(16),
                packets_per_second: of(17),
            }
        };
        let cell = grid().cells().expect("a grid that makes sense").remove(0);
        CellResult::new(&cell, (1, 5), [1.0, 2.0, 4.0].map(run).to_vec(), 0.5)
    }

    type Change = fn(&mut CellResult);

    #[test]
    fn the_hash_is_of_each_metric_but_the_speed_of_the_machine() {
        let of = |change: Change| {
            let mut changed = result();
            change(&mut changed);
            hash(&[changed])
        };
        let plain = of(|_| {});
        assert_eq!(of(|r| r.metrics.packets_per_second = None), plain);
        let changes: [Change; 22] = [
            |r| r.metrics.goodput_over_limit = None,
            |r| r.metrics.fct_s = None,
            |r| r.metrics.fct_over_bound = None,
            |r| r.metrics.later_fct_over_bound = None,
            |r| r.metrics.later_fct_over_bound_p99 = None,
            |r| r.metrics.extra_bytes_ratio = None,
            |r| r.metrics.transmissions = None,
            |r| r.metrics.nic_bytes_per_tp = None,
            |r| r.metrics.nic_cache_bytes = None,
            |r| r.metrics.nic_cache_lines_peak = None,
            |r| r.metrics.host_bytes_peak = None,
            |r| r.metrics.dma_ops_per_lost_packet = None,
            |r| r.metrics.list_hit_ratio = None,
            |r| r.metrics.dma_timeouts = None,
            |r| r.metrics.dma_failed = None,
            |r| r.metrics.timeouts = None,
            |r| r.metrics.fct_s.as_mut().expect("a value").median += 1e-9,
            |r| r.metrics.fct_s.as_mut().expect("a value").hi += 1e-9,
            |r| r.seeds.0 += 1,
            |r| r.seeds.1 += 1,
            |r| r.cell.run.feedback_loss = 0.1,
            |r| r.cell.strategy = "irn",
        ];
        let mut hashes: Vec<String> = changes.into_iter().map(of).collect();
        hashes.push(plain);
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), 23, "each change gives another one");
        assert_ne!(hash(&[result(), result()]), hash(&[result()]));
    }

    /// Files and hash go by the names: each has the metric that it says.
    #[test]
    fn metrics_have_their_names() {
        let medians = result().metrics.named().map(|(_, summary)| summary.map(|s| s.median));
        let wanted: [Option<f64>; 17] = std::array::from_fn(|at| Some(2.0 * (at + 1) as f64));
        assert_eq!(medians, wanted, "in the order of the fields");
        let names = result().metrics.named().map(|(name, _)| name);
        let json = serde_json::to_value(&result().metrics).expect("plain values");
        for ((name, median), at) in names.iter().zip(medians).zip(0..) {
            assert_eq!(json[*name]["median"].as_f64(), median, "{at}: {name}");
        }
    }
}
