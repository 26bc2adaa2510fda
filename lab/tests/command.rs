//! The command as a user runs it: the line that the documentation gives, what is refused, the trace.

use std::process::{Command, Output};

use serde_json::Value;

fn urma_lab(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_urma-lab")).args(args).output().expect("the command runs")
}

/// The lines of an output as JSON.
fn lines(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[test]
fn the_example_gives_all_that_it_names() {
    let line =
        "wan --rate 100G --rtt 10ms --loss iid:0.01 --size 200MB --strategy ours --seeds 10 --json";
    let output = urma_lab(&line.split(' ').collect::<Vec<_>>());
    assert!(output.status.success(), "{output:?}");
    let lines = lines(&output.stdout);
    assert_eq!(lines.len(), 2, "one cell and the hash");
    let cell = &lines[0];
    for (name, value) in [("rate_bps", 1e11), ("rtt_s", 0.01), ("size_bytes", 2e8), ("tps", 1.0)] {
        assert_eq!(cell[name].as_f64(), Some(value), "{name}");
    }
    assert_eq!(
        (cell["strategy"].as_str(), cell["loss"].as_str()),
        (Some("ours"), Some("iid:0.01"))
    );
    assert_eq!(cell["seeds"].as_array().map(Vec::len), Some(10));
    for (name, least, most) in [
        ("goodput_over_limit", 0.99, 1.01),
        ("fct_over_bound", 1.0, 1.10),
        ("extra_bytes_ratio", 0.0, 0.08),
        ("nic_bytes_per_tp", 8.0, 64.0),
        ("dma_ops_per_lost_packet", 0.0, 0.10),
        ("list_hit_ratio", 0.999, 1.0),
        ("packets_per_second", 1.0, 1e9),
    ] {
        let value = cell[name].as_f64().expect(name);
        assert!((least..=most).contains(&value), "{name} is {value}");
        let interval = &cell["metrics"][name];
        let (lo, hi) = (interval["lo"].as_f64().expect(name), interval["hi"].as_f64().expect(name));
        assert!(lo <= value && value <= hi, "{name}: {interval}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_runs() {
    for (option, value, field) in [
        ("--rate", "0G", "rate"),
        ("--rtt", "0ms", "rtt"),
        ("--loss", "iid:1.5", "loss"),
        ("--size", "0MB", "size"),
        ("--seeds", "0", "seeds"),
        ("--workers", "0", "workers"),
        ("--tps", "0", "tps"),
        ("--strategy", "magic", "strategy"),
        ("--window-bdps", "1e9", "window-bdps"),
        ("--nic-lines", "0", "nic-lines"),
        ("--trace", "/nowhere/at/all", "trace"),
        ("--rate", "100G,0G", "rate"),
    ] {
        let output = urma_lab(&["wan", "--json", option, value]);
        assert_eq!(output.status.code(), Some(2), "{option} {value}: {output:?}");
        let error = &lines(&output.stdout)[0];
        assert_eq!(error["field"].as_str(), Some(field), "{error}");
        let want = error["want"].as_str().expect("the rule");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(field) && text.contains(want), "{text}");
    }
}

#[test]
fn a_trace_has_every_packet_and_changes_nothing() {
    let file = std::env::temp_dir().join(format!("urma-lab-trace-{}", std::process::id()));
    let path = file.to_str().expect("text");
    let line = ["wan", "--rtt", "1ms", "--size", "20MB", "--seeds", "1", "--json"];
    let plain = urma_lab(&line);
    let traced = urma_lab(&[line.as_slice(), &["--trace", path]].concat());
    let events = std::fs::read(&file).expect("the trace");
    std::fs::remove_file(&file).expect("it is there");
    let (plain, traced) = (lines(&plain.stdout), lines(&traced.stdout));
    assert_eq!(plain[1]["hash"], traced[1]["hash"]);
    let events = lines(&events);
    let count = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    assert_eq!(Some(count("sent") as f64), traced[0]["transmissions"].as_f64());
    let lost = events.iter().filter(|event| event["event"] == "sent" && event["lost"] == true);
    assert_eq!(count("arrived"), count("sent") - lost.count());
    assert!(count("report") > 0 && count("ack") > 0 && count("tail") > 0);
    let times: Vec<f64> = events.iter().filter_map(|event| event["at_ns"].as_f64()).collect();
    assert!(times.len() == events.len() && times.is_sorted());
}

#[test]
fn a_trace_that_cannot_be_written_is_an_error() {
    let line =
        ["wan", "--rtt", "1ms", "--size", "1MB", "--seeds", "1", "--trace", "/nowhere/at/all"];
    let output = urma_lab(&line);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere/at/all"));
}
