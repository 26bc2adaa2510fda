//! `cargo xtask bench`: speed, beside the machine's limits and what others do.
//!
//! The lines of `bench/lines.rs` are measured in turn, in rounds; medians and spreads go to a table, to
//! `bench-results/latest.json` and to the part of `docs/performance.md` between its two marks. Must not report a
//! line whose path the device's counters do not prove, or touch a word outside the marks.

mod cface;
mod hosts;
mod inc;
mod lines;
mod sizes;
mod ucx;
mod wan;

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use clap::Args;
use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use lines::{BenchLine, Better, LIMITS, OTHERS, ValueSource};
use serde::Serialize;
use serde_json::Value;
use sizes::SizePlot;

use crate::{
    cargo, child, pair,
    say::{Failure, TaskResult, say, say_part},
};

pub(crate) use inc::{IncBenchPlan, run as run_inc};
pub(crate) use wan::{WanBenchPlan, run as run_wan};

/// Comparison with another line of the same run.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Ratio {
    to: &'static str,
    times: f64,
}

/// What one measurement of a line gave.
#[derive(Clone, PartialEq, Debug, Default)]
struct Measured {
    value: f64,
    /// The counter that proves the path, and its growth.
    carried_by: Option<String>,
    /// Seconds of processor time of both processes for 10^9 bytes, between hosts.
    cpu: Option<f64>,
}

impl From<f64> for Measured {
    fn from(value: f64) -> Self {
        Self { value, ..Self::default() }
    }
}

/// Values of one line, over the rounds.
#[derive(Clone, Debug, Serialize)]
struct Series {
    name: &'static str,
    group: &'static str,
    unit: &'static str,
    is_lower_better: bool,
    /// The counter that proves the path, and its growth per round.
    carried_by: Option<String>,
    values: Vec<f64>,
    /// Seconds of processor time of both processes for 10^9 bytes, each round.
    cpu_s_per_gb: Vec<f64>,
    median: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    /// How many times better than each line that it is compared with, by medians.
    ratios: Vec<Ratio>,
    failures: Vec<String>,
}

/// What a run of the bench does.
#[derive(Debug, Args)]
pub(crate) struct BenchPlan {
    /// Rounds of measurements, 5 to 100
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(5..=100))]
    rounds: u32,
    /// Measure only the lines whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Also latency and bandwidth over the size of a message, as plots (about a minute a round)
    #[arg(long)]
    sizes: bool,
    /// Write the table and the plots into docs/performance.md; needs all lines
    #[arg(long, requires = "sizes", conflicts_with = "only")]
    page: bool,
}

/// Runs all lines `rounds` times in turn.
pub(crate) fn run(plan: &BenchPlan) -> TaskResult {
    let (rounds, only) = (plan.rounds, plan.only.as_deref());
    say("Building for release...");
    let bin = cargo::build_release(&["urma_perftest", "xtask"])?;
    let is_wanted = |line: &&BenchLine| only.is_none_or(|part| line.name.contains(part));
    let has_hosts_lines = lines::all().any(|line| is_wanted(&line) && line.is_between_hosts());
    let no_hosts = has_hosts_lines.then(hosts::refused).flatten();
    let is_possible = |line: &&BenchLine| match line.source {
        ValueSource::Hosts(of) => {
            no_hosts.is_none() && of.program.needs().is_none_or(ucx::is_installed)
        }
        ValueSource::Ucx { .. } => ucx::is_here(),
        ValueSource::CFace(of) => cface::is_possible(of),
        ValueSource::Perftest { .. } | ValueSource::Corner(_) | ValueSource::Probe(_) => true,
    };
    let lines: Vec<&BenchLine> = lines::all().filter(is_wanted).filter(is_possible).collect();
    say_what_is_left_out(no_hosts.as_deref(), has_hosts_lines);
    let mut series: Vec<Series> = lines.iter().map(|line| Series::of(line)).collect();
    let mut plots = if plan.sizes { sizes::plots() } else { Vec::new() };
    for round in 1..=rounds {
        sizes::add_round(&mut plots, &bin)?;
        for (index, (line, series)) in lines.iter().zip(&mut series).enumerate() {
            let at = format!("round {round}/{rounds}, {}/{}", index + 1, lines.len());
            say_part(&format!("\r{at}: {:<50}", line.name));
            series.add(measure(&bin, line));
        }
    }
    say_part(&format!("\r{:80}\r", ""));
    let medians: Vec<_> = series.iter().map(|series| (series.name, series.median())).collect();
    for (series, line) in series.iter_mut().zip(&lines) {
        series.finish(line.references, &medians);
    }
    say(&table(&series).to_string());
    plots.iter().for_each(|plot| say(&plot.block()));
    say(&format!(
        "{rounds} alternating rounds, two processes pinned to two cores; median (smallest to \
         largest); GB/s counts 10^9 bytes. \"times\" is how often better than the line it names."
    ));
    let document = document(&series, &plots);
    write(&document)?;
    if plan.page {
        write_page(&document, &series, &plots)?;
    }
    let failures: Vec<_> = series.iter().flat_map(|series| series.failures.clone()).collect();
    if failures.is_empty() { Ok(()) } else { Err(Failure(failures.join("\n"))) }
}

