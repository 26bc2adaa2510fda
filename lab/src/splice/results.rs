//! Results of `splice` as JSON lines, as CSV and as a table.
//!
//! - owns: names of fields and columns. takes: results. gives: text that says that it is a model.
//! - must not: round a number of a file.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use urma_splice::InputError;
use urma_splice::run::drive::RunEnd;

use super::cells::SpliceResult;

/// Every field of a result with its value, in the order of columns.
#[must_use]
pub fn fields(result: &SpliceResult) -> Vec<(&'static str, Value)> {
    let (cell, config, counters) = (&result.cell, &result.cell.config, &result.counters);
    let width = u64::from(config.beat_bytes);
    let (cycles, stopped) = match result.end {
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
    fields
}

/// One line of JSON per cell.
#[must_use]
pub fn json_lines(results: &[SpliceResult]) -> String {
    let line = |result| {
        let mut object = Map::new();
        object.insert("schema".to_owned(), json!("urma-lab/1"));
        object.insert("kind".to_owned(), json!("cell"));
        object.insert("experiment".to_owned(), json!("splice"));
        object.insert("model".to_owned(), json!(true));
        object.insert("build".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        object.extend(fields(result).into_iter().map(|(name, value)| (name.to_owned(), value)));
        Value::Object(object).to_string()
    };
    results.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A table with a line per cell.
#[must_use]
pub fn csv(results: &[SpliceResult]) -> String {
    let mut text = String::from("model");
    if let Some(first) = results.first() {
        for (name, _) in fields(first) {
            let _ = write!(text, ",{name}");
        }
    }
    for result in results {
        text.push_str("\ntrue");
        for (_, value) in fields(result) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let _ = write!(text, ",{}", if value == "null" { "" } else { &value });
        }
    }
    text.push('\n');
    text
}

/// A table for people.
#[must_use]
pub fn table(results: &[SpliceResult]) -> String {
    let mut text = String::from(
        "model; cycles of the engine, no chip\nscheme    mix        W      RAM   B   H  bubble  back  % of W  % of ceiling  header latency mean / p99",
    );
    for result in results {
        let (cell, config, counters) = (&result.cell, &result.cell.config, &result.counters);
        let width = u64::from(config.beat_bytes);
        let _ = write!(
            text,
            "\n{:9} {:8} {:>3} {:>8} {:>3} {:>3} {:>7} {:>5}",
            config.scheme.name(),
            cell.mix,
            width,
            u64::from(config.data_beats) * width,
            config.sideband_entries,
            config.handover,
            cell.disturbance.bubble.0,
            cell.disturbance.backpressure.0,
        );
        let _ = match result.end {
            RunEnd::Stopped(from) => write!(text, "  stops in cycle {from}"),
            RunEnd::Done(cycles) => write!(
                text,
                " {:>7.2} {:>13.2}  {:>12.1} / {}",
                counters.bytes as f64 / (cycles * width) as f64 * 100.0,
                (counters.packets + counters.beats_out) as f64 / cycles as f64 * 100.0,
                counters.header_latency.mean(),
                counters.header_latency.quantile(990),
            ),
        };
        if counters.too_long > 0 {
            let _ = write!(text, ", {} messages dropped: too long", counters.too_long);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::cells::{SpliceGrid, run_cells, tests::grid};
    use super::*;

    fn value(result: &SpliceResult, name: &str) -> f64 {
        let found = fields(result).into_iter().find(|(found, _)| *found == name);
        found.and_then(|(_, value)| value.as_f64()).expect(name)
    }

    #[test]
    fn shares_are_those_counted_by_hand() {
        let cells = grid().cells().expect("a grid that makes sense");
        let mut result = run_cells(&cells, 1, &|| {}).expect("a run").remove(0);
        result.end = RunEnd::Done(1000);
        // 48,000 bytes of 1,000 beats of 64; a header and a beat each take a cycle.
        (result.counters.bytes, result.counters.packets, result.counters.beats_out) =
            (48_000, 100, 800);
        assert_eq!(value(&result, "width_percent"), 75.0);
        assert_eq!(value(&result, "ceiling_percent"), 90.0);
        let text = table(&[result.clone()]);
        assert!(text.contains("75.00") && text.contains("90.00"), "{text}");
        result.counters.input_errors = [1, 2, 3, 4, 5];
        assert_eq!(value(&result, "input_errors"), 15.0);
        result.end = RunEnd::Stopped(0);
        assert_eq!(
            (value(&result, "width_percent"), value(&result, "stopped_in_cycle")),
            (0.0, 0.0)
        );
        assert!(table(&[result]).contains("stops in cycle 0"));
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
        let counters = run.engine().counters().clone();
        let result = SpliceResult { cell, end, counters };
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
