//! Plots of a grid along each list with several values, one curve per strategy: goodput over the limit with its formula beside it,
//! and completion time over its bound.
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

/// A point of a plot: place on the axis, value, and what the formula gives.
type PlotPoint = (f64, f64, Option<f64>);

/// One of the lists that a grid combines, as the axis of a plot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PlotAxis {
    Rate,
    RoundTrip,
    Loss,
    Size,
    Tps,
}

impl PlotAxis {
    const ALL: [Self; 5] = [Self::Rate, Self::RoundTrip, Self::Loss, Self::Size, Self::Tps];

    const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::RoundTrip => "rtt",
            Self::Loss => "loss",
            Self::Size => "size",
            Self::Tps => "tps",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Rate => "rate in bits a second",
            Self::RoundTrip => "round trip in s",
            Self::Loss => "loss",
            Self::Size => "payload in bytes",
            Self::Tps => "TPs",
        }
    }

    /// Place of a result. Axes are logarithmic: where nothing is lost there is none.
    fn of(self, result: &CellResult) -> f64 {
        let numbers = result.cell.numbers;
        match self {
            Self::Rate => numbers.rate_bps,
            Self::RoundTrip => numbers.rtt_s,
            Self::Loss => numbers.loss,
            Self::Size => result.cell.size_bytes,
            Self::Tps => f64::from(result.cell.run.tps),
        }
    }

    /// What a result says of this list, for names of files.
    fn text(self, result: &CellResult) -> String {
        let value = self.of(result);
        match self {
            Self::Rate => format!("{}g", value / 1e9),
            Self::RoundTrip => format!("{}us", (value * 1e6).round()),
            Self::Loss => result.cell.loss.replace(':', "-"),
            Self::Size => result.cell.size.clone(),
            Self::Tps => format!("{value}tps"),
        }
    }

    /// The same for the title.
    fn words(self, result: &CellResult) -> String {
        let value = self.of(result);
        match self {
            Self::Rate => format!("{} Gb/s", value / 1e9),
            Self::RoundTrip => format!("{} ms", value * 1e3),
            Self::Loss => result.cell.loss.clone(),
            Self::Size => result.cell.size.clone(),
            Self::Tps => format!("{value} TPs"),
        }
    }

    /// Whether the results differ in it. Loss models of the same mean are different curves, not places.
    fn is_swept(self, results: &[CellResult]) -> bool {
        // A size of so many bandwidth-delay products is one value, whatever the path.
        let value = |result: &CellResult| match self {
            Self::Size => result.cell.size.clone(),
            _ => self.of(result).to_string(),
        };
        let mut values = results.iter().map(value);
        let first = values.next();
        values.any(|value| Some(value) != first)
    }
}

/// Results that differ only in one list and in what makes curves, with the name of what they have in common.
type PlotGroup<'a> = (String, Vec<&'a CellResult>);

/// SVGs by name: for each list with several values, one per combination of the other lists and per measured value.
pub fn of(results: &[CellResult]) -> Result<Vec<(String, String)>, PlotError> {
    let swept: Vec<PlotAxis> =
        PlotAxis::ALL.into_iter().filter(|axis| axis.is_swept(results)).collect();
    let mut plots = Vec::new();
    for axis in &swept {
        let fixed = |other: &&PlotAxis| {
            *other != axis
                && (matches!(other, PlotAxis::Rate | PlotAxis::RoundTrip) || swept.contains(other))
        };
        let fixed: Vec<PlotAxis> = PlotAxis::ALL.iter().filter(fixed).copied().collect();
        for (common, cells) in groups(results, &fixed) {
            let words = fixed.iter().filter_map(|axis| Some(axis.words(cells.first()?)));
            let title = words.collect::<Vec<_>>().join(", ") + ": model";
            for shown in [PlotValue::Goodput, PlotValue::Completion] {
                if let Some(plot) = draw(&cells, &title, (*axis, shown))? {
                    let name = [shown.name(), "by", axis.name()].join("-");
                    plots.push((format!("{name}-{common}"), plot));
                }
            }
        }
    }
    Ok(plots)
}

