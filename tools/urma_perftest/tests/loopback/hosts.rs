//! Pairs between hosts, and of one host, without any setting.

use std::net::UdpSocket;

use serde_json::Value;
use urma_net::{HANG, Host, Lab, LabPlan, refuse_version};

use super::PROGRAM;

/// Runs a pair; the client's document.
fn pair(server: &Host, client: &Host, at: &str, options: &str) -> Value {
    let port = "18515";
    let words: Vec<&str> = options.split_whitespace().chain(["-P", port]).collect();
    let mut serving = server.start(server.command(PROGRAM).args(&words));
    while !serving.line().expect("the server waits").contains("Waiting for client") {}
    let mut command = client.command(PROGRAM);
    let ended = client.start(command.args(&words).args(["-S", at, "--json"])).end();
    let served = serving.end();
    assert!(ended.status.success() && served.status.success(), "{options}: {ended:?} {served:?}");
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{options}: {error}"))
}

/// Every operation with checked bytes. Lengths are of one packet at the smallest MTU.
const EACH: [&str; 6] = [
    "write_bw -n 200 -s 300 --verify",
    "read_bw -n 200 -s 300 --verify",
    "send_bw -n 200 -s 300 --verify",
    "write_lat -n 50 -s 8 --verify",
    "send_lat -n 50 -s 64 --verify",
    "atomic_lat -n 50",
];

#[test]
fn two_hosts_move_every_byte_rightly_without_any_setting() {
    for plan in [LabPlan::cable(1500), LabPlan::cable(1500).v6(), LabPlan::cable(9000)] {
        let Some(lab) = Lab::or_skip(plan) else { return };
        let far = lab.host(1).address().to_string();
        for options in EACH {
            let document = pair(lab.host(1), lab.host(0), &far, options);
            assert_eq!(document["verified"], options.contains("--verify"), "{options}");
        }
    }
}

#[test]
fn two_programs_of_a_host_move_every_byte_rightly_without_any_setting() {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return };
    let host = lab.host(0);
    for options in EACH {
        for path in ["", " --path packets"] {
            let document = pair(host, host, "127.0.0.1", &format!("{options}{path}"));
            assert_eq!(document["verified"], options.contains("--verify"), "{options}{path}");
        }
    }
}

/// What the client says of a server whose node it does not reach, though TCP to its host works.
fn obstacle(server: &Host, client: &Host, env: &[(&str, &str)]) -> String {
    let words = ["write_lat", "-n", "5", "-P", "18515"];
    let mut serving = server.start(server.command(PROGRAM).args(words));
    while !serving.line().expect("the server waits").contains("Waiting for client") {}
    let mut command = client.command(PROGRAM);
    command.args(words).args(["-S", &server.address().to_string()]).envs(env.iter().copied());
    let ended = client.start(&mut command).end();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    // The server has its own view of the same, or sees the client go.
    drop(serving);
    let line = ended.stderr.lines().find_map(|line| line.split_once("no path to node "));
    line.unwrap_or_else(|| panic!("{ended:?}")).1.to_owned()
}

#[track_caller]
fn says(text: &str, kind: &str, words: &[&str]) {
    assert!(text.contains(&format!(": {kind}: ")), "no {kind} in: {text}");
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

/// UDP 4791 of a host, so that its nodes have no packets.
fn taken(host: &Host) -> UdpSocket {
    host.run(|| UdpSocket::bind((host.address(), 4791))).expect("no node has the port yet")
}

#[test]
fn an_address_that_reaches_no_other_host_is_named() {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return };
    let text = obstacle(lab.host(1), lab.host(0), &[("URMA_EID", "random")]);
    says(&text, "address", &["10.80.0.2", "this node's EID 127.", "URMA_EID=host"]);
}

#[test]
fn a_process_that_has_the_port_of_the_client_is_named() {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500).v6()) else { return };
    let _taken = taken(lab.host(0));
    let owner = format!("process {}", std::process::id());
    says(&obstacle(lab.host(1), lab.host(0), &[]), "port", &["UDP [fd80::1]:4791", &owner]);
}

#[test]
fn a_server_that_receives_no_packets_is_named() {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return };
    let (near, far) = (lab.host(0), lab.host(1));
    let taken = taken(far);
    let text = obstacle(far, near, &[]);
    says(&text, "firewall", &["10.80.0.2", "the host answers TCP", "another program has the port"]);
    // A route that says so is believed: no node needs as little.
    near.ip(&["route replace 10.80.0.2/32 dev port0 mtu lock 500"]);
    says(&obstacle(far, near, &[]), "MTU", &["10.80.0.2", "packets of 500 bytes only"]);
    drop(taken);
}

#[test]
fn a_server_of_another_wire_version_is_named() {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return };
    let (near, far) = (lab.host(0), lab.host(1));
    let socket = taken(far);
    socket.set_read_timeout(Some(HANG)).expect("a time");
    let refusing = std::thread::spawn(move || refuse_version(&socket));
    says(&obstacle(far, near, &[]), "version", &["10.80.0.2", "version 1", "same release"]);
    assert!(refusing.join().expect("it answers"));
}

/// A rule of the kernel drops what comes to port 4791, as a firewall does: without a word, at a path that worked.
#[test]
fn a_request_without_an_acknowledgement_says_that_a_firewall_drops_it() {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return };
    let (near, far) = (lab.host(0), lab.host(1));
    let words = ["write_bw", "-D", "50", "-P", "18515"];
    let mut serving = far.start(far.command(PROGRAM).args(words));
    while !serving.line().expect("the server waits").contains("Waiting for client") {}
    let mut command = near.command(PROGRAM);
    command.args(words).args(["-S", &far.address().to_string()]).env("URMA_LOG", "warn");
    let mut client = near.start(&mut command);
    while !client.line().expect("the client connects").contains("BW average") {}
    // The table of the host's own addresses comes first, unless it is moved.
    far.ip(&[
        "rule add pref 10 lookup local",
        "rule add pref 5 ipproto udp dport 4791 blackhole",
        "rule del pref 0",
    ]);
    let ended = client.end();
    drop(serving);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    // The log asks once for all requests; the program may end before it has its answer.
    let line = "requests to node 10.80.0.2 ended without an acknowledgement (status 9): firewall: ";
    assert!(ended.stderr.matches(line).count() <= 1, "{ended:?}");
    let error = ended.stderr.lines().find(|line| line.starts_with("urma_perftest: "));
    says(error.expect("an error"), "firewall", &["10.80.0.2"]);
}
