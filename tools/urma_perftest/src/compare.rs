//! `compare A.json B.json`: the ratio of each column.
//!
//! *Owns*: which rows and columns stand against each other. *Takes*: two documents of `--json`.
//! *Gives*: text or JSON, and what must not hold but does.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::{Map, Value, json};

use crate::{
    cli::CompareCli,
    condition::{self, Condition},
    plan::PlanRefusal,
};

/// One column of one row in both results.
#[derive(Clone, PartialEq, Debug)]
struct ComparedCell {
    column: String,
    base: f64,
    other: f64,
}

impl ComparedCell {
    /// `other` in units of `base`; `None` when `base` is 0.
    fn ratio(&self) -> Option<f64> {
        (self.base != 0.0).then(|| self.other / self.base)
    }
}

/// What two results have in common, and where they differ.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Comparison {
    rows: Vec<(u64, Vec<ComparedCell>)>,
    /// Parameters with different values.
    differences: Vec<String>,
    files: [String; 2],
}

/// Result of a comparison.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ComparisonResult {
    /// Text of the comparison, for standard output.
    pub(crate) text: String,
    /// Conditions of `--fail-if` that hold.
    pub(crate) failures: Vec<String>,
}

/// Compares what the command line names.
///
/// # Errors
/// A file cannot be read, is no result, or the two have no row in common.
pub(crate) fn compare(cli: &CompareCli) -> Result<ComparisonResult, PlanRefusal> {
    let conditions =
        cli.fail_if.iter().map(|text| condition::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let files = [&cli.base, &cli.other].map(|path| path.display().to_string());
    let comparison = Comparison::of(&read(&cli.base)?, &read(&cli.other)?, files)?;
    comparison.check(&conditions)?;
    let text = if cli.json { format!("{:#}\n", comparison.json()) } else { comparison.table() };
    Ok(ComparisonResult { text, failures: comparison.failures(&conditions) })
}

fn read(path: &Path) -> Result<Value, PlanRefusal> {
    let refuse = |why: String| PlanRefusal(format!("{}: {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
    if value["results"].as_array().is_none_or(Vec::is_empty) {
        return Err(refuse("no results in it; it must be what --json printed".to_owned()));
    }
    Ok(value)
}

impl Comparison {
    fn of(base: &Value, other: &Value, files: [String; 2]) -> Result<Self, PlanRefusal> {
        let results = |value: &Value| value["results"].as_array().cloned().unwrap_or_default();
        let others = results(other);
        let mut rows = Vec::new();
        for row in results(base) {
            let (Some(bytes), Some(row)) = (row["bytes"].as_u64(), row.as_object()) else {
                continue;
            };
            let Some(other) = others.iter().find(|other| other["bytes"] == bytes) else { continue };
            rows.push((bytes, cells(row, other)));
        }
        if rows.is_empty() {
            return Err(PlanRefusal("the two results have no message size in common".to_owned()));
        }
        let differences = differences(&base["parameters"], &other["parameters"]);
        Ok(Self { rows, differences, files })
    }

    /// Each condition must be about columns that there are.
    fn check(&self, conditions: &[Condition]) -> Result<(), PlanRefusal> {
        for name in conditions.iter().flat_map(Condition::columns) {
            let mut cells = self.rows.iter().flat_map(|(_, cells)| cells);
            if name != "bytes" && !cells.any(|cell| cell.column == name) {
                return Err(PlanRefusal(format!("--fail-if: the results have no column {name}")));
            }
        }
        Ok(())
    }

    fn failures(&self, conditions: &[Condition]) -> Vec<String> {
        let mut failures = Vec::new();
        for (bytes, cells) in &self.rows {
            let value = |name: &str| {
                if name == "bytes" {
                    return Some(*bytes as f64);
                }
                cells.iter().find(|cell| cell.column == name)?.ratio()
            };
            let held = conditions.iter().filter_map(|condition| condition.held_by(&value));
            failures.extend(held.map(|why| format!("{bytes} bytes, B/A: {why}")));
        }
        failures
    }

    fn table(&self) -> String {
        let mut text = format!(" A: {}\n B: {}\n", self.files[0], self.files[1]);
        if !self.differences.is_empty() {
            let _ = writeln!(text, " The parameters differ: {}", self.differences.join("; "));
        }
        text.push_str(" bytes      column               A             B             B/A\n");
        for (bytes, cells) in &self.rows {
            for cell in cells {
                let ComparedCell { column, base, other } = cell;
                let ratio =
                    cell.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
                let _ =
                    writeln!(text, " {bytes:<10} {column:<20} {base:<13.4} {other:<13.4} {ratio}");
            }
        }
        text
    }

    fn json(&self) -> Value {
        let rows = self.rows.iter().map(|(bytes, cells)| {
            let columns = cells.iter().map(|cell| {
                let values = json!({ "a": cell.base, "b": cell.other, "ratio": cell.ratio() });
                (cell.column.clone(), values)
            });
            json!({ "bytes": bytes, "columns": Value::Object(columns.collect()) })
        });
        json!({
            "a": self.files[0],
            "b": self.files[1],
            "differences": self.differences,
            "rows": rows.collect::<Vec<_>>(),
        })
    }
}

/// The numbers that both rows have.
fn cells(row: &Map<String, Value>, other: &Value) -> Vec<ComparedCell> {
    let cells = row.iter().filter(|(name, _)| !matches!(name.as_str(), "bytes" | "received"));
    let cells = cells.filter_map(|(name, value)| {
        let (base, other) = (value.as_f64()?, other[name].as_f64()?);
        Some(ComparedCell { column: name.clone(), base, other })
    });
    cells.collect()
}

fn differences(base: &Value, other: &Value) -> Vec<String> {
    let fields = base.as_object().into_iter().flatten();
    let fields = fields.filter(|(name, value)| other.get(name) != Some(value));
    let null = &Value::Null;
    fields
        .map(|(name, value)| format!("{name}: {value} and {}", other.get(name).unwrap_or(null)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(avg: f64, mode: &str) -> Value {
        json!({
            "parameters": { "mode": mode, "jettys": 1 },
            "results": [
                { "bytes": 8, "iterations": 10, "t_avg[us]": avg, "counters": {} },
                { "bytes": 64, "iterations": 10, "t_avg[us]": avg * 2.0 },
            ],
        })
    }

    fn comparison() -> Comparison {
        let files = ["a".to_owned(), "b".to_owned()];
        Comparison::of(&document(2.0, "Rm"), &document(3.0, "Rc"), files).unwrap()
    }

    #[test]
    fn ratios_are_those_of_b_to_a() {
        let value = comparison().json();
        assert_eq!(value["rows"][0]["columns"]["t_avg[us]"]["ratio"], 1.5);
        assert_eq!(value["rows"].as_array().unwrap().len(), 2);
        let table = comparison().table();
        assert!(
            table.contains("t_avg[us]            2.0000        3.0000        1.500"),
            "{table}"
        );
        assert!(table.contains("mode: \"Rm\" and \"Rc\""), "{table}");
        assert!(!table.contains("jettys"), "{table}");
    }

    #[test]
    fn conditions_are_about_ratios() {
        let condition = |text: &str| vec![text.parse::<Condition>().unwrap()];
        assert_eq!(comparison().failures(&condition("t_avg[us] > 1.4 && bytes == 64")).len(), 1);
        assert!(comparison().failures(&condition("t_avg[us] > 1.6")).is_empty());
        assert!(comparison().check(&condition("nonsense > 1")).is_err());
    }

    #[test]
    fn results_without_a_common_size_are_refused() {
        let mut other = document(1.0, "Rm");
        other["results"] = json!([{ "bytes": 9 }]);
        let files = [String::new(), String::new()];
        assert!(Comparison::of(&document(1.0, "Rm"), &other, files).is_err());
    }
}