/// Says which programs of others are not installed, and why nothing is measured between hosts.
fn say_what_is_left_out(no_hosts: Option<&str>, has_hosts_lines: bool) {
    let others: &[&str] = if has_hosts_lines { &["iperf3", "fi_pingpong"] } else { &[] };
    for name in others.iter().chain(&[ucx::NAME]).filter(|name| !ucx::is_installed(name)) {
        say(&format!("{name} is not installed: its lines are left out."));
    }
    if let Some(why) = no_hosts {
        say(&format!("{why}: the lines between hosts are left out."));
    }
}

/// One value, and the counter that proves its path.
fn measure(bin: &Path, line: &BenchLine) -> Result<Measured, Failure> {
    match &line.source {
        ValueSource::Perftest { args, key, factor, carrier } => {
            let args: Vec<&str> = args.split_whitespace().collect();
            let document = pair::run(bin, &args)?;
            let missing = || Failure(format!("{}: no {key} in the answer", line.name));
            let result = document.pointer("/results/0").ok_or_else(missing)?;
            let value = result.get(*key).and_then(Value::as_f64).ok_or_else(missing)?;
            let (counter, count) = pair::proof(result).unwrap_or_default();
            if counter != *carrier {
                let why = format!("{}: carried by {counter:?}, not by {carrier}", line.name);
                return Err(Failure(why));
            }
            let carried_by = Some(format!("{counter} +{count}"));
            Ok(Measured { carried_by, ..Measured::from(value * factor) })
        }
        ValueSource::Corner(of) => {
            lines::measure(of).map(|(value, carried_by)| Measured { carried_by, ..value.into() })
        }
        ValueSource::CFace(of) => Ok(cface::measure(bin, *of)?.into()),
        ValueSource::Hosts(of) => hosts::measure(bin, of),
        ValueSource::Probe(args) => Ok(probe_value(bin, args)?.into()),
        ValueSource::Ucx { test, size, tls, pick } => {
            Ok(ucx::measure(test, *size, tls, *pick)?.into())
        }
    }
}

/// Builds a bench of a package, unless that was done, and returns its path.
fn built(package: &str, bench: &str) -> Result<PathBuf, Failure> {
    let args = ["bench", "-p", package, "--bench", bench, "--no-run", "--message-format=json"];
    let output = child::output(&mut cargo::command(&args))?;
    let mut programs = output.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    });
    programs.next_back().ok_or_else(|| Failure(format!("no bench {bench} was built")))
}

/// Runs `xtask probe` from the release build.
pub(crate) fn probe_value(bin: &Path, args: &str) -> Result<f64, Failure> {
    let mut command = Command::new(bin.join("xtask"));
    command.arg("probe").args(args.split_whitespace());
    let output = pair::finish(pair::spawn(command)?)?;
    let value: Option<Value> = serde_json::from_slice(&output.stdout).ok();
    let value = value.as_ref().and_then(|value| value.get("value")).and_then(Value::as_f64);
    value.ok_or_else(|| {
        let why = String::from_utf8_lossy(&output.stdout).into_owned();
        Failure(format!("probe {args}: {}", why.trim()))
    })
}

impl Series {
    fn of(line: &BenchLine) -> Self {
        Self {
            name: line.name,
            group: line.group,
            unit: line.unit,
            is_lower_better: line.better == Better::Lower,
            carried_by: None,
            values: Vec::new(),
            cpu_s_per_gb: Vec::new(),
            median: None,
            min: None,
            max: None,
            ratios: Vec::new(),
            failures: Vec::new(),
        }
    }

    fn add(&mut self, result: Result<Measured, Failure>) {
        match result {
            Ok(Measured { value, carried_by, cpu }) => {
                self.values.push(value);
                self.cpu_s_per_gb.extend(cpu);
                self.carried_by = carried_by.or_else(|| self.carried_by.take());
            }
            Err(Failure(why)) => self.failures.push(why),
        }
    }

    fn median(&self) -> Option<f64> {
        middle(&self.values)
    }

    /// Median processor time, where it was measured.
    fn cpu(&self) -> Option<String> {
        middle(&self.cpu_s_per_gb).map(|cpu| format!("{cpu:.2} CPU s/GB"))
    }

