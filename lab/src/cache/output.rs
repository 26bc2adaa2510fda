//! Results of `cache` as JSON lines, CSV and a table.
//!
//! - owns: names of fields and columns. takes: results. gives: text. must not: compare with anything but the bound.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use urma_contexts::policy::kind::PolicyKind;

use super::cell::CacheResult;
use super::grid::{RULE_OPTIONS, RuleOption};
use super::options::{TIER_OPTIONS, TierOption};
use super::tiers::{TierResult, WaitTimes};

/// Hit ratio of OPT with bypass on the same trace at the same capacity, in percent.
fn bound(results: &[CacheResult], of: &CacheResult) -> Option<f64> {
    let same = |result: &&CacheResult| {
        result.cell.policy == PolicyKind::OptBypass
            && result.cell.trace.name == of.cell.trace.name
            && result.cell.given == of.cell.given
    };
    results.iter().find(same).map(CacheResult::percent)
}

/// One JSON object of a result; `results` hold the bound.
#[must_use]
pub fn json_cell(results: &[CacheResult], result: &CacheResult) -> Value {
    let CacheResult { cell, counts, .. } = result;
    let mut object = json!({
        "schema": "urma-lab/1",
        "kind": "cell",
        "experiment": "cache",
        "model": true,
        "build": env!("CARGO_PKG_VERSION"),
        "trace": cell.trace.name,
        "policy": cell.policy.name(),
        "capacity": cell.given,
        "slots": cell.capacity,
        "handles": cell.trace.trace.distinct(),
        "accesses": counts.accesses,
        "hits": counts.hits,
        "misses": counts.misses,
        "evicted": counts.evicted,
        "refused": counts.refused,
        "hit_percent": result.percent(),
        "bound_percent": bound(results, result),
        "misses_over_time": result.misses.iter().map(|(_, misses)| misses).collect::<Vec<_>>(),
        "ns_per_access": result.ns_per_access,
    });
    if cell.has_rule() {
        let value = |option: &RuleOption| (option.name.to_owned(), (option.get)(cell.rule).into());
        object["rule"] = RULE_OPTIONS.iter().map(value).collect::<Map<String, Value>>().into();
    }
    if let (Some(setting), Some(tiers)) = (&cell.tiers, &result.tiers) {
        let counters: Map<String, Value> =
            tiers.counters.iter().map(|(name, count)| (name.clone(), (*count).into())).collect();
        let TierResult { waits, accesses_per_us, .. } = tiers;
        let mut of_tiers = json!({
            "has_l2": setting.has_l2(),
            "accesses_per_us": accesses_per_us,
            "wait_mean_ns": waits.mean,
            "wait_p50_ns": waits.p50,
            "wait_p99_ns": waits.p99,
            "counters": counters,
        });
        for option in &TIER_OPTIONS {
            of_tiers[option.field] = option.json(setting);
        }
        object["tiers"] = of_tiers;
    }
    object
}

/// Shares of the accesses in percent: found in L1, L2, L3; mean and p99 of the wait in ns; accesses in a microsecond; median wait.
fn tier_figures(tiers: &TierResult) -> [f64; 7] {
    let shares = ["l1_hits", "l2_hits", "l3_hits"].map(|name| tiers.percent(name));
    let WaitTimes { mean, p50, p99 } = tiers.waits;
    let [mean, p50, p99] = [mean, p50, p99].map(|ns| ns as f64);
    [shares[0], shares[1], shares[2], mean, p99, tiers.accesses_per_us, p50]
}

/// Names of the columns of CSV up to those of the options.
const COLUMNS: &str = "trace,policy,capacity,slots,handles,accesses,hits,misses,evicted,refused,hit_percent,bound_percent,ns_per_access,l1_percent,l2_percent,l3_percent,wait_mean_ns,wait_p99_ns,accesses_per_us,wait_p50_ns";

