//! Runs of `splice`, and their results as JSON, as CSV and as a table.
//!
//! - owns: names of fields and columns. takes: cells. gives: results, text that says that it is a model.
//! - must not: round a number of a file.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use urma_splice::run::drive::RunEnd;
use urma_splice::{EngineCounters, InputError};

use super::cells::SpliceCell;
use crate::sweep::{self, Sweep};
use crate::units::GridError;

/// What a run of one cell gave.
#[derive(Clone, PartialEq, Debug)]
pub struct SpliceResult {
    /// The cell that was run.
    pub cell: SpliceCell,
    /// Every field with its value, in the order of columns.
    pub fields: Vec<(String, Value)>,
}

/// Runs all cells; `each` gets their results in their order.
pub fn run_cells(
    cells: &[SpliceCell],
    sweep: &mut Sweep,
    mut each: impl FnMut(SpliceResult) + Send,
) -> Result<(), GridError> {
    let keys: Vec<String> =
        cells.iter().map(|cell| sweep::key(&format!("splice {cell:?}"))).collect();
    sweep.run(
        &keys,
        |at| run(&cells[at]),
        |at, fields| each(SpliceResult { cell: cells[at].clone(), fields }),
    )
}

fn run(cell: &SpliceCell) -> Result<Vec<(String, Value)>, GridError> {
    let messages = cell.draw();
    let mut run = cell.start(&messages)?;
    let end = run.finish(|_| {});
    Ok(fields(cell, end, run.engine().counters()))
}

/// Every field of a cell whose run ended so, in the order of columns.
#[must_use]
pub fn fields(cell: &SpliceCell, end: RunEnd, counters: &EngineCounters) -> Vec<(String, Value)> {
    let config = &cell.config;
    let width = u64::from(config.beat_bytes);
    let (cycles, stopped) = match end {
        RunEnd::Done(cycles) => (cycles, None),
        RunEnd::Stopped(from) => (from, Some(from)),
    };
    let percent = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 * 100.0 };
    let stalls = counters.stalls;
    let mut fields = vec![
        ("scheme", json!(config.scheme.name())),
        ("mix", json!(cell.mix)),
        ("width_bytes", json!(width)),
        ("ram_bytes", json!(u64::from(config.data_beats) * width)),
        ("sideband_entries", json!(config.sideband_entries)),
        ("handover_cycles", json!(config.handover)),
        ("bubble", json!(cell.disturbance.bubble.0)),
        ("backpressure", json!(cell.disturbance.backpressure.0)),
        ("reserve_issue_cycles", json!(cell.disturbance.reserve_issue)),
        ("mtu_bytes", json!(1_u32 << cell.mtu_log2)),
        ("messages", json!(cell.messages)),
        ("seed", json!(cell.seed)),
        ("cycles", json!(cycles)),
        ("stopped_in_cycle", json!(stopped)),
        ("packets", json!(counters.packets)),
        ("bytes", json!(counters.bytes)),
        ("width_percent", json!(percent(counters.bytes, cycles * width))),
        ("ceiling_percent", json!(percent(counters.packets + counters.beats_out, cycles))),
        ("header_latency_mean", json!(counters.header_latency.mean())),
        ("header_latency_p99", json!(counters.header_latency.quantile(990))),
        ("end_latency_mean", json!(counters.end_latency.mean())),
        ("end_latency_p99", json!(counters.end_latency.quantile(990))),
        ("occupancy_max", json!(counters.occupancy_max)),
        ("occupancy_mean", json!(counters.occupancy_mean())),
        ("stall_data", json!(stalls.data)),
        ("stall_sideband", json!(stalls.sideband)),
        ("stall_bank", json!(stalls.bank)),
        ("stall_handover", json!(stalls.handover)),
        ("stall_flush", json!(stalls.flush)),
        ("idle_out", json!(counters.idle_out)),
        ("too_long", json!(counters.too_long)),
        ("mismatch", json!(counters.mismatch)),
    ];
    let errors =
        InputError::ALL.iter().map(|(reason, _)| counters.input_error(*reason)).sum::<u64>();
    fields.push(("input_errors", json!(errors)));
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

impl SpliceResult {
    /// Bytes of every message; `None`: they differ.
    #[must_use]
    pub fn message_bytes(&self) -> Option<u32> {
        self.cell.message_bytes()
    }

    /// The value of a field that is a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        let field = self.fields.iter().find(|(known, _)| known == name);
        field.and_then(|(_, value)| value.as_f64())
    }
}

/// Hash of all results.
#[must_use]
pub fn hash(results: &[SpliceResult]) -> String {
    sweep::key(&results.iter().map(|result| format!("{:?}", result.fields)).collect::<String>())
}

