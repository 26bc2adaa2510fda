//! Plots of `cache`, one curve per policy: misses over time; hits, and waits with the tiers, along each list with several values.
//!
//! - owns: axes, colours. takes: results. gives: SVG text. must not: leave out that it is a model.

use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::element::PathElement;
use plotters::prelude::{Color, IntoDrawingArea, RGBColor, SVGBackend};
use plotters::series::LineSeries;
use plotters::style::{Palette, Palette99};

use super::cell::CacheResult;
use super::grid::RULE_OPTIONS;
use super::options::TIER_OPTIONS;
use crate::plot::{PlotAxis, PlotError, PlotRange, PlotValue, SIZE, SweepPlots, is_swept};

/// What a plot along a list shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CacheValue {
    /// Hits of the policy alone.
    Hits,
    /// Accesses that were found on the chip, with the tiers.
    Chip,
    /// Mean time that an access waited, with the tiers.
    Wait,
    /// The time that 99 % of the accesses did not exceed.
    P99,
}

impl PlotValue<CacheResult> for CacheValue {
    fn name(self) -> &'static str {
        match self {
            Self::Hits => "hits",
            Self::Chip => "chip",
            Self::Wait => "wait",
            Self::P99 => "p99",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Hits => "hits, % of accesses",
            Self::Chip => "found on the chip, % of accesses",
            Self::Wait => "wait of an access in ns, mean",
            Self::P99 => "wait of an access in ns, p99",
        }
    }

    fn value(self, result: &CacheResult) -> Option<(f64, Option<f64>)> {
        let value = match self {
            Self::Hits => result.percent(),
            Self::Chip => result.tiers.as_ref()?.percent("l1_hits"),
            Self::Wait => result.tiers.as_ref()?.waits.mean as f64,
            Self::P99 => result.tiers.as_ref()?.waits.p99 as f64,
        };
        Some((value, None))
    }

    fn range(self, values: &mut dyn Iterator<Item = f64>) -> PlotRange {
        match self {
            Self::Hits | Self::Chip => PlotRange { least: 0.0, most: 100.0, is_log: false },
            Self::Wait | Self::P99 => {
                let most = values.fold(0.0, f64::max).max(1.0) * 1.2;
                PlotRange { least: 0.0, most, is_log: false }
            }
        }
    }

    fn label(self, value: f64) -> String {
        format!("{value:.0}")
    }

    fn corner(self) -> SeriesLabelPosition {
        match self {
            Self::Hits | Self::Chip => SeriesLabelPosition::UpperLeft,
            Self::Wait | Self::P99 => SeriesLabelPosition::LowerLeft,
        }
    }
}

/// A list of the sweep. Traces and words are no axes: traces have plots of their own, words curves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CacheAxis {
    Trace,
    Capacity,
    /// A parameter of the seed's rule, by its place among them.
    Rule(usize),
    /// An option of the tiers, by its place among them.
    Tier(usize),
}

impl CacheAxis {
    /// What the policies alone depend on, and what their curves are.
    fn of_replays() -> Vec<Self> {
        let rules = (0..RULE_OPTIONS.len()).map(Self::Rule);
        [Self::Trace, Self::Capacity].into_iter().chain(rules).collect()
    }

    fn all() -> Vec<Self> {
        let tiers = (0..TIER_OPTIONS.len()).map(Self::Tier);
        Self::of_replays().into_iter().chain(tiers).collect()
    }
}

impl PlotAxis<CacheResult> for CacheAxis {
    fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Capacity => "capacity",
            Self::Rule(at) => RULE_OPTIONS[at].name,
            Self::Tier(at) => TIER_OPTIONS[at].name,
        }
    }

    fn title(self) -> String {
        match self {
            Self::Trace => "trace".to_owned(),
            Self::Capacity => "slots of the chip".to_owned(),
            Self::Rule(at) => format!("{} of the seed's rule", RULE_OPTIONS[at].name),
            Self::Tier(at) => {
                let option = &TIER_OPTIONS[at];
                format!("{}{}", option.name, option.unit_words())
            }
        }
    }

    fn place(self, result: &CacheResult) -> Option<f64> {
        let cell = &result.cell;
        match self {
            Self::Trace => None,
            Self::Capacity => Some(cell.capacity.into()),
            Self::Rule(at) => cell.has_rule().then(|| f64::from((RULE_OPTIONS[at].get)(cell.rule))),
            Self::Tier(at) => {
                let option = &TIER_OPTIONS[at];
                let setting = cell.tiers.as_ref().filter(|_| option.is_number())?;
                Some(option.value(setting))
            }
        }
    }

    fn label(self, place: f64) -> String {
        if place >= 1e5 {
            format!("{place:.0e}")
        } else {
            format!("{}", (place * 100.0).round() / 100.0)
        }
    }

    /// Where 0 is a value among others there are no factors.
    fn is_log(self) -> bool {
        match self {
            Self::Trace | Self::Rule(_) => false,
            Self::Capacity => true,
            Self::Tier(at) => !TIER_OPTIONS[at].has_zero(),
        }
    }

    fn text(self, result: &CacheResult) -> String {
        let words = self.words(result);
        let plain = |letter: char| {
            if letter.is_ascii_alphanumeric() || letter == '.' || letter == '_' {
                letter
            } else {
                '-'
            }
        };
        let last = words.rsplit('/').next().unwrap_or_default();
        last.replace('%', "pc").chars().map(plain).collect()
    }

    fn words(self, result: &CacheResult) -> String {
        match self {
            Self::Trace => result.cell.trace.name.clone(),
            Self::Capacity => result.cell.given.clone(),
            Self::Rule(_) | Self::Tier(_) => {
                format!("{} {}", self.name(), self.value(result).unwrap_or_default())
            }
        }
    }

    fn value(self, result: &CacheResult) -> Option<String> {
        let cell = &result.cell;
        match self {
            Self::Trace | Self::Capacity => Some(self.words(result)),
            Self::Rule(at) => {
                cell.has_rule().then(|| (RULE_OPTIONS[at].get)(cell.rule).to_string())
            }
            Self::Tier(at) => Some(TIER_OPTIONS[at].text(cell.tiers.as_ref()?)),
        }
    }

    fn is_always_named(self) -> bool {
        matches!(self, Self::Trace | Self::Capacity)
    }

    fn divides(self) -> bool {
        match self {
            Self::Trace | Self::Capacity => true,
            Self::Rule(_) => false,
            Self::Tier(at) => TIER_OPTIONS[at].is_number(),
        }
    }
}

