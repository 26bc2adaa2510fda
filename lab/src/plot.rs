//! Plots of a sweep along each list with several values, one curve per policy or strategy, a formula's beside it where there is one.
//!
//! - owns: which plots there are, curves, dashes. takes: results, axes, what is shown. gives: SVG text.
//! - must not: know an experiment, leave out that it is a model.

use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::coord::combinators::IntoLogRange;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::element::{Circle, PathElement};
use plotters::prelude::{Color, IntoDrawingArea, RGBColor, SVGBackend};
use plotters::series::{DashedLineSeries, LineSeries};

use crate::svg::compact;

/// Width and height in px.
pub const SIZE: (u32, u32) = (760, 420);
/// Colours of curves, in their order.
pub const COLOURS: [RGBColor; 8] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(255, 127, 14),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    RGBColor(90, 90, 90),
];

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

/// A range of numbers on an axis, and how they are spread on it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlotRange {
    /// Least number on the axis.
    pub least: f64,
    /// Greatest number on the axis.
    pub most: f64,
    /// Whether equal factors are equally far from each other.
    pub is_log: bool,
}

/// One of the lists that a sweep combines.
pub trait PlotAxis<R>: Copy + PartialEq {
    /// Name of the list, for names of files.
    fn name(self) -> &'static str;

    /// Text below the axis.
    fn title(self) -> String;

    /// Place of a result on the axis; `None`: it has none.
    fn place(self, result: &R) -> Option<f64>;

    /// Number of a place as a text.
    fn label(self, place: f64) -> String;

    /// Whether places are spread by factors.
    fn is_log(self) -> bool;

    /// What a result has of the list, for names of files.
    fn text(self, result: &R) -> String;

    /// The same for titles.
    fn words(self, result: &R) -> String;

    /// What differs between results of different values of the list; `None`: the list does not act on the result.
    fn value(self, result: &R) -> Option<String>;

    /// Whether plots along others say what they have of the list, also where it has one value.
    fn is_always_named(self) -> bool;

    /// Whether results of different values of the list stand in plots of their own, not in one as curves.
    fn divides(self) -> bool;
}

/// What plots show of a result.
pub trait PlotValue<R>: Copy {
    /// Name of the value, for names of files.
    fn name(self) -> &'static str;

    /// Text beside the axis.
    fn title(self) -> &'static str;

    /// The value of a result, and its formula where it has one.
    fn value(self, result: &R) -> Option<(f64, Option<f64>)>;

    /// Range of the axis for these values.
    fn range(self, values: &mut dyn Iterator<Item = f64>) -> PlotRange;

    /// Number of a value as a text.
    fn label(self, value: f64) -> String;

    /// Where the names of the curves are.
    fn corner(self) -> SeriesLabelPosition;
}

/// A sweep whose lists are the axes of plots.
#[derive(Debug)]
pub struct SweepPlots<'a, R, A, V> {
    /// Results, in the order in which their curves are drawn.
    pub results: &'a [&'a R],
    /// All lists of the sweep.
    pub axes: &'a [A],
    /// What is shown along each axis.
    pub values: &'a [V],
    /// Name of the curve that a result is a point of, among the results of its plot.
    pub curve: fn(&[&R], &R, A) -> String,
    /// Colour of the curve of this number.
    pub colour: fn(usize) -> RGBColor,
}

/// A point of a plot: place on the axis, value, and what the formula gives.
pub type PlotPoint = (f64, f64, Option<f64>);

/// A curve with its name.
pub type PlotCurve = (String, Vec<PlotPoint>);

/// Results that differ only in one list and in what makes curves, with what they have in common for files and titles.
type PlotGroup<'a, R> = ((String, String), Vec<&'a R>);

/// Whether the results differ in a list, those that it acts on.
pub fn is_swept<R, A: PlotAxis<R>>(results: &[&R], axis: A) -> bool {
    let mut values = results.iter().filter_map(|result| axis.value(result));
    let first = values.next();
    values.any(|value| Some(value) != first)
}

