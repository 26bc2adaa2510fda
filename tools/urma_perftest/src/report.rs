//! What is printed: text in formats that programs parse, or JSON, with distributions of latencies.
//!
//! Must not print; `main.rs` does.

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use urma::PathKind;

use crate::{
    cli::{AtomicKind, BwUnit},
    oob::SizeOutcome,
    pass::SizeSamples,
    plan::{Plan, RunLength, Test, Verb},
    requests::distribution,
    stats::{Bandwidth, Latency},
};

/// The rule between parts: 87 dashes.
pub(crate) const RULE: &str =
    "---------------------------------------------------------------------------------------";

/// First line of the server.
pub(crate) fn waiting() -> String {
    format!("{RULE}\n{}Waiting for client to connect...\n", " ".repeat(27))
}

/// Formats the title and the parameters of the run.
pub(crate) fn parameters(plan: &Plan) -> String {
    let test = &plan.test;
    let (is_client, verb) = (plan.is_client(), test.command.verb());
    let mut text = format!("{RULE}\n{}{}\n", " ".repeat(20), title(test));
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    if test.events {
        line(" Test with jfc events.".to_owned());
    }
    line(pair("Number of jettys", &test.jettys.to_string(), "Transport mode", "UB"));
    line(pair("JFC depth", &test.jfc_depth.to_string(), "Device name", &plan.dev));
    let kind = if test.simplex { "SIMPLEX" } else { "DUPLEX" };
    line(pair("Trans mode", test.mode.name(), "JETTY mode", kind));
    if is_client || test.bidirection {
        line(format!(" JFS depth           : {}", test.jfs_depth));
    }
    if test.post_list > 1 {
        line(format!(" JFS post list       : {}", test.post_list));
    }
    if test.recv_post_list > 1 {
        line(format!(" JFR post list       : {}", test.recv_post_list));
    }
    if verb == Verb::Send && (!is_client || test.bidirection) {
        line(format!(" JFR depth           : {}", test.jfr_depth));
    }
    if !test.command.is_latency() {
        line(format!(" CQ Moderation       : {}", test.cq_mod));
    }
    if matches!(verb, Verb::Write | Verb::Send) {
        line(format!(" Max inline size     : {}[B]", test.inline));
    }
    line(RULE.to_owned());
    text
}

fn pair(left: &str, value: &str, right: &str, other: &str) -> String {
    format!(" {left:<20}: {value:<10}\t\t {right:<17}: {other}")
}

fn title(test: &Test) -> String {
    let mut title = match test.command.verb() {
        Verb::Read => "URMA_READ ".to_owned(),
        Verb::Write => "URMA_WRITE ".to_owned(),
        Verb::Send => "URMA_SEND ".to_owned(),
        Verb::Atomic => format!("URMA_ATOMIC {} ", atomic(test.atomic)),
    };
    if test.bidirection {
        title.push_str("Bidirectional ");
    }
    if test.post_list > 1 {
        title.push_str("JFS Post List ");
    }
    title.push_str(if test.command.is_latency() { "Latency Test" } else { "BandWidth Test" });
    title
}

fn atomic(kind: AtomicKind) -> &'static str {
    match kind {
        AtomicKind::Cas => "cas",
        AtomicKind::Faa => "faa",
    }
}

/// The line above the rows.
pub(crate) fn header(test: &Test, unit: BwUnit) -> String {
    let name = unit_name(unit);
    match (test.command.is_latency(), test.extent) {
        (true, RunLength::Iterations(_)) => concat!(
            " bytes   iterations  t_min[us]  t_max[us]  t_median[us]  t_avg[us]  t_stdev[us]  ",
            "99%[us]  99.9%[us]  99.99%[us]  99.999%[us]"
        )
        .to_owned(),
        (true, RunLength::Seconds(_) | RunLength::Endless) => {
            " bytes   iterations  t_avg[us]  pps".to_owned()
        }
        (false, _) => format!(
            " bytes   iterations  BW peak[{name}/sec]  BW average[{name}/sec]  MsgRate[Mpps]"
        ),
    }
}

