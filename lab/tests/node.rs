//! `urma-lab node` as a user runs it: hashes, the log, what is refused, a run that breaks a promise.

use std::process::{Command, Output};

use serde_json::Value;

fn node(args: &str) -> Output {
    let args = ["node"].into_iter().chain(args.split_whitespace());
    Command::new(env!("CARGO_BIN_EXE_urma-lab")).args(args).output().expect("the command runs")
}

/// The lines of an output as JSON.
fn lines(output: &Output) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[test]
fn a_seed_is_a_run_with_any_number_of_workers() {
    let args = "--nodes 3 --requests 80 --loss 3% --duplicate 1% --reorder 1% --restarts 2 --seeds 4 --json";
    let [one, two] = [1, 3].map(|workers| node(&format!("{args} --workers {workers}")));
    assert!(one.status.success(), "{one:?}");
    assert_eq!(one.stdout, two.stdout);
    let cells = lines(&one);
    assert_eq!(cells.len(), 5, "four seeds and the hash of all");
    let mut hashes: Vec<&str> =
        cells[..4].iter().map(|cell| cell["log_hash"].as_str().expect("a hash")).collect();
    let third = lines(&node(&format!("{} --seed 3", args.replace("--seeds 4", "--seeds 1"))));
    assert_eq!(third[0], cells[2]);
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 4);
    for cell in &cells[..4] {
        let count = |name: &str| cell[name].as_u64().expect(name);
        assert_eq!(count("posted"), 240);
        assert_eq!(count("success") + count("failed") + count("died"), 240, "{cell}");
        assert!(count("datagrams_lost") > 0 && count("packets_repeated") > 0, "{cell}");
        assert_eq!((cell["broken"].is_null(), cell["model"].as_bool()), (true, Some(true)));
    }
}

#[test]
fn a_log_and_files_are_those_of_the_run() {
    let folder = std::env::temp_dir().join(format!("urma-lab-node-{}", std::process::id()));
    let path = folder.to_str().expect("text");
    let output =
        node(&format!("--requests 40 --loss 0,2% --strategy knitting,irn --json --out {path}"));
    assert!(output.status.success(), "{output:?}");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect(name);
    assert_eq!((read("cells.csv").lines().count(), read("cells.jsonl").lines().count()), (5, 5));
    let plot = read("latency-by-loss-nodes-3-delay-5us.svg");
    assert!(plot.contains("model") && plot.contains("irn"));
    let log = folder.join("events.log");
    let logged = node(&format!("--requests 40 --loss 2% --json --log {}", log.display()));
    let (cell, events) = (&lines(&logged)[0], read("events.log"));
    assert_eq!(cell["log_hash"], lines(&output)[2]["log_hash"], "a log changes nothing");
    assert_eq!(cell["events"].as_u64(), Some(events.lines().count() as u64));
    std::fs::remove_dir_all(&folder).expect("it is there");
}

/// A request that does not end is a failure, and the other results are there.
#[test]
fn a_broken_promise_is_an_exit_code() {
    let output = node("--delay 10us,1ms --bound 500us --seeds 2 --requests 50 --json");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let cells = lines(&output);
    let is_broken: Vec<bool> = cells[..4].iter().map(|cell| cell["broken"].is_string()).collect();
    assert_eq!(is_broken, [false, false, true, true]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("2 of 4 runs broke a promise"), "{text}");
    let table = node("--delay 1ms --bound 500us");
    assert_eq!(table.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&table.stdout).contains("BROKEN: "), "{table:?}");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_runs() {
    for (args, field) in [
        ("--nodes 1", "nodes"),
        ("--loss 51%", "loss"),
        ("--loss -0.1", "loss"),
        ("--delay 5", "delay"),
        ("--seeds 0", "seeds"),
        ("--seeds 2 --log /dev/null", "log"),
        ("--loss 0,1% --log /dev/null", "log"),
        ("--log /nowhere/at/all", "log"),
        ("--workers 0", "workers"),
        ("--strategy ours", "strategy"),
        ("--size 1048576 --depth 256 --nodes 16", "size"),
    ] {
        let output = node(&format!("{args} --json"));
        assert_eq!(output.status.code(), Some(2), "{args}: {output:?}");
        let error = &lines(&output)[0];
        assert_eq!((error["kind"].as_str(), error["field"].as_str()), (Some("error"), Some(field)));
        let want = error["want"].as_str().expect("the rule");
        assert!(String::from_utf8_lossy(&output.stderr).contains(want), "{output:?}");
    }
}
