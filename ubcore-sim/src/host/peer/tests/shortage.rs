//! A process without descriptors or memory: no peer is blamed, and it works again afterwards.
//!
//! Limits hold for a whole process: each test runs in a process of its own.

use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

const ALONE: &str = "URMA_TEST_ALONE";

/// Runs `body` in a process of its own: this test, started again.
fn alone(test: &str, body: impl FnOnce()) {
    if std::env::var(ALONE).is_ok_and(|name| name == test) {
        return body();
    }
    let name = format!("host::peer::tests::shortage::{test}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &name, "--nocapture"]).env(ALONE, test);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{output:?}");
}

/// Takes all descriptors but `left`.
fn fill(left: usize) -> Vec<OwnedFd> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), ..limit }).unwrap();
    let open = || std::fs::File::open("/dev/null").ok().map(OwnedFd::from);
    let mut files: Vec<_> = std::iter::from_fn(open).take(1000).collect();
    files.truncate(files.len() - left);
    files
}

#[test]
fn connections_wait_without_work_until_there_are_descriptors() {
    alone("connections_wait_without_work_until_there_are_descriptors", || {
        let mut a = Side::auto();
        let liar = Liar::connect(&a);
        let full = fill(0);
        let (mut now, mut wakeups) = (0, 0);
        while now < 10_000_000_000 && wakeups < 1000 {
            a.poll.wait(&mut a.ready, Some(Duration::ZERO)).unwrap();
            if a.ready.keys().count() == 0 {
                now = a.peers.poll_deadline(now).expect("a pause ends");
            }
            a.turn(now);
            wakeups += 1;
        }
        assert!((10..60).contains(&wakeups), "{wakeups} in 10 s");
        assert!((10..60).contains(&a.peers.shortages()), "{}", a.peers.shortages());
        drop(full);
        a.turn(a.peers.poll_deadline(now).unwrap());
        let hello = liar.hello(&a);
        assert_eq!(liar.say(&mut a, &hello, &liar.fds()), Some(HelloKind::Accept));
        // The next connection does not have to wait.
        let second = Liar::connect(&a);
        let hello = second.hello(&a);
        assert_eq!(second.say(&mut a, &hello, &second.fds()), Some(HelloKind::Accept));
        assert_eq!(a.peers.lies(), 0);
    });
}

#[test]
fn an_offer_without_room_for_its_descriptors_is_no_lie() {
    alone("an_offer_without_room_for_its_descriptors_is_no_lie", || {
        // Few descriptors end in the receiving call, more of them in what is made or mapped later.
        for left in 0..FDS + 3 {
            let mut a = Side::auto();
            let liar = Liar::connect(&a);
            a.turn(0);
            let hello = liar.hello(&a);
            hello::send(&liar.socket, &hello, &liar.fds()).unwrap();
            let full = fill(left);
            a.turn(0);
            drop(full);
            let answer = hello::receive(&liar.socket).unwrap().hello.kind;
            let expected = if a.links() == 1 {
                HelloKind::Accept
            } else {
                HelloKind::Refuse(SharingRefusal::NoResources)
            };
            assert_eq!((answer, a.peers.lies()), (expected, 0), "{left} descriptors left");
            assert_eq!(a.peers.shortages(), u64::from(a.links() == 0), "{left} descriptors left");
            assert!(left > 2 || a.links() == 0, "{left} descriptors left");
        }
    });
}

#[test]
fn an_answer_without_room_for_its_descriptors_is_no_lie() {
    alone("an_answer_without_room_for_its_descriptors_is_no_lie", || {
        for left in 0..FDS {
            let (mut a, mut b) = (Side::auto(), Side::auto());
            a.peers.find(0, b.eid());
            b.turn(0);
            b.turn(0);
            let full = fill(left);
            a.turn(0);
            drop(full);
            assert!(matches!(a.seen[..], [PeerEvent::Packets { .. }]), "{:?}", a.seen);
            // One in the receiving call; one in accepting the connection that looks up this node's owner.
            assert!(a.peers.lies() == 0 && (1..=2).contains(&a.peers.shortages()));
            let look = a.peers.look();
            assert!(look[0].why_not_faster.unwrap().contains("out of descriptors"), "{look:?}");
        }
    });
}

#[test]
fn without_descriptors_packets_are_used_and_the_reason_is_kept() {
    alone("without_descriptors_packets_are_used_and_the_reason_is_kept", || {
        for left in 0..3 {
            let (mut a, b) = (Side::auto(), Side::auto());
            let full = fill(left);
            a.peers.find(0, b.eid());
            drop(full);
            step_all(&mut [&mut a], 1);
            assert!(matches!(a.seen[..], [PeerEvent::Packets { .. }]), "{left}: {:?}", a.seen);
            assert_eq!((a.peers.lies(), a.peers.shortages()), (0, 1), "{left}");
            let look = a.peers.look();
            assert!(look[0].why_not_faster.unwrap().contains("out of descriptors"), "{look:?}");
        }
    });
}

#[test]
fn memory_that_cannot_be_mapped_is_no_lie() {
    alone("memory_that_cannot_be_mapped_is_no_lie", || {
        let mut a = Side::auto();
        let liar = Liar::connect(&a);
        let hello = liar.hello(&a);
        let limit = getrlimit(Resource::As);
        // An arena is a mapping of 1 TiB.
        setrlimit(Resource::As, Rlimit { current: Some(64 << 30), ..limit }).unwrap();
        let answer = liar.say(&mut a, &hello, &liar.fds());
        setrlimit(Resource::As, limit).unwrap();
        assert_eq!(answer, Some(HelloKind::Refuse(SharingRefusal::NoResources)));
        assert_eq!((a.peers.lies(), a.peers.shortages(), a.links()), (0, 1, 0));
    });
}

#[test]
fn a_peer_that_is_short_is_reached_by_packets() {
    let mut a = Side::auto();
    let claim = Claim::random().unwrap();
    a.peers.find(0, claim.eid());
    let socket = claim.accept().unwrap().unwrap();
    let offer = hello::receive(&socket).unwrap();
    let kind = HelloKind::Refuse(SharingRefusal::NoResources);
    hello::send(&socket, &Hello { kind, ..offer.hello }, &[]).unwrap();
    step_all(&mut [&mut a], 3);
    assert!(matches!(a.seen[..], [PeerEvent::Packets { .. }]));
    let look = a.peers.look();
    assert!(look[0].why_not_faster.unwrap().contains("other process was out of"), "{look:?}");
}
