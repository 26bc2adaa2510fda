//! The hosts themselves: what joins them, processes on them, what is left of them.

use std::{fs, net::UdpSocket, os::fd::AsRawFd, panic, time::Duration};

use nix::sys::socket::{setsockopt, sockopt};
use urma_net::{Family, Host, Lab, LabPlan, Namespace};

/// Whether one of `tries` datagrams of `len` bytes arrives.
fn is_passed(lab: &Lab, len: usize, tries: usize) -> bool {
    let bind = |host: usize| {
        let address = lab.host(host).address();
        lab.host(host).run(|| UdpSocket::bind((address, 0)).unwrap())
    };
    let (a, b) = (bind(0), bind(1));
    b.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    (0..tries).any(|_| {
        // What is sent while a port has no carrier is an error or a loss.
        let _ = a.send_to(&vec![7; len], b.local_addr().unwrap());
        b.recv(&mut [0; 1 << 16]).is_ok_and(|got| got == len)
    })
}

/// A bridge takes up to a second to see that a port is joined again.
const TRIES: usize = 1000;

#[test]
fn every_shape_and_family_joins_all_hosts() {
    for plan in [LabPlan::cable(1500), LabPlan::bridge(2, 1500), LabPlan::router(2, 1500)] {
        for plan in [plan, plan.v6()] {
            let Some(lab) = Lab::or_skip(plan) else { return };
            assert!(is_passed(&lab, 1000, TRIES), "{plan:?}");
            assert_eq!(lab.host(1).address().is_ipv6(), plan.family == Family::V6);
        }
    }
}

#[test]
fn a_pulled_port_loses_packets_until_it_is_joined_again() {
    for plan in [LabPlan::cable(1500), LabPlan::bridge(2, 1500)] {
        let Some(lab) = Lab::or_skip(plan) else { return };
        lab.pull(0, 0);
        assert!(!is_passed(&lab, 100, 10), "{plan:?}");
        lab.plug(0, 0);
        assert!(is_passed(&lab, 100, TRIES), "{plan:?}");
    }
}

#[test]
fn an_mtu_changes_while_the_port_is_used() {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return };
    assert!(is_passed(&lab, 1472, TRIES));
    lab.set_mtu(0, 0, 9000);
    assert!(is_passed(&lab, 8972, TRIES));
}

#[test]
fn a_path_that_loses_larger_packets_loses_those_of_runs() {
    // The far end of the first host's cable is the second host, that of the second one's the bridge.
    for (plan, of) in [(LabPlan::cable(1500), 0), (LabPlan::bridge(2, 1500), 1)] {
        let Some(lab) = Lab::or_skip(plan) else { return };
        lab.set_far_mtu(of, 0, 250);
        let bind = |host: &Host| host.run(|| UdpSocket::bind((host.address(), 0)).unwrap());
        let (a, b) = (bind(lab.host(0)), bind(lab.host(1)));
        b.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        assert!(is_passed(&lab, 200, TRIES), "{plan:?}");
        if setsockopt(&a, sockopt::UdpGsoSegment, &300).is_err() {
            return urma_skip::skip("the kernel sends no runs of datagrams");
        }
        for _ in 0..10 {
            a.send_to(&[7; 600], b.local_addr().unwrap()).unwrap();
            let received = b.recv(&mut [0; 1000]);
            assert!(received.is_err(), "{plan:?}: {received:?} bytes");
        }
    }
}

#[test]
fn a_process_of_a_host_ends_with_its_value_and_the_namespace_with_a_panic() {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return };
    let mut shell = lab.host(0).command("sh");
    let mut process =
        lab.host(0).start(shell.args(["-c", "ls /sys/class/net; echo $$; sleep 600"]));
    assert_ne!(process.line().as_deref(), None);
    let file = format!("/proc/{}/stat", process.id());
    let namespace = fs::read_link(format!("/proc/{}/ns/net", process.id())).unwrap();
    assert_ne!(
        fs::read_link("/proc/self/ns/net").unwrap(),
        namespace,
        "a host is none of the test's"
    );
    assert!(fs::exists(&file).unwrap());
    drop(process);
    assert!(!fs::exists(&file).unwrap());
    let panicked = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        let lab = lab;
        lab.host(1).run(|| panic!("as a test that fails"));
    }));
    assert!(panicked.is_err());
}

#[test]
fn a_thread_that_enters_a_namespace_is_not_the_calling_one() {
    let Ok(namespace) = Namespace::new() else { return urma_skip::skip("no namespaces") };
    let own = || fs::read_link("/proc/thread-self/ns/net").unwrap();
    let (before, inside) = (own(), namespace.run(own));
    assert_ne!(before, inside);
    assert_eq!(before, own());
    let socket = namespace.run(|| UdpSocket::bind("0.0.0.0:4791").unwrap());
    assert!(socket.as_raw_fd() >= 0);
}
