//! Results of a grid, and their hash.
//!
//! - owns: what a result says of its cell. takes: summaries. gives: rows for files, a hash.
//! - must not: put the speed of the machine into the hash.

use std::hash::Hasher;

use serde::Serialize;
use siphasher::sip128::{Hasher128, SipHasher24};

use super::grid::GridCell;
use crate::stats::Summary;

/// Summaries over the seeds of a cell; `None` where a run does not have the value.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Metrics {
    /// Goodput over rate times efficiency times (1 - loss), in the steady part of the run.
    pub goodput_over_limit: Option<Summary>,
    /// Time until the last acknowledgement, in s.
    pub fct_s: Option<Summary>,
    /// The same over its lower bound.
    pub fct_over_bound: Option<Summary>,
    /// Bytes on the link beyond those of each packet once.
    pub extra_bytes_ratio: Option<Summary>,
    /// Data packets put on the link.
    pub transmissions: Option<Summary>,
    /// Loss context in the NIC, of one TP.
    pub nic_bytes_per_tp: Option<Summary>,
    /// Lines of all TPs in the NIC, in bytes that there is room for.
    pub nic_cache_bytes: Option<Summary>,
    /// Most of those lines in use.
    pub nic_cache_lines_peak: Option<Summary>,
    /// Most bytes of the pool in use.
    pub host_bytes_peak: Option<Summary>,
    /// Reads and writes of the pool per packet that the path lost.
    pub dma_ops_per_lost_packet: Option<Summary>,
    /// Lines that were at hand when a packet needed them.
    pub list_hit_ratio: Option<Summary>,
    /// DMA reads that had no answer in time.
    pub dma_timeouts: Option<Summary>,
    /// 1: the pool answered no read any more, which ended the run.
    pub dma_failed: Option<Summary>,
    /// Timeouts of all senders.
    pub timeouts: Option<Summary>,
    /// Packets simulated a second of this machine's time.
    pub packets_per_second: Option<Summary>,
}

impl Metrics {
    /// Each metric with its name.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, Option<Summary>); 15] {
        [
            ("goodput_over_limit", self.goodput_over_limit),
            ("fct_s", self.fct_s),
            ("fct_over_bound", self.fct_over_bound),
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

/// Result of a cell.
#[derive(Clone, PartialEq, Debug)]
pub struct CellResult {
    /// GridCell of the grid.
    pub cell: GridCell,
    /// First seed and number of seeds.
    pub seeds: (u64, u64),
    /// Summaries over the seeds.
    pub metrics: Metrics,
    /// Goodput over the limit by the strategy's formula.
    pub formula: f64,
}

impl CellResult {
    /// The result of one cell.
    #[must_use]
    pub fn new(cell: &GridCell, seeds: (u64, u64), metrics: Metrics, formula: f64) -> Self {
        Self { cell: cell.clone(), seeds, metrics, formula }
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