impl<R, A: PlotAxis<R>, V: PlotValue<R>> SweepPlots<'_, R, A, V> {
    /// SVGs by name: for each list with several values, one per combination of the other lists and per value that is shown.
    pub fn draw(&self) -> Result<Vec<(String, String)>, PlotError> {
        let swept: Vec<A> =
            self.axes.iter().copied().filter(|axis| is_swept(self.results, *axis)).collect();
        let mut plots: Vec<(String, String)> = Vec::new();
        for axis in &swept {
            let fixed = |other: &&A| {
                *other != axis
                    && other.divides()
                    && (other.is_always_named() || swept.contains(other))
            };
            let fixed: Vec<A> = self.axes.iter().filter(fixed).copied().collect();
            for ((common, words), cells) in self.groups(&fixed) {
                let title = words + ": model";
                for shown in self.values {
                    let Some(plot) = self.plot(&cells, &title, (*axis, *shown))? else { continue };
                    let name = [shown.name(), "by", axis.name()].join("-");
                    let name = format!("{name}-{common}");
                    let is_known = |name: &str| plots.iter().any(|(known, _)| known == name);
                    // Names of files have fewer characters than what they are of.
                    let mut numbered = (2..).map(|number: u32| format!("{name}-{number}"));
                    let name = match is_known(&name) {
                        true => numbered.find(|name| !is_known(name)).unwrap_or_default(),
                        false => name,
                    };
                    plots.push((name, plot));
                }
            }
        }
        Ok(plots)
    }

    /// Results by what they have in common, in the order in which that comes first.
    fn groups(&self, fixed: &[A]) -> Vec<PlotGroup<'_, R>> {
        let mut groups: Vec<PlotGroup<'_, R>> = Vec::new();
        for result in self.results {
            let texts: Vec<String> = fixed.iter().map(|axis| axis.text(result)).collect();
            let words: Vec<String> = fixed.iter().map(|axis| axis.words(result)).collect();
            let common = (texts.join("-"), words.join(", "));
            match groups.iter_mut().find(|(known, _)| *known == common) {
                Some((_, cells)) => cells.push(result),
                None => groups.push((common, vec![result])),
            }
        }
        groups
    }

    /// Points of each curve along the axis.
    pub fn curves(&self, cells: &[&R], (axis, shown): (A, V)) -> Vec<PlotCurve> {
        let mut curves: Vec<PlotCurve> = Vec::new();
        for result in cells {
            let Some((value, formula)) = shown.value(result) else { continue };
            let on_axis = |place: &f64| !axis.is_log() || *place > 0.0;
            let Some(place) = axis.place(result).filter(on_axis) else { continue };
            let name = (self.curve)(cells, result, axis);
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

    fn plot(
        &self,
        cells: &[&R],
        title: &str,
        (axis, shown): (A, V),
    ) -> Result<Option<String>, PlotError> {
        let curves = self.curves(cells, (axis, shown));
        let places = || curves.iter().flat_map(|(_, points)| points.iter().map(|point| point.0));
        let least = places().fold(f64::INFINITY, f64::min);
        let most = places().fold(0.0, f64::max);
        if least >= most {
            return Ok(None);
        }
        let mut values = curves.iter().flat_map(|(_, points)| points.iter().map(|point| point.1));
        let height = shown.range(&mut values);
        let (x, y) = (least..most, height.least..height.most);
        let mut svg = String::new();
        let text = (title, axis, shown);
        let drawn = match (axis.is_log(), height.is_log) {
            (true, true) => self.draw_on(&mut svg, text, (x.log_scale(), y.log_scale()), &curves),
            (true, false) => self.draw_on(&mut svg, text, (x.log_scale(), y), &curves),
            (false, true) => self.draw_on(&mut svg, text, (x, y.log_scale()), &curves),
            (false, false) => self.draw_on(&mut svg, text, (x, y), &curves),
        };
        drawn.map_err(|error| PlotError(error.to_string()))?;
        Ok(Some(compact(&svg)))
    }

    fn draw_on<X, Y>(
        &self,
        svg: &mut String,
        (title, axis, shown): (&str, A, V),
        (x, y): (X, Y),
        curves: &[PlotCurve],
    ) -> Result<(), Box<dyn std::error::Error>>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_desc(axis.title())
            .y_desc(shown.title())
            .x_label_formatter(&|x| axis.label(*x))
            .y_label_formatter(&|y| shown.label(*y))
            .max_light_lines(1)
            // They are where the bold ones are.
            .light_line_style(RGBColor(0, 0, 0).mix(0.0))
            .bold_line_style(RGBColor(230, 230, 230))
            .draw()?;
        // Lines of curves that are drawn later are thinner, so that one of equal values does not hide those below it.
        let widths = (0..curves.len()).map(|at| 2 * (curves.len() - at) - 1);
        for ((number, (name, points)), width) in curves.iter().enumerate().zip(widths) {
            let colour = (self.colour)(number);
            let style = colour.stroke_width(u32::try_from(width).unwrap_or(1).min(9));
            let measured: Vec<(f64, f64)> = points.iter().map(|point| (point.0, point.1)).collect();
            let formula: Vec<(f64, f64)> =
                points.iter().filter_map(|point| Some((point.0, point.2?))).collect();
            chart.draw_series(DashedLineSeries::new(formula, 8, 6, colour.mix(0.7).into()))?;
            chart.draw_series(
                measured.iter().map(|point| Circle::new(*point, 3, colour.filled())),
            )?;
            chart
                .draw_series(LineSeries::new(measured, style))?
                .label(name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
        }
        chart
            .configure_series_labels()
            .position(shown.corner())
            .background_style(RGBColor(255, 255, 255).mix(0.8))
            .draw()?;
        area.present()?;
        Ok(())
    }
}
