//! The command as a user runs it: the line that the documentation gives, what is refused, the trace.

use std::process::{Command, Output};

use lab::cache::options::TIER_OPTIONS;
use serde_json::{Value, json};

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
    let line = "wan --rate 100G --rtt 10ms --loss iid:0.01 --size 200MB --strategy ours --seeds 10 --tail oracle --json";
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

/// A path of which nothing is known costs the first message a round trip; the oracle knows it, and later messages do.
#[test]
fn the_default_estimate_is_learnt() {
    let line = "wan --rtt 10ms --loss iid:0.02 --size 1MB --messages 20 --seeds 3 --json --tail";
    let of = |tail: &str| {
        let args: Vec<&str> = line.split(' ').chain([tail]).collect();
        lines(&urma_lab(&args).stdout).remove(0)
    };
    let default: Vec<&str> = line.split(' ').filter(|word| *word != "--tail").collect();
    let default = lines(&urma_lab(&default).stdout).remove(0);
    let [learnt, wrong, oracle] = ["learnt", "learnt:0.3", "oracle"].map(of);
    assert_eq!(default["hash"], learnt["hash"]);
    let number = |cell: &Value, name: &str| cell[name].as_f64().expect("a number");
    assert!(number(&learnt, "fct_over_bound") > 1.5 && number(&oracle, "fct_over_bound") < 1.1);
    assert!(number(&wrong, "extra_bytes_ratio") > number(&oracle, "extra_bytes_ratio"));
    for cell in [learnt, wrong, oracle] {
        assert!(number(&cell, "later_fct_over_bound") < 1.1, "{cell}");
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
fn flows_that_share_a_queue_are_measured_each() {
    let line = "wan --flows 2 --rate 334.24M --rtt 20ms --loss none --queue 0.5bdp --beside cubic --cross 30M,1s,1s --time 3s --after 1s --seeds 2 --json";
    let output = urma_lab(&line.split(' ').collect::<Vec<_>>());
    assert!(output.status.success(), "{output:?}");
    let lines = lines(&output.stdout);
    assert_eq!(lines.len(), 2, "one cell and the hash");
    let cell = &lines[0];
    assert_eq!((cell["queue_packets"].as_u64(), cell["flows"].as_u64()), (Some(100), Some(2)));
    assert_eq!(cell["congestion"].as_str(), Some("delay"), "the default of nodes");
    assert_eq!(cell["by_flow"].as_array().map(Vec::len), Some(4));
    for (name, least, most) in [("jain", 0.5, 1.0), ("used", 0.9, 1.0), ("wait_p99_ms", 1.0, 10.1)]
    {
        let value = cell[name].as_f64().expect(name);
        assert!((least..=most).contains(&value), "{name} is {value}");
        assert_eq!(cell["values"][name].as_array().map(Vec::len), Some(2), "{name}");
    }
}

#[test]
fn what_a_bottleneck_does_not_have_is_refused() {
    for (options, words) in [
        (&["--queue", "200"][..], "--flows"),
        (&["--flows", "2", "--tps", "3"], "--tps"),
        (&["--flows", "2", "--trace", "file"], "--trace"),
        (&["--flows", "0"], "1 to 1000"),
        (&["--flows", "2", "--strategy", "gbn"], "ours"),
        (&["--flows", "2", "--beside", "reno"], "cubic, bbr"),
        (&["--flows", "2", "--rate", "100G"], "--budget 20000000"),
        (&["--flows", "2", "--seeds", "0"], "1 to 1000000"),
    ] {
        let output = urma_lab(&[&["wan"], options].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(words) && output.stdout.is_empty(), "{options:?}: {text}");
    }
}

/// What it prints is what the other command takes.
#[test]
fn costs_of_this_machine_are_measured_and_taken() {
    let output = urma_lab(&["calibrate", "--messages", "300", "--rounds", "1", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let found = lines(&output.stdout).remove(0);
    assert_eq!((&found["mtu"], &found["payload_bytes"]), (&json!(1024), &json!(1024)));
    let costs = found["cpu"].as_str().expect("a line");
    let line = ["wan", "--rtt", "1ms", "--size", "5MB", "--seeds", "1", "--json"];
    let time = |more: &[&str]| {
        let output = urma_lab(&[line.as_slice(), more].concat());
        assert!(output.status.success(), "{costs}: {output:?}");
        lines(&output.stdout)[0]["fct_s"].as_f64().expect("a time")
    };
    let (free, counted) = (time(&[]), time(&["--cpu", costs]));
    assert!(counted > free, "{costs}: {counted} s, without costs {free}");
    let refused = urma_lab(&["calibrate", "--mtu", "1000"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("power of two"), "{refused:?}");
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
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "nothing ran");
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere/at/all"));
}

#[test]
fn the_example_of_the_cache_is_that_of_the_golden_data() {
    let line = "cache --trace burst16_10k --policy ours,s3fifo,opt --capacity 10% --json";
    let folder =
        std::env::temp_dir().join(format!("urma-lab-cache-example-{}", std::process::id()));
    let mut args: Vec<&str> = line.split(' ').collect();
    args.extend(["--out", folder.to_str().expect("text")]);
    let output = urma_lab(&args);
    assert!(output.status.success(), "{output:?}");
    let cells = lines(&output.stdout);
    assert_eq!(cells.len(), 5, "three policies, the bound, the hash");
    for (cell, policy) in cells.iter().zip(["ours", "s3fifo", "opt", "opt-bypass"]) {
        assert_eq!((cell["policy"].as_str(), cell["slots"].as_u64()), (Some(policy), Some(1827)));
        assert_eq!(
            (cell["model"].as_bool(), cell["accesses"].as_u64()),
            (Some(true), Some(400_000))
        );
        let count = |name: &str| cell[name].as_u64().expect("a count");
        assert_eq!(count("hits") + count("misses"), 400_000);
        let over_time = cell["misses_over_time"].as_array().expect("a curve");
        let sum: u64 = over_time.iter().filter_map(Value::as_u64).sum();
        assert_eq!(sum, count("misses"));
        assert!(cell["ns_per_access"].as_f64().expect("a time") > 0.0);
        assert!(cell["hit_percent"].as_f64() <= cell["bound_percent"].as_f64());
    }
    assert_eq!(
        (cells[2]["hits"].as_u64(), cells[3]["hits"].as_u64()),
        (Some(319_061), Some(319_070))
    );
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect(name);
    assert_eq!(read("cells.csv").lines().count(), 5);
    assert_eq!(read("cells.jsonl").lines().count(), 5);
    assert!(read("misses-1.svg").contains("model"));
    std::fs::remove_dir_all(&folder).expect("it is there");
    let one = urma_lab(&[&args[..8], &["--workers", "1"]].concat());
    assert_eq!(lines(&one.stdout).last(), cells.last(), "the same hash with one worker");
}

#[test]
fn what_makes_no_sense_for_the_cache_is_refused_before_anything_runs() {
    for (option, value, field) in [
        ("--trace", "burst17", "trace"),
        ("--policy", "magic", "policy"),
        ("--capacity", "0", "capacity"),
        ("--capacity", "0%", "capacity"),
        ("--capacity", "101%", "capacity"),
        ("--capacity", "10 apples", "capacity"),
        ("--capacity", "16B", "capacity"),
        ("--capacity", "100000", "capacity"),
        ("--slot-bytes", "33", "slot-bytes"),
        ("--aging", "1001", "aging"),
        ("--alpha", "17", "alpha"),
        ("--admit", "65536", "admit"),
        ("--workers", "0", "workers"),
        ("--tiers", "l4", "tiers"),
        ("--rate", "120M", "rate"),
        ("--tiers=l2", "--rate=100G", "rate"),
        ("--tiers=l2", "--window=0", "window"),
        ("--tiers=l2", "--promote-l1=0", "promote-l1"),
        ("--tiers=l2", "--count-window=1us", "count-window"),
        ("--tiers=l3", "--promote-l1=5", "promote-l1"),
        ("--format", "pcap", "format"),
        ("--file", "/nowhere/at/all", "file"),
        ("--file", env!("CARGO_MANIFEST_PATH"), "file"),
    ] {
        let output = urma_lab(&["cache", "--json", option, value]);
        assert_eq!(output.status.code(), Some(2), "{option} {value}: {output:?}");
        let error = &lines(&output.stdout)[0];
        assert_eq!(error["field"].as_str(), Some(field), "{error}");
        let want = error["want"].as_str().expect("the rule");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(field) && text.contains(want), "{text}");
    }
}

#[test]
fn the_tiers_say_what_an_access_waits_for() {
    let line = "cache --trace drift --policy lru --capacity 10% --json --tiers";
    let run = |tiers: &str| {
        let args: Vec<&str> = line.split(' ').chain([tiers]).collect();
        lines(&urma_lab(&args).stdout)
    };
    let [near, far, off] = ["l2", "l3", "off"].map(run);
    let tiers = |cells: &[Value]| cells[0]["tiers"].clone();
    let count =
        |cells: &[Value], name: &str| tiers(cells)["counters"][name].as_u64().expect("a counter");
    for cells in [&near, &far] {
        assert_eq!(count(cells, "l1_hits") + count(cells, "l1_misses"), 200_000);
        assert_eq!(cells[0]["hits"], off[0]["hits"], "the replay is the same");
        assert!(tiers(cells)["accesses_per_us"].as_f64() <= Some(120.1));
    }
    assert!(count(&near, "l2_hits") > 0 && count(&far, "l2_hits") == 0);
    assert!(count(&near, "wait_mean_ns") < count(&far, "wait_mean_ns"));
    assert!(tiers(&off).is_null() && near.last() != off.last());
    let small = urma_lab(&["cache", "--trace", "drift", "--tiers", "l2", "--capacity", "20"]);
    assert_eq!(small.status.code(), Some(2), "{small:?}");
    assert!(String::from_utf8_lossy(&small.stderr).contains("64 to 1048576 slots with --tiers"));
}

/// Two values of each option with which the model gives something else, and what makes it do so.
const TIER_VALUES: [(&str, &str, &str); 21] = [
    ("rate", "1M,5M", ""),
    ("window", "1,64", "--rate 50M"),
    ("promote-l1", "5,40", ""),
    ("promote-l2", "2,4", ""),
    ("count-window", "10us,1ms", ""),
    ("sample", "1,3", ""),
    ("adapt", "off,on", "--rate 500M --window 1000 --promote-l1 2 --promote-l2 2 --link 1G"),
    ("fill", "demand,threshold", ""),
    ("in-flight", "wait,optimistic", "--fill demand"),
    ("idle-l1", "10us,1ms", "--fill demand"),
    ("idle-l2", "10us,10ms", "--fill demand --l2 16K"),
    ("l2", "0,8K,1M", "--fill demand"),
    ("page", "4K,16K", "--fill demand --l2 16K"),
    ("cluster", "4K,1M", ""),
    ("l1-ns", "2,10", "--fill demand"),
    ("l2-ns", "140,410", "--fill demand"),
    ("l3-ns", "500,1200", ""),
    ("dma-slots", "32,256", "--fill demand --rate 500M --window 1000"),
    ("link", "1G,200G", ""),
    ("writes", "0,0.1", "--fill demand"),
    ("write-policy", "back,through", ""),
];

/// An option that is read and has no effect is a figure that says what was not run.
#[test]
fn every_option_of_the_tiers_changes_what_the_model_gives() {
    let file = std::env::temp_dir().join(format!("urma-lab-tiers-{}", std::process::id()));
    // 400 queues, one in four of the accesses to eight of them.
    let queue = |at: u32| if at.is_multiple_of(4) { at / 4 % 8 } else { at * 7 % 400 };
    let handle = |at| (3 << 28) | queue(at);
    let bytes: Vec<u8> = (0..12_000).map(handle).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&file, bytes).expect("a file");
    let base = format!("cache --file {} --policy lru --capacity 64 --tiers l2", file.display());
    let usual =
        "--fill threshold --rate 5M --promote-l1 8 --promote-l2 4 --writes 0.3 --l2 64K --page 4K";
    for option in &TIER_OPTIONS {
        let row = TIER_VALUES.iter().find(|(name, ..)| *name == option.name).expect(option.name);
        let (name, values, more) = *row;
        let given = format!("--{name} {values} {more}");
        let known: Vec<&str> = given.split_whitespace().collect();
        // What is usual, unless the row says something else.
        let usual: Vec<&str> = usual.split_whitespace().collect();
        let usual = usual.chunks(2).filter(|pair| !known.contains(&pair[0])).flatten().copied();
        let args: Vec<&str> = base
            .split_whitespace()
            .chain(usual)
            .chain(known.iter().copied())
            .chain(["--json"])
            .collect();
        let output = urma_lab(&args);
        assert!(output.status.success(), "{output:?}");
        let mut cells = lines(&output.stdout);
        cells.retain(|cell| !cell["tiers"].is_null());
        let given: Vec<&str> = values.split(',').collect();
        assert_eq!(cells.len(), given.len(), "{name}: a cell for each value");
        let mut seen: Vec<String> = Vec::new();
        for cell in &cells {
            let tiers = &cell["tiers"];
            let result = format!("{} {}", tiers["counters"], tiers["accesses_per_us"]);
            let waits = ["wait_mean_ns", "wait_p50_ns", "wait_p99_ns"].map(|of| &tiers[of]);
            let result = format!("{result} {waits:?}");
            assert!(!seen.contains(&result), "{name} {values}: {result}");
            seen.push(result);
            assert!(!tiers[option.field].is_null(), "{name}");
        }
        assert_ne!(cells[0]["tiers"][option.field], cells[1]["tiers"][option.field], "{name}");
        assert_ne!(cells[0]["hash"], cells[1]["hash"], "{name}");
    }
    std::fs::remove_file(&file).expect("it is there");
}

/// What the book says that the commands print is what they print.
#[test]
fn the_tables_of_the_book_are_those_of_its_commands() {
    let book = include_str!("../../docs/nic-internals.md").replace("\\\n", " ");
    let blocks: Vec<&str> = book.split("```console\n$ urma-lab ").skip(1).collect();
    assert!(blocks.len() >= 2, "the seed's thresholds, and demand");
    for block in blocks {
        let mut lines = block.split("```").next().unwrap_or_default().lines();
        let command = lines.next().expect("a command");
        let output = urma_lab(&command.split_whitespace().collect::<Vec<_>>());
        let printed = String::from_utf8(output.stdout).expect("text");
        let wanted: Vec<&str> = lines.collect();
        assert!(wanted.len() > 2, "{command}");
        assert!(printed.contains(&wanted.join("\n")), "{command} prints\n{printed}");
    }
}

#[test]
fn a_file_is_read_and_its_capacity_may_be_in_bytes() {
    let file = std::env::temp_dir().join(format!("urma-lab-handles-{}", std::process::id()));
    let rows: String = (0..4000).map(|at| format!("{}\n", at * at % 97)).collect();
    std::fs::write(&file, rows).expect("a file");
    let path = file.to_str().expect("text");
    let args =
        ["cache", "--file", path, "--format", "csv", "--policy", "lru", "--capacity", "1K,16"];
    let output = urma_lab(&[&args[..], &["--slot-bytes", "64", "--json"]].concat());
    std::fs::remove_file(&file).expect("it is there");
    let cells = lines(&output.stdout);
    assert_eq!(cells.len(), 5, "{output:?}");
    assert_eq!((cells[0]["slots"].as_u64(), cells[2]["slots"].as_u64()), (Some(16), Some(16)));
    assert_eq!(cells[0]["hits"], cells[2]["hits"]);
    assert_eq!(cells[0]["accesses"].as_u64(), Some(4000));
}

/// The kinds that `urma_admin capture --contexts` writes into bits 28 to 31 are those that the tiers count.
#[test]
fn a_captured_trace_has_its_kinds_in_the_tiers() {
    let file = std::env::temp_dir().join(format!("urma-lab-kinds-{}", std::process::id()));
    let kinds =
        [("segment", 1, 50_u32), ("jfc", 2, 40), ("queue", 3, 30), ("tp", 4, 20), ("page", 5, 60)];
    let handles =
        kinds.iter().flat_map(|(_, kind, count)| (0..*count).map(move |at| kind << 28 | at));
    let bytes: Vec<u8> = handles.flat_map(u32::to_le_bytes).collect();
    std::fs::write(&file, bytes).expect("a file");
    let path = file.to_str().expect("text");
    let args = ["cache", "--file", path, "--policy", "lru", "--capacity", "64", "--tiers", "l2"];
    let output = urma_lab(&[&args[..], &["--json"]].concat());
    std::fs::remove_file(&file).expect("it is there");
    let cells = lines(&output.stdout);
    for (name, _, count) in kinds {
        let counted = cells[0]["tiers"]["counters"][format!("{name}_accesses")].as_u64();
        assert_eq!(counted, Some(count.into()), "{name}");
    }
}

/// Small grids of each experiment, `FILE` for a trace.
const GRIDS: [(&str, &str); 6] = [
    (
        "wan",
        "wan --rate 100G --rtt 1ms --strategy gbn,irn,seed,ours --payload 1000 --seeds 2 --workers 2 \
         --loss iid:0.02,ge:0.02,amazon:0.01 --size 1MB --tps 1,3 --feedback-loss 0.02 --late 0.02 --late-by 20 \
         --tail learnt --nic-lines 8 --dma-silent 50 --adamap bits=16,list=2",
    ),
    (
        "paths",
        "wan --rate 100G --rtt 1ms --strategy gbn,irn,seed,ours --payload 1000 --seeds 2 --workers 2 \
         --loss google:0.01,microsoft:0.02,none --size 2bdp --window-bdps 1.5 --tail off --budget 30000",
    ),
    (
        "cache",
        "cache --format csv --file FILE --capacity 64,20% --tiers l2 --rate 20M --window 16 --aging 3 --alpha 2 --admit 2 \
         --policy fifo,lru,clock,lfu,2q,sieve,s3fifo,arc,lirs,wtinylfu,seed,ours,opt,opt-bypass",
    ),
    (
        "tiers",
        "cache --format csv --file FILE --capacity 64 --tiers l2 --rate 20M --policy ours --fill demand,threshold --promote-l1 4,16 \
         --promote-l2 2 --in-flight wait,optimistic --writes 0.2 --write-policy back,through --adapt on --l2 16K --page 4K --cluster 8K",
    ),
    (
        "splice",
        "splice --mix rpc,3000 --width 64 --ram 8K --bubble 0,0.3 --backpressure 0,0.2 --entries 2,8 --messages 100",
    ),
    ("issue", "splice --scheme fifo --reserve-issue 20 --too-long stop --messages 100"),
];

/// A folder with all files that a command writes; its output without what the machine's speed decides.
/// Of a file that it reads the name is left out.
fn written(name: &str, args: &str, trace: &str) -> String {
    let plain = |text: String| text.replace(trace, "FILE");
    let folder = std::env::temp_dir().join(format!("urma-lab-{name}-{}", std::process::id()));
    let path = folder.to_str().expect("text");
    let args = args.split_whitespace().map(|word| if word == "FILE" { trace } else { word });
    let args: Vec<&str> = args.collect();
    let mut known = String::new();
    for shape in [&["--json", "--out", path][..], &[]] {
        let output = urma_lab(&[&args, shape].concat());
        assert!(output.status.success(), "{output:?}");
        let text = plain(String::from_utf8(output.stdout).expect("text"));
        let lines: Vec<String> = text.lines().filter_map(without_speed).collect();
        known +=
            &format!("{name} output: {} lines, {:016x}\n", lines.len(), digest(&lines.join("\n")));
    }
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).expect("a folder").map(|f| f.expect("a file").path()).collect();
    files.sort();
    // Runs in the order of their ends, and this program's arguments.
    files.retain(|file| !file.ends_with("runs.jsonl") && !file.ends_with("sweep.json"));
    for file in files {
        let text = plain(std::fs::read_to_string(&file).expect("text"));
        let file = file.file_name().and_then(|file| file.to_str()).expect("a name");
        // Plots are named after the last part of the trace's name.
        let file = file.replace(trace.rsplit('/').next().unwrap_or_default(), "FILE");
        match file.rsplit_once('.') {
            Some((_, "csv")) => known += &csv_without_speed(&text),
            Some((_, "jsonl")) => {
                let lines: Vec<String> = text.lines().filter_map(without_speed).collect();
                known += &format!("{name} {file}: {:016x}\n", digest(&lines.join("\n")));
            }
            _ => known += &format!("{name} {file}: {} bytes, {:016x}\n", text.len(), digest(&text)),
        }
    }
    std::fs::remove_dir_all(&folder).expect("it is there");
    known
}

/// The 64 bits of FNV-1a.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Numbers to nine places: logarithms differ in the last bit between machines.
fn rounded(number: f64) -> String {
    format!("{number:.8e}")
}

/// Columns of which the machine's speed decides.
fn is_speed(column: &str) -> bool {
    column.starts_with("packets_per_second") || column.starts_with("ns_per_access")
}

fn csv_without_speed(text: &str) -> String {
    let head: Vec<&str> = text.lines().next().expect("a head").split(',').collect();
    let line = |line: &str| {
        let cells = line.split(',').zip(&head).filter(|(_, column)| !is_speed(column));
        let cells = cells.map(|(cell, _)| match cell.parse::<f64>() {
            Ok(number) if cell.contains(['.', 'e']) => rounded(number),
            _ => cell.to_owned(),
        });
        cells.collect::<Vec<_>>().join(",") + "\n"
    };
    text.lines().map(line).collect()
}

/// A line of JSON or of a table; `None`: the hash, which is of every last bit.
fn without_speed(line: &str) -> Option<String> {
    fn plain(value: &Value) -> String {
        match value {
            Value::Number(number) if number.is_f64() => {
                number.as_f64().map_or_else(String::new, rounded)
            }
            Value::Array(all) => all.iter().map(plain).collect::<Vec<_>>().join(" "),
            Value::Object(all) => {
                let all = all.iter();
                // What is of every last bit, and of this build.
                let all = all.filter(|(name, _)| {
                    !is_speed(name) && !["hash", "commit"].contains(&name.as_str())
                });
                all.map(|(name, value)| format!("{name}: {}", plain(value)))
                    .collect::<Vec<_>>()
                    .join(", ")
            }
            other => other.to_string(),
        }
    }
    if line.starts_with("hash ") {
        return None;
    }
    match serde_json::from_str::<Value>(line) {
        Ok(value) => Some(plain(&value)),
        // The last column of a row is a speed.
        Err(_) => {
            Some(line.trim_end().rsplit_once(' ').map_or("", |(row, _)| row.trim_end()).to_owned())
        }
    }
}

/// Published figures rest on what these commands print. A change that means to change them replaces the file by what the failure
/// prints; what differs is then seen in review.
#[test]
fn results_of_small_grids_are_known() {
    let file = std::env::temp_dir().join(format!("urma-lab-known-{}", std::process::id()));
    let rows: String =
        (0..6000_u64).map(|at| format!("{}\n", at * at % 601 + at / 50 % 7)).collect();
    std::fs::write(&file, rows).expect("a file");
    let path = file.to_str().expect("text");
    let known: String = GRIDS.iter().map(|(name, args)| written(name, args, path)).collect();
    std::fs::remove_file(&file).expect("it is there");
    let old = include_str!("known_results.txt");
    let changed: Vec<_> =
        known.lines().filter(|line| old.lines().all(|old| old != *line)).collect();
    assert!(changed.is_empty() && known == old, "changed: {changed:#?}\nall of it:\n{known}");
}
