//! Plots of `node`, one curve per strategy: the 99th percentile of the latency along each list with several values.
//!
//! - owns: axes, medians over seeds. takes: results. gives: SVG text. must not: draw anything itself.

use plotters::chart::SeriesLabelPosition;
use plotters::prelude::RGBColor;

use super::grid::NodeCell;
use super::results::NodeResult;
use crate::plot::{COLOURS, PlotAxis, PlotError, PlotRange, PlotValue, SweepPlots};
use crate::stats::middle;

/// A cell, and the median over its seeds.
#[derive(Clone, PartialEq, Debug)]
struct NodePoint {
    cell: NodeCell,
    latency_us: f64,
}

/// What a plot shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NodeLatency;

impl PlotValue<NodePoint> for NodeLatency {
    fn name(self) -> &'static str {
        "latency"
    }

    fn title(self) -> &'static str {
        "p99 of a request in us"
    }

    fn value(self, point: &NodePoint) -> Option<(f64, Option<f64>)> {
        (point.latency_us > 0.0).then_some((point.latency_us, None))
    }

    fn range(self, values: &mut dyn Iterator<Item = f64>) -> PlotRange {
        let ends = (f64::INFINITY, 0.0_f64);
        let (least, most) =
            values.fold(ends, |(least, most), value| (least.min(value), most.max(value)));
        PlotRange { least: least / 1.5, most: most * 1.5, is_log: true }
    }

    fn label(self, value: f64) -> String {
        if value < 1.0 { format!("{value:.1}") } else { format!("{value:.0}") }
    }

    fn corner(self) -> SeriesLabelPosition {
        SeriesLabelPosition::UpperLeft
    }
}

/// A list that a grid combines, by its place in [`LISTS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NodeAxis(usize);

/// Name and title of a list, its place on an axis if it has numbers, and its text.
struct FabricList {
    name: &'static str,
    title: &'static str,
    place: fn(&NodeCell) -> Option<f64>,
    text: fn(&NodeCell) -> String,
}

/// A list of chances in percent.
macro_rules! chances {
    ($name:literal, $title:literal, $field:ident) => {
        FabricList {
            name: $name,
            title: $title,
            place: |cell| Some(f64::from(cell.faults.$field) / 1e4),
            text: |cell| format!("{}pc", f64::from(cell.faults.$field) / 1e4),
        }
    };
}

/// All lists but that of strategies.
const LISTS: [FabricList; 11] = [
    FabricList {
        name: "nodes",
        title: "nodes",
        place: |cell| Some(f64::from(cell.nodes)),
        text: |cell| cell.nodes.to_string(),
    },
    FabricList {
        name: "delay",
        title: "one-way delay in us",
        place: |cell| Some(cell.faults.delay_ns as f64 / 1e3),
        text: |cell| format!("{}us", cell.faults.delay_ns as f64 / 1e3),
    },
    chances!("loss", "datagrams lost, %", loss_ppm),
    chances!("burst", "datagrams that begin a burst of losses, %", burst_ppm),
    chances!("duplicate", "datagrams that come twice, %", duplicate_ppm),
    chances!("reorder", "datagrams held back, %", reorder_ppm),
    chances!("corrupt", "datagrams with a wrong bit, %", corrupt_ppm),
    FabricList {
        name: "restarts",
        title: "nodes that die and come back",
        place: |cell| Some(f64::from(cell.restarts)),
        text: |cell| cell.restarts.to_string(),
    },
    FabricList {
        name: "hosts",
        title: "hosts",
        place: |_| None,
        text: |cell| cell.hosts_name().to_owned(),
    },
    FabricList {
        name: "mix",
        title: "requests",
        place: |_| None,
        text: |cell| cell.mix.name().to_owned(),
    },
    FabricList {
        name: "congestion",
        title: "congestion control",
        place: |_| None,
        text: |cell| cell.congestion.name().to_owned(),
    },
];

/// The places of all lists.
const AXES: [NodeAxis; LISTS.len()] = {
    let mut axes = [NodeAxis(0); LISTS.len()];
    let mut at = 0;
    while at < axes.len() {
        axes[at] = NodeAxis(at);
        at += 1;
    }
    axes
};

