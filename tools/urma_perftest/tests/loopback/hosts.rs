//! Pairs between hosts, and of one host, without any setting.

use serde_json::Value;
use urma_net::{Host, Lab, LabPlan};

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
