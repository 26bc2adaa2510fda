//! Plots of `wan`, one curve per strategy: goodput over the limit with its formula beside it, and completion time over its bound.
//!
//! - owns: axes, ranges, colours. takes: results. gives: SVG text. must not: draw anything itself.

use plotters::chart::SeriesLabelPosition;

use super::results::CellResult;
use crate::plot::{COLOURS, PlotAxis, PlotError, PlotRange, PlotValue, SweepPlots};

/// Lowest value of an axis of goodput.
const LEAST: f64 = 1e-4;

/// What a plot shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WanValue {
    Goodput,
    Completion,
    Later,
}

impl PlotValue<CellResult> for WanValue {
    fn name(self) -> &'static str {
        match self {
            Self::Goodput => "goodput",
            Self::Completion => "completion",
            Self::Later => "later",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Goodput => "goodput / limit; dashed: formula",
            Self::Completion => "completion time / bound",
            Self::Later => "completion time of later messages / bound",
        }
    }

    fn value(self, result: &CellResult) -> Option<(f64, Option<f64>)> {
        match self {
            Self::Goodput => {
                let goodput = result.metrics.goodput_over_limit?.median.max(LEAST);
                Some((goodput, Some(result.formula.max(LEAST))))
            }
            Self::Completion => Some((result.metrics.fct_over_bound?.median, None)),
            Self::Later => Some((result.metrics.later_fct_over_bound?.median, None)),
        }
    }

    fn range(self, values: &mut dyn Iterator<Item = f64>) -> PlotRange {
        let (least, most) = match self {
            Self::Goodput => (LEAST, 1.2),
            Self::Completion | Self::Later => (0.95, values.fold(1.5, f64::max) * 1.1),
        };
        PlotRange { least, most, is_log: true }
    }

    fn label(self, value: f64) -> String {
        if value < 0.1 { format!("{value:.0e}") } else { format!("{value:.1}") }
    }

    fn corner(self) -> SeriesLabelPosition {
        match self {
            Self::Goodput => SeriesLabelPosition::LowerLeft,
            Self::Completion | Self::Later => SeriesLabelPosition::UpperLeft,
        }
    }
}

/// One of the lists that a grid combines, as the axis of a plot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WanAxis {
    Rate,
    RoundTrip,
    Loss,
    Size,
    Tps,
}

impl WanAxis {
    const ALL: [Self; 5] = [Self::Rate, Self::RoundTrip, Self::Loss, Self::Size, Self::Tps];

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
}

impl PlotAxis<CellResult> for WanAxis {
    fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::RoundTrip => "rtt",
            Self::Loss => "loss",
            Self::Size => "size",
            Self::Tps => "tps",
        }
    }

    fn title(self) -> String {
        let title = match self {
            Self::Rate => "rate in bits a second",
            Self::RoundTrip => "round trip in s",
            Self::Loss => "loss",
            Self::Size => "payload in bytes",
            Self::Tps => "TPs",
        };
        title.to_owned()
    }

    /// Axes are logarithmic: where nothing is lost there is no place.
    fn place(self, result: &CellResult) -> Option<f64> {
        Some(self.of(result))
    }

    fn label(self, place: f64) -> String {
        format!("{place:.0e}")
    }

    fn is_log(self) -> bool {
        true
    }

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

    /// Loss models of the same mean are different curves, not places; a size of so many bandwidth-delay products is one value,
    /// whatever the path.
    fn value(self, result: &CellResult) -> Option<String> {
        Some(match self {
            Self::Size => result.cell.size.clone(),
            _ => self.of(result).to_string(),
        })
    }

    fn is_always_named(self) -> bool {
        matches!(self, Self::Rate | Self::RoundTrip)
    }

    fn divides(self) -> bool {
        true
    }
}

/// SVGs by name: for each list with several values, one per combination of the other lists and per measured value.
pub fn of(results: &[CellResult]) -> Result<Vec<(String, String)>, PlotError> {
    let results: Vec<&CellResult> = results.iter().collect();
    plots(&results).draw()
}