/// A line of CSV per result.
#[must_use]
pub fn csv(results: &[CacheResult]) -> String {
    let options = TIER_OPTIONS.each_ref().map(|option| option.field);
    let rule = RULE_OPTIONS.each_ref().map(|option| option.name);
    let mut text = format!("{COLUMNS},{},{}\n", options.join(","), rule.join(","));
    for result in results {
        let CacheResult { cell, counts, .. } = result;
        let bound = bound(results, result).map_or_else(String::new, |bound| bound.to_string());
        let columns = [
            quoted(&cell.trace.name),
            cell.policy.name().to_owned(),
            cell.given.clone(),
            cell.capacity.to_string(),
            cell.trace.trace.distinct().to_string(),
            counts.accesses.to_string(),
            counts.hits.to_string(),
            counts.misses.to_string(),
            counts.evicted.to_string(),
            counts.refused.to_string(),
            result.percent().to_string(),
            bound,
            result.ns_per_access.to_string(),
        ];
        let figures = match &result.tiers {
            Some(tiers) => tier_figures(tiers).map(|figure| figure.to_string()),
            None => Default::default(),
        };
        let options = TIER_OPTIONS.each_ref().map(|option| {
            cell.tiers.as_ref().map_or_else(String::new, |setting| plain(&option.json(setting)))
        });
        let rule = RULE_OPTIONS.each_ref().map(|option| {
            if cell.has_rule() { (option.get)(cell.rule).to_string() } else { String::new() }
        });
        let fields = [&columns[..], &figures, &options, &rule].concat();
        let _ = writeln!(text, "{}", fields.join(","));
    }
    text
}

/// A value without the quotes of JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Names of policies in a table, with the parameters of the seed's rule that differ among the results.
struct PolicyNames {
    rule: Vec<&'static RuleOption>,
    width: usize,
}

impl PolicyNames {
    fn new(results: &[CacheResult]) -> Self {
        let rules = || results.iter().filter(|result| result.cell.has_rule());
        let is_swept = |option: &&RuleOption| {
            let mut values = rules().map(|result| (option.get)(result.cell.rule));
            let first = values.next();
            values.any(|value| Some(value) != first)
        };
        let mut names = Self { rule: RULE_OPTIONS.iter().filter(is_swept).collect(), width: 10 };
        let widths = results.iter().map(|result| names.of(result).len());
        names.width = widths.fold(names.width, usize::max);
        names
    }

    fn of(&self, result: &CacheResult) -> String {
        let mut name = result.cell.policy.name().to_owned();
        for option in self.rule.iter().filter(|_| result.cell.has_rule()) {
            name += &format!(" {} {}", option.name, (option.get)(result.cell.rule));
        }
        name
    }
}

/// A name as a field of CSV: a path may have commas, or begin as a formula does.
fn quoted(name: &str) -> String {
    let formula = name.starts_with(['=', '+', '-', '@']);
    if formula || name.contains([',', '"', '\n']) {
        let mark = if formula { "'" } else { "" };
        return format!("\"{mark}{}\"", name.replace('"', "\"\""));
    }
    name.to_owned()
}

