//! Plots of `node`: the latency of requests over loss, one curve per strategy.
//!
//! - owns: axes, colours. takes: results. gives: SVG text. must not: leave out that it is a model.

use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::coord::combinators::IntoLogRange;
use plotters::element::{Circle, PathElement};
use plotters::prelude::{Color, IntoDrawingArea, RGBColor, SVGBackend};
use plotters::series::LineSeries;
use plotters::style::{Palette, Palette99};

use super::grid::NodeCell;
use super::results::NodeResult;
use crate::plot::PlotError;
use crate::stats::middle;

/// Width and height in px.
const SIZE: (u32, u32) = (760, 420);

/// A strategy and its points: loss in percent, latency in us.
type LatencyCurve = (&'static str, Vec<(f64, f64)>);

/// One SVG for each set of results that differ in loss, strategy and seed alone, with its name; none where loss is one.
pub fn of(results: &[NodeResult]) -> Result<Vec<(String, String)>, PlotError> {
    let mut groups: Vec<(NodeCell, Vec<&NodeResult>)> = Vec::new();
    for result in results {
        let common = common(&result.cell);
        match groups.iter_mut().find(|(known, _)| *known == common) {
            Some((_, group)) => group.push(result),
            None => groups.push((common, vec![result])),
        }
    }
    let mut plots = Vec::new();
    for ((cell, group), number) in groups.iter().zip(1..) {
        let curves = curves(group);
        if curves.iter().any(|(_, points)| points.len() > 1) {
            let mut svg = String::new();
            let title = format!(
                "{} nodes, delay {} us, {} requests of at most {} bytes each: model",
                cell.nodes,
                cell.faults.delay_ns as f64 / 1e3,
                cell.requests,
                cell.size
            );
            draw(&mut svg, &title, &curves).map_err(|error| PlotError::new(&error.to_string()))?;
            plots.push((format!("latency-by-loss-{number}"), svg));
        }
    }
    Ok(plots)
}

/// A cell without what makes curves and points.
fn common(cell: &NodeCell) -> NodeCell {
    let mut cell = cell.clone();
    (cell.faults.loss_ppm, cell.strategy) = (0, ubcore_sim::Strategy::default());
    cell
}

/// Of each strategy the median over seeds of the latency that 99 % of the requests did not exceed.
fn curves(group: &[&NodeResult]) -> Vec<LatencyCurve> {
    let mut found: Vec<(&'static str, u32, Vec<f64>)> = Vec::new();
    for result in group {
        let (name, loss) = (result.cell.strategy.name(), result.cell.faults.loss_ppm);
        let value = result.run.latency_p99_ns as f64 / 1e3;
        match found.iter_mut().find(|(known, at, _)| (*known, *at) == (name, loss)) {
            Some((_, _, values)) => values.push(value),
            None => found.push((name, loss, vec![value])),
        }
    }
    found.sort_by_key(|(_, loss, _)| *loss);
    let mut curves: Vec<LatencyCurve> = Vec::new();
    for (name, loss, mut values) in found {
        values.sort_by(f64::total_cmp);
        let point = (f64::from(loss) / 1e4, middle(&values));
        match curves.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(point),
            None => curves.push((name, vec![point])),
        }
    }
    curves
}

fn draw(
    svg: &mut String,
    title: &str,
    curves: &[LatencyCurve],
) -> Result<(), Box<dyn std::error::Error>> {
    let points = || curves.iter().flat_map(|(_, points)| points.iter());
    let right = points().map(|point| point.0).fold(0.0, f64::max) * 1.05;
    let least = points().map(|point| point.1).fold(f64::INFINITY, f64::min).max(0.1);
    let most = points().map(|point| point.1).fold(least, f64::max);
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..right, (least / 1.5..most * 1.5).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("datagrams lost, %")
        .y_desc("p99 of a request, us")
        .light_line_style(RGBColor(230, 230, 230))
        .draw()?;
    for (number, (name, points)) in curves.iter().enumerate() {
        let colour = Palette99::pick(number).to_rgba();
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour));
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(RGBColor(255, 255, 255).mix(0.8))
        .draw()?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use ubcore_sim::Strategy;

    use super::super::results::tests::result;
    use super::*;

    #[test]
    fn a_point_is_the_median_over_seeds() {
        let of = |loss_ppm, strategy, seed| {
            let mut result = result(seed);
            (result.cell.faults.loss_ppm, result.cell.strategy) = (loss_ppm, strategy);
            result
        };
        let (knitting, irn) = (Strategy::Knitting, Strategy::Irn);
        let mut all = vec![of(50_000, irn, 9), of(0, irn, 1)];
        all.extend([3, 30, 4].map(|seed| of(0, knitting, seed)));
        all.push(of(50_000, knitting, 8));
        let found = curves(&all.iter().collect::<Vec<_>>());
        let wanted =
            [("irn", vec![(0.0, 1.0), (5.0, 9.0)]), ("knitting", vec![(0.0, 4.0), (5.0, 8.0)])];
        assert_eq!(found, wanted);
        let plots = of_names(&all);
        assert_eq!(plots, ["latency-by-loss-1"]);
        // Cells that differ in more are other pictures; without several losses there is none.
        all.iter_mut().filter(|result| result.cell.faults.loss_ppm > 0).for_each(|result| {
            result.cell.nodes += 1;
        });
        assert_eq!(of_names(&all), [""; 0]);
    }

    fn of_names(results: &[NodeResult]) -> Vec<String> {
        let plots = of(results).expect("it is drawn");
        assert!(plots.iter().all(|(_, svg)| svg.contains("model") && svg.contains("knitting")));
        plots.into_iter().map(|(name, _)| name).collect()
    }
}