/// The columns of a test's results, as the keys of its JSON.
pub(crate) fn columns(test: &Test, unit: BwUnit) -> Vec<String> {
    let line = header(test, unit);
    // Two blanks part columns, but a bandwidth column has one within its name.
    let mut columns: Vec<String> = line
        .split("  ")
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    if test.err_continue {
        columns.push("errors".to_owned());
    }
    columns
}

const fn unit_name(unit: BwUnit) -> &'static str {
    match unit {
        BwUnit::Kb => "KB",
        BwUnit::Mb => "MB",
        BwUnit::Gb => "GB",
    }
}

/// How many of `unit` a MB is.
const fn in_unit(unit: BwUnit) -> f64 {
    match unit {
        BwUnit::Kb => 1024.0,
        BwUnit::Mb => 1.0,
        BwUnit::Gb => 1.0 / 1024.0,
    }
}

/// The row of one period of an endless run.
pub(crate) fn period_row(unit: BwUnit, bytes: u64, messages: u64, nanos: u64) -> String {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    bandwidth_row(
        "",
        bytes,
        messages,
        &Bandwidth::of(bytes, messages, nanos, None).scaled(in_unit(unit)),
    )
}

/// The result of one size.
#[derive(Clone, Debug)]
pub(crate) struct Result {
    /// Bytes of a message.
    pub(crate) bytes: u32,
    /// Messages; per jetty as asked for, or of all jetties by duration.
    pub(crate) iterations: u64,
    /// Numbers of the size, of latency or bandwidth.
    pub(crate) numbers: SizeNumbers,
    /// Distribution of latencies, nanoseconds of a round trip.
    pub(crate) latency: Option<Histogram<u64>>,
    /// How the rest is printed.
    pub(crate) form: Form,
}

/// How a result is printed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Form {
    /// Unit of bandwidth columns.
    pub(crate) unit: BwUnit,
    /// What a latency is divided by: 2 for half a round trip.
    pub(crate) divisor: f64,
    /// The distribution was asked for.
    pub(crate) histogram: bool,
    /// Latencies count from intended starts.
    pub(crate) is_open: bool,
    /// Failed requests, if they are counted.
    pub(crate) errors: Option<u64>,
}

/// The numbers of one size.
#[derive(Clone, Debug)]
pub(crate) enum SizeNumbers {
    /// Statistics of single round trips.
    Latency(Latency),
    /// By duration: mean in microseconds, and iterations per second.
    Mean {
        /// Mean latency in microseconds.
        avg: f64,
        /// Number of iterations per second.
        pps: f64,
    },
    /// Each jetty, and all together.
    Bandwidth {
        /// Messages and bandwidth of each jetty, when there are several.
        jettys: Vec<(u64, Bandwidth)>,
        /// All together, both directions.
        total: Bandwidth,
    },
}

impl Result {
    /// Sums up one size; `None` when too few samples were taken.
    pub(crate) fn of(
        plan: &Plan,
        bytes: u32,
        taken: &mut SizeSamples,
        peer: &SizeOutcome,
    ) -> Option<Self> {
        let test = &plan.test;
        let messages = taken.total();
        let is_one_way =
            test.command.is_latency() && matches!(test.command.verb(), Verb::Write | Verb::Send);
        let form = Form {
            unit: plan.bw_unit,
            divisor: if is_one_way { 2.0 } else { 1.0 },
            histogram: plan.histogram,
            is_open: test.rate.is_some(),
            errors: None,
        };
        let latency = taken
            .latency
            .take()
            .or_else(|| (plan.histogram && test.command.is_latency()).then(|| of(&taken.samples)));
        let numbers = if !test.command.is_latency() {
            bandwidth(test, bytes, taken, peer)
        } else {
            let divisor = form.divisor;
            if test.iterations().is_some() {
                SizeNumbers::Latency(Latency::of(&mut taken.samples, divisor)?)
            } else {
                let each_ns = taken.longest_ns() as f64 / messages.max(1) as f64;
                SizeNumbers::Mean { avg: each_ns / divisor / 1000.0, pps: 1e9 / each_ns.max(1e-9) }
            }
        };
        let iterations = test.iterations().unwrap_or(messages);
        Some(Self { bytes, iterations, numbers, latency, form })
    }

