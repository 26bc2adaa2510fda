//! The distribution of latencies.
//!
//! *Owns*: its percentiles and ranges. *Takes*: a histogram of nanoseconds. *Gives*: text, JSON.

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::Form;
use crate::pace::distribution;

/// Percentiles that a report lists.
const RANKS: [f64; 8] = [50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0];
/// The first range ends here, nanoseconds; each next one at twice of it.
const FIRST_NS: u64 = 64;
/// Width of the longest bar.
const BAR: u64 = 40;

/// The distribution of samples.
pub(super) fn of(samples: &[u32]) -> Histogram<u64> {
    let mut histogram = distribution();
    samples.iter().for_each(|sample| histogram.saturating_record(u64::from(*sample).max(1)));
    histogram
}

/// Ranges that hold something: their end in nanoseconds, and how many are in them.
fn ranges(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    let ranges = histogram.iter_log(FIRST_NS, 2.0);
    let ranges =
        ranges.map(|range| (range.value_iterated_to(), range.count_since_last_iteration()));
    ranges.filter(|(_, count)| *count != 0).collect()
}

/// As a block of lines.
pub(super) fn text(histogram: &Histogram<u64>, bytes: u32, form: &Form) -> String {
    let us = |ns: u64| ns as f64 / form.divisor / 1000.0;
    let from = if form.is_open { " from the intended start" } else { "" };
    let mut text = format!(" latency of {bytes} bytes{from}, {} samples\n", histogram.len());
    text.push_str("  percentile   t[us]\n");
    for rank in RANKS {
        let _ = writeln!(text, "  {rank:<10}   {:.3}", us(histogram.value_at_percentile(rank)));
    }
    text.push_str("  up to[us]    count        below%\n");
    let ranges = ranges(histogram);
    let most = ranges.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    let mut below = 0;
    for (end, count) in ranges {
        below += count;
        let share = below as f64 * 100.0 / histogram.len().max(1) as f64;
        let bar = "#".repeat(usize::try_from(count * BAR / most).unwrap_or(0));
        let line = format!("  {:<10.3}   {count:<10}   {share:<9.4} {bar}", us(end));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// As a JSON object.
pub(super) fn json(histogram: &Histogram<u64>, form: &Form) -> Value {
    let us = |ns: u64| ns as f64 / form.divisor / 1000.0;
    let mut map = Map::new();
    map.insert("samples".to_owned(), json!(histogram.len()));
    map.insert("t_avg[us]".to_owned(), json!(histogram.mean() / form.divisor / 1000.0));
    for rank in RANKS {
        let value = us(histogram.value_at_percentile(rank));
        map.insert(format!("{rank}%[us]"), json!(value));
    }
    let ranges = ranges(histogram);
    let ranges = ranges.iter().map(|(end, count)| json!({ "up_to[us]": us(*end), "count": count }));
    map.insert("histogram".to_owned(), ranges.collect());
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::BwUnit;

    const FORM: Form =
        Form { unit: BwUnit::Mb, divisor: 1.0, histogram: true, is_open: true, errors: None };

    #[test]
    fn percentiles_reach_to_five_nines() {
        let samples: Vec<u32> = (1..=100_000).collect();
        let value = json(&of(&samples), &FORM);
        for (rank, us) in [("50%[us]", 50.0), ("99.9%[us]", 99.9), ("99.999%[us]", 99.999)] {
            let found = value[rank].as_f64().unwrap();
            assert!((found - us).abs() < us * 0.002, "{rank}: {found}");
        }
        let counts = value["histogram"].as_array().unwrap().iter();
        assert_eq!(counts.map(|range| range["count"].as_u64().unwrap()).sum::<u64>(), 100_000);
    }

    #[test]
    fn half_a_round_trip_is_half() {
        let form = Form { divisor: 2.0, ..FORM };
        let value = json(&of(&[4000; 10]), &form);
        assert!((value["50%[us]"].as_f64().unwrap() - 2.0).abs() < 0.01);
        let text = text(&of(&[4000; 10]), 8, &form);
        assert!(text.contains("from the intended start, 10 samples"), "{text}");
        assert!(text.contains("  99.999       2.0"), "{text}");
    }

    /// Of ten samples five are below 64 ns, three more below 128 ns and two up to 1,024 ns.
    #[test]
    fn ranges_have_their_counts_and_the_share_up_to_their_end() {
        let samples = [10, 20, 30, 40, 50, 70, 80, 90, 600, 700];
        let text = text(&of(&samples), 8, &FORM);
        let table = text.split_once("below%\n").expect("a table").1;
        let cells = |line: &str| -> Vec<String> {
            line.split_whitespace().skip(1).map(str::to_owned).collect()
        };
        let rows: Vec<_> = table.lines().map(cells).collect();
        let bars = [40, 24, 16].map(|len| "#".repeat(len));
        assert_eq!(rows[0], ["5", "50.0000", bars[0].as_str()], "{text}");
        assert_eq!(rows[1], ["3", "80.0000", bars[1].as_str()], "{text}");
        assert_eq!(rows[2], ["2", "100.0000", bars[2].as_str()], "{text}");
        assert_eq!(rows.len(), 3, "empty ranges are left out: {text}");
        let value = json(&of(&samples), &FORM);
        let mean = value["t_avg[us]"].as_f64().expect("a number");
        assert!((mean - 0.169).abs() < 0.001, "{mean}");
        assert_eq!((&value["samples"], &value["histogram"][1]["count"]), (&json!(10), &json!(3)));
    }
}
