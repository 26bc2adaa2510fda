//! Plots of a grid by loss, one curve per strategy: goodput over the limit with its formula beside it, and completion time
//! over its bound.
//!
//! - owns: axes, colours, dashes. takes: results. gives: SVG text. must not: leave out that it is a model.

use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::coord::combinators::IntoLogRange;
use plotters::element::{Circle, PathElement};
use plotters::prelude::{Color, IntoDrawingArea, RGBColor, SVGBackend};
use plotters::series::{DashedLineSeries, LineSeries};

use crate::wan::results::CellResult;

/// Width and height in px.
const SIZE: (u32, u32) = (760, 420);
const COLOURS: [RGBColor; 5] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(255, 127, 14),
    RGBColor(148, 103, 189),
];
/// Lowest value of an axis of goodput.
const LEAST: f64 = 1e-4;

/// What a plot shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PlotValue {
    Goodput,
    Completion,
}

impl PlotValue {
    const fn name(self) -> &'static str {
        match self {
            Self::Goodput => "goodput",
            Self::Completion => "completion",
        }
    }

    const fn axis(self) -> &'static str {
        match self {
            Self::Goodput => "goodput / limit; dashed: formula",
            Self::Completion => "completion time / bound",
        }
    }

    /// The value of a result, and its formula where it has one.
    fn value(self, result: &CellResult) -> Option<(f64, Option<f64>)> {
        match self {
            Self::Goodput => {
                let goodput = result.metrics.goodput_over_limit?.median.max(LEAST);
                Some((goodput, Some(result.formula.max(LEAST))))
            }
            Self::Completion => Some((result.metrics.fct_over_bound?.median, None)),
        }
    }
}

/// A plot that could not be drawn.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the plot was not drawn: {0}")]
pub struct PlotError(String);

impl PlotError {
    /// A plot that could not be drawn for `reason`.
    #[must_use]
    pub fn new(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

/// A point of a plot: loss, value, and what the formula gives.
type PlotPoint = (f64, f64, Option<f64>);

/// One SVG per rate, round-trip time and value, with its name.
pub fn of(results: &[CellResult]) -> Result<Vec<(String, String)>, PlotError> {
    let mut paths: Vec<(u64, u64)> = results.iter().map(path_of).collect();
    paths.dedup();
    let mut plots = Vec::new();
    for path in paths {
        let cells: Vec<&CellResult> = results.iter().filter(|cell| path_of(cell) == path).collect();
        for shown in [PlotValue::Goodput, PlotValue::Completion] {
            let name = format!("{}-{}g-{}us", shown.name(), path.0 / 1_000_000_000, path.1);
            if let Some(plot) = draw(&cells, path, shown)? {
                plots.push((name, plot));
            }
        }
    }
    Ok(plots)
}

/// Rate in bits a second and round-trip time in us.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates and times of a grid are positive and bounded"
)]
fn path_of(result: &CellResult) -> (u64, u64) {
    let numbers = result.cell.numbers;
    (numbers.rate_bps as u64, (numbers.rtt_s * 1e6) as u64)
}