/// Results by what they have in common, in the order in which that comes first.
fn groups<'a>(results: &'a [CellResult], fixed: &[PlotAxis]) -> Vec<PlotGroup<'a>> {
    let mut groups: Vec<PlotGroup<'a>> = Vec::new();
    for result in results {
        let common: Vec<String> = fixed.iter().map(|axis| axis.text(result)).collect();
        let common = common.join("-");
        match groups.iter_mut().find(|(known, _)| *known == common) {
            Some((_, cells)) => cells.push(result),
            None => groups.push((common, vec![result])),
        }
    }
    groups
}

/// A curve with its name.
type PlotCurve = (String, Vec<PlotPoint>);

/// Points of each strategy, and of each kind of loss if there are several, along the axis.
fn curves(cells: &[&CellResult], (axis, shown): (PlotAxis, PlotValue)) -> Vec<PlotCurve> {
    let kind =
        |result: &CellResult| result.cell.loss.split(':').next().unwrap_or_default().to_owned();
    let lossy = || cells.iter().filter(|result| result.cell.numbers.loss > 0.0);
    let has_kinds =
        lossy().any(|result| lossy().next().is_some_and(|first| kind(first) != kind(result)));
    let mut curves: Vec<PlotCurve> = Vec::new();
    for result in cells {
        let place = axis.of(result);
        let Some((value, formula)) = shown.value(result) else { continue };
        if place <= 0.0 {
            continue;
        }
        let strategy = result.cell.strategy;
        let name =
            if has_kinds { format!("{strategy}, {}", kind(result)) } else { strategy.to_owned() };
        let point = (place, value, formula);
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
    title: &str,
    (axis, shown): (PlotAxis, PlotValue),
) -> Result<Option<String>, PlotError> {
    let curves = curves(cells, (axis, shown));
    let places = || curves.iter().flat_map(|(_, points)| points.iter().map(|point| point.0));
    let least = places().fold(f64::INFINITY, f64::min);
    let most = places().fold(0.0, f64::max);
    if least >= most {
        return Ok(None);
    }
    let mut svg = String::new();
    draw_on(&mut svg, title, ((least, most), axis, shown), &curves)
        .map_err(|error| PlotError(error.to_string()))?;
    Ok(Some(svg))
}

fn draw_on(
    svg: &mut String,
    title: &str,
    ((least, most), axis, shown): ((f64, f64), PlotAxis, PlotValue),
    curves: &[PlotCurve],
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
        .x_desc(axis.title())
        .y_desc(shown.axis())
        .x_label_formatter(&|x| format!("{x:.0e}"))
        .y_label_formatter(&|y| if *y < 0.1 { format!("{y:.0e}") } else { format!("{y:.1}") })
        .light_line_style(RGBColor(230, 230, 230))
        .draw()?;
    // Lines of curves that are drawn later are thinner, so that one of equal values does not hide those below it.
    let widths = (0..curves.len()).map(|at| 2 * (curves.len() - at) - 1);
    for (((name, points), colour), width) in curves.iter().zip(COLOURS.iter().cycle()).zip(widths) {
        let style = colour.stroke_width(u32::try_from(width).unwrap_or(1).min(9));
        let measured: Vec<(f64, f64)> = points.iter().map(|point| (point.0, point.1)).collect();
        let formula: Vec<(f64, f64)> =
            points.iter().filter_map(|point| Some((point.0, point.2?))).collect();
        chart.draw_series(DashedLineSeries::new(formula, 4, 4, colour.mix(0.7).into()))?;
        chart.draw_series(measured.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
        chart
            .draw_series(LineSeries::new(measured, style))?
            .label(name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
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

    fn names(plots: &[(String, String)]) -> Vec<&str> {
        let mut names: Vec<&str> = plots.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn each_list_with_several_values_is_an_axis() {
        let all = results(&["10ms", "250us"], &["iid:0.01", "iid:0.1"], &["irn", "gbn"]);
        let plots = of(&all).expect("it is drawn");
        let both = |end: &str| ["completion", "goodput"].map(|value| format!("{value}-by-{end}"));
        let mut wanted =
            ["loss-100g-10000us", "loss-100g-250us", "rtt-100g-iid-0.01", "rtt-100g-iid-0.1"]
                .map(both)
                .concat();
        wanted.sort();
        assert_eq!(names(&plots), wanted);
        for (name, svg) in &plots {
            assert!(svg.contains("100 Gb/s") && svg.contains("model"), "{name}");
            assert!(svg.contains("irn") && svg.contains("gbn"), "{name}");
        }
        // One loss gives no curve, and where nothing is lost there is none.
        let one = of(&results(&["10ms"], &["iid:0.01"], &["irn"])).expect("nothing to draw");
        assert_eq!(one, []);
        let none = of(&results(&["10ms"], &["none", "iid:0.01"], &["irn"])).expect("the same");
        assert_eq!(none, []);
        // Rates, sizes and numbers of TPs are axes as well.
        let mut all = results(&["10ms"], &["iid:0.1", "iid:0.1"], &["irn"]);
        all[1].cell.numbers.rate_bps *= 4.0;
        assert_eq!(names(&of(&all).expect("drawn")), both("rate-10000us"));
        let mut all = results(&["10ms"], &["iid:0.1", "iid:0.1"], &["irn"]);
        all[1].cell.run.tps = 8;
        assert_eq!(names(&of(&all).expect("drawn")), both("tps-100g-10000us"));
        let mut all = results(&["10ms"], &["iid:0.1", "iid:0.1"], &["irn"]);
        all[1].cell.size_bytes *= 2.0;
        assert_eq!(of(&all).expect("nothing to draw"), [], "as many bandwidth-delay products");
        all[1].cell.size = "8MB".to_owned();
        assert_eq!(names(&of(&all).expect("drawn")), both("size-100g-10000us"));
    }

    #[test]
    fn curves_have_the_points_of_their_strategy_by_loss() {
        let all =
            results(&["10ms"], &["iid:0.1", "none", "iid:0.001", "iid:0.01"], &["irn", "gbn"]);
        let cells: Vec<&CellResult> = all.iter().collect();
        let formula = Some(0.5);
        let goodput = vec![(0.001, 0.001, formula), (0.01, 0.01, formula), (0.1, 0.1, formula)];
        let by_loss = |cells: &[&CellResult], value| curves(cells, (PlotAxis::Loss, value));
        let found = by_loss(&cells, PlotValue::Goodput);
        assert_eq!(found.len(), 2);
        assert!(["irn", "gbn"].iter().all(|name| found.iter().any(|(known, _)| known == name)));
        assert!(found.iter().all(|(_, points)| *points == goodput), "{found:?}");
        let times = [0.001, 0.01, 0.1].map(|loss| (loss, 2.0, None));
        assert!(by_loss(&cells, PlotValue::Completion).iter().all(|(_, points)| *points == times));
        // Kinds of loss are curves of their own: a line does not go from one to the other.
        let kinds = results(&["10ms"], &["iid:0.1", "ge:0.1", "iid:0.01", "ge:0.01"], &["irn"]);
        let kinds: Vec<&CellResult> = kinds.iter().collect();
        let found = by_loss(&kinds, PlotValue::Goodput);
        let found: Vec<_> =
            found.iter().map(|(name, points)| (name.as_str(), points.len())).collect();
        assert_eq!(found, [("irn, iid", 2), ("irn, ge", 2)]);
        // What is too little for the axis is drawn at its edge; what has no value is left out.
        let mut odd = all[0].clone();
        odd.metrics.goodput_over_limit = summary(&[1e-9]);
        odd.formula = 0.0;
        let found = by_loss(&[&odd], PlotValue::Goodput);
        assert_eq!(found[0].1, [(0.1, LEAST, Some(LEAST))]);
        odd.metrics.goodput_over_limit = None;
        assert_eq!(by_loss(&[&odd], PlotValue::Goodput), []);
    }
}
