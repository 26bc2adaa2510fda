//! Runs of `node`, and their results as JSON, as CSV and as a table.
//!
//! - owns: names of fields and columns. takes: cells and seeds. gives: results, text that says that it is a model.
//! - must not: round a number of a file.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::grid::NodeCell;
use super::run::{self, NodeRun};
use crate::sweep::{self, Sweep};
use crate::units::GridError;
use crate::wan::cell::Seeds;

/// What a run of one cell with one seed gave.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeResult {
    /// The cell that was run.
    pub cell: NodeCell,
    /// The seed of all draws.
    pub seed: u64,
    /// What the run counted.
    pub run: NodeRun,
}

/// Runs all seeds of all cells; `each` gets their results in their order.
pub fn run_cells(
    cells: &[NodeCell],
    seeds: Seeds,
    sweep: &mut Sweep,
    mut each: impl FnMut(NodeResult) + Send,
) -> Result<(), GridError> {
    let count = usize::try_from(seeds.count.max(1)).unwrap_or(usize::MAX);
    let of = |job: usize| (&cells[job / count], seeds.first.wrapping_add((job % count) as u64));
    let key = |job| {
        let (cell, seed) = of(job);
        sweep::key(&format!("node {cell:?} {seed}"))
    };
    let keys: Vec<String> = (0..cells.len() * count).map(key).collect();
    let run = |job: usize| {
        let (cell, seed) = of(job);
        Ok(run::run(cell, seed, 0).0)
    };
    sweep.run(&keys, run, |job, run| {
        let (cell, seed) = of(job);
        each(NodeResult { cell: cell.clone(), seed, run });
    })
}

impl NodeResult {
    /// Requests that ended well.
    #[must_use]
    pub fn success(&self) -> u64 {
        self.run.completed.get("Success").copied().unwrap_or(0)
    }

    /// Requests that ended otherwise, by status: `AckTimeout=3`.
    fn failed(&self) -> (u64, String) {
        let failed = || self.run.completed.iter().filter(|(name, _)| *name != "Success");
        let texts: Vec<String> = failed().map(|(name, count)| format!("{name}={count}")).collect();
        (failed().map(|(_, count)| count).sum(), texts.join(" "))
    }

    /// Every field with its value, in the order of columns.
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, Value)> {
        let Self { cell, seed, run } = self;
        let faults = &cell.faults;
        let part = |ppm: u32| json!(f64::from(ppm) / 1e6);
        let (failed, statuses) = self.failed();
        vec![
            ("seed", json!(seed)),
            ("nodes", json!(cell.nodes)),
            ("hosts", json!(cell.hosts_name())),
            ("mix", json!(cell.mix.name())),
            ("strategy", json!(cell.strategy.name())),
            ("congestion", json!(cell.congestion.name())),
            ("delay_ns", json!(faults.delay_ns)),
            ("jitter_ns", json!(faults.jitter_ns)),
            ("rate_bps", json!(faults.bytes_per_second * 8)),
            ("loss", part(faults.loss_ppm)),
            ("burst", part(faults.burst_ppm)),
            ("burst_length", json!(faults.burst_len)),
            ("duplicate", part(faults.duplicate_ppm)),
            ("reorder", part(faults.reorder_ppm)),
            ("reorder_by_ns", json!(faults.reorder_ns)),
            ("corrupt", part(faults.corrupt_ppm)),
            ("restarts", json!(cell.restarts)),
            ("requests", json!(cell.requests)),
            ("depth", json!(cell.depth)),
            ("size_bytes", json!(cell.size)),
            ("mtu_bytes", json!(cell.mtu)),
            ("posted", json!(run.posted)),
            ("success", json!(self.success())),
            ("failed", json!(failed)),
            ("failed_by_status", json!(statuses)),
            ("died", json!(run.died)),
            ("messages", json!(run.messages)),
            ("bytes", json!(run.bytes)),
            ("datagrams_sent", json!(run.sent)),
            ("datagrams_lost", json!(run.lost)),
            ("datagrams_doubled", json!(run.doubled)),
            ("datagrams_changed", json!(run.changed)),
            ("datagrams_late", json!(run.late)),
            ("packets_repeated", json!(run.repeated)),
            ("packets_repaired", json!(run.repaired)),
            ("same_host_requests", json!(run.same_host)),
            ("time_ns", json!(run.time_ns)),
            ("latency_p50_ns", json!(run.latency_p50_ns)),
            ("latency_p99_ns", json!(run.latency_p99_ns)),
            ("events", json!(run.events)),
            ("log_hash", json!(run.log_hash)),
            ("broken", json!(run.broken)),
        ]
    }
}

/// Hash of all results.
#[must_use]
pub fn hash(results: &[NodeResult]) -> String {
    sweep::key(&results.iter().map(|result| format!("{:?}", result.fields())).collect::<String>())
}

