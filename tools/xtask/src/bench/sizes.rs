//! Latency and bandwidth over the size of a message: ours, UCX, memcpy.
//!
//! *Owns*: which sizes and curves there are, medians of each point. *Gives*: plots as text
//! (`plot.rs` reads it), JSON. *Must not*: show a point that one round did not measure.

use std::{fmt::Write, path::Path};

use serde::Serialize;
use serde_json::Value;

use super::{
    lines::UCX_TLS,
    middle, probe_value, three_digits,
    ucx::{self, Pick},
};
use crate::{
    pair,
    say::{Failure, say_part},
};

/// The smallest size and the largest, in bytes; all powers of two between them are measured.
const RANGE: (u32, u32) = (8, 1 << 20);
/// Up to this size a run has more iterations, in bytes.
const SMALL: u32 = 4096;
/// 2^20 bytes in GB (10^9 bytes).
const GB: f64 = 1.048_576e-3;

/// Where the points of a curve come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PointSource {
    /// `urma_perftest`: test, iterations of a small and of a large size, key of the result.
    Perftest(&'static str, [&'static str; 2], &'static str),
    /// A test of `ucx_perftest`, and which number of its answer.
    Ucx(&'static str, Pick),
    /// memcpy between hot buffers.
    Memcpy,
}

/// What one plot shows: title, unit, and its curves with their names.
type PlotPlan = (&'static str, &'static str, &'static [(&'static str, PointSource)]);

const PLANS: [PlotPlan; 2] = [
    (
        "A WRITE, one way, over its size",
        "us",
        &[
            (
                "urma write_lat",
                PointSource::Perftest("write_lat", ["100000", "10000"], "t_median[us]"),
            ),
            ("UCX put", PointSource::Ucx("ucp_put_lat", Pick::Latency)),
        ],
    ),
    (
        "Bandwidth over the size of a request",
        "GB/s",
        &[
            (
                "urma write_bw",
                PointSource::Perftest("write_bw", ["1000000", "20000"], "BW average[MB/sec]"),
            ),
            (
                "urma read_bw",
                PointSource::Perftest("read_bw", ["1000000", "20000"], "BW average[MB/sec]"),
            ),
            ("UCX put", PointSource::Ucx("ucp_put_bw", Pick::Bandwidth)),
            ("memcpy", PointSource::Memcpy),
        ],
    ),
];

/// A curve: for each size the values of all rounds.
#[derive(Clone, Debug, Serialize)]
struct SizeCurve {
    name: &'static str,
    points: Vec<(u32, Vec<f64>)>,
}

/// A plot, with the values of all rounds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SizePlot {
    title: &'static str,
    unit: &'static str,
    curves: Vec<SizeCurve>,
}

fn sizes() -> impl Iterator<Item = u32> {
    (RANGE.0.ilog2()..=RANGE.1.ilog2()).map(|power| 1 << power)
}

/// The plots that can be measured here, without a value.
pub(super) fn plots() -> Vec<SizePlot> {
    let is_possible = |source| ucx::is_here() || !matches!(source, PointSource::Ucx(..));
    let curve = |name| SizeCurve { name, points: sizes().map(|size| (size, Vec::new())).collect() };
    let plot = |(title, unit, curves): PlotPlan| SizePlot {
        title,
        unit,
        curves: curves.iter().filter(|c| is_possible(c.1)).map(|c| curve(c.0)).collect(),
    };
    PLANS.map(plot).into()
}

/// Measures each point once more.
pub(super) fn add_round(plots: &mut [SizePlot], bin: &Path) -> Result<(), Failure> {
    for (plot, (_, _, plan)) in plots.iter_mut().zip(PLANS) {
        for curve in &mut plot.curves {
            let source = plan.iter().find(|(name, _)| *name == curve.name).map(|found| found.1);
            say_part(&format!("\r{:<60}", format!("{}: {}", plot.title, curve.name)));
            let values = source.map_or_else(|| Ok(Vec::new()), |source| measure(bin, source))?;
            for ((_, point), value) in curve.points.iter_mut().zip(values) {
                point.push(value);
            }
        }
    }
    Ok(())
}

/// One value for each size.
fn measure(bin: &Path, source: PointSource) -> Result<Vec<f64>, Failure> {
    match source {
        PointSource::Perftest(test, [many, few], key) => {
            let mut values = perftest(bin, test, (RANGE.0, SMALL), many, key)?;
            values.extend(perftest(bin, test, (2 * SMALL, RANGE.1), few, key)?);
            Ok(values)
        }
        PointSource::Ucx(test, pick) => {
            sizes().map(|size| ucx::measure(test, size, UCX_TLS, pick)).collect()
        }
        PointSource::Memcpy => {
            sizes().map(|size| probe_value(bin, &format!("memcpy --size {size}"))).collect()
        }
    }
}

fn perftest(
    bin: &Path,
    test: &str,
    (low, high): (u32, u32),
    iterations: &str,
    key: &str,
) -> Result<Vec<f64>, Failure> {
    let (low, high) = (low.to_string(), high.to_string());
    let args = [test, "-n", iterations, "--min_size", &low, "--max_size", &high];
    // Peaks need the clock between requests.
    let more: &[&str] = if test.ends_with("_bw") { &["-N"] } else { &[] };
    let document = pair::run(bin, &[&args[..], more].concat())?;
    let results = document.get("results").and_then(Value::as_array);
    let factor = if more.is_empty() { 1.0 } else { GB };
    let value = |result: &Value| Some(result.get(key)?.as_f64()? * factor);
    let values: Option<Vec<f64>> = results.into_iter().flatten().map(value).collect();
    values.ok_or_else(|| Failure(format!("{test}: no {key} in the answer")))
}

impl SizePlot {
    /// The plot as a block of a document.
    pub(super) fn block(&self) -> String {
        let mut text = format!("```plot {}\n{}\nbytes", self.title, self.unit);
        for curve in &self.curves {
            let _ = write!(text, " | {}", curve.name);
        }
        for (index, size) in sizes().enumerate() {
            let _ = write!(text, "\n{size}");
            for curve in &self.curves {
                let median = curve.points.get(index).and_then(|(_, values)| middle(values));
                let _ = match median {
                    Some(value) => write!(text, " | {}", three_digits(value)),
                    None => write!(text, " | -"),
                };
            }
        }
        text + "\n```"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Plot;

    #[test]
    fn blocks_are_plots() {
        for mut plot in plots() {
            let rounds = [2.5, 1.5, 3.5];
            for (index, (_, point)) in plot.curves[0].points.iter_mut().enumerate() {
                // The last size was not measured.
                if index < 17 {
                    point.extend(rounds);
                }
            }
            plot.curves.truncate(1);
            let block = plot.block();
            assert!(block.contains("\n8 | 2.5\n") && block.ends_with("\n1048576 | -\n```"));
            let body = block.trim_start_matches("```plot ").trim_end_matches("```");
            Plot::of(body.split_once('\n').expect("a title").1).expect("a plot");
        }
    }
}