/// The policy, and what it has of the lists that divide curves.
fn curve(cells: &[&CacheResult], result: &CacheResult, along: CacheAxis) -> String {
    let mut name = result.cell.policy.name().to_owned();
    for axis in CacheAxis::all().into_iter().filter(|axis| *axis != along && !axis.divides()) {
        if let Some(value) = axis.value(result)
            && is_swept(cells, axis)
        {
            name += &format!(", {} {value}", axis.name());
        }
    }
    name
}

fn colour(number: usize) -> RGBColor {
    let (red, green, blue) = Palette99::pick(number).to_rgba().rgb();
    RGBColor(red, green, blue)
}

/// SVGs by name: misses over time for each trace and capacity, and plots along each list with several values.
pub fn of(results: &[CacheResult]) -> Result<Vec<(String, String)>, PlotError> {
    // Each policy once, whatever is behind the chip.
    let mut replays: Vec<&CacheResult> = results.iter().collect();
    replays.dedup_by(|result, before| result.cell.is_replay_of(&before.cell));
    let tiers: Vec<&CacheResult> = results.iter().filter(|result| result.tiers.is_some()).collect();
    let mut all = misses(&replays)?;
    all.extend(along(&replays, &CacheAxis::of_replays(), &[CacheValue::Hits]).draw()?);
    let of_tiers = [CacheValue::Chip, CacheValue::Wait, CacheValue::P99];
    all.extend(along(&tiers, &CacheAxis::all(), &of_tiers).draw()?);
    Ok(all)
}

fn along<'a>(
    results: &'a [&'a CacheResult],
    axes: &'a [CacheAxis],
    values: &'a [CacheValue],
) -> SweepPlots<'a, CacheResult, CacheAxis, CacheValue> {
    SweepPlots { results, axes, values, curve, colour }
}

