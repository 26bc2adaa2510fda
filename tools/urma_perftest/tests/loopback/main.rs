//! The built program against itself on this machine: every option that changes what runs.
//!
//! *Must not*: judge speed; only hangs are bounded, generously.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod hosts;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_urma_perftest");
/// Longest time of one pair.
const BOUND: Duration = Duration::from_secs(60);

fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

fn start(words: &[&str]) -> Child {
    let mut command = Command::new(PROGRAM);
    command.args(words).env("URMA_EID", "random").stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program was built for this test")
}

fn end(mut child: Child) -> Output {
    #[expect(clippy::disallowed_methods, reason = "a test bounds a hang")]
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > BOUND {
            child.kill().unwrap();
            panic!("the program hangs: {:?}", child.wait_with_output());
        }
        #[expect(clippy::disallowed_methods, reason = "a test waits for a process")]
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Runs a pair; `client` are options of the client alone.
fn pair(options: &str, client: &[&str]) -> (Output, Output) {
    let port = free_port();
    let mut words: Vec<&str> = options.split_whitespace().collect();
    words.extend(["-P", &port]);
    let server = start(&words);
    words.extend(["-S", "127.0.0.1"]);
    words.extend(client);
    let client = end(start(&words));
    (end(server), client)
}

/// Runs a pair that is to succeed; the client's document.
fn document(options: &str) -> Value {
    let (server, client) = pair(options, &["--json"]);
    let said = String::from_utf8_lossy(&client.stderr).into_owned();
    let other = String::from_utf8_lossy(&server.stderr).into_owned();
    assert!(client.status.success() && server.status.success(), "{options}: {said}{other}");
    serde_json::from_slice(&client.stdout).unwrap_or_else(|error| panic!("{options}: {error}"))
}

fn refused(words: &[&str]) -> String {
    let output = end(start(words));
    assert_eq!(output.status.code(), Some(2), "{words:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn each_option_moves_every_byte_rightly() {
    for options in [
        "write_bw -n 40 -s 96 --sge_num 3 -J 2 --seg_pre_jetty --verify -T 8",
        "read_bw -n 40 -s 96 --sge_num 3 --verify -T 8",
        "send_bw -n 64 -s 12 -c --verify -R 16 -T 8",
        "send_bw -n 200 -s 100 -J 4 --jettys_pre_jfr 2 --verify -R 32 -T 8",
        "send_bw -b -n 200 -s 100 -J 4 --jettys_pre_jfr 2 -f --verify -R 32 -T 8",
        "send_bw -n 500 -s 64 -J 2 --enable_credit --verify -R 32 -T 16",
        "send_bw -n 200 -s 64 -B --enable_credit --credit_notify_cnt 3 --credit_threshold 5 --verify",
        "write_bw -n 50 -s 64 --enable_notify --verify -L -K 1",
        "send_lat -n 20 --order_type 2 --jetty_id 3000 --verify --single_path",
        "write_lat -n 20 -p 1 --order_type 3 --verify --sge_num 2",
        "write_lat -b -n 20 -f --verify",
        "send_lat -b -n 20 -f --verify",
        "read_lat -b -n 20 -f --verify",
    ] {
        let document = document(options);
        assert_eq!(document["verified"], true, "{options}");
        assert!(document["results"][0]["bytes"].as_u64().is_some(), "{options}: {document}");
    }
}

#[test]
fn credit_is_asked_for_and_obeyed() {
    let with = document("send_bw -n 400 -s 64 -R 64 -T 64 --enable_credit --credit_notify_cnt 8");
    let writes = &with["results"][0]["peer_counters"]["direct_requests"];
    // The sender is at most 48 ahead, three quarters of the depth.
    assert!(writes.as_u64().unwrap_or(0) >= 400 / 48, "{with:#}");
}

#[test]
fn immediate_data_consumes_receives() {
    for options in [
        // Fewer messages than receives: no sender ever waits for a receiver that has no core.
        "write_bw -n 300 -s 64 --enable_imm -T 16",
        "write_lat -n 50 --enable_imm",
        "send_bw -n 300 -s 64 --enable_imm -B",
    ] {
        let received = document(options)["results"][0]["received"].as_u64().unwrap();
        assert!(received >= 50, "{options}: {received}");
    }
}

#[test]
fn open_loops_count_from_the_intended_start() {
    // 1000 messages at 20 000 a second last 50 ms; a closed loop would take far less.
    let document =
        document("write_bw -n 1000 -s 8 -Q 1 --rate_limit 20 --rate_units P --burst_size 10");
    let row = &document["results"][0];
    assert!(row["MsgRate[Mpps]"].as_f64().unwrap() <= 0.0205, "{row:#}");
    assert_eq!(row["open_loop"]["samples"], 1000);
    assert!(row["open_loop"]["99.999%[us]"].as_f64().is_some(), "{row:#}");
    let lanes = self::document(
        "read_bw -n 30 -s 8 -J 2 -Q 1 --rate_limit 20 --rate_units P --burst_size 1",
    );
    assert_eq!(lanes["results"][0]["open_loop"]["samples"], 60, "of both jetties");
    let (_, client) =
        pair("read_lat -n 200", &["--rate_limit", "5", "--rate_units", "P", "--histogram"]);
    let said = String::from_utf8_lossy(&client.stderr).into_owned();
    assert_eq!(client.status.code(), Some(1), "the rate is part of the test: {said}");
    assert!(said.contains("rate:"), "{said}");
}

#[test]
fn histograms_stand_below_their_rows() {
    let (_, client) = pair("read_lat -n 300", &["--histogram"]);
    let text = String::from_utf8(client.stdout).unwrap();
    assert!(text.contains(" latency of 2 bytes, 300 samples"), "{text}");
    assert!(text.contains("  99.999 "), "{text}");
    assert!(text.starts_with(&"-".repeat(87)), "{text}");
}

/// What stands below the last rule: the columns and their rows.
fn table(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let rows = text.rsplit(&format!("{}\n", "-".repeat(87))).next().unwrap();
    rows.lines().map(str::to_owned).collect()
}

#[test]
fn both_sides_of_a_ping_pong_have_rows_and_nothing_follows_them() {
    for (options, of_server) in [
        ("write_lat -n 200 -s 4", 2),
        ("write_lat -n 200 -s 4 --path packets --spin completion", 2),
        ("send_lat -n 200 -s 4", 2),
        ("send_lat -D 1 -s 4", 2),
        ("read_lat -n 200 -s 4", 0),
        ("atomic_lat -n 200 -A faa", 0),
    ] {
        let (server, client) = pair(options, &[]);
        let (server, client) = (table(&server), table(&client));
        assert_eq!((server.len(), client.len()), (of_server, 2), "{options}: {server:?}");
        if of_server == 2 {
            assert_eq!(server[0], client[0], "{options}");
            let average: f64 = server[1].split_whitespace().nth(2).unwrap().parse().unwrap();
            assert!(server[1].starts_with(" 4 ") && average > 0.0, "{options}: {server:?}");
        }
    }
}

#[test]
fn conditions_decide_the_exit_code() {
    let (server, client) =
        pair("read_lat -n 100", &["--fail-if", "iterations == 100 && t_avg[us] > 0"]);
    assert!(server.status.success());
    assert_eq!(client.status.code(), Some(1));
    let said = String::from_utf8(client.stderr).unwrap();
    assert!(said.contains("iterations is 100") && said.ends_with("holds\n"), "{said}");
    let (_, client) = pair("read_lat -n 100", &["--fail-if", "t_avg[us] > 1e9"]);
    assert!(client.status.success());
    let said = refused(&["read_lat", "-S", "127.0.0.1", "--fail-if", "BW peak[MB/sec] < 1"]);
    assert!(said.contains("there is no column BW peak[MB/sec]; there are: bytes,"), "{said}");
}

#[test]
fn endless_runs_print_rows_and_end_on_an_interrupt() {
    let port = free_port();
    let words = ["write_bw", "-s", "64", "-T", "8", "-y", "--inf_period_ms", "100", "-P", &port];
    let server = start(&words);
    let mut client = Command::new(PROGRAM)
        .args(words)
        .args(["-S", "127.0.0.1"])
        .env("URMA_EID", "random")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program was built for this test");
    let lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let (line, read) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|text| line.send(text)));
    for row in 0..2 {
        while !read.recv_timeout(BOUND).unwrap_or_else(|_| panic!("row {row}")).starts_with(" 64 ")
        {
        }
    }
    let id = client.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = end(client);
    assert!(output.status.success(), "{output:?}");
    assert!(end(server).status.success());
}

