//! What the flows of a cell got over time, and how long the queue was meanwhile, as SVG.
//!
//! - owns: axes, colours, which flows have a name. takes: the first run of a cell. gives: SVG text.
//! - must not: leave out that it is a model.

use std::error::Error;

use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::coord::Shift;
use plotters::drawing::DrawingArea;
use plotters::element::PathElement;
use plotters::prelude::{Color, IntoDrawingArea, RGBColor, SVGBackend};
use plotters::series::LineSeries;

use super::results::BottleneckResult;
use super::world::PARTS;
use crate::plot::{COLOURS, PlotError, SIZE};
use crate::svg::compact;

/// Height of both charts in px.
const HEIGHT: u32 = 560;
/// Flows of one kind that have a line in the legend.
const NAMED: usize = 8;

/// A line of a chart: its name and its points.
type FlowCurve = (String, Vec<(f64, f64)>);

/// The SVG of a cell's first run: goodput of each flow, and packets in the queue.
pub fn of(result: &BottleneckResult) -> Result<String, PlotError> {
    let mut svg = String::new();
    draw(&mut svg, result).map_err(|error| PlotError::new(&error.to_string()))?;
    Ok(compact(&svg))
}

fn draw(svg: &mut String, result: &BottleneckResult) -> Result<(), Box<dyn Error>> {
    let (cell, run) = (&result.cell, &result.cell.run);
    let area = SVGBackend::with_string(svg, (SIZE.0, HEIGHT)).into_drawing_area();
    let (above, below) = area.split_vertically(HEIGHT * 6 / 10);
    let title = format!(
        "{} {} beside {}, {} Mb/s, {} ms, {}: model",
        run.flows,
        run.congestion.name(),
        cell.beside,
        (cell.rate_bps / 1e4).round() / 100.0,
        run.rtt_ns as f64 / 1e6,
        cell.loss,
    );
    let seconds = run.until_ns as f64 / 1e9;
    chart(&above, (&title, "goodput in Mb/s", seconds), &goodputs(result))?;
    let title = format!("queue of {} packets, {} of a round trip", run.queue, cell.queue);
    let held = vec![("queue".to_owned(), over_time(seconds, queue(result)))];
    chart(&below, (&title, "packets in the queue", seconds), &held)?;
    area.present()?;
    Ok(())
}

fn queue(result: &BottleneckResult) -> Vec<f64> {
    result.runs.first().map(|run| run.queue_parts.clone()).unwrap_or_default()
}

/// Payload in Mb/s of each flow, by parts of the run.
fn goodputs(result: &BottleneckResult) -> Vec<FlowCurve> {
    let run = &result.cell.run;
    let seconds = run.until_ns as f64 / 1e9;
    let of_packet = result.cell.packet.0 as f64 * 8.0 / 1e6 / (seconds / PARTS as f64);
    let parts = result.runs.first().map(|run| &run.parts[..]).unwrap_or_default();
    let names = run.names().into_iter().enumerate();
    let curves = names.zip(parts).map(|((flow, kind), parts)| {
        let name = if flow < run.flows && flow >= NAMED { "" } else { kind };
        let name = if name.is_empty() { String::new() } else { format!("{name} {flow}") };
        let values = parts.iter().map(|packets| f64::from(*packets) * of_packet).collect();
        (name, over_time(seconds, values))
    });
    curves.collect()
}

/// Values with the middles of their parts of the run.
fn over_time(seconds: f64, values: Vec<f64>) -> Vec<(f64, f64)> {
    let at = |part: usize| (part as f64 + 0.5) * seconds / PARTS as f64;
    values.into_iter().enumerate().map(|(part, value)| (at(part), value)).collect()
}

fn chart(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    (title, what, seconds): (&str, &str, f64),
    curves: &[FlowCurve],
) -> Result<(), Box<dyn Error>> {
    let values = curves.iter().flat_map(|(_, points)| points.iter().map(|point| point.1));
    let most = values.fold(1e-9, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..seconds, 0.0..most)?;
    chart
        .configure_mesh()
        .x_desc("time in s")
        .y_desc(what)
        .max_light_lines(1)
        // They are where the bold ones are.
        .light_line_style(RGBColor(0, 0, 0).mix(0.0))
        .bold_line_style(RGBColor(230, 230, 230))
        .draw()?;
    for (number, (name, points)) in curves.iter().enumerate() {
        let style = COLOURS[number % COLOURS.len()].stroke_width(1);
        let series = chart.draw_series(LineSeries::new(points.clone(), style))?;
        if !name.is_empty() {
            series
                .label(name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
        }
    }
    if curves.len() > 1 {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(RGBColor(255, 255, 255).mix(0.8))
            .draw()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::grid::tests::grid;
    use super::super::results::run_bottlenecks;
    use super::*;
    use crate::sweep::Sweep;
    use crate::wan::cell::Seeds;

    #[test]
    fn a_picture_has_each_flow_and_the_queue() {
        let mut grid = grid();
        grid.besides = vec!["cubic".to_owned()];
        let cells = grid.cells().expect("a grid that makes sense");
        let (seeds, mut results) = (Seeds { first: 1, count: 1 }, Vec::new());
        run_bottlenecks(&cells, seeds, &mut Sweep::plain(1), || {}, |result| results.push(result))
            .expect("nothing is kept");
        let goodputs = goodputs(&results[0]);
        let names: Vec<&str> = goodputs.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["delay 0", "delay 1", "cubic 2"]);
        // What all got in the last part is what the link carries: of 334.24 Mb/s the payload.
        let last: f64 = goodputs.iter().map(|(_, points)| points[PARTS - 1].1).sum();
        assert!((last / (334.24 * 4096.0 / 4178.0) - 1.0).abs() < 0.05, "{last}");
        let at: Vec<f64> = goodputs[0].1.iter().map(|point| point.0).collect();
        assert!((at[0] - 1.0 / 120.0).abs() < 1e-9 && at.len() == PARTS);
        let svg = of(&results[0]).expect("it is drawn");
        for words in ["model", "delay 1", "cubic 2", "packets in the queue", "334.24 Mb/s"] {
            assert!(svg.contains(words), "{words}");
        }
    }
}