/// One SVG per trace and capacity, with its name.
fn misses(replays: &[&CacheResult]) -> Result<Vec<(String, String)>, PlotError> {
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
fn points(result: &CacheResult) -> Vec<(f64, f64)> {
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
            .draw_series(LineSeries::new(points(result), colour.stroke_width(1)))?
            .label(curve(group, result, CacheAxis::Trace))
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
    use std::sync::Arc;

    use urma_contexts::trace::HandleTrace;

    use super::super::cell::tests::{cell, result};
    use super::super::grid::{CacheText, HandleKinds, NamedTrace};
    use super::super::options::TierOption;
    use super::*;

    #[test]
    fn a_point_is_the_share_of_misses_in_the_middle_of_its_part() {
        let mut found = result(&cell("short", vec![1, 2], 1));
        found.misses = vec![(10, 5), (4, 0), (0, 0), (8, 8)];
        let wanted = [(12.5, 50.0), (37.5, 0.0), (62.5, 0.0), (87.5, 100.0)];
        assert_eq!(points(&found), wanted);
    }

    /// Results of two policies on a trace of 200 handles with these lists.
    fn results(
        capacities: &str,
        rule: [Vec<u32>; 3],
        options: &[(&str, &str)],
    ) -> Vec<CacheResult> {
        let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let option = |(name, values): &(&str, &str)| {
            (TierOption::named(name).expect("an option"), list(values))
        };
        let text = CacheText {
            policies: list("lru,seed"),
            capacities: list(capacities),
            slot_bytes: 32,
            rule,
            tiers: "l2".to_owned(),
            tier_options: options.iter().map(option).collect(),
        };
        let handles = (0..2000_u32).map(|at| at * at % 200 + at % 3 * 200).collect();
        let trace = HandleTrace::new(handles).expect("some handles");
        let trace = NamedTrace::new("of/a b", trace, HandleKinds::Generated);
        let cells = text.check().and_then(|grid| grid.cells(&[Arc::new(trace)])).expect("a grid");
        cells.iter().map(result).collect()
    }

    fn names(plots: &[(String, String)]) -> Vec<&str> {
        let names = plots.iter().map(|(name, _)| name.as_str());
        names.filter(|name| !name.starts_with("misses")).collect()
    }

    #[test]
    fn each_list_with_several_values_is_an_axis() {
        let plots = of(&results("64", Default::default(), &[])).expect("drawn");
        assert_eq!(names(&plots), [""; 0], "no list has two values");
        let lists = [("promote-l1", "16,64"), ("fill", "demand,threshold"), ("writes", "0,0.5")];
        let plots = of(&results("64,80", Default::default(), &lists)).expect("drawn");
        let mut wanted = vec!["hits-by-capacity-a-b".to_owned()];
        for promote in ["16", "64"] {
            for writes in ["0", "0.5"] {
                for value in ["chip", "wait", "p99"] {
                    wanted.push(format!(
                        "{value}-by-capacity-a-b-promote-l1-{promote}-writes-{writes}"
                    ));
                }
            }
        }
        for other in ["promote-l1", "writes"] {
            let (fixed, values) = match other {
                "promote-l1" => ("writes", ["0", "0.5"]),
                _ => ("promote-l1", ["16", "64"]),
            };
            for capacity in ["64", "80"] {
                for at in values {
                    for value in ["chip", "wait", "p99"] {
                        wanted.push(format!("{value}-by-{other}-a-b-{capacity}-{fixed}-{at}"));
                    }
                }
            }
        }
        assert_eq!(names(&plots), wanted);
        for (name, svg) in &plots {
            assert!(svg.contains("model") && svg.contains("seed"), "{name}");
            let has_words = svg.contains("lru, fill threshold") && svg.contains("lru, fill demand");
            let is_of_tiers = !name.starts_with("hits") && !name.starts_with("misses");
            assert_eq!(has_words, is_of_tiers, "{name}");
        }
    }

    #[test]
    fn a_parameter_of_the_seeds_rule_is_an_axis_and_divides_curves_along_others() {
        let all = results("64,80", [vec![5, 10], Vec::new(), vec![0, 2, 4]], &[]);
        let refs: Vec<&CacheResult> = all.iter().collect();
        let replays = CacheAxis::of_replays();
        let plots = along(&refs, &replays, &[CacheValue::Hits]);
        let drawn = plots.draw().expect("drawn");
        let wanted =
            ["capacity-a-b", "aging-a-b-64", "aging-a-b-80", "admit-a-b-64", "admit-a-b-80"];
        assert_eq!(names(&drawn), wanted.map(|name| format!("hits-by-{name}")));
        let of_64: Vec<&CacheResult> =
            all.iter().filter(|result| result.cell.capacity == 64).collect();
        let curves = plots.curves(&of_64, (replays[4], CacheValue::Hits));
        let named: Vec<_> = curves
            .iter()
            .map(|(name, points)| (name.as_str(), points.iter().map(|p| p.0).collect::<Vec<_>>()))
            .collect();
        let places = || vec![0.0, 2.0, 4.0];
        assert_eq!(named, [("seed, aging 5", places()), ("seed, aging 10", places())]);
        let by_capacity = plots.curves(&refs, (CacheAxis::Capacity, CacheValue::Hits));
        assert_eq!((by_capacity.len(), by_capacity[0].0.as_str()), (8, "lru"));
        assert_eq!(by_capacity[2].0, "seed, aging 5, admit 2");
    }

    #[test]
    fn a_point_is_the_value_of_its_result_at_its_place() {
        let mut all = results("64", Default::default(), &[("promote-l1", "64,16")]);
        for (at, result) in all.iter_mut().enumerate() {
            if let Some(tiers) = &mut result.tiers {
                (tiers.waits.mean, tiers.waits.p99) = (7 + at as u64, 100 + at as u64);
                tiers.counters = vec![("accesses".to_owned(), 200), ("l1_hits".to_owned(), 50)];
            }
        }
        let tiers: Vec<&CacheResult> = all.iter().filter(|result| result.tiers.is_some()).collect();
        let axes = CacheAxis::all();
        let axis = axes.iter().find(|axis| axis.name() == "promote-l1").expect("an axis");
        let plots = along(&tiers, &axes, &[]);
        let of = |value| plots.curves(&tiers, (*axis, value));
        let points = |low, high| vec![(16.0, low, None), (64.0, high, None)];
        let curve = |name: &str, low, high| (name.to_owned(), points(low, high));
        assert_eq!(of(CacheValue::P99), [curve("lru", 101.0, 100.0), curve("seed", 103.0, 102.0)]);
        assert_eq!(of(CacheValue::Wait), [curve("lru", 8.0, 7.0), curve("seed", 10.0, 9.0)]);
        assert_eq!(of(CacheValue::Chip), [curve("lru", 25.0, 25.0), curve("seed", 25.0, 25.0)]);
    }
}
