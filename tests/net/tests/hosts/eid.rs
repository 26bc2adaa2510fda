//! The EID of a node that is opened without one.

use std::net::{IpAddr, UdpSocket};

use ubcore_sim::{
    EidSource, Node, NodeCfg,
    host::{eid_ip, peer::PathChoice},
};
use urma_net::{Host, Lab, LabPlan};
use urma_tests::world::{Outcome, same, until};

use crate::traffic::{between, moved, opened};

/// As a program opens a node without any setting.
fn unset() -> NodeCfg {
    NodeCfg { eid_source: EidSource::HostIfFree, ..NodeCfg::default() }
}

/// The EID of a node that is opened on `host` and closed again.
fn eid_on(host: &Host) -> IpAddr {
    host.run(|| eid_ip(Node::open(unset()).unwrap().eid()))
}

#[test]
fn the_eid_of_a_host_with_one_address_is_that_address() -> Outcome {
    for plan in [LabPlan::cable(1500), LabPlan::cable(1500).v6()] {
        let Some(lab) = Lab::or_skip(plan) else { return Ok(()) };
        let (a, b) = (opened(lab.host(0), unset())?, opened(lab.host(1), unset())?);
        same("EID", eid_ip(a.node().eid()), lab.host(0).address())?;
        same("EID", eid_ip(b.node().eid()), lab.host(1).address())?;
        moved(&mut between(&a, &b, 4096)?, 64)?;
    }
    Ok(())
}

#[test]
fn of_several_addresses_the_default_route_chooses_and_none_is_random() {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500).ports(2)) else { return };
    let host = lab.host(0);
    assert_eq!(eid_on(host), host.addresses()[0]);
    let far = lab.host(1).addresses()[1];
    host.ip(&[&format!("route add default via {far}")]);
    assert_eq!(eid_on(host), host.addresses()[1], "the default route leaves by the second port");
    host.ip(&["link set port1 down"]);
    assert_eq!(eid_on(host), host.addresses()[0], "an interface that is down has no say");
    host.ip(&["link set port0 down"]);
    assert!(eid_on(host).is_loopback());
    let refused = host.run(|| Node::open(NodeCfg { eid_source: EidSource::Host, ..unset() }));
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("no address") && error.contains("URMA_EID"), "{error}");
}

#[test]
fn a_second_program_of_a_host_has_a_random_eid_and_both_exchange_requests() -> Outcome {
    for path in [PathChoice::Auto, PathChoice::Packets] {
        // Hosts of its own: a process that another test starts may hold closed sockets for a moment.
        let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return Ok(()) };
        let host = lab.host(0);
        let cfg = NodeCfg { path, ..unset() };
        let (first, second) = (opened(host, cfg.clone())?, opened(host, cfg)?);
        same("EID of the first", eid_ip(first.node().eid()), host.address())?;
        same("whether the second's is loopback", eid_ip(second.node().eid()).is_loopback(), true)?;
        moved(&mut between(&first, &second, 4096)?, 64)?;
        moved(&mut between(&second, &first, 4096)?, 64)?;
        let wanted = NodeCfg { eid_source: EidSource::Host, ..NodeCfg::default() };
        let error = host.run(|| Node::open(wanted)).unwrap_err().to_string();
        let named = [&*host.address().to_string(), &*std::process::id().to_string(), "ubcored"];
        for word in named {
            assert!(error.contains(word), "no {word} in: {error}");
        }
    }
    Ok(())
}

#[test]
fn a_node_without_packets_leaves_the_hosts_address_free() {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return };
    let cfg = NodeCfg { path: PathChoice::SameHost, ..unset() };
    let node = lab.host(0).run(|| Node::open(cfg)).unwrap();
    assert!(eid_ip(node.eid()).is_loopback());
    assert_eq!(eid_on(lab.host(0)), lab.host(0).address());
}

#[test]
fn a_taken_port_names_its_process_and_leaves_the_host_working() -> Outcome {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return Ok(()) };
    let host = lab.host(0);
    let taken = host.run(|| UdpSocket::bind((host.address(), 4791)))?;
    let (first, second) = (opened(host, unset())?, opened(host, unset())?);
    let refused = first.node().packets_refused().unwrap_or_default();
    let owner = format!("process {}", std::process::id());
    assert!(refused.contains("4791") && refused.contains(&owner), "{refused}");
    moved(&mut between(&first, &second, 4096)?, 64)?;
    drop(taken);
    let bind = || UdpSocket::bind((host.address(), 4791)).ok().map(drop);
    until("the port is free again", || Ok(host.run(bind)))?;
    let far = opened(lab.host(1), unset())?;
    moved(&mut between(&first, &far, 4096)?, 64)
}