#[test]
fn a_run_by_duration_ends_when_everything_posted_is_retired() {
    for options in [
        "write_bw -s 64 -T 100",
        "write_bw -s 64 -T 8 -J 2 --path packets",
        "read_bw -s 64 -T 8",
        "send_bw -s 64 -T 8 -B",
        "atomic_bw -T 8",
        "write_bw -s 64 -Q 1 --rate_limit 2 --rate_units P --burst_size 1",
        // The next start is 16 minutes away when the time is over, in the middle of a window of -Q.
        "write_bw -s 64 --rate_limit 0.001 --rate_units P --burst_size 1010",
    ] {
        let row = &document(&format!("{options} -D 1 --wait-timeout 20"))["results"][0];
        assert!(row["iterations"].as_u64().unwrap() > 0, "{options}: {row:#}");
    }
}

#[test]
fn lists_that_leave_no_room_for_another_have_a_completion() {
    for options in ["write_bw -n 300 -s 8 -l 64", "read_bw -n 101 -s 8 -T 8 -Q 8 -l 5"] {
        document(&format!("{options} --wait-timeout 20"));
    }
}

/// A packet and a system call for each request would take most of the time of short ones.
#[test]
fn short_requests_behind_many_others_share_packets() {
    let row = &document("write_bw -s 8 -n 20000 -N --path packets --wait-timeout 20")["results"][0];
    let counter =
        |name| row["counters"][name].as_u64().unwrap_or_else(|| panic!("{name}: {row:#}"));
    let (packets, requests) = (counter("tx_packets"), counter("packet_requests"));
    assert_eq!(requests, 20_000, "{row:#}");
    assert!(packets < requests / 2, "{packets} packets: {row:#}");
}

