//! The built program: one process answers, another pings it, on one host and between hosts without any setting.
//!
//! What a run says, waits for and answers: lines, documents, times, signals.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::{
    fs,
    io::{BufRead, BufReader},
    net::UdpSocket,
    process::{Child, Command, Output, Stdio},
    time::Instant,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use urma_net::{HANG, Host, Lab, LabPlan, Process, refuse_version};

const PROGRAM: &str = env!("CARGO_BIN_EXE_urma_ping");

/// A node that answers; ends with this.
struct Node {
    child: Child,
    eid: String,
}

impl Node {
    fn start() -> Self {
        let mut command = Command::new(PROGRAM);
        command.arg("--serve").env("URMA_EID", "random").stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let eid = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self { child, eid }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ping(words: &[&str], path: &str) -> Output {
    Command::new(PROGRAM)
        .args(words)
        .env("URMA_EID", "random")
        .env("URMA_PATH", path)
        .output()
        .unwrap()
}

#[test]
fn an_answering_node_answers_on_every_path() {
    let node = Node::start();
    for path in ["same-host", "packets"] {
        let output = ping(&["-c", "3", "-i", "0.01", "-W", "20", "-s", "64", &node.eid], path);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{path}: {text}");
        assert!(text.starts_with("URMA_PING 0000:0000:0000:0000:0000:ffff:7f"), "{text}");
        assert!(text.contains("64 bytes from ") && text.contains(": seq=3 time="), "{text}");
        assert!(text.contains("3 packets transmitted, 3 received, 0.0% packet loss"), "{text}");
        assert!(text.contains("rtt min/avg/max/mdev = "), "{text}");
    }
}

/// A sender that starts again has the same EID and the same jetty id, but is another process.
#[test]
fn a_sender_that_starts_again_is_answered_at_once() {
    let node = Node::start();
    for path in ["same-host", "packets"] {
        for run in 0..3 {
            let words = ["-c", "1", "-W", "20", "-I", "127.77.7.9", &node.eid];
            let output = ping(&words, path);
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.contains(": seq=1 time="), "{path}, run {run}: {text}");
        }
    }
}

#[test]
fn large_pings_and_json() {
    let node = Node::start();
    let words = ["-c", "2", "-i", "0", "-W", "20", "-s", "4096", "--json", &node.eid];
    let output = ping(&words, "auto");
    assert!(output.status.success());
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["received"], 2);
    assert_eq!(value["replies"][1]["seq"], 2);
    assert!(value["rtt[ms]"]["avg"].as_f64().unwrap() > 0.0, "{value:#}");
}

#[test]
fn no_node_is_exit_code_1() {
    let output = ping(&["-c", "1", "127.250.250.250"], "same-host");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no path to node 127.250.250.250"), "{said}");
}

#[test]
fn wrong_words_are_exit_code_2() {
    for words in [&["not an eid"][..], &["-s", "5000", "127.1.2.3"], &["-c", "0", "127.1.2.3"], &[]]
    {
        assert_eq!(ping(words, "auto").status.code(), Some(2), "{words:?}");
    }
}

/// A node that answers on `host`, and its EID.
fn answering(host: &Host) -> (Process, String) {
    let mut process = host.start(host.command(PROGRAM).arg("--serve"));
    let line = process.line().unwrap();
    let eid = line.rsplit(' ').next().unwrap().to_owned();
    (process, eid)
}

#[test]
fn two_hosts_ping_each_other_without_any_setting() {
    for plan in [LabPlan::cable(1500), LabPlan::cable(9000), LabPlan::bridge(2, 576)] {
        for plan in [plan, plan.v6()] {
            // IPv6 needs an MTU of 1280.
            let Some(lab) = Lab::or_skip(if plan.mtu < 1280 { plan.v4() } else { plan }) else {
                return;
            };
            let (near, far) = (lab.host(0), lab.host(1));
            let (_process, eid) = answering(far);
            assert_eq!(eid, far.address().to_string(), "the EID is the address: {plan:?}");
            let mut ping = near.command(PROGRAM);
            let words = ["-c", "3", "-i", "0.01", "-W", "20", &far.address().to_string()];
            let ended = near.start(ping.args(words)).end();
            assert!(ended.status.success(), "{plan:?}: {ended:?}");
            assert!(ended.stdout.contains("3 packets transmitted, 3 received"), "{ended:?}");
        }
    }
}

#[test]
fn two_programs_of_a_host_ping_each_other_without_any_setting() {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return };
    let host = lab.host(0);
    let (_first, eid) = answering(host);
    let (_second, other) = answering(host);
    assert_eq!(eid, host.address().to_string());
    assert!(other.starts_with("127."), "a second node: {other}");
    for eid in [&eid, &other] {
        let mut ping = host.command(PROGRAM);
        ping.args(["-c", "2", "-i", "0.01", "-W", "20", eid])
            .env("URMA_LOG", "urma=info,ubcore_sim=info");
        let ended = host.start(&mut ping).end();
        assert!(ended.status.success(), "{eid}: {ended:?}");
        assert!(ended.stderr.contains("has this host's address"), "{ended:?}");
    }
    let mut second = host.command(PROGRAM);
    let ended = host.start(second.arg("--serve").env("URMA_EID", "host")).end();
    assert_eq!(ended.status.code(), Some(2));
    assert!(
        ended.stderr.contains("belongs to process") && ended.stderr.contains("ubcored"),
        "{ended:?}"
    );
}