/// One JSON object of a result.
#[must_use]
pub fn json_cell(result: &SpliceResult) -> Value {
    let mut object = Map::new();
    object.insert("schema".to_owned(), json!("urma-lab/1"));
    object.insert("kind".to_owned(), json!("cell"));
    object.insert("experiment".to_owned(), json!("splice"));
    object.insert("model".to_owned(), json!(true));
    object.insert("build".to_owned(), json!(env!("CARGO_PKG_VERSION")));
    object.extend(result.fields.iter().cloned());
    Value::Object(object)
}

/// A table with a line per cell.
#[must_use]
pub fn csv(results: &[SpliceResult]) -> String {
    let mut text = String::from("model");
    if let Some(first) = results.first() {
        for (name, _) in &first.fields {
            let _ = write!(text, ",{name}");
        }
    }
    for result in results {
        text.push_str("\ntrue");
        for (_, value) in &result.fields {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let _ = write!(text, ",{}", if value == "null" { "" } else { &value });
        }
    }
    text.push('\n');
    text
}

/// Head of the table for people.
pub const HEAD: &str = "model; cycles of the engine, no chip\nscheme    mix        W      RAM   B   H  bubble  back  % of W  % of ceiling  header latency mean / p99";

/// Row of that table.
#[must_use]
pub fn row(result: &SpliceResult) -> String {
    let (cell, config) = (&result.cell, &result.cell.config);
    let width = u64::from(config.beat_bytes);
    let mut text = format!(
        "{:9} {:8} {:>3} {:>8} {:>3} {:>3} {:>7} {:>5}",
        config.scheme.name(),
        cell.mix,
        width,
        u64::from(config.data_beats) * width,
        config.sideband_entries,
        config.handover,
        cell.disturbance.bubble.0,
        cell.disturbance.backpressure.0,
    );
    let number = |name| result.number(name).unwrap_or(0.0);
    let _ = match result.number("stopped_in_cycle") {
        Some(from) => write!(text, "  stops in cycle {from}"),
        None => write!(
            text,
            " {:>7.2} {:>13.2}  {:>12.1} / {}",
            number("width_percent"),
            number("ceiling_percent"),
            number("header_latency_mean"),
            number("header_latency_p99"),
        ),
    };
    if number("too_long") > 0.0 {
        let _ = write!(text, ", {} messages dropped: too long", number("too_long"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::cells::{SpliceGrid, tests::grid};
    use super::*;

    fn value(result: &SpliceResult, name: &str) -> f64 {
        result.number(name).expect(name)
    }

    #[test]
    fn shares_are_those_counted_by_hand() {
        let cell = grid().cells().expect("a grid that makes sense").remove(0);
        // 48,000 bytes of 1,000 beats of 64; a header and a beat each take a cycle.
        let mut counters = EngineCounters {
            bytes: 48_000,
            packets: 100,
            beats_out: 800,
            ..EngineCounters::default()
        };
        let result = |end, counters: &EngineCounters| SpliceResult {
            cell: cell.clone(),
            fields: fields(&cell, end, counters),
        };
        let done = result(RunEnd::Done(1000), &counters);
        assert_eq!(value(&done, "width_percent"), 75.0);
        assert_eq!(value(&done, "ceiling_percent"), 90.0);
        let text = row(&done);
        assert!(text.contains("75.00") && text.contains("90.00"), "{text}");
        counters.input_errors = [1, 2, 3, 4, 5];
        let stopped = result(RunEnd::Stopped(0), &counters);
        assert_eq!(value(&stopped, "input_errors"), 15.0);
        assert_eq!(
            (value(&stopped, "width_percent"), value(&stopped, "stopped_in_cycle")),
            (0.0, 0.0)
        );
        assert!(row(&stopped).contains("stops in cycle 0"));
    }

    #[test]
    fn latencies_are_those_of_the_packets() {
        let grid = SpliceGrid { bubbles: vec![0.3], backpressures: vec![0.3], ..grid() };
        let cell = grid.cells().expect("a grid that makes sense").remove(0);
        let messages = cell.draw();
        let (mut headers, mut ends) = (Vec::new(), Vec::new());
        let mut run = cell.start(&messages).expect("checked");
        let end = run.finish(|packet| {
            headers.push(packet.header - packet.accepted);
            ends.push(packet.end - packet.accepted);
        });
        let fields = fields(&cell, end, run.engine().counters());
        let result = SpliceResult { cell, fields };
        for (name, mut cycles) in [("header", headers), ("end", ends)] {
            cycles.sort_unstable();
            // The least value that 99 % do not exceed.
            let p99 = cycles[(cycles.len() * 99).div_ceil(100) - 1];
            let mean = cycles.iter().sum::<u64>() as f64 / cycles.len() as f64;
            assert_eq!(value(&result, &format!("{name}_latency_p99")), p99 as f64, "{name}");
            let found = value(&result, &format!("{name}_latency_mean"));
            assert!((found / mean - 1.0).abs() < 1e-9, "{name}: {found} {mean}");
            assert!(p99 < *cycles.last().expect("packets"), "{name}: p99 is not the maximum");
        }
    }
}