    /// Its rows, and the distribution below them.
    pub(crate) fn rows(&self) -> String {
        let mut text = self.columns();
        if let Some(errors) = self.form.errors {
            let _ = writeln!(text, " {errors} requests failed");
        }
        if let Some(latency) = self.latency.as_ref().filter(|_| self.form.histogram) {
            text.push_str(&distribution_text(latency, self.bytes, &self.form));
        }
        text
    }

    fn columns(&self) -> String {
        let scale = in_unit(self.form.unit);
        let (bytes, iterations) = (self.bytes, self.iterations);
        match &self.numbers {
            SizeNumbers::Latency(l) => {
                let [a, b, c, d] = l.tail;
                format!(
                    " {bytes:<7} {iterations:<10}  {:<7.2}    {:<7.2}    {:<7.2}       {:<7.2}    \
                     {:<7.2}      {a:<7.2}  {b:<7.2}    {c:<7.2}     {d:<7.2}\n",
                    l.min, l.max, l.median, l.avg, l.stdev
                )
            }
            SizeNumbers::Mean { avg, pps } => {
                format!(" {bytes:<7} {iterations:<10}  {avg:<7.2}    {pps:<7.2}\n")
            }
            SizeNumbers::Bandwidth { jettys, total } if jettys.is_empty() => {
                bandwidth_row("", bytes, iterations, &total.scaled(scale))
            }
            SizeNumbers::Bandwidth { jettys, total } => {
                let mut text = String::new();
                for (index, (messages, bandwidth)) in jettys.iter().enumerate() {
                    let name = format!("Jetty {index:<2}: ");
                    text.push_str(&bandwidth_row(
                        &name,
                        bytes,
                        *messages,
                        &bandwidth.scaled(scale),
                    ));
                }
                let messages = jettys.iter().map(|(messages, _)| messages).sum();
                text.push_str(&bandwidth_row("TOTAL   : ", bytes, messages, &total.scaled(scale)));
                text
            }
        }
    }

    /// Its JSON: keys are the column names.
    pub(crate) fn json(&self) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("bytes".to_owned(), json!(self.bytes));
        map.insert("iterations".to_owned(), json!(self.iterations));
        let unit = unit_name(self.form.unit);
        let (peak, average) = (format!("BW peak[{unit}/sec]"), format!("BW average[{unit}/sec]"));
        let columns: Vec<(&str, f64)> = match &self.numbers {
            SizeNumbers::Latency(l) => vec![
                ("t_min[us]", l.min),
                ("t_max[us]", l.max),
                ("t_median[us]", l.median),
                ("t_avg[us]", l.avg),
                ("t_stdev[us]", l.stdev),
                ("99%[us]", l.tail[0]),
                ("99.9%[us]", l.tail[1]),
                ("99.99%[us]", l.tail[2]),
                ("99.999%[us]", l.tail[3]),
            ],
            SizeNumbers::Mean { avg, pps } => vec![("t_avg[us]", *avg), ("pps", *pps)],
            SizeNumbers::Bandwidth { total, .. } => {
                let total = total.scaled(in_unit(self.form.unit));
                vec![(&peak, total.peak), (&average, total.average), ("MsgRate[Mpps]", total.rate)]
            }
        };
        map.extend(columns.into_iter().map(|(name, value)| (name.to_owned(), json!(value))));
        if let Some(errors) = self.form.errors {
            map.insert("errors".to_owned(), json!(errors));
        }
        if let Some(latency) = &self.latency {
            let name = if self.form.is_open { "open_loop" } else { "distribution" };
            map.insert(name.to_owned(), distribution_json(latency, &self.form));
        }
        map
    }
}

fn bandwidth(test: &Test, bytes: u32, taken: &SizeSamples, peer: &SizeOutcome) -> SizeNumbers {
    let lanes = taken.messages.iter().zip(&taken.nanos);
    let each = |(messages, nanos): (&u64, &u64)| {
        (*messages, Bandwidth::of(bytes, *messages, *nanos, None))
    };
    let jettys = if test.jettys > 1 { lanes.map(each).collect() } else { Vec::new() };
    let mine = Bandwidth::of(bytes, taken.total(), taken.longest_ns(), taken.best_ns);
    let total = if test.bidirection {
        mine.plus(Bandwidth::of(bytes, peer.messages, peer.nanos, peer.best_ns))
    } else {
        mine
    };
    SizeNumbers::Bandwidth { jettys, total }
}

