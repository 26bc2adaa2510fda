//! The formats, byte for byte.

use clap::Parser;

use super::*;

const FORM: Form =
    Form { unit: BwUnit::Mb, divisor: 1.0, histogram: false, is_open: false, errors: None };

use crate::cli::PerftestCli;

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
        both.contains(" Test with jfc events.\n JFC") || both.contains(" Test with jfc events.\n")
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
    let rows = Result { bytes: 2, iterations: 5, numbers: two, latency: None, form: FORM }.rows();
    assert!(rows.starts_with("Jetty 0 :  2       5"), "{rows}");
    assert!(rows.contains("TOTAL   :  2       11"), "{rows}");
}

#[test]
fn both_directions_add_up() {
    let mut taken =
        SizeSamples { messages: vec![1024], nanos: vec![1_000_000_000], ..SizeSamples::default() };
    let peer = SizeOutcome { messages: 2048, nanos: 1_000_000_000, ..SizeOutcome::default() };
    let result = Result::of(&plan("write_bw -B -s 1048576"), 1 << 20, &mut taken, &peer).unwrap();
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