/// What a ping of `far`, which gets no answer, says about it, from `near`.
fn obstacle(near: &Host, far: &str, words: &[&str]) -> String {
    let mut ping = near.command(PROGRAM);
    let ended = near.start(ping.args(["-c", "1"]).args(words).arg(far)).end();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let line =
        ended.stderr.lines().find_map(|line| line.strip_prefix("urma_ping: no path to node "));
    line.unwrap_or_else(|| panic!("{ended:?}")).to_owned()
}

#[track_caller]
fn says(text: &str, kind: &str, words: &[&str]) {
    assert!(text.contains(&format!(": {kind}: ")), "no {kind} in: {text}");
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

#[test]
fn an_address_that_no_host_has_is_named() {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return };
    says(&obstacle(lab.host(0), "10.80.0.77", &[]), "address", &["no host answers at 10.80.0.77"]);
    says(&obstacle(lab.host(0), "192.0.2.9", &[]), "address", &["192.0.2.9", "unreachable"]);
    says(&obstacle(lab.host(0), "fd80::9", &[]), "address", &["different protocols", "URMA_EID"]);
    let mut ping = lab.host(0).command(PROGRAM);
    ping.args(["-c", "1", "10.80.0.2"]).env("URMA_EID", "random");
    let ended = lab.host(0).start(&mut ping).end();
    assert!(ended.stderr.contains("address: this node's EID 127."), "{ended:?}");
}

#[test]
fn a_port_at_which_no_node_receives_is_named() {
    for plan in [LabPlan::cable(1500), LabPlan::cable(1500).v6()] {
        let Some(lab) = Lab::or_skip(plan) else { return };
        let far = lab.host(1).address().to_string();
        says(&obstacle(lab.host(0), &far, &[]), "port", &["UDP 4791", "no node has this EID"]);
    }
}

#[test]
fn a_process_that_has_the_port_of_this_host_is_named() {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return };
    let (near, far) = (lab.host(0), lab.host(1).address().to_string());
    let _taken = near.run(|| UdpSocket::bind((near.address(), 4791))).unwrap();
    let owner = format!("process {}", std::process::id());
    says(&obstacle(near, &far, &[]), "port", &["UDP 10.80.0.1:4791", &owner]);
}

#[test]
fn packets_that_are_dropped_or_forbidden_are_called_a_firewall() {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return };
    let (near, far) = (lab.host(0), lab.host(1));
    let (_process, eid) = answering(far);
    // The far host receives everything and sends nothing back.
    far.ip(&["route add blackhole 10.80.0.1/32"]);
    says(&obstacle(near, &eid, &[]), "firewall", &["nothing comes back from 10.80.0.2"]);
    near.ip(&["route add prohibit 10.80.0.2/32"]);
    says(&obstacle(near, &eid, &[]), "firewall", &["forbidden"]);
}

#[test]
fn a_host_that_answers_only_other_programs_is_called_a_firewall() {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return };
    let (near, far) = (lab.host(0), lab.host(1));
    // It takes the packets and is no node.
    let _taken = far.run(|| UdpSocket::bind((far.address(), 4791))).unwrap();
    let text = obstacle(near, &far.address().to_string(), &[]);
    says(&text, "firewall", &["the host answers TCP", "another program has the port"]);
}

#[test]
fn an_mtu_that_loses_larger_packets_is_named() {
    let Some(lab) = Lab::or_skip(LabPlan::bridge(2, 1500)) else { return };
    let (_process, eid) = answering(lab.host(1));
    // The bridge drops what is larger on its way to the far host, without a message. Nodes find path MTUs
    // from 256 bytes of payload on: less, and one packet of that size is lost.
    lab.set_far_mtu(1, 0, 250);
    // The connection gives the lost ping up after a second or two: with the first of these waits while the smaller
    // ping shares it.
    for wait in ["0.3", "3"] {
        let text = obstacle(lab.host(0), &eid, &["-s", "256", "-W", wait]);
        says(&text, "MTU", &["pings of 16 bytes are answered, those of 256 are not"]);
    }
}

#[test]
fn a_peer_without_a_version_in_common_is_named() {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return };
    let (near, far) = (lab.host(0), lab.host(1));
    let socket = far.run(|| UdpSocket::bind((far.address(), 4791))).unwrap();
    socket.set_read_timeout(Some(HANG)).unwrap();
    let refusing = std::thread::spawn(move || refuse_version(&socket));
    let text = obstacle(near, &far.address().to_string(), &[]);
    says(&text, "version", &["10.80.0.2", "version 1"]);
    assert!(refusing.join().unwrap());
}

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
