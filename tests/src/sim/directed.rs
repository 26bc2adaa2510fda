//! Scenarios in virtual time in which seeds found a fault, without a seed.

use std::sync::Arc;

use ubcore_sim::PortMode;
use ubcore_sim::link::{Cut, Outage};
use ubcore_sim::sim::{Fabric, FabricCfg, HostSharing, port_address};
use udma_abi::counters::Counter;
use urma_core::{Completion, CrStatus, JettyState, SendOp, SendWr};

use super::node::{Lane, Program, area_offset, at};

const MAIN: usize = Lane::Main as usize;
/// Longest virtual time for a completion, in ns.
const BOUND_NS: u64 = 60_000_000_000;

/// Two nodes that imported each other.
fn two(paths: HostSharing) -> (Arc<Fabric>, [Program; 2]) {
    two_in(FabricCfg::new(1, 2, paths))
}

fn two_in(cfg: FabricCfg) -> (Arc<Fabric>, [Program; 2]) {
    let fabric = Fabric::new(cfg).expect("memory");
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

const MS: u64 = 1_000_000;
/// Virtual times between which a port is pulled, and until which requests go on then.
const PULLED: [u64; 2] = [200 * MS, 600 * MS];
/// Requests go on from here.
const BEGIN: u64 = 195 * MS;
const FAILED_BY: u64 = 310 * MS;
/// Between these the preferred port is tried again.
const RETURNED: [u64; 2] = [1_150 * MS, 1_300 * MS];

/// FETCH_ADDs of node 0 on a word of node 1, so many at a time.
#[derive(Debug, Default)]
struct Stream {
    depth: u64,
    posted: u64,
    done: u64,
    last: u64,
}

impl Stream {
    /// Goes on until then; the longest time between two completions.
    fn run(&mut self, fabric: &Fabric, program: &mut Program, until: u64) -> u64 {
        let mut longest = 0;
        let mut found = [Completion::default(); 16];
        while fabric.now() < until {
            let count = program.jfcs[0].poll(&mut found).expect("a poll");
            for completion in &found[..count] {
                self.check(program, completion);
                longest = longest.max(fabric.now() - self.last);
                self.last = fabric.now();
            }
            while self.posted < self.done + self.depth {
                self.post(program, self.posted);
                self.posted += 1;
            }
            fabric.step_nodes();
        }
        longest
    }

    fn slot(&self, number: u64) -> usize {
        usize::try_from(number % self.depth).expect("few")
    }

    fn post(&self, program: &mut Program, number: u64) {
        let peer = program.view.peers[1].as_ref().expect("imported");
        let result = program.view.sge(self.slot(number), 0, 8);
        let target = at(&peer.segment, area_offset(0, Lane::Main));
        let op = SendOp::FetchAdd { result, target, value: 1 };
        let wr = SendWr::new(op, &peer.targets[MAIN], number);
        program.jetties[MAIN].post_send(&[wr]).expect("posted");
    }

    /// In order, and none executed twice or not at all.
    fn check(&mut self, program: &Program, completion: &Completion) {
        assert_eq!((completion.status, completion.user_ctx), (CrStatus::Success, self.done));
        let old = program.view.slot_word(self.slot(self.done)).expect("memory");
        assert_eq!(old, self.done);
        self.done += 1;
    }
}

/// A port is pulled under load and joined again, at either node: requests go on by the other one within 10 ms, and
/// come back without a pause; each is executed once.
#[test]
fn a_pulled_port_costs_a_moment_and_its_return_nothing() {
    let backup = PortMode::ActiveBackup;
    for (node, depth, mode) in [(0, 1, backup), (1, 16, backup), (1, 16, PortMode::Balance)] {
        let mut cfg = FabricCfg::new(1, 2, HostSharing::Packets).with_ports(2);
        cfg.devices.iter_mut().for_each(|device| device.port_mode = mode);
        // What is posted after a quiet time is not seen before the next jump.
        cfg.jump_ns = MS / 50;
        let [from, until] = PULLED;
        cfg.faults.outages = vec![Outage::of(Cut::Address(port_address(node, 0)), from, until)];
        let (fabric, [mut a, b]) = two_in(cfg);
        let count = |counter| [0, 1].map(|n| fabric.device(n).counter(counter));
        let _ = fabric.run_until(BEGIN - fabric.now(), || false);
        let mut stream = Stream { depth, last: fabric.now(), ..Stream::default() };
        let before = stream.run(&fabric, &mut a, from);
        assert!(before < MS, "{before} ns");
        let gap = stream.run(&fabric, &mut a, FAILED_BY);
        assert_eq!(count(Counter::PortFailed), [1, 1]);
        let _ = fabric.run_until(RETURNED[0] - fabric.now(), || false);
        stream.last = fabric.now();
        assert_eq!(count(Counter::PortReturned), [0, 0]);
        let back = stream.run(&fabric, &mut a, RETURNED[1]);
        println!(
            "{mode:?}, port of {node} pulled, {depth} at a time: {gap} ns, and {back} ns when it is back"
        );
        // A move by a handshake would take 15 ms and more.
        assert!((MS..10 * MS).contains(&gap) && back < MS, "{gap} ns, {back} ns");
        assert_eq!((count(Counter::PortFailed), count(Counter::PortReturned)), ([1, 1], [1, 1]));
        let area = b.view.area(0, Lane::Main).expect("memory");
        let counted = area.first_chunk().map(|word| u64::from_le_bytes(*word));
        assert!(counted.is_some_and(|counted| (stream.done..=stream.posted).contains(&counted)));
    }
}

/// WRITEs of 16 KiB from node 0 to node 1 for a while, over cables of 125 MB/s each: bytes a second, and those that left
/// each port of node 0.
fn rate(mode: PortMode) -> (u64, [u64; 2]) {
    let mut cfg = FabricCfg::new(1, 2, HostSharing::Packets).with_ports(2);
    cfg.faults.bytes_per_second = 125_000_000;
    cfg.faults.queue_bytes = 1 << 22;
    cfg.devices.iter_mut().for_each(|device| device.port_mode = mode);
    let (fabric, [mut a, b]) = two_in(cfg);
    let (from, mut done, mut posted) = (fabric.now(), 0, 0);
    let mut found = [Completion::default(); 16];
    while fabric.now() < from + 200 * MS {
        let count = a.jfcs[0].poll(&mut found).expect("a poll");
        assert!(found[..count].iter().all(|one| one.status == CrStatus::Success));
        done += count as u64;
        while posted < done + 24 {
            let peer = a.view.peers[1].as_ref().expect("imported");
            let src = [a.view.sge(0, 0, CHUNK)];
            let target = at(&peer.segment, area_offset(0, Lane::Main));
            let wr =
                SendWr::new(SendOp::Write { src: &src, dst: target }, &peer.targets[MAIN], posted);
            a.jetties[MAIN].post_send(&[wr]).expect("posted");
            posted += 1;
        }
        fabric.step_nodes();
    }
    let paths = fabric.device(0).look().paths;
    let routes = &paths.iter().find(|path| path.eid == port_address(1, 0)).expect("a path").routes;
    let sent = [0, 1].map(|port| {
        let of_port = routes.iter().filter(|route| route.port == port);
        of_port.map(|route| route.sent_bytes).sum()
    });
    drop(b);
    (done * CHUNK as u64 * 1_000_000_000 / (fabric.now() - from), sent)
}

const CHUNK: usize = 16 << 10;

/// Two cables carry twice as much as one, for one pair of jetties too.
#[test]
fn balance_takes_the_rate_of_both_cables() {
    let (one, [first, second]) = rate(PortMode::ActiveBackup);
    assert!(second < first / 1000, "{first}, {second}");
    let (both, [first, second]) = rate(PortMode::Balance);
    println!("{one} B/s as active-backup, {both} B/s balanced: {first} and {second} bytes by port");
    assert!(both > one * 19 / 10, "{one}, {both} B/s");
    assert!(first.abs_diff(second) < first / 10, "{first}, {second}");
}