#[test]
fn a_server_gets_the_options_of_the_client() {
    for options in [
        "send_lat -n 50 --histogram",
        "read_bw -s 8 -n 50 --rate_limit 100 --rate_units P --histogram",
    ] {
        let row = &document(options)["results"][0];
        let has = |name| row.get(name).is_some();
        assert!(has("distribution") || has("open_loop"), "{options}: {row:#}");
    }
}

#[test]
fn tokens_are_drawn_for_each_run() {
    // What the sides say to each other, seen from between them.
    let tokens = || {
        let (there, here) = (free_port(), free_port());
        let server = start(&["write_bw", "-n", "50", "-s", "8", "-K", "1", "-P", &there]);
        let listener = TcpListener::bind(("127.0.0.1", here.parse().unwrap())).unwrap();
        let client =
            start(&["write_bw", "-n", "50", "-s", "8", "-K", "1", "-P", &here, "-S", "127.0.0.1"]);
        let said = relay(&listener, &there, ["", ""]);
        assert!(end(server).status.success() && end(client).status.success());
        let tokens: Vec<u64> = said.iter().filter_map(|side| token_of(side)).collect();
        assert_eq!(tokens.len(), 2, "both sides guard their memory");
        tokens
    };
    let mut drawn: Vec<u64> = [tokens(), tokens()].concat();
    drawn.sort_unstable();
    drawn.dedup();
    assert_eq!(drawn.len(), 4, "each side of each run has a token of its own");
}

/// Two sides that verify different patterns.
#[test]
fn both_sides_say_what_verification_found() {
    for options in [
        "write_bw -s 64 -n 50",
        "send_bw -s 64 -n 5000 -R 16 -T 8",
        "read_bw -s 64 -n 50",
        "read_lat -s 64 -n 50",
        "send_bw -s 64 -n 5000 -R 16 -T 8 --path packets",
    ] {
        let (there, here) = (free_port(), free_port());
        let words: Vec<&str> = options.split(' ').chain(["--verify", "--seed"]).collect();
        let server = start(&[&words[..], &["2", "-P", &there]].concat());
        let listener = TcpListener::bind(("127.0.0.1", here.parse().unwrap())).unwrap();
        let client = start(&[&words[..], &["1", "-P", &here, "-S", "127.0.0.1"]].concat());
        relay(&listener, &there, ["\"seed\":1", "\"seed\":2"]);
        let said = [end(server), end(client)].map(|output| {
            assert_eq!(output.status.code(), Some(1), "{options}");
            String::from_utf8(output.stderr).unwrap()
        });
        let finds = "urma_perftest: verification failed: message 0: byte 0 is ";
        let expected =
            "urma_perftest: the peer gave up: verification failed: message 0: byte 0 is ";
        let found = usize::from(!said[0].starts_with(finds));
        assert!(said[found].starts_with(finds), "{options}: {said:?}");
        assert!(said[1 - found].starts_with(expected), "{options}: {said:?}");
    }
}

