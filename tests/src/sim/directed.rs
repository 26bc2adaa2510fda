//! Scenarios in virtual time in which seeds found a fault, without a seed.

use std::sync::Arc;

use ubcore_sim::sim::{Fabric, FabricCfg, HostSharing};
use urma_core::{Completion, CrStatus, JettyState, SendOp, SendWr};

use super::node::{Lane, Program};

const MAIN: usize = Lane::Main as usize;
/// Longest virtual time for a completion, in ns.
const BOUND_NS: u64 = 60_000_000_000;

/// Two nodes that imported each other.
fn two(paths: HostSharing) -> (Arc<Fabric>, [Program; 2]) {
    let fabric = Fabric::new(FabricCfg::new(1, 2, paths)).expect("memory");
    let open = |number| Program::open(&fabric, number, 2, 17).expect("a program");
    let mut programs = [open(0), open(1)];
    introduce(&mut programs, 0);
    (fabric, programs)
}

/// Imports afresh; node `first` imports first.
fn introduce(programs: &mut [Program; 2], first: usize) {
    let faces = [programs[0].face(), programs[1].face()];
    for me in [first, 1 - first] {
        programs[me].view.peers[1 - me] = None;
        programs[me].meet(me, 1 - me, &faces[1 - me]).expect("an import");
    }
}

/// Posts SEND `number` of node 0 to node 1.
fn send(program: &mut Program, number: u64) {
    let peer = program.view.peers[1].as_ref().expect("imported");
    let src = [program.view.sge(0, 0, 8)];
    let wr = SendWr::new(SendOp::Send { src: &src }, &peer.targets[MAIN], number);
    program.jetties[MAIN].post_send(&[wr]).expect("posted");
}

/// The next completion of JFC `jfc`, other than that a suspend is done.
fn next(fabric: &Fabric, program: &mut Program, jfc: usize) -> Completion {
    let mut found = [Completion::default()];
    fabric.run_until(BOUND_NS, || {
        let count = program.jfcs[jfc].poll(&mut found).expect("a poll");
        count == 1 && found[0].status != CrStatus::WrSuspendDone
    });
    found[0]
}

/// A request that was not started when its target died ends as one that was: the path is gone, the
/// jetty goes on, and the next life of the target does not receive it.
#[test]
fn requests_to_a_former_life_end_and_their_jetty_goes_on() {
    // On one host a peer's import fails or finds the dead node until the hang-up is noticed.
    for (paths, first) in
        [(HostSharing::SameHost, 1), (HostSharing::Packets, 1), (HostSharing::Packets, 0)]
    {
        let (fabric, [mut a, b]) = two(paths);
        a.jetties[MAIN].modify(JettyState::Suspended).expect("suspended");
        send(&mut a, 1);
        send(&mut a, 2);
        fabric.kill(1);
        fabric.restart(1).expect("memory");
        let b_again = Program::open(&fabric, 1, 2, 17).expect("a program");
        let mut programs = [a, b_again];
        introduce(&mut programs, first);
        let [a, b_again] = &mut programs;
        assert_eq!(b_again.post_receive(Lane::Main, 0, 0), Ok(true));
        a.jetties[MAIN].modify(JettyState::Ready).expect("ready");
        send(a, 3);
        for (number, status) in
            [(1, CrStatus::AckTimeout), (2, CrStatus::AckTimeout), (3, CrStatus::Success)]
        {
            let done = next(&fabric, a, 0);
            assert_eq!((done.user_ctx, done.status), (number, status), "{paths:?}, {first} first");
        }
        let received = next(&fabric, b_again, 1);
        assert_eq!(received.status, CrStatus::Success, "{paths:?}, {first} first");
        assert_eq!(a.jetties[MAIN].query().expect("a state").state, JettyState::Ready);
        drop((programs, b));
    }
}
