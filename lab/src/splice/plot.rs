//! Plots of `splice`, one curve per scheme: the part of the width that an engine carries, along each list with several values.
//!
//! - owns: axes, colours. takes: results. gives: SVG text. must not: draw anything itself.

use plotters::chart::SeriesLabelPosition;
use plotters::prelude::RGBColor;

use super::results::SpliceResult;
use crate::plot::{COLOURS, PlotAxis, PlotError, PlotRange, PlotValue, SweepPlots, is_swept};

/// What a plot shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct WidthPercent;

impl PlotValue<SpliceResult> for WidthPercent {
    fn name(self) -> &'static str {
        "width"
    }

    fn title(self) -> &'static str {
        "carried, % of the width"
    }

    fn value(self, result: &SpliceResult) -> Option<(f64, Option<f64>)> {
        Some((result.number("width_percent")?, None))
    }

    fn range(self, _: &mut dyn Iterator<Item = f64>) -> PlotRange {
        PlotRange { least: 0.0, most: 100.0, is_log: false }
    }

    fn label(self, value: f64) -> String {
        format!("{value:.0}")
    }

    fn corner(self) -> SeriesLabelPosition {
        SeriesLabelPosition::LowerRight
    }
}

/// One of the lists that a grid combines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SpliceAxis {
    Length,
    Width,
    Memory,
    Handover,
    Entries,
    Bubble,
    Backpressure,
}

impl SpliceAxis {
    const ALL: [Self; 7] = [
        Self::Length,
        Self::Width,
        Self::Memory,
        Self::Handover,
        Self::Entries,
        Self::Bubble,
        Self::Backpressure,
    ];
}

impl PlotAxis<SpliceResult> for SpliceAxis {
    fn name(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Width => "beat",
            Self::Memory => "ram",
            Self::Handover => "handover",
            Self::Entries => "entries",
            Self::Bubble => "bubble",
            Self::Backpressure => "backpressure",
        }
    }

    fn title(self) -> String {
        let title = match self {
            Self::Length => "bytes of a message",
            Self::Width => "bytes of a beat",
            Self::Memory => "bytes of data memory",
            Self::Handover => "cycles of a hand-over",
            Self::Entries => "entries of the sideband",
            Self::Bubble => "part of the beats that are late",
            Self::Backpressure => "part of the cycles without output",
        };
        title.to_owned()
    }

    /// A mix of lengths has no place among lengths.
    fn place(self, result: &SpliceResult) -> Option<f64> {
        let (cell, config) = (&result.cell, &result.cell.config);
        match self {
            Self::Length => cell.message_bytes().map(f64::from),
            Self::Width => Some(f64::from(config.beat_bytes)),
            Self::Memory => Some(f64::from(config.data_beats) * f64::from(config.beat_bytes)),
            Self::Handover => Some(f64::from(config.handover)),
            Self::Entries => Some(f64::from(config.sideband_entries)),
            Self::Bubble => Some(cell.disturbance.bubble.0),
            Self::Backpressure => Some(cell.disturbance.backpressure.0),
        }
    }

    fn label(self, place: f64) -> String {
        if self.is_log() { format!("{place:.0}") } else { format!("{place:.2}") }
    }

    fn is_log(self) -> bool {
        matches!(self, Self::Length | Self::Width | Self::Memory | Self::Entries)
    }

    fn text(self, result: &SpliceResult) -> String {
        self.words(result).replace(' ', "")
    }

    fn words(self, result: &SpliceResult) -> String {
        match self {
            Self::Length => format!("mix {}", result.cell.mix),
            _ => format!("{} {}", self.name(), self.place(result).unwrap_or_default()),
        }
    }

    fn value(self, result: &SpliceResult) -> Option<String> {
        Some(self.words(result))
    }

    fn is_always_named(self) -> bool {
        matches!(self, Self::Length | Self::Width)
    }

    fn divides(self) -> bool {
        self != Self::Memory
    }
}

/// SVGs by name: for each list with several values, one per combination of the other lists.
pub fn of(results: &[SpliceResult]) -> Result<Vec<(String, String)>, PlotError> {
    let results: Vec<&SpliceResult> = results.iter().collect();
    plots(&results).draw()
}

fn plots<'a>(
    results: &'a [&'a SpliceResult],
) -> SweepPlots<'a, SpliceResult, SpliceAxis, WidthPercent> {
    SweepPlots { results, axes: &SpliceAxis::ALL, values: &[WidthPercent], curve, colour }
}

/// The scheme, and its memory if there are several.
fn curve(cells: &[&SpliceResult], result: &SpliceResult, along: SpliceAxis) -> String {
    let scheme = result.cell.config.scheme.name();
    if along == SpliceAxis::Memory || !is_swept(cells, SpliceAxis::Memory) {
        return scheme.to_owned();
    }
    let bytes = SpliceAxis::Memory.place(result).unwrap_or_default();
    format!("{scheme}, {} KiB", bytes / 1024.0)
}

fn colour(number: usize) -> RGBColor {
    COLOURS[number % COLOURS.len()]
}

#[cfg(test)]
mod tests {
    use super::super::cells::{SpliceGrid, tests::grid};
    use super::super::results::run_cells;
    use super::*;
    use crate::sweep::Sweep;

    fn results(grid: &SpliceGrid) -> Vec<SpliceResult> {
        let cells = grid.cells().expect("a grid that makes sense");
        let mut found = Vec::new();
        run_cells(&cells, &mut Sweep::plain(1), |result| found.push(result)).expect("runs");
        found
    }

    #[test]
    fn each_list_is_an_axis_and_schemes_are_curves() {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        let lists = SpliceGrid {
            schemes: texts(&["fifo", "pingpong"]),
            mixes: texts(&["4K", "256", "rpc"]),
            rams: texts(&["8K", "16K"]),
            messages: 50,
            ..grid()
        };
        let all = results(&lists);
        let plots = of(&all).expect("drawn");
        let names: Vec<&str> = plots.iter().map(|(name, _)| name.as_str()).collect();
        let by_ram = ["4K", "256", "rpc"].map(|mix| format!("width-by-ram-mix{mix}-beat64"));
        assert_eq!(names[0], "width-by-length-beat64");
        assert_eq!(names[1..], by_ram);
        assert!(plots.iter().all(|(_, svg)| svg.contains("model") && svg.contains("pingpong")));
        let all: Vec<&SpliceResult> = all.iter().collect();
        let curves = super::plots(&all).curves(&all, (SpliceAxis::Length, WidthPercent));
        let names: Vec<&str> = curves.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["fifo, 8 KiB", "fifo, 16 KiB", "pingpong, 8 KiB", "pingpong, 16 KiB"]);
        for (_, points) in &curves {
            assert_eq!([points[0].0, points[1].0], [256.0, 4096.0], "without the mix");
            assert!(points[0].1 > 0.0 && points[0].1 < points[1].1);
        }
        assert_eq!(of(&results(&grid())).expect("nothing to draw"), []);
    }
}