/// Passes the exchange of one pair on to the server at port `there`; returns what each side said.
/// What the client calls `names[0]`, the server calls `names[1]`.
fn relay(listener: &TcpListener, there: &str, names: [&'static str; 2]) -> [Vec<u8>; 2] {
    let (client, _) = listener.accept().unwrap();
    #[expect(clippy::disallowed_methods, reason = "a test bounds a hang")]
    let start = Instant::now();
    let server = loop {
        match TcpStream::connect(("127.0.0.1", there.parse().unwrap())) {
            Ok(server) => break server,
            Err(error) => assert!(start.elapsed() < BOUND, "{error}"),
        }
    };
    let copy = |mut from: TcpStream, mut to: TcpStream, [theirs, its]: [&'static str; 2]| {
        std::thread::spawn(move || {
            let (mut said, mut chunk) = (Vec::new(), [0; 4096]);
            while let Ok(count @ 1..) = from.read(&mut chunk) {
                said.extend_from_slice(&chunk[..count]);
                let text = String::from_utf8_lossy(&chunk[..count]).replace(theirs, its);
                if to.write_all(text.as_bytes()).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Write);
            said
        })
    };
    let up = copy(client.try_clone().unwrap(), server.try_clone().unwrap(), names);
    let down = copy(server, client, [names[1], names[0]]);
    [up.join().unwrap(), down.join().unwrap()]
}

/// The token of the queues in what a side said; its segments have the same.
fn token_of(said: &[u8]) -> Option<u64> {
    let lines = said.split(|byte| *byte == b'\n');
    let mut messages = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let endpoint = messages.find_map(|message| message.get("Endpoint").cloned())?;
    assert_eq!(endpoint["segments"][0]["token"], endpoint["queue_token"]);
    endpoint["queue_token"].as_u64()
}

#[test]
fn durations_units_and_addresses() {
    let document = document(
        "read_bw -s 64 -D 1 -y --inf_period_ms 500 --bw_unit KB --enable_write_dirty 50 --bind_ip 127.0.0.1",
    );
    assert!(document["results"][0]["BW average[KB/sec]"].as_f64().unwrap() > 0.0);
    let (_, client) = pair("read_lat -n 50", &["--dip", "127.9.9.9"]);
    let said = String::from_utf8(client.stderr).unwrap();
    assert!(said.contains("--dip asks for"), "{said}");
    let sizes = self::document("write_lat -n 10 --min_size 4 --max_size 16");
    assert_eq!(sizes["results"].as_array().unwrap().len(), 3);
}

#[test]
fn a_message_longer_than_um_carries_ends_both_sides_with_the_limit() {
    for options in ["send_bw -p 2 -s 65536 -n 100", "send_bw -p 2 -n 100 --path packets"] {
        let (server, client) = pair(options, &[]);
        for side in [server, client] {
            let said = String::from_utf8_lossy(&side.stderr).into_owned();
            assert_eq!(side.status.code(), Some(1), "{options}: {said}");
            assert!(said.contains("at most 8192 bytes") && said.contains("-s 8192"), "{said}");
        }
    }
}

/// Reads `count` rows of an endless run; fewer mean that it ended.
fn rows(from: &mut impl BufRead, count: usize) -> usize {
    from.lines().map_while(Result::ok).filter(|line| line.starts_with(" 4096 ")).take(count).count()
}

fn signal(name: &str, to: &Child) {
    let id = to.id().to_string();
    assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
}

/// How long a side is stopped: 2.5 s, or `URMA_STOP_MS` milliseconds.
fn stop_ms() -> u64 {
    std::env::var("URMA_STOP_MS").ok().and_then(|text| text.parse().ok()).unwrap_or(2500)
}

/// Code of the shortest error timeout that is at least `ms` milliseconds.
fn error_timeout(ms: u64) -> String {
    (0_u32..31).find(|code| 4096_u64 << code >= ms * 1_000_000).unwrap_or(31).to_string()
}

/// Client and server of endless writes over packets, one of them stopped after three rows.
fn with_one_stopped(stopped: &str, timeout: &str) -> ([Child; 2], impl BufRead + Send + 'static) {
    let port = free_port();
    let words = ["write_bw", "-s", "4096", "-y", "--inf_period_ms", "50", "--path", "packets"];
    let words = [&words[..], &["-E", timeout, "-P", &port]].concat();
    let server = start(&words);
    let mut client = start(&[&words[..], &["-S", "127.0.0.1"]].concat());
    let mut output = BufReader::new(client.stdout.take().unwrap());
    assert_eq!(rows(&mut output, 3), 3, "before the {stopped} is stopped");
    signal("-STOP", if stopped == "client" { &client } else { &server });
    ([client, server], output)
}

/// The end of a client whose rows are read to the last, so that it never waits for the pipe.
fn end_of(client: Child, mut output: impl BufRead + Send + 'static) -> Output {
    std::thread::spawn(move || while rows(&mut output, 1) == 1 {});
    end(client)
}

#[test]
fn a_stopped_side_finds_a_living_peer_and_goes_on() {
    // The TP of the other side gives up after 1.6 s; requests to a stopped peer wait for their error
    // timeout, 8.6 s with -E 21, while the time that the poster itself was stopped counts for nothing.
    let ms = stop_ms();
    for (stopped, timeout) in [("client", "17"), ("server", &error_timeout(3 * ms))] {
        let ([client, server], mut output) = with_one_stopped(stopped, timeout);
        #[expect(clippy::disallowed_methods, reason = "a test stops a process for a while")]
        std::thread::sleep(Duration::from_millis(ms));
        signal("-CONT", if stopped == "client" { &client } else { &server });
        // Those that were printed meanwhile, and more.
        let due = usize::try_from(ms / 50 + 10).unwrap();
        let seen = rows(&mut output, due);
        assert_eq!(seen, due, "the {stopped} was stopped: {:?}", end(client));
        signal("-INT", &client);
        let [client, server] = [end_of(client, output), end(server)];
        assert!(client.status.success(), "the {stopped} was stopped: {client:?}");
        assert!(server.status.success(), "the {stopped} was stopped: {server:?}");
    }
}

#[test]
fn requests_to_a_peer_that_stays_stopped_end() {
    // 0.5 s; 1.6 s until a TP gives up change nothing of it. Both count the time in which the client
    // ran: on a busy machine that is longer than any stop of a fixed length.
    let ([client, server], output) = with_one_stopped("server", "17");
    let client = end_of(client, output);
    signal("-CONT", &server);
    let said = String::from_utf8_lossy(&client.stderr);
    assert!(!client.status.success() && said.contains("acknowledge"), "{client:?}");
    end(server);
}

/// Endless run of `options` whose client is stopped after its first rows; the server at its end.
fn behind_a_hanging_client(options: &str) -> Output {
    let port = free_port();
    let words = options.split(' ').chain(["-y", "--inf_period_ms", "50", "--wait-timeout", "2"]);
    let words: Vec<&str> = words.chain(["-P", &port]).collect();
    let server = start(&words);
    let mut client = start(&[&words[..], &["-S", "127.0.0.1"]].concat());
    let mut output = BufReader::new(client.stdout.take().unwrap());
    assert_eq!(rows(&mut output, 3), 3, "{options}: {:?}", end(client));
    signal("-STOP", &client);
    let server = end(server);
    client.kill().unwrap();
    client.wait().unwrap();
    server
}

#[test]
fn a_side_that_is_served_and_hangs_ends_the_other_within_the_bound() {
    // Served asleep, by polls, and with receives.
    let cases = ["read_bw -s 4096", "write_bw -s 4096 --path packets", "send_bw -s 4096"];
    let ends = cases.map(|options| std::thread::spawn(move || behind_a_hanging_client(options)));
    for (options, server) in cases.iter().zip(ends) {
        let server = server.join().unwrap();
        let said = String::from_utf8_lossy(&server.stderr);
        assert_eq!(server.status.code(), Some(1), "{options}: {said}");
        let (peer, why) = ("the peer at 127.0.0.1:", "is connected and sent nothing for 2 s");
        assert!(said.contains(peer) && said.contains(why), "{options}: {said}");
    }
}

#[test]
fn a_side_may_be_served_for_longer_than_the_bound_of_silence() {
    let cases = [
        "read_bw -s 64 -T 8 -D 5",
        "atomic_lat -D 5",
        "read_bw -s 64 -D 5 --path packets",
        "read_bw -s 64 -n 6 -Q 1 --rate_limit 0.001 --rate_units P --burst_size 1 --no_peak",
        // 2.5 s between two requests.
        "read_lat -n 5 -s 2621 --rate_limit 0.001 --rate_units M",
    ];
    let runs = cases.map(|options| {
        std::thread::spawn(move || document(&format!("{options} --wait-timeout 2")))
    });
    for (options, run) in cases.iter().zip(runs) {
        let row = &run.join().unwrap()["results"][0];
        assert!(row["iterations"].as_u64().unwrap() > 0, "{options}: {row:#}");
    }
}

#[test]
fn what_a_software_device_cannot_mean_is_refused_first() {
    for (words, why) in [
        (vec!["write_bw", "-z"], "nothing to bond"),
        (vec!["write_bw", "--dscp", "3"], "UDP datagrams"),
        (vec!["write_bw", "-K", "2"], "no keys"),
        (vec!["write_bw", "--mgmt", "ub"], "know before"),
        (vec!["write_bw", "--hugepage_size", "1GB"], "2 MiB"),
        (vec!["send_lat", "--rate_limit", "1"], "ping-pong"),
        (vec!["write_bw", "--order_type", "1"], "OT and OL are of RC"),
    ] {
        let said = refused(&words);
        assert!(said.contains(why), "{words:?}: {said}");
    }
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("urma-perftest-{}-{name}", std::process::id()))
}

