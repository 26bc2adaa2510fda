//! Results as JSON lines and as CSV.
//!
//! - owns: names of fields and columns. takes: results. gives: text. must not: round a number.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::stats::Summary;
use crate::wan::results::{CellResult, cell_object};

/// One JSON object: medians by name, intervals under `metrics`, one value per seed under `values`.
#[must_use]
pub fn json_cell(result: &CellResult) -> Value {
    let cell = &result.cell;
    let numbers = cell.numbers;
    let mut object = cell_object();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("strategy", json!(cell.strategy));
    put("rate_bps", json!(numbers.rate_bps));
    put("rtt_s", json!(numbers.rtt_s));
    put("loss", json!(cell.loss));
    put("feedback_loss", json!(cell.run.feedback_loss));
    put("late", json!(cell.run.late));
    put("size_bytes", json!(cell.size_bytes));
    put("payload_bytes", json!(cell.run.payload));
    put("wire_bytes", json!(cell.run.payload + cell.run.overhead));
    put("tps", json!(cell.run.tps));
    put("messages", json!(cell.run.messages));
    put("window_packets", json!(cell.run.window_packets));
    if let Some(costs) = cell.run.cpu {
        put("cpu", json!(costs.to_string()));
    }
    if cell.run.congestion != urma_recovery::CongestionChoice::None {
        put("congestion", json!(cell.run.congestion.name()));
    }
    put("bdp_packets", json!(numbers.bdp_packets()));
    let (first, count) = result.seeds;
    put("seeds", json!((0..count).map(|n| first.wrapping_add(n)).collect::<Vec<u64>>()));
    put("limit_bps", json!(numbers.limit_bps()));
    put("fct_bound_s", json!(numbers.completion_bound_s(cell.size_bytes)));
    put("formula", json!({ "goodput_over_limit": result.formula }));
    let mut values = Map::new();
    for run in &result.runs {
        for (name, value) in run.named() {
            let values = values.entry(name).or_insert_with(|| json!([]));
            values.as_array_mut().into_iter().for_each(|values| values.push(json!(value)));
        }
    }
    put("values", Value::Object(values));
    let mut intervals = Map::new();
    for (name, summary) in result.metrics.named() {
        put(name, json!(summary.map(|summary| summary.median)));
        intervals.insert(name.to_owned(), json!(summary));
    }
    put("metrics", Value::Object(intervals));
    Value::Object(object)
}

/// A table with a line per cell.
#[must_use]
pub fn csv(results: &[CellResult]) -> String {
    let mut text = String::from(
        "strategy,rate_bps,rtt_s,loss,size_bytes,tps,seeds,window_packets,limit_bps,fct_bound_s,formula_goodput_over_limit",
    );
    if let Some(first) = results.first() {
        for (name, _) in first.metrics.named() {
            let _ = write!(text, ",{name},{name}_lo,{name}_hi,{name}_p99");
        }
    }
    for result in results {
        let (cell, numbers) = (&result.cell, result.cell.numbers);
        let _ = write!(
            text,
            "\n{},{},{},{},{},{},{},{},{},{},{}",
            cell.strategy,
            numbers.rate_bps,
            numbers.rtt_s,
            cell.loss,
            cell.size_bytes,
            cell.run.tps,
            result.seeds.1,
            cell.run.window_packets,
            numbers.limit_bps(),
            numbers.completion_bound_s(cell.size_bytes),
            result.formula,
        );
        for (_, summary) in result.metrics.named() {
            match summary {
                Some(Summary { median, lo, hi, p99, .. }) => {
                    let _ = write!(text, ",{median},{lo},{hi},{p99}");
                }
                None => text.push_str(",,,,"),
            }
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::Sweep;
    use crate::wan::cell::{Seeds, run_grid};
    use crate::wan::grid::{GridText, tests::grid};

    #[test]
    fn a_line_has_the_values_under_their_names() {
        let grid =
            GridText { sizes: vec!["4MB".to_owned()], feedback_loss: 0.25, tps: vec![3], ..grid() };
        let cells = grid.cells().expect("a grid that makes sense");
        let (seeds, mut results) = (Seeds { first: 7, count: 3 }, Vec::new());
        run_grid(&cells, seeds, &mut Sweep::plain(1), || {}, |result| results.push(result))
            .expect("nothing is kept");
        let json = json_cell(&results[0]);
        assert_eq!(json["seeds"], json!([7, 8, 9]));
        assert_eq!((&json["feedback_loss"], &json["tps"]), (&json!(0.25), &json!(3)));
        assert_eq!((&json["payload_bytes"], &json["wire_bytes"]), (&json!(4096), &json!(4178)));
        let csv = csv(&results);
        let mut rows = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let (head, row) = (rows.next().expect("the head"), rows.next().expect("the cell"));
        assert_eq!(head.len(), row.len());
        let column = |name: &str| {
            let at = head.iter().position(|head| *head == name).expect(name);
            row[at].parse::<f64>().expect(name)
        };
        assert_eq!(column("seeds"), 3.0);
        for (name, summary) in results[0].metrics.named() {
            let Some(summary) = summary else { continue };
            assert_eq!(json[name].as_f64(), Some(summary.median), "{name}");
            let values = json["values"][name].as_array().expect(name);
            let values: Vec<f64> = values.iter().filter_map(Value::as_f64).collect();
            assert_eq!(crate::stats::summary(&values), Some(summary), "{name}: a value per seed");
            let ends = ["", "_lo", "_hi", "_p99"].map(|end| column(&format!("{name}{end}")));
            assert_eq!(ends, [summary.median, summary.lo, summary.hi, summary.p99], "{name}");
            for (end, value) in [("lo", summary.lo), ("hi", summary.hi), ("p99", summary.p99)] {
                assert_eq!(json["metrics"][name][end].as_f64(), Some(value), "{name} {end}");
            }
        }
    }
}