    fn finish(&mut self, references: &[&'static str], medians: &[(&str, Option<f64>)]) {
        self.median = self.median();
        self.min = self.values.iter().copied().reduce(f64::min);
        self.max = self.values.iter().copied().reduce(f64::max);
        let Some(mine) = self.median else { return };
        let ratio = |to: &&'static str| {
            let other = medians.iter().find(|(name, _)| name == to).and_then(|(_, m)| *m)?;
            let times = if self.is_lower_better { other / mine } else { mine / other };
            Some(Ratio { to, times })
        };
        self.ratios = references.iter().filter_map(ratio).collect();
    }
}

/// The median of some values.
fn middle(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

fn table(series: &[Series]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["", "what", "median", "smallest to largest", "carried by", "times"]);
    let mut group = "";
    for line in series {
        let shown = if line.group == group { "" } else { line.group };
        group = line.group;
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        let median =
            line.median.map_or_else(|| "failed".to_owned(), |v| format!("{v:.3} {}", line.unit));
        let spread = line.min.zip(line.max);
        let spread = spread.map_or(String::new(), |(min, max)| format!("{min:.3} to {max:.3}"));
        let proof: Vec<String> = line.carried_by.clone().into_iter().chain(line.cpu()).collect();
        let ratio = |ratio: &Ratio| format!("{:.2} x {}", ratio.times, ratio.to);
        let ratios: Vec<String> = line.ratios.iter().map(ratio).collect();
        table.add_row([
            Cell::new(shown),
            Cell::new(line.name),
            right(median),
            right(spread),
            Cell::new(proof.join("\n")),
            Cell::new(ratios.join("\n")),
        ]);
    }
    table
}

/// The results, with the machine that they are of.
fn document(series: &[Series], plots: &[SizePlot]) -> Value {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel: Vec<&str> = release.trim().split('.').take(2).collect();
    serde_json::json!({
        "kernel": kernel.join("."),
        "machine": model.trim_start_matches([' ', '\t', ':']),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "ucx": ucx::version(),
        "lines": series,
        "sizes": plots,
    })
}

fn write(document: &Value) -> TaskResult {
    let folder = cargo::root().join("bench-results");
    fs::create_dir_all(&folder).map_err(Failure::system("bench-results"))?;
    let path = folder.join("latest.json");
    fs::write(&path, format!("{document:#}\n")).map_err(Failure::system("latest.json"))?;
    say(&format!("written: {}", path.display()));
    Ok(())
}

const PAGE: &str = "docs/performance.md";
const BEGIN: &str = "<!-- results: written by `cargo xtask bench --sizes --page` -->\n";
const END: &str = "<!-- end of the results -->\n";

/// Replaces the results on the page.
fn write_page(document: &Value, series: &[Series], plots: &[SizePlot]) -> TaskResult {
    let path = cargo::root().join(PAGE);
    let page = fs::read_to_string(&path).map_err(Failure::system(PAGE))?;
    let page = with_results(&page, &results(document, series, plots))?;
    fs::write(&path, page).map_err(Failure::system(PAGE))?;
    say(&format!("written: {PAGE}"));
    Ok(())
}

fn with_results(page: &str, results: &str) -> Result<String, Failure> {
    let marks = page.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) = marks.ok_or_else(|| {
        Failure(format!("{PAGE} lacks a line {:?} or {:?}", BEGIN.trim(), END.trim()))
    })?;
    Ok(format!("{before}{BEGIN}\n{results}\n{END}{after}"))
}

fn results(document: &Value, series: &[Series], plots: &[SizePlot]) -> String {
    let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or("not installed");
    let rounds = series.iter().map(|line| line.values.len()).max().unwrap_or(0);
    let mut page = format!(
        "{}, {} cores; Linux {}; UCX {}; {rounds} rounds.\n\n| what | median | smallest to largest | times better than |\n|---|---:|---:|---|\n",
        text("machine"),
        document.get("cores").unwrap_or(&Value::Null),
        text("kernel"),
        text("ucx"),
    );
    let is_beside = |line: &Series| {
        let mut ratios = series.iter().flat_map(|series| &series.ratios);
        [OTHERS, LIMITS].contains(&line.group) && ratios.any(|ratio| ratio.to == line.name)
    };
    // Lines of other programs and of the machine show as what ours are compared with.
    for line in series.iter().filter(|line| !is_beside(line)) {
        let (Some(median), Some(min), Some(max)) = (line.median, line.min, line.max) else {
            let _ = writeln!(page, "| {} | failed | | |", line.name);
            continue;
        };
        let ratio = |ratio: &Ratio| {
            let other = series.iter().find(|other| other.name == ratio.to);
            let other = other.filter(|other| is_beside(other)).and_then(|other| other.median);
            let other =
                other.map_or_else(String::new, |median| format!(" ({})", three_digits(median)));
            // Both are of one MTU, which the row begins with.
            let mtu = line.name.split_once(": ").map_or("", |(mtu, _)| mtu);
            let to = ratio.to.strip_prefix(mtu).and_then(|to| to.strip_prefix(": "));
            format!("{:.2} x {}{other}", ratio.times, to.unwrap_or(ratio.to))
        };
        let ratios: Vec<String> = line.ratios.iter().map(ratio).collect();
        let cpu = line.cpu().map_or_else(String::new, |cpu| format!(", {cpu}"));
        let _ = writeln!(
            page,
            "| {} | {} {}{cpu} | {} to {} | {} |",
            line.name,
            three_digits(median),
            line.unit,
            three_digits(min),
            three_digits(max),
            ratios.join(", ")
        );
    }
    for plot in plots {
        let _ = write!(page, "\n{}\n", plot.block());
    }
    page
}

