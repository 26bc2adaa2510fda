//! What one run says, waits for and answers: lines, documents, times, signals.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Output, Stdio},
    time::Instant,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use super::{Node, PROGRAM, ping};

#[expect(clippy::disallowed_methods, reason = "what is tested is how long a program waits")]
fn now() -> Instant {
    Instant::now()
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// `text` with each time in milliseconds as `_`.
fn without_times(text: &str) -> String {
    let is_time = |word: &str| word.contains('.') && word.parse::<f64>().is_ok();
    let words = text.split_inclusive([' ', '=', '/', '\n']).map(|word| {
        let end = word.len() - usize::from(word.ends_with([' ', '=', '/', '\n']));
        match is_time(&word[..end]) {
            true => format!("_{}", &word[end..]),
            false => word.to_owned(),
        }
    });
    words.collect()
}

/// The groups of a loopback EID, as the program shows them.
fn groups(eid: &str) -> String {
    let octets: Vec<u8> = eid.split('.').map(|octet| octet.parse().unwrap()).collect();
    format!(
        "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}",
        octets[0], octets[1], octets[2], octets[3]
    )
}

#[test]
fn each_ping_is_a_line_and_a_quiet_run_has_the_first_and_the_last_ones() {
    let node = Node::start();
    let eid = groups(&node.eid);
    let words = ["-c", "2", "-i", "0.01", "-W", "20", "-s", "1", &node.eid];
    let first = format!("URMA_PING {eid} 1 bytes of data.\n");
    let lines =
        format!("1 bytes from {eid}: seq=1 time=_ ms\n1 bytes from {eid}: seq=2 time=_ ms\n");
    let summary =
        "\n--- ping statistics ---\n2 packets transmitted, 2 received, 0.0% packet loss, time ";
    let rtt = "ms\nrtt min/avg/max/mdev = _/_/_/_ ms\n";
    for (more, between) in [(&[][..], lines.as_str()), (&["-q"], "")] {
        let words = [&words[..], more].concat();
        let output = ping(&words, "same-host");
        let text = without_times(&stdout(&output));
        let (front, back) = text.split_at(text.find("loss, time ").unwrap() + "loss, time ".len());
        assert_eq!(front, format!("{first}{between}{summary}"));
        assert_eq!(back.trim_start_matches(|digit: char| digit.is_ascii_digit()), rtt);
        assert!(output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn the_document_of_a_run_says_what_was_sent_to_whom() {
    let node = Node::start();
    let words = ["-c", "3", "-i", "0.1", "-W", "20", "-s", "33", "--json", &node.eid];
    let output = ping(&words, "same-host");
    let mut value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let total = value["time[ms]"].take().as_f64().unwrap();
    assert!((200.0..20_000.0).contains(&total), "two pauses of 100 ms: {total}");
    let replies = value["replies"].take();
    let times = replies.as_array().unwrap().iter().map(|reply| reply["time[ms]"].as_f64().unwrap());
    let times: Vec<f64> = times.collect();
    assert!(times.iter().all(|ms| *ms > 0.0 && *ms < total), "{times:?} of {total}");
    let numbers: Vec<_> = replies.as_array().unwrap().iter().map(|reply| &reply["seq"]).collect();
    assert_eq!(numbers, [1, 2, 3]);
    let rtt = value["rtt[ms]"].take();
    let [min, avg, max] = ["min", "avg", "max"].map(|name| rtt[name].as_f64().unwrap());
    assert_eq!(min, times.iter().copied().fold(f64::MAX, f64::min));
    assert_eq!(max, times.iter().copied().fold(0.0, f64::max));
    assert!(min <= avg && avg <= max, "{rtt}");
    let left = json!({
        "eid": node.eid, "size": 33, "error": null, "obstacle": null, "transmitted": 3, "received": 3,
        "loss[%]": 0.0, "time[ms]": null, "rtt[ms]": null, "replies": null,
    });
    assert_eq!(value, left);
}

/// The document of a run without any answer.
#[test]
fn the_document_of_a_run_that_reached_no_node_says_why() {
    let output = ping(&["-c", "1", "--json", "127.250.250.251"], "same-host");
    assert_eq!(output.status.code(), Some(1));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&value["transmitted"], &value["received"]), (&json!(0), &json!(0)));
    assert_eq!((&value["size"], &value["eid"]), (&json!(4), &json!("127.250.250.251")));
    assert!(value["error"].is_string() && value["obstacle"].is_string(), "{value:#}");
    let text = ping(&["-c", "1", "127.250.250.251"], "same-host");
    assert_eq!(stdout(&text), "", "no ping was sent, so nothing is summed up");
}

/// A node whose process is stopped: it is reached by what is shared with it, and answers nothing.
#[test]
fn answers_that_do_not_come_are_waited_for_as_long_as_was_said() {
    let node = Node::start();
    let source = ["-I", "127.77.7.21"];
    let before = ping(&[&source[..], &["-c", "1", "-W", "20", &node.eid]].concat(), "same-host");
    assert!(before.status.success(), "{before:?}");
    let mut words = source.to_vec();
    words.extend(["-v", "-i", "0.05", "-W", "0.3", "-c", "9", &node.eid]);
    let mut child = Command::new(PROGRAM);
    let child = child.args(&words).env("URMA_PATH", "same-host").stdout(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    while !next().contains(" seq=1 time=") {}
    signal(&node.child, Signal::SIGSTOP);
    let mut late = Vec::new();
    for line in std::iter::repeat_with(&mut next).take(3) {
        match line.strip_prefix("Request timeout for seq=") {
            Some(number) => late.push(number.parse::<u32>().unwrap()),
            None => assert!(late.is_empty() && line.contains(" seq=2 time="), "{line}"),
        }
    }
    signal(&node.child, Signal::SIGCONT);
    assert!(late.len() >= 2 && late.windows(2).all(|two| two[0] + 1 == two[1]), "{late:?}");
    let rest: Vec<String> = std::iter::from_fn(|| lines.next()).map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let named = |number: &u32| {
        rest.iter().any(|line| {
            line.starts_with("A late answer: expected seq=")
                && line.ends_with(&format!("got seq={number}"))
        })
    };
    assert!(late.iter().all(named), "{late:?}: {rest:?}");
    assert!(rest.iter().any(|line| line.contains(": seq=9 time=")), "{rest:?}");
    assert!(rest.iter().any(|line| line.starts_with("9 packets transmitted, ")), "{rest:?}");
}

#[test]
fn a_run_without_a_count_ends_by_a_signal_or_its_deadline() {
    let node = Node::start();
    let start = |words: &[&str]| {
        let mut command = Command::new(PROGRAM);
        let command = command.args(words).args(["-i", "0.05", "-W", "20", &node.eid]);
        let command = command.env("URMA_EID", "random").env("URMA_PATH", "same-host");
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    for by in [Signal::SIGINT, Signal::SIGTERM] {
        let mut child = start(&[]);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while !lines.next().unwrap().unwrap().contains(" seq=3 time=") {}
        signal(&child, by);
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        assert!(rest.iter().any(|line| line == "--- ping statistics ---"), "{by}: {rest:?}");
        assert_eq!(child.wait().unwrap().code(), Some(0), "{by}");
    }
    let begun = now();
    let ended = start(&["-w", "0.4", "--json"]).wait_with_output().unwrap();
    let value: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let ms = value["time[ms]"].as_f64().unwrap();
    assert!(ms >= 400.0 && begun.elapsed().as_secs_f64() < 20.0, "{ms}");
    assert!(value["transmitted"].as_u64().is_some_and(|sent| (2..=9).contains(&sent)), "{value:#}");
    assert_eq!(ended.status.code(), Some(0));
    // 0 is no deadline.
    let ended = start(&["-w", "0", "-c", "3"]).wait_with_output().unwrap();
    assert!(stdout(&ended).contains("\n3 packets transmitted, 3 received, "), "{ended:?}");
    assert_eq!(ended.status.code(), Some(0));
    // With a count and a deadline all of them are to be answered.
    let ended = start(&["-w", "0.2", "-c", "500"]).wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(stdout(&ended).contains(" 0.0% packet loss, "), "{ended:?}");
}

#[test]
fn a_node_that_answers_ends_well_by_a_signal() {
    for by in [Signal::SIGINT, Signal::SIGTERM] {
        let mut node = Node::start();
        assert!(node.child.try_wait().unwrap().is_none(), "it answers until then");
        signal(&node.child, by);
        assert_eq!(node.child.wait().unwrap().code(), Some(0), "{by}");
    }
}

/// A node answers itself, under the EID that it was given.
#[test]
fn the_source_is_the_eid_of_the_node() {
    let own = ping(&["-c", "1", "-W", "20", "-I", "127.77.7.22", "127.77.7.22"], "auto");
    assert!(own.status.success(), "{own:?}");
    let mut serving = Command::new(PROGRAM);
    let serving = serving.args(["--serve", "-I", "127.77.7.23"]).stdout(Stdio::piped());
    let mut child = serving.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    signal(&child, Signal::SIGTERM);
    assert!(child.wait().unwrap().success());
    assert_eq!(line, "URMA_PING answering as 127.77.7.23\n");
}

#[test]
fn what_the_stack_has_to_say_is_shown_when_it_is_asked_for_twice() {
    let node = Node::start();
    let run = |words: &[&str]| {
        let words = [words, &["-c", "1", "-W", "20", &node.eid]].concat();
        String::from_utf8(ping(&words, "packets").stderr).unwrap()
    };
    assert_eq!((run(&[]), run(&["-v"])), (String::new(), String::new()));
    let said = run(&["-v", "-v"]);
    assert!(said.contains(" DEBUG ") || said.contains(" INFO "), "{said}");
}

#[test]
fn pages_and_completions_are_written_where_they_are_asked_for() {
    let dir = std::env::temp_dir().join(format!("urma-ping-pages-{}", std::process::id()));
    let run = |words: &[&str]| Command::new(PROGRAM).args(words).output().unwrap();
    let place = dir.to_str().unwrap();
    for other in [&["--generate"][..], &["--generate", place, "more"], &["--serve", "--generate"]] {
        assert_eq!(run(other).status.code(), Some(2), "{other:?}");
        assert!(!dir.exists(), "{other:?}");
    }
    let output = run(&["--generate", place]);
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
    let mut names: Vec<_> =
        fs::read_dir(&dir).unwrap().map(|one| one.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["_urma_ping", "urma_ping.1", "urma_ping.bash", "urma_ping.fish"]);
    fs::remove_dir_all(&dir).unwrap();
    // A file stands where the folder would be.
    let output = run(&["--generate", PROGRAM]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("urma_ping: --generate: "), "{said}");
}

#[test]
fn seconds_and_sizes_have_bounds() {
    for words in [
        &["-i", "-1"][..],
        &["-i", "1000001"],
        &["-w", "x"],
        &["-W", "nan"],
        &["-s", "0"],
        &["-s", "4097"],
        &["--serve", "-c", "1"],
        &["--serve", "-w", "1"],
    ] {
        let is_serving = words.contains(&"--serve");
        let words = [words, if is_serving { &[] } else { &["127.1.2.3"] }].concat();
        let output = ping(&words, "auto");
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(String::from_utf8(output.stderr).unwrap().starts_with("error: "), "{words:?}");
    }
}