fn bandwidth_row(name: &str, bytes: u32, messages: u64, bandwidth: &Bandwidth) -> String {
    let Bandwidth { peak, average, rate } = bandwidth;
    format!(
        "{name} {bytes:<7} {messages:<10}  {peak:<7.2}          {average:<7.2}             {rate:<7.6}\n"
    )
}

/// What carried the requests.
pub(crate) fn path_name(path: PathKind) -> &'static str {
    match path {
        PathKind::Local => "local",
        PathKind::SameHost => "same-host",
        PathKind::Packets => "packets",
    }
}

/// Counters as a JSON object.
pub(crate) fn counters_json(counters: &[(String, u64)]) -> Value {
    Value::Object(counters.iter().map(|(name, value)| (name.clone(), json!(value))).collect())
}

/// Percentiles that a report lists.
const RANKS: [f64; 8] = [50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0];
/// The first range ends here, nanoseconds; each next one at twice of it.
const FIRST_NS: u64 = 64;
/// Width of the longest bar.
const BAR: u64 = 40;

/// The distribution of samples.
fn of(samples: &[u32]) -> Histogram<u64> {
    let mut histogram = distribution();
    samples.iter().for_each(|sample| histogram.saturating_record(u64::from(*sample).max(1)));
    histogram
}

/// Ranges that hold something: their end in nanoseconds, and how many are in them.
fn ranges(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    let ranges = histogram.iter_log(FIRST_NS, 2.0);
    let ranges =
        ranges.map(|range| (range.value_iterated_to(), range.count_since_last_iteration()));
    ranges.filter(|(_, count)| *count != 0).collect()
}