/// The second table, of the runs through the tiers; nothing without them. Options with several values are its last columns.
#[must_use]
pub fn tier_table(results: &[CacheResult]) -> String {
    let settings = || results.iter().filter_map(|result| result.cell.tiers.as_ref());
    let is_swept = |option: &&TierOption| {
        let mut values = settings().map(|setting| option.value(setting));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    let swept: Vec<&TierOption> = TIER_OPTIONS.iter().filter(is_swept).collect();
    let (mut text, names) = (String::new(), PolicyNames::new(results));
    for result in results {
        let (Some(tiers), Some(setting)) = (&result.tiers, &result.cell.tiers) else { continue };
        if text.is_empty() {
            text.push_str(
                "model with tiers; % of the accesses found in each, others met a migration\n",
            );
            text.push_str("trace               capacity  policy         L1     L2     L3   wait ns: mean, p50, p99   M accesses/s");
            swept.iter().for_each(|option| text += &format!("  {}", option.name));
            text.push('\n');
        }
        let [l1, l2, l3, mean, p99, rate, p50] = tier_figures(tiers);
        let cell = &result.cell;
        let (name, given, policy) = (&cell.trace.name, &cell.given, names.of(result));
        let width = names.width;
        let _ = write!(
            text,
            "{name:19} {given:>8}  {policy:width$} {l1:>6.2} {l2:>6.2} {l3:>6.2} {mean:>8.0} {p50:>7.0} {p99:>8.0} {rate:>14.1}"
        );
        for option in &swept {
            let (value, width) = (option.text(setting), option.name.len());
            let _ = write!(text, "  {value:>width$}");
        }
        text.push('\n');
    }
    text
}

/// Head of the table for people.
pub const HEAD: &str = "model; hits in % of the accesses\ntrace               capacity   slots  policy       hits   of bound  misses    ns/access";

/// Row of that table; `results` hold the bound.
#[must_use]
pub fn row(results: &[CacheResult], result: &CacheResult) -> String {
    let cell = &result.cell;
    let share =
        bound(results, result).map_or(0.0, |bound| 100.0 * result.percent() / bound.max(1e-9));
    let names = PolicyNames::new(results);
    let width = names.width;
    format!(
        "{:19} {:>8} {:>7}  {:width$} {:>6.2} {:>9.1} % {:>8} {:>10.1}",
        cell.trace.name,
        cell.given,
        cell.capacity,
        names.of(result),
        result.percent(),
        share,
        result.counts.misses,
        result.ns_per_access,
    )
}

#[cfg(test)]
mod tests {
    use urma_contexts::{ContextCounts, TimeHistogram};

    use super::super::cell::tests::{cell, result};
    use super::*;

    /// So many hits of 100 accesses.
    fn of(name: &str, given: &str, policy: PolicyKind, hits: u64) -> CacheResult {
        let mut found = result(&cell(name, vec![1, 2], 1));
        (found.cell.given, found.cell.policy) = (given.to_owned(), policy);
        (found.counts.accesses, found.counts.hits, found.counts.misses) = (100, hits, 100 - hits);
        found
    }

    #[test]
    fn the_bound_is_that_of_the_same_trace_and_capacity() {
        let results = [
            of("a", "10", PolicyKind::Lru, 40),
            of("a", "20", PolicyKind::OptBypass, 60),
            of("b", "10", PolicyKind::OptBypass, 70),
            of("a", "10", PolicyKind::OptBypass, 50),
            of("c", "10", PolicyKind::Lru, 5),
        ];
        let bounds = results.each_ref().map(|result| bound(&results, result));
        assert_eq!(bounds, [Some(50.0), Some(60.0), Some(70.0), Some(50.0), None]);
        let cell = json_cell(&results, &results[0]);
        assert_eq!(
            (cell["hit_percent"].as_f64(), cell["bound_percent"].as_f64()),
            (Some(40.0), Some(50.0))
        );
        let row = row(&results, &results[0]);
        assert!(row.contains(" 40.00 ") && row.contains(" 80.0 % "), "{row}");
        let csv = csv(&results);
        let row: Vec<&str> = csv.lines().nth(1).expect("the first result").split(',').collect();
        // Trace, policy, capacity, slots, handles, accesses, hits, misses, evicted, refused, both percentages.
        assert_eq!(
            row[..12],
            ["a", "lru", "10", "1", "2", "100", "40", "60", "1", "0", "40", "50"]
        );
        assert_eq!(row.len(), csv.lines().next().expect("the head").split(',').count());
    }

    #[test]
    fn figures_of_tiers_are_those_counted_by_hand() {
        let counts = ContextCounts {
            accesses: 200,
            l1_hits: 100,
            l2_hits: 60,
            l3_hits: 30,
            ..ContextCounts::default()
        };
        // The mean of 1125 / 1000 is cut; 500 of 1000 do not exceed 1, 990 not 6, 989 not 4.
        let mut times = TimeHistogram::default();
        for (ns, count) in [(1, 970), (4, 19), (6, 1), (7, 10)] {
            times.note_times(ns, count);
        }
        let (counters, waits) = (counts.list(), WaitTimes::of(&times));
        assert_eq!(waits, WaitTimes { mean: 1, p50: 1, p99: 6 });
        let waits = WaitTimes { p50: 2, ..waits };
        let figures = tier_figures(&TierResult { counters, waits, accesses_per_us: 12.5 });
        assert_eq!(figures, [50.0, 30.0, 15.0, 1.0, 6.0, 12.5, 2.0]);
    }

    #[test]
    fn a_name_that_a_spreadsheet_would_take_for_more_is_quoted() {
        for (name, wanted) in [
            ("burst16_10k", "burst16_10k"),
            ("a,b", "\"a,b\""),
            ("a\"b", "\"a\"\"b\""),
            ("=1+1", "\"'=1+1\""),
            ("@x", "\"'@x\""),
        ] {
            assert_eq!(quoted(name), wanted);
        }
    }
}
