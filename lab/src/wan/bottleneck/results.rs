//! Runs all seeds of a grid of bottlenecks; results, their hash and their text.
//!
//! - owns: names of fields. takes: cells, seeds. gives: one result per cell.
//! - must not: let the number of workers reach a result, round a number in a file.

use std::fmt::Write as _;
use std::hash::Hasher as _;

use serde_json::{Map, Value, json};
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::grid::BottleneckCell;
use super::world::{FlowCounts, SharingOutcome};
use crate::stats::{Summary, middle, summary};
use crate::sweep::Sweep;
use crate::units::GridError;
use crate::wan::cell::{Seeds, run_each};
use crate::wan::results::cell_object;

/// A number of a run with its name.
type Metric = (&'static str, fn(&SharingOutcome) -> f64);

/// What is measured of a run.
const METRICS: [Metric; 9] = [
    ("jain", SharingOutcome::fairness),
    ("our_share", SharingOutcome::our_share),
    ("used", |run| run.used),
    ("wait_mean_ms", |run| run.wait_mean_ms),
    ("wait_p99_ms", |run| run.wait_p99_ms),
    ("wait_max_ms", |run| run.wait_max_ms),
    ("dropped", |run| run.dropped() as f64),
    ("sent_per_received", SharingOutcome::sent_per_received),
    ("repairs", |run| run.flows.iter().map(|flow| flow.repairs).sum::<u64>() as f64),
];

/// A count of a flow with its name.
type FlowCount = (&'static str, fn(&FlowCounts) -> u64);

/// What is counted of a flow.
const COUNTS: [FlowCount; 7] = [
    ("received", |flow| flow.received),
    ("sent", |flow| flow.sent),
    ("again", |flow| flow.again),
    ("repairs", |flow| flow.repairs),
    ("dropped", |flow| flow.dropped),
    ("lost", |flow| flow.lost),
    ("timeouts", |flow| flow.timeouts),
];

/// Result of a cell.
#[derive(Clone, PartialEq, Debug)]
pub struct BottleneckResult {
    /// The cell of the grid.
    pub cell: BottleneckCell,
    /// Seeds of its runs.
    pub seeds: Seeds,
    /// What each of them gave.
    pub runs: Vec<SharingOutcome>,
}

/// Runs every seed of every cell; `each` gets a cell when all of its runs are there, unless the sweep is a part of one.
pub fn run_bottlenecks(
    cells: &[BottleneckCell],
    seeds: Seeds,
    sweep: &mut Sweep,
    on_run: impl Fn() + Sync,
    mut each: impl FnMut(BottleneckResult) + Send,
) -> Result<(), GridError> {
    let run = |cell: &BottleneckCell, seed| cell.run.measure(seed);
    run_each("bottleneck", (cells, seeds), sweep, (on_run, run), |cell, runs| {
        each(BottleneckResult { cell: cell.clone(), seeds, runs });
    })
}

impl BottleneckResult {
    fn values(&self, of: impl Fn(&SharingOutcome) -> f64) -> Vec<f64> {
        self.runs.iter().map(of).collect()
    }

    /// Summary over the seeds of a metric by its name.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<Summary> {
        let (_, of) = METRICS.iter().find(|(known, _)| *known == name)?;
        summary(&self.values(of))
    }

    /// Median over the seeds of what a flow has of its fair share.
    #[must_use]
    pub fn share(&self, flow: usize) -> f64 {
        median(self.values(|run| run.share(flow)))
    }

    fn count(&self, flow: usize, of: fn(&FlowCounts) -> u64) -> f64 {
        median(self.values(|run| of(&run.flows[flow]) as f64))
    }

    /// One JSON object: medians by name, intervals under `metrics`, a value per seed under `values` and `by_flow`.
    #[must_use]
    pub fn json(&self) -> Value {
        let (cell, run) = (&self.cell, &self.cell.run);
        let mut object = cell_object();
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        put("flows", json!(run.flows));
        put("congestion", json!(run.congestion.name()));
        put("beside", json!(cell.beside));
        put("cross", json!(cell.cross));
        put("rate_bps", json!(cell.rate_bps));
        put("rtt_s", json!(run.rtt_ns as f64 / 1e9));
        put("loss", json!(cell.loss));
        put("queue", json!(cell.queue));
        put("queue_packets", json!(run.queue));
        put("bdp_packets", json!(cell.bdp_packets));
        put("message_packets", json!(run.message));
        put("payload_bytes", json!(cell.packet.0));
        put("wire_bytes", json!(cell.packet.0 + cell.packet.1));
        put("time_s", json!(run.until_ns as f64 / 1e9));
        put("after_s", json!(run.from_ns as f64 / 1e9));
        let Seeds { first, count } = self.seeds;
        put("seeds", json!((0..count).map(|n| first.wrapping_add(n)).collect::<Vec<u64>>()));
        let (mut values, mut intervals) = (Map::new(), Map::new());
        for (name, of) in METRICS {
            let of_runs = self.values(of);
            let summary = summary(&of_runs);
            put(name, json!(summary.map(|summary| summary.median)));
            intervals.insert(name.to_owned(), json!(summary));
            values.insert(name.to_owned(), json!(of_runs));
        }
        put("values", Value::Object(values));
        put("metrics", Value::Object(intervals));
        let by_flow = run.names().into_iter().enumerate().map(|(flow, kind)| {
            let mut object = Map::new();
            object.insert("kind".to_owned(), json!(kind));
            if flow < run.sharers() {
                object.insert("share".to_owned(), json!(self.values(|run| run.share(flow))));
            }
            for (name, of) in COUNTS {
                let counts: Vec<u64> = self.runs.iter().map(|run| of(&run.flows[flow])).collect();
                object.insert(name.to_owned(), json!(counts));
            }
            Value::Object(object)
        });
        put("by_flow", by_flow.collect());
        Value::Object(object)
    }

    /// Rows of the table: the cell, and each of its flows.
    #[must_use]
    pub fn rows(&self) -> String {
        let (cell, run) = (&self.cell, &self.cell.run);
        let median = |name| self.metric(name).map_or(f64::NAN, |summary| summary.median);
        let mut text = format!(
            "{:>3} {:6} {:12} {:>7} {:>6} {:>8} {:10} {:>6.3} {:>6.3} {:>6.3} {:>8.3} {:>8.3} {:>8} {:>6.3}",
            run.flows,
            run.congestion.name(),
            cell.beside,
            cell.rate_bps / 1e9,
            run.rtt_ns as f64 / 1e6,
            cell.queue,
            cell.loss,
            median("jain"),
            median("our_share"),
            median("used"),
            median("wait_mean_ms"),
            median("wait_p99_ms"),
            median("dropped"),
            median("sent_per_received"),
        );
        for (flow, kind) in run.names().into_iter().enumerate() {
            let count = |of| self.count(flow, of);
            let share = match flow < run.sharers() {
                true => format!("{:.3}", self.share(flow)),
                false => "-".to_owned(),
            };
            let _ = write!(
                text,
                "\n      flow {flow:>3} {kind:6} share {share:>6}, received {}, dropped {}, lost {}, sent again {}, repairs {}, timeouts {}",
                count(|flow| flow.received),
                count(|flow| flow.dropped),
                count(|flow| flow.lost),
                count(|flow| flow.again),
                count(|flow| flow.repairs),
                count(|flow| flow.timeouts),
            );
        }
        text
    }
}

/// Head of the table.
#[must_use]
pub fn head() -> String {
    "model; share: of an equal part\n\
     flows        beside          Gb/s RTT ms    queue loss         Jain  share   used  wait ms      p99  dropped sent/received"
        .to_owned()
}

/// A table with a line per flow of each cell, medians over the seeds.
#[must_use]
pub fn csv(results: &[BottleneckResult]) -> String {
    let mut text = String::from(
        "cell,flows,congestion,beside,cross,rate_bps,rtt_s,loss,queue_packets,bdp_packets,seeds",
    );
    for (name, _) in METRICS {
        let _ = write!(text, ",{name}");
    }
    text.push_str(",flow,kind,share");
    for (name, _) in COUNTS {
        let _ = write!(text, ",flow_{name}");
    }
    for (number, result) in results.iter().enumerate() {
        let (cell, run) = (&result.cell, &result.cell.run);
        for (flow, kind) in run.names().into_iter().enumerate() {
            let _ = write!(
                text,
                "\n{},{},{},{},{},{},{},{},{},{},{}",
                number + 1,
                run.flows,
                run.congestion.name(),
                cell.beside,
                cell.cross.replace(',', "/"),
                cell.rate_bps,
                run.rtt_ns as f64 / 1e9,
                cell.loss,
                run.queue,
                cell.bdp_packets,
                result.seeds.count,
            );
            for (_, of) in METRICS {
                let _ = write!(text, ",{}", median(result.values(of)));
            }
            let _ = write!(text, ",{},{kind},", flow + 1);
            if flow < run.sharers() {
                let _ = write!(text, "{}", result.share(flow));
            }
            for (_, of) in COUNTS {
                let _ = write!(text, ",{}", result.count(flow, of));
            }
        }
    }
    text.push('\n');
    text
}

/// Hash of all that follows from grid and seeds.
#[must_use]
pub fn hash(results: &[BottleneckResult]) -> String {
    let mut hasher = SipHasher24::new();
    for result in results {
        hasher.write(format!("{result:?}").as_bytes());
    }
    format!("{:032x}", hasher.finish128().as_u128())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    if values.is_empty() { f64::NAN } else { middle(&values) }
}

#[cfg(test)]
mod tests {
    use super::super::grid::tests::grid;
    use super::*;

    fn results(workers: usize) -> Vec<BottleneckResult> {
        let mut grid = grid();
        grid.losses = ["none", "iid:0.01"].map(str::to_owned).to_vec();
        grid.besides = vec!["cubic".to_owned()];
        grid.cross = "30M,100ms,100ms".to_owned();
        let cells = grid.cells().expect("a grid that makes sense");
        let (seeds, mut results) = (Seeds { first: 3, count: 2 }, Vec::new());
        let mut sweep = Sweep::plain(workers);
        run_bottlenecks(&cells, seeds, &mut sweep, || {}, |result| results.push(result))
            .expect("nothing is kept");
        results
    }

    #[test]
    fn files_have_the_values_of_each_seed_and_flow_whatever_the_workers() {
        let all = results(2);
        assert_eq!(hash(&all), hash(&results(1)));
        assert_ne!(hash(&all[..1]), hash(&all[1..]));
        let lossy = &all[1];
        assert_ne!(lossy.runs[0], lossy.runs[1], "seeds differ");
        assert_eq!(all[0].runs[0], all[0].runs[1], "without losses nothing follows from the seed");
        let json = lossy.json();
        assert_eq!(json["seeds"], json!([3, 4]));
        let jain = [lossy.runs[0].fairness(), lossy.runs[1].fairness()];
        assert_eq!(json["values"]["jain"], json!(jain));
        assert_eq!(json["jain"], json!(f64::midpoint(jain[0], jain[1])));
        let kinds: Vec<_> =
            json["by_flow"].as_array().expect("flows").iter().map(|flow| &flow["kind"]).collect();
        assert_eq!(kinds, ["delay", "delay", "cubic", "cross"]);
        assert_eq!(json["by_flow"][3].get("share"), None, "cross traffic has no share");
        let shares = |flow: usize| json["by_flow"][flow]["share"][0].as_f64().expect("a number");
        assert!((shares(0) + shares(1) + shares(2) - 3.0).abs() < 1e-9);
        assert!(lossy.runs[0].flows[0].lost > 0 && all[0].runs[0].flows[0].lost == 0);
        let csv = csv(&all);
        let columns: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [columns[0]; 9], "a head and four flows of two cells");
        assert_eq!(all[0].rows().lines().count(), 5);
    }
}
