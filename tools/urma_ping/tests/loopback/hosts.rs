//! Pings between hosts, without any setting.

use urma_net::{Host, Lab, LabPlan, Process};

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