/// As a block of lines.
fn distribution_text(histogram: &Histogram<u64>, bytes: u32, form: &Form) -> String {
    let us = |ns: u64| ns as f64 / form.divisor / 1000.0;
    let from = if form.is_open { " from the intended start" } else { "" };
    let mut text = format!(" latency of {bytes} bytes{from}, {} samples\n", histogram.len());
    text.push_str("  percentile   t[us]\n");
    for rank in RANKS {
        let _ = writeln!(text, "  {rank:<10}   {:.3}", us(histogram.value_at_percentile(rank)));
    }
    text.push_str("  up to[us]    count        below%\n");
    let ranges = ranges(histogram);
    let most = ranges.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    let mut below = 0;
    for (end, count) in ranges {
        below += count;
        let share = below as f64 * 100.0 / histogram.len().max(1) as f64;
        let bar = "#".repeat(usize::try_from(count * BAR / most).unwrap_or(0));
        let line = format!("  {:<10.3}   {count:<10}   {share:<9.4} {bar}", us(end));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// As a JSON object.
fn distribution_json(histogram: &Histogram<u64>, form: &Form) -> Value {
    let us = |ns: u64| ns as f64 / form.divisor / 1000.0;
    let mut map = Map::new();
    map.insert("samples".to_owned(), json!(histogram.len()));
    map.insert("t_avg[us]".to_owned(), json!(histogram.mean() / form.divisor / 1000.0));
    for rank in RANKS {
        let value = us(histogram.value_at_percentile(rank));
        map.insert(format!("{rank}%[us]"), json!(value));
    }
    let ranges = ranges(histogram);
    let ranges = ranges.iter().map(|(end, count)| json!({ "up_to[us]": us(*end), "count": count }));
    map.insert("histogram".to_owned(), ranges.collect());
    Value::Object(map)
}

#[cfg(test)]
mod tests {

    use clap::Parser;

    use super::*;
    use crate::cli::{BwUnit, PerftestCli};

    const FORM: Form =
        Form { unit: BwUnit::Mb, divisor: 1.0, histogram: false, is_open: false, errors: None };

    fn plan(line: &str) -> Plan {
        let words = std::iter::once("urma_perftest").chain(line.split_whitespace());
        Plan::of(&PerftestCli::try_parse_from(words).unwrap()).unwrap()
    }

    #[test]
    fn a_rule_has_87_dashes() {
        assert_eq!(RULE.len(), 87);
        // The parameters follow, with a rule of their own above.
        let words = "                           Waiting for client to connect...";
        assert_eq!(waiting(), format!("{RULE}\n{words}\n"));
    }

    #[test]
    fn the_parameters_of_a_client() {
        let text = parameters(&plan("write_bw -S 127.0.0.1"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "                    URMA_WRITE BandWidth Test");
        assert_eq!(lines[2], " Number of jettys    : 1         \t\t Transport mode   : UB");
        assert_eq!(lines[3], " JFC depth           : 4096      \t\t Device name      : udma0");
        assert_eq!(lines[4], " Trans mode          : URMA_TM_RM\t\t JETTY mode       : DUPLEX");
        assert_eq!(lines[5], " JFS depth           : 128");
        assert_eq!(lines[6], " CQ Moderation       : 100");
        assert_eq!(lines[7], " Max inline size     : 0[B]");
        assert_eq!((lines[0], lines[8]), (RULE, RULE));
    }

    #[test]
    fn the_parameters_follow_role_and_operation() {
        let server = parameters(&plan("send_lat"));
        assert!(server.contains(" JFR depth           : 512\n") && !server.contains("JFS depth"));
        let read = parameters(&plan("read_lat -S x"));
        assert!(!read.contains("inline") && !read.contains("Moderation"));
        assert!(parameters(&plan("atomic_lat -A faa")).contains("URMA_ATOMIC faa Latency Test"));
        let both = parameters(&plan("send_bw -B -l 4 -e"));
        assert!(both.contains("URMA_SEND Bidirectional JFS Post List BandWidth Test"));
        assert!(
            both.contains(" Test with jfc events.\n JFC")
                || both.contains(" Test with jfc events.\n")
        );
    }

    #[test]
    fn rows_stand_under_their_headers() {
        let latency =
            Latency { min: 0.1, max: 9.0, median: 0.25, avg: 0.5, stdev: 0.125, tail: [1.0; 4] };
        let result = Result {
            bytes: 8,
            iterations: 10_000,
            numbers: SizeNumbers::Latency(latency),
            latency: None,
            form: FORM,
        };
        assert_eq!(
            result.rows(),
            " 8       10000       0.10       9.00       0.25          0.50       0.12         1.00     \
         1.00       1.00        1.00   \n"
        );
        let columns = ["t_min[us]", "t_max[us]", "t_median[us]", "t_avg[us]", "t_stdev[us]"];
        let header = header(&plan("read_lat").test, BwUnit::Mb);
        for (column, value) in columns.iter().zip(["0.10", "9.00", "0.25", "0.50", "0.12"]) {
            assert_eq!(header.find(column), result.rows().find(value), "{column}");
        }
    }

    #[test]
    fn bandwidth_rows_and_their_json() {
        let total = Bandwidth { peak: 100.0, average: 50.0, rate: 0.25 };
        let one = SizeNumbers::Bandwidth { jettys: Vec::new(), total };
        let result =
            Result { bytes: 65536, iterations: 50_000, numbers: one, latency: None, form: FORM };
        assert_eq!(
            result.rows(),
            " 65536   50000       100.00           50.00               0.250000\n"
        );
        assert_eq!(result.json()["BW average[MB/sec]"], 50.0);
        assert_eq!(result.json()["bytes"], 65536);
        let two = SizeNumbers::Bandwidth { jettys: vec![(5, total), (6, total)], total };
        let rows =
            Result { bytes: 2, iterations: 5, numbers: two, latency: None, form: FORM }.rows();
        assert!(rows.starts_with("Jetty 0 :  2       5"), "{rows}");
        assert!(rows.contains("TOTAL   :  2       11"), "{rows}");
    }

    #[test]
    fn both_directions_add_up() {
        let mut taken = SizeSamples {
            messages: vec![1024],
            nanos: vec![1_000_000_000],
            ..SizeSamples::default()
        };
        let peer = SizeOutcome { messages: 2048, nanos: 1_000_000_000, ..SizeOutcome::default() };
        let result =
            Result::of(&plan("write_bw -B -s 1048576"), 1 << 20, &mut taken, &peer).unwrap();
        assert_eq!(result.json()["BW average[MB/sec]"], 3072.0);
    }

    /// Two jetties of different speed: all messages, in the time of the slower one.
    #[test]
    fn jetties_add_up_over_the_longest_time() {
        let mut taken = SizeSamples {
            messages: vec![1024, 3072],
            nanos: vec![1_000_000_000, 2_000_000_000],
            best_ns: Some(250_000.0),
            ..SizeSamples::default()
        };
        let plan = plan("write_bw -J 2 -s 1048576 -S x");
        let result = Result::of(&plan, 1 << 20, &mut taken, &SizeOutcome::default()).unwrap();
        let json = result.json();
        assert_eq!(json["BW average[MB/sec]"], 2048.0);
        assert_eq!(json["BW peak[MB/sec]"], 4000.0);
        let rows = result.rows();
        let numbers: Vec<Vec<&str>> = rows
            .lines()
            .map(|row| row.split(": ").nth(1).unwrap().split_whitespace().collect())
            .collect();
        let columns = |at: usize| [numbers[at][1], numbers[at][3]];
        assert_eq!(columns(0), ["1024", "1024.00"]);
        assert_eq!(columns(1), ["3072", "1536.00"]);
        assert_eq!(columns(2), ["4096", "2048.00"]);
    }

    const DISTRIBUTION_FORM: Form =
        Form { unit: BwUnit::Mb, divisor: 1.0, histogram: true, is_open: true, errors: None };

    #[test]
    fn percentiles_reach_to_five_nines() {
        let samples: Vec<u32> = (1..=100_000).collect();
        let value = distribution_json(&of(&samples), &DISTRIBUTION_FORM);
        for (rank, us) in [("50%[us]", 50.0), ("99.9%[us]", 99.9), ("99.999%[us]", 99.999)] {
            let found = value[rank].as_f64().unwrap();
            assert!((found - us).abs() < us * 0.002, "{rank}: {found}");
        }
        let counts = value["histogram"].as_array().unwrap().iter();
        assert_eq!(counts.map(|range| range["count"].as_u64().unwrap()).sum::<u64>(), 100_000);
    }

    #[test]
    fn half_a_round_trip_is_half() {
        let form = Form { divisor: 2.0, ..DISTRIBUTION_FORM };
        let value = distribution_json(&of(&[4000; 10]), &form);
        assert!((value["50%[us]"].as_f64().unwrap() - 2.0).abs() < 0.01);
        let text = distribution_text(&of(&[4000; 10]), 8, &form);
        assert!(text.contains("from the intended start, 10 samples"), "{text}");
        assert!(text.contains("  99.999       2.0"), "{text}");
    }

    /// Of ten samples five are below 64 ns, three more below 128 ns and two up to 1,024 ns.
    #[test]
    fn ranges_have_their_counts_and_the_share_up_to_their_end() {
        let samples = [10, 20, 30, 40, 50, 70, 80, 90, 600, 700];
        let text = distribution_text(&of(&samples), 8, &DISTRIBUTION_FORM);
        let table = text.split_once("below%\n").expect("a table").1;
        let cells = |line: &str| -> Vec<String> {
            line.split_whitespace().skip(1).map(str::to_owned).collect()
        };
        let rows: Vec<_> = table.lines().map(cells).collect();
        let bars = [40, 24, 16].map(|len| "#".repeat(len));
        assert_eq!(rows[0], ["5", "50.0000", bars[0].as_str()], "{text}");
        assert_eq!(rows[1], ["3", "80.0000", bars[1].as_str()], "{text}");
        assert_eq!(rows[2], ["2", "100.0000", bars[2].as_str()], "{text}");
        assert_eq!(rows.len(), 3, "empty ranges are left out: {text}");
        let value = distribution_json(&of(&samples), &DISTRIBUTION_FORM);
        let mean = value["t_avg[us]"].as_f64().expect("a number");
        assert!((mean - 0.169).abs() < 0.001, "{mean}");
        assert_eq!((&value["samples"], &value["histogram"][1]["count"]), (&json!(10), &json!(3)));
    }
}
