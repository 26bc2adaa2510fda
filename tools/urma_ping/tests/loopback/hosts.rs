//! Pings between hosts, without any setting.

use std::net::UdpSocket;

use urma_net::{HANG, Host, Lab, LabPlan, Process, refuse_version};

use super::PROGRAM;

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