/// A number with three digits that mean something, and no zeros behind the point's last one.
fn three_digits(value: f64) -> String {
    let decimals = [100.0, 10.0, 1.0].iter().filter(|limit| value.abs() < **limit).count();
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn series(values: &[f64], better: Better) -> Series {
        let line = BenchLine {
            name: "mine",
            group: "",
            unit: "us",
            better,
            references: &["other", "absent"],
            source: ValueSource::Probe(""),
        };
        let mut series = Series::of(&line);
        values.iter().for_each(|value| series.add(Ok((*value).into())));
        series
    }

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.2051, "0.205"),
            (1.074, "1.07"),
            (28.52, "28.5"),
            (125.0, "125"),
            (12.0, "12"),
            (1027.4, "1027"),
        ] {
            assert_eq!(three_digits(value), text);
        }
    }

    #[test]
    fn medians_and_ratios() {
        let mut lower = series(&[3.0, 1.0, 2.0], Better::Lower);
        lower.finish(&["other", "absent"], &[("other", Some(8.0))]);
        assert_eq!((lower.median, lower.min, lower.max), (Some(2.0), Some(1.0), Some(3.0)));
        assert_eq!(lower.ratios, [Ratio { to: "other", times: 4.0 }]);
        let mut higher = series(&[2.0, 4.0], Better::Higher);
        higher.finish(&["other"], &[("other", Some(6.0))]);
        assert_eq!(higher.median, Some(3.0));
        assert_eq!(higher.ratios, [Ratio { to: "other", times: 0.5 }]);
    }

    #[test]
    fn every_reference_is_a_line() {
        for line in lines::all() {
            let is_known = |name: &&str| lines::all().any(|other| other.name == *name);
            assert!(line.references.iter().all(is_known), "{}", line.name);
            assert_eq!(lines::all().filter(|other| other.name == line.name).count(), 1);
        }
    }

    #[test]
    fn lines_of_others_stand_beside_ours() {
        let of = |(name, group), median, ratios| Series {
            name,
            group,
            unit: "us",
            is_lower_better: true,
            carried_by: None,
            values: vec![median],
            cpu_s_per_gb: vec![],
            median: Some(median),
            min: Some(median),
            max: Some(median),
            ratios,
            failures: vec![],
        };
        let ours = of(("put", "same host"), 2.0, vec![Ratio { to: "UCX", times: 1.5 }]);
        let far = of(("1500: put", "hosts"), 5.0, vec![Ratio { to: "1500: TCP", times: 2.0 }]);
        let lines =
            [ours, of(("UCX", OTHERS), 3.0, vec![]), of(("idle", OTHERS), 4.0, vec![]), far];
        let page = results(&Value::Null, &lines, &[]);
        let rows: Vec<&str> = page.lines().skip(4).collect();
        let wanted = [
            "| put | 2 us | 2 to 2 | 1.50 x UCX (3) |",
            "| idle | 4 us | 4 to 4 |  |",
            "| 1500: put | 5 us | 5 to 5 | 2.00 x TCP |",
        ];
        assert_eq!(rows, wanted);
    }

    #[test]
    fn results_stand_between_the_marks() {
        let page = format!("# A\n\n{BEGIN}old\n{END}\nB\n");
        let new = with_results(&page, "new\n").expect("marks");
        assert_eq!(new, format!("# A\n\n{BEGIN}\nnew\n\n{END}\nB\n"));
        assert_eq!(with_results(&new, "new\n").expect("marks"), new, "again");
        let Failure(why) = with_results("# A\n", "new").expect_err("no marks");
        assert!(why.contains("lacks a line"), "{why}");
    }

    #[test]
    fn the_page_has_the_marks() {
        let page = fs::read_to_string(cargo::root().join(PAGE)).expect("the page");
        with_results(&page, "").expect("both marks");
    }
}