fn plots<'a>(results: &'a [&'a CellResult]) -> SweepPlots<'a, CellResult, WanAxis, WanValue> {
    SweepPlots {
        results,
        axes: &WanAxis::ALL,
        values: &[WanValue::Goodput, WanValue::Completion, WanValue::Later],
        curve,
        colour: |number| COLOURS[number % COLOURS.len()],
    }
}

/// The strategy, and the kind of loss if there are several.
fn curve(cells: &[&CellResult], result: &CellResult, _: WanAxis) -> String {
    let kind =
        |result: &CellResult| result.cell.loss.split(':').next().unwrap_or_default().to_owned();
    let lossy = || cells.iter().filter(|result| result.cell.numbers.loss > 0.0);
    let has_kinds =
        lossy().any(|result| lossy().next().is_some_and(|first| kind(first) != kind(result)));
    let strategy = result.cell.strategy;
    if has_kinds { format!("{strategy}, {}", kind(result)) } else { strategy.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::PlotCurve;
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
        // Later messages are a picture of their own where there are some.
        let mut all = results(&["10ms"], &["iid:0.01", "iid:0.1"], &["irn"]);
        all.iter_mut().for_each(|result| result.metrics.later_fct_over_bound = summary(&[1.5]));
        let plots = of(&all).expect("it is drawn");
        let wanted =
            ["completion", "goodput", "later"].map(|name| format!("{name}-by-loss-100g-10000us"));
        assert_eq!(names(&plots), wanted);
        assert!(plots[2].1.contains("later messages / bound"), "{}", plots[2].1);
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

    fn curves(cells: &[&CellResult], along: (WanAxis, WanValue)) -> Vec<PlotCurve> {
        plots(cells).curves(cells, along)
    }

    #[test]
    fn curves_have_the_points_of_their_strategy_by_loss() {
        let all =
            results(&["10ms"], &["iid:0.1", "none", "iid:0.001", "iid:0.01"], &["irn", "gbn"]);
        let cells: Vec<&CellResult> = all.iter().collect();
        let formula = Some(0.5);
        let goodput = vec![(0.001, 0.001, formula), (0.01, 0.01, formula), (0.1, 0.1, formula)];
        let by_loss = |cells: &[&CellResult], value| curves(cells, (WanAxis::Loss, value));
        let found = by_loss(&cells, WanValue::Goodput);
        assert_eq!(found.len(), 2);
        assert!(["irn", "gbn"].iter().all(|name| found.iter().any(|(known, _)| known == name)));
        assert!(found.iter().all(|(_, points)| *points == goodput), "{found:?}");
        let times = [0.001, 0.01, 0.1].map(|loss| (loss, 2.0, None));
        assert!(by_loss(&cells, WanValue::Completion).iter().all(|(_, points)| *points == times));
        // Kinds of loss are curves of their own: a line does not go from one to the other.
        let kinds = results(&["10ms"], &["iid:0.1", "ge:0.1", "iid:0.01", "ge:0.01"], &["irn"]);
        let kinds: Vec<&CellResult> = kinds.iter().collect();
        let found = by_loss(&kinds, WanValue::Goodput);
        let found: Vec<_> =
            found.iter().map(|(name, points)| (name.as_str(), points.len())).collect();
        assert_eq!(found, [("irn, iid", 2), ("irn, ge", 2)]);
        // What is too little for the axis is drawn at its edge; what has no value is left out.
        let mut odd = all[0].clone();
        odd.metrics.goodput_over_limit = summary(&[1e-9]);
        odd.formula = 0.0;
        let found = by_loss(&[&odd], WanValue::Goodput);
        assert_eq!(found[0].1, [(0.1, LEAST, Some(LEAST))]);
        odd.metrics.goodput_over_limit = None;
        assert_eq!(by_loss(&[&odd], WanValue::Goodput), []);
    }
}