#[test]
fn results_are_compared() {
    let (a, b) = (scratch("a.json"), scratch("b.json"));
    let result = document("read_lat -n 50");
    let mut other = result.clone();
    let avg = result["results"][0]["t_avg[us]"].as_f64().unwrap();
    other["results"][0]["t_avg[us]"] = Value::from(avg * 2.0);
    std::fs::write(&a, result.to_string()).unwrap();
    std::fs::write(&b, other.to_string()).unwrap();
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let output = end(start(&["compare", a, b]));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("2.000"), "{text}");
    let output = end(start(&["compare", a, b, "--json", "--fail-if", "t_avg[us] > 1.5"]));
    assert_eq!(output.status.code(), Some(1));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        (value["rows"][0]["columns"]["t_avg[us]"]["ratio"].as_f64().unwrap() - 2.0).abs() < 1e-9
    );
    assert!(refused(&["compare", a, "/nowhere.json"]).contains("/nowhere.json"));
}

#[test]
fn pages_and_completions_are_made() {
    let dir = scratch("pages");
    let output = end(start(&["--generate", dir.to_str().unwrap()]));
    assert!(output.status.success(), "{output:?}");
    for name in ["urma_perftest.1", "urma_perftest-compare.1", "_urma_perftest"] {
        assert!(dir.join(name).is_file(), "{name}");
    }
    std::fs::remove_dir_all(dir).unwrap();
}

/// A peer may write anything into the reason for which it gives up.
#[test]
fn a_terminal_obeys_nothing_that_a_peer_says() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let client = start(&["send_lat", "-n", "5", "-S", "127.0.0.1", "-P", &port]);
    let (mut peer, _) = listener.accept().unwrap();
    peer.write_all(
        b"{\"Refused\":\"\\u001b]0;root\\u0007\\u001b[2J\\r\\nurma_perftest: all is well\"}\n",
    )
    .unwrap();
    let output = end(client);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let shown = "the peer gave up: \\u001b]0;root\\u0007\\u001b[2J\\u000d\\u000aurma_perftest: all is well\n";
    assert!(said.ends_with(shown), "{said:?}");
    let all = said + &String::from_utf8_lossy(&output.stdout);
    assert!(all.chars().all(|c| c == '\n' || !c.is_control()), "{all:?}");
}
