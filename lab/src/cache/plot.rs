//! Plots of `cache`: misses over time, one curve per policy.
//!
//! - owns: axes, colours. takes: results. gives: SVG text. must not: leave out that it is a model.

use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::element::PathElement;
use plotters::prelude::{Color, IntoDrawingArea, RGBColor, SVGBackend};
use plotters::series::LineSeries;
use plotters::style::{Palette, Palette99};

use super::cell::CacheResult;
use crate::plot::PlotError;

/// Width and height in px.
const SIZE: (u32, u32) = (760, 420);

/// One SVG per trace and capacity, with its name.
pub fn of(results: &[CacheResult]) -> Result<Vec<(String, String)>, PlotError> {
    // Each policy once, whatever is behind the chip.
    let mut replays: Vec<&CacheResult> = results.iter().collect();
    replays.dedup_by(|result, before| result.cell.is_replay_of(&before.cell));
    let groups = replays.chunk_by(|a, b| a.cell.is_beside(&b.cell)).zip(1..);
    groups
        .map(|(group, number)| {
            let mut svg = String::new();
            draw(&mut svg, group).map_err(|error| PlotError::new(&error.to_string()))?;
            Ok((format!("misses-{number}"), svg))
        })
        .collect()
}

/// Points of a curve: position in the trace in percent, misses in percent of the accesses around it.
fn curve(result: &CacheResult) -> Vec<(f64, f64)> {
    let points = result.misses.len().max(1) as f64;
    let shares = result.misses.iter().enumerate();
    shares
        .map(|(at, (accesses, misses))| {
            (100.0 * (at as f64 + 0.5) / points, 100.0 * *misses as f64 / (*accesses).max(1) as f64)
        })
        .collect()
}

fn draw(svg: &mut String, group: &[&CacheResult]) -> Result<(), Box<dyn std::error::Error>> {
    let Some(first) = group.first() else { return Ok(()) };
    let title = format!(
        "{}: {} slots of {} handles, model",
        first.cell.trace.name,
        first.cell.capacity,
        first.cell.trace.trace.distinct()
    );
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..100.0, 0.0..100.0)?;
    chart
        .configure_mesh()
        .x_desc("position in the trace, %")
        .y_desc("misses, % of accesses")
        .light_line_style(RGBColor(230, 230, 230))
        .draw()?;
    for (number, result) in group.iter().enumerate() {
        let colour = Palette99::pick(number).to_rgba();
        chart
            .draw_series(LineSeries::new(curve(result), colour.stroke_width(1)))?
            .label(result.cell.policy.name())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(RGBColor(255, 255, 255).mix(0.8))
        .draw()?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::cell::tests::{cell, result};
    use super::*;

    #[test]
    fn a_point_is_the_share_of_misses_in_the_middle_of_its_part() {
        let mut found = result(&cell("short", vec![1, 2], 1));
        found.misses = vec![(10, 5), (4, 0), (0, 0), (8, 8)];
        let wanted = [(12.5, 50.0), (37.5, 0.0), (62.5, 0.0), (87.5, 100.0)];
        assert_eq!(curve(&found), wanted);
    }
}