/// One JSON object of a result.
#[must_use]
pub fn json_cell(result: &NodeResult) -> Value {
    let mut object = Map::new();
    object.insert("schema".to_owned(), json!("urma-lab/1"));
    object.insert("kind".to_owned(), json!("cell"));
    object.insert("experiment".to_owned(), json!("node"));
    object.insert("model".to_owned(), json!(true));
    object.insert("build".to_owned(), json!(env!("CARGO_PKG_VERSION")));
    let fields = result.fields().into_iter();
    object.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    object.insert("completed".to_owned(), json!(result.run.completed));
    Value::Object(object)
}

/// A table with a line per run.
#[must_use]
pub fn csv(results: &[NodeResult]) -> String {
    let mut text = String::from("model");
    for (name, _) in results.first().map(NodeResult::fields).unwrap_or_default() {
        let _ = write!(text, ",{name}");
    }
    for result in results {
        text.push_str("\ntrue");
        for (_, value) in result.fields() {
            let value = value.as_str().map_or_else(|| value.to_string(), quoted);
            let _ = write!(text, ",{}", if value == "null" { "" } else { &value });
        }
    }
    text.push('\n');
    text
}

/// A text as a field of CSV.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Head of the table for people.
pub const HEAD: &str = "network: model; nodes: the stack's code\n\
    seed   nodes  hosts  loss    strategy          posted  success  failed   died     sent     lost  repeated  time ms  p99 us  log";

/// Row of that table.
#[must_use]
pub fn row(result: &NodeResult) -> String {
    let NodeResult { cell, seed, run } = result;
    let (failed, statuses) = result.failed();
    let mut text = format!(
        "{seed:<6} {:>5}  {:5}  {:<7} {:16} {:>7} {:>8} {:>7} {:>6} {:>8} {:>8} {:>9} {:>8.2} {:>7.1}  {}",
        cell.nodes,
        cell.hosts_name(),
        f64::from(cell.faults.loss_ppm) / 1e6,
        cell.strategy.name(),
        run.posted,
        result.success(),
        failed,
        run.died,
        run.sent,
        run.lost,
        run.repeated,
        run.time_ns as f64 / 1e6,
        run.latency_p99_ns as f64 / 1e3,
        run.log_hash,
    );
    if failed > 0 {
        let _ = write!(text, "  {statuses}");
    }
    if let Some(broken) = &run.broken {
        let _ = write!(text, "\n       BROKEN: {broken}");
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::grid::tests::grid;
    use super::*;

    pub(crate) fn result(seed: u64) -> NodeResult {
        let completed = [("Success", 7), ("AckTimeout", 2), ("RnrRetryCntExc", 1)];
        let run = NodeRun {
            completed: completed.map(|(name, count)| (name.to_owned(), count)).into(),
            posted: 12,
            died: 2,
            latency_p99_ns: 1000 * seed,
            log_hash: "00ff".to_owned(),
            broken: Some("a \"promise\", broken".to_owned()),
            ..NodeRun::default()
        };
        let cell = grid().cells().expect("a grid that makes sense").remove(0);
        NodeResult { cell, seed, run }
    }

    #[test]
    fn a_line_has_the_values_under_their_names() {
        let result = result(5);
        let json = json_cell(&result);
        for (name, value) in
            [("posted", 12), ("success", 7), ("failed", 3), ("died", 2), ("seed", 5)]
        {
            assert_eq!(json[name].as_u64(), Some(value), "{name}");
        }
        assert_eq!(json["completed"]["AckTimeout"].as_u64(), Some(2));
        assert_eq!((json["loss"].as_f64(), json["delay_ns"].as_u64()), (Some(0.02), Some(10_000)));
        let text = csv(std::slice::from_ref(&result));
        let (head, line) = text.trim_end().split_once('\n').expect("two lines");
        assert!(head.ends_with("log_hash,broken"), "{head}");
        assert!(line.ends_with(",00ff,\"a \"\"promise\"\", broken\""), "{line}");
        assert!(line.contains(",7,3,AckTimeout=2 RnrRetryCntExc=1,2,"), "{line}");
        let row = row(&result);
        assert!(row.contains("BROKEN: a \"promise\"") && row.contains("AckTimeout=2"), "{row}");
    }

    #[test]
    fn the_hash_is_of_each_field() {
        let plain = result(5);
        let of = |result: &NodeResult| hash(std::slice::from_ref(result));
        assert_eq!(of(&plain), of(&plain.clone()));
        let mut other = plain.clone();
        other.run.log_hash = "00fe".to_owned();
        assert_ne!(of(&other), of(&plain));
        assert_ne!(of(&result(6)), of(&plain));
    }
}