/// Points of each strategy, by loss.
fn curves(cells: &[&CellResult], shown: PlotValue) -> Vec<(&'static str, Vec<PlotPoint>)> {
    let mut curves: Vec<(&'static str, Vec<PlotPoint>)> = Vec::new();
    for result in cells {
        let loss = result.cell.numbers.loss;
        let Some((value, formula)) = shown.value(result) else { continue };
        if loss <= 0.0 {
            continue;
        }
        let name = result.cell.strategy;
        let point = (loss, value, formula);
        match curves.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(point),
            None => curves.push((name, vec![point])),
        }
    }
    for (_, points) in &mut curves {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    curves
}

fn draw(
    cells: &[&CellResult],
    (rate, rtt): (u64, u64),
    shown: PlotValue,
) -> Result<Option<String>, PlotError> {
    let curves = curves(cells, shown);
    let losses = || curves.iter().flat_map(|(_, points)| points.iter().map(|point| point.0));
    let least = losses().fold(f64::INFINITY, f64::min);
    let most = losses().fold(0.0, f64::max);
    if least >= most {
        return Ok(None);
    }
    let mut svg = String::new();
    let title = format!("{} Gb/s, {} ms: model", rate / 1_000_000_000, rtt as f64 / 1000.0);
    draw_on(&mut svg, &title, ((least, most), shown), &curves)
        .map_err(|error| PlotError(error.to_string()))?;
    Ok(Some(svg))
}

fn draw_on(
    svg: &mut String,
    title: &str,
    ((least, most), shown): ((f64, f64), PlotValue),
    curves: &[(&'static str, Vec<PlotPoint>)],
) -> Result<(), Box<dyn std::error::Error>> {
    let values = curves.iter().flat_map(|(_, points)| points.iter().map(|point| point.1));
    let range = match shown {
        PlotValue::Goodput => LEAST..1.2,
        PlotValue::Completion => 0.95..values.fold(1.5, f64::max) * 1.1,
    };
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((least..most).log_scale(), range.log_scale())?;
    chart
        .configure_mesh()
        .x_desc("loss")
        .y_desc(shown.axis())
        .x_label_formatter(&|x| format!("{x:.0e}"))
        .y_label_formatter(&|y| if *y < 0.1 { format!("{y:.0e}") } else { format!("{y:.1}") })
        .light_line_style(RGBColor(230, 230, 230))
        .draw()?;
    for ((name, points), colour) in curves.iter().zip(COLOURS.iter().cycle()) {
        let measured: Vec<(f64, f64)> = points.iter().map(|point| (point.0, point.1)).collect();
        let formula: Vec<(f64, f64)> =
            points.iter().filter_map(|point| Some((point.0, point.2?))).collect();
        chart.draw_series(DashedLineSeries::new(formula, 4, 4, colour.mix(0.7).into()))?;
        chart.draw_series(measured.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
        chart
            .draw_series(LineSeries::new(measured, colour))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], *colour));
    }
    let corner = match shown {
        PlotValue::Goodput => SeriesLabelPosition::LowerLeft,
        PlotValue::Completion => SeriesLabelPosition::UpperLeft,
    };
    chart
        .configure_series_labels()
        .position(corner)
        .background_style(RGBColor(255, 255, 255).mix(0.8))
        .draw()?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::summary;
    use crate::wan::grid::tests::grid;

    /// A result of each strategy and loss on each path; its goodput is the loss, its completion 2.
    fn results(rtts: &[&str], losses: &[&str], strategies: &[&str]) -> Vec<CellResult> {
        let mut grid = grid();
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        (grid.rtts, grid.losses, grid.strategies) = (owned(rtts), owned(losses), owned(strategies));
        let cells = grid.cells().expect("a grid that makes sense");
        let result = |cell: &_| {
            let mut result = CellResult::new(cell, (1, 1), Vec::new(), 0.5);
            result.metrics.goodput_over_limit = summary(&[result.cell.numbers.loss]);
            result.metrics.fct_over_bound = summary(&[2.0]);
            result
        };
        cells.iter().map(result).collect()
    }

    #[test]
    fn each_path_has_one_plot_of_each_value() {
        let all = results(&["10ms", "250us"], &["iid:0.01", "iid:0.1"], &["irn", "gbn"]);
        let plots = of(&all).expect("it is drawn");
        let names: Vec<&str> = plots.iter().map(|(name, _)| name.as_str()).collect();
        let of_path = |us| ["goodput", "completion"].map(|value| format!("{value}-100g-{us}us"));
        let mut wanted = [of_path("10000"), of_path("250")].concat();
        wanted.sort();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, wanted);
        for (name, svg) in &plots {
            assert!(svg.contains("Gb/s") && svg.contains("model"), "{name}");
            assert!(svg.contains("irn") && svg.contains("gbn"), "{name}");
        }
        // One loss gives no curve, and where nothing is lost there is none.
        let one = of(&results(&["10ms"], &["iid:0.01"], &["irn"])).expect("nothing to draw");
        assert_eq!(one, []);
        let none = of(&results(&["10ms"], &["none", "iid:0.01"], &["irn"])).expect("the same");
        assert_eq!(none, []);
    }

    #[test]
    fn curves_have_the_points_of_their_strategy_by_loss() {
        let all =
            results(&["10ms"], &["iid:0.1", "none", "iid:0.001", "iid:0.01"], &["irn", "gbn"]);
        let cells: Vec<&CellResult> = all.iter().collect();
        let formula = Some(0.5);
        let goodput = vec![(0.001, 0.001, formula), (0.01, 0.01, formula), (0.1, 0.1, formula)];
        let found = curves(&cells, PlotValue::Goodput);
        assert_eq!(found.len(), 2);
        assert!(["irn", "gbn"].iter().all(|name| found.iter().any(|(known, _)| known == name)));
        assert!(found.iter().all(|(_, points)| *points == goodput), "{found:?}");
        let times = [0.001, 0.01, 0.1].map(|loss| (loss, 2.0, None));
        assert!(curves(&cells, PlotValue::Completion).iter().all(|(_, points)| *points == times));
        // What is too little for the axis is drawn at its edge; what has no value is left out.
        let mut odd = all[0].clone();
        odd.metrics.goodput_over_limit = summary(&[1e-9]);
        odd.formula = 0.0;
        let found = curves(&[&odd], PlotValue::Goodput);
        assert_eq!(found[0].1, [(0.1, LEAST, Some(LEAST))]);
        odd.metrics.goodput_over_limit = None;
        assert_eq!(curves(&[&odd], PlotValue::Goodput), []);
    }
}