impl PlotAxis<NodePoint> for NodeAxis {
    fn name(self) -> &'static str {
        LISTS[self.0].name
    }

    fn title(self) -> String {
        LISTS[self.0].title.to_owned()
    }

    fn place(self, point: &NodePoint) -> Option<f64> {
        (LISTS[self.0].place)(&point.cell)
    }

    fn label(self, place: f64) -> String {
        format!("{}", (place * 100.0).round() / 100.0)
    }

    /// Nothing lost is a place among losses.
    fn is_log(self) -> bool {
        false
    }

    fn text(self, point: &NodePoint) -> String {
        format!("{}-{}", self.name(), (LISTS[self.0].text)(&point.cell))
    }

    fn words(self, point: &NodePoint) -> String {
        format!("{} {}", self.name(), (LISTS[self.0].text)(&point.cell)).replace("pc", " %")
    }

    fn value(self, point: &NodePoint) -> Option<String> {
        Some((LISTS[self.0].text)(&point.cell))
    }

    fn is_always_named(self) -> bool {
        ["nodes", "delay"].contains(&self.name())
    }

    fn divides(self) -> bool {
        true
    }
}

/// SVGs by name: for each list of numbers with several values, one per combination of the other lists.
pub fn of(results: &[NodeResult]) -> Result<Vec<(String, String)>, PlotError> {
    let points = points(results);
    let results: Vec<&NodePoint> = points.iter().collect();
    plots(&results).draw()
}

fn plots<'a>(results: &'a [&'a NodePoint]) -> SweepPlots<'a, NodePoint, NodeAxis, NodeLatency> {
    let curve =
        |_: &[&NodePoint], point: &NodePoint, _: NodeAxis| point.cell.strategy.name().to_owned();
    let colour = |number: usize| -> RGBColor { COLOURS[number % COLOURS.len()] };
    SweepPlots { results, axes: &AXES, values: &[NodeLatency], curve, colour }
}

/// Runs of a cell stand behind each other: of each cell the median.
fn points(results: &[NodeResult]) -> Vec<NodePoint> {
    let cells = results.chunk_by(|a, b| a.cell == b.cell);
    cells
        .filter_map(|runs| {
            let mut values: Vec<f64> =
                runs.iter().map(|result| result.run.latency_p99_ns as f64 / 1e3).collect();
            values.sort_by(f64::total_cmp);
            Some(NodePoint { cell: runs.first()?.cell.clone(), latency_us: middle(&values) })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use ubcore_sim::Strategy;

    use super::super::results::tests::result;
    use super::*;

    #[test]
    fn a_point_is_the_median_over_seeds_and_lists_are_axes() {
        let of_cell = |loss_ppm, strategy, seed| {
            let mut result = result(seed);
            (result.cell.faults.loss_ppm, result.cell.strategy) = (loss_ppm, strategy);
            result
        };
        let (knitting, irn) = (Strategy::Knitting, Strategy::Irn);
        let mut all: Vec<_> = [3, 30, 4].map(|seed| of_cell(0, knitting, seed)).into();
        all.extend(
            [(50_000, irn, 9), (0, irn, 1), (50_000, knitting, 8)]
                .map(|(loss, strategy, seed)| of_cell(loss, strategy, seed)),
        );
        let points = points(&all);
        let cells: Vec<&NodePoint> = points.iter().collect();
        let loss = AXES.into_iter().find(|axis| axis.name() == "loss").expect("a list");
        let found = plots(&cells).curves(&cells, (loss, NodeLatency));
        let wanted = [
            ("knitting".to_owned(), vec![(0.0, 4.0, None), (5.0, 8.0, None)]),
            ("irn".to_owned(), vec![(0.0, 1.0, None), (5.0, 9.0, None)]),
        ];
        assert_eq!(found, wanted);
        let names = |all: &[NodeResult]| -> Vec<String> {
            let plots = of(all).expect("it is drawn");
            assert!(plots.iter().all(|(_, svg)| svg.contains("model") && svg.contains("irn")));
            plots.into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(&all), ["latency-by-loss-nodes-3-delay-10us"]);
        // Each list has another text for another value, so that no plot mixes two of them.
        let changes: [fn(&mut NodeCell); 11] = [
            |cell| cell.nodes += 1,
            |cell| cell.faults.delay_ns += 1,
            |cell| cell.faults.loss_ppm += 1,
            |cell| cell.faults.burst_ppm += 1,
            |cell| cell.faults.duplicate_ppm += 1,
            |cell| cell.faults.reorder_ppm += 1,
            |cell| cell.faults.corrupt_ppm += 1,
            |cell| cell.restarts += 1,
            |cell| cell.hosts = ubcore_sim::sim::HostSharing::SameHost,
            |cell| cell.mix = super::super::grid::NodeMix::Add,
            |cell| cell.congestion = ubcore_sim::CongestionChoice::Cubic,
        ];
        for (axis, change) in AXES.into_iter().zip(changes) {
            let mut other = points[0].clone();
            change(&mut other.cell);
            let differs: Vec<&str> = AXES
                .into_iter()
                .filter(|known| known.value(&other) != known.value(&points[0]))
                .map(PlotAxis::<NodePoint>::name)
                .collect();
            assert_eq!(differs, [PlotAxis::<NodePoint>::name(axis)]);
        }
    }
}
