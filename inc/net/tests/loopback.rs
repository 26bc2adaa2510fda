//! Switches and hosts on addresses of the loopback interface: real datagrams, threads and time.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]
#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use inc::control::{
    CommunicatorId, EdgeEnds, HostCommand, ResumePlan, SwitchCommand, SwitchReport, TreeLife,
    TreePart, TreeStart,
};
use inc::edge::{EdgeAttributes, EdgeEnd};
use inc::element::{ElementType, Operator, Reduction};
use inc::host::{HostMemberCfg, MemberId};
use inc::slots::Child;
use inc::switch::SwitchLimits;
use inc::wire::{Collective, Rank, Seq, TreeEpoch};
use inc_net::drive::{LinkAccess, LinkLoss};
use inc_net::host::LocalHost;
use inc_net::switch::LocalSwitch;

const HANG: Duration = Duration::from_secs(60);
const LIMITS: SwitchLimits = SwitchLimits { memory: 1 << 30, communicators: 100 };
const LIFE: TreeLife = TreeLife { communicator: CommunicatorId(1), epoch: TreeEpoch(0) };

struct Tree {
    /// The root, then the leaves.
    switches: Vec<(LocalSwitch, Receiver<SwitchReport>)>,
    hosts: Vec<(LocalHost, MemberId)>,
}

fn address(net: u8, at: usize) -> SocketAddr {
    SocketAddr::from(([127, 43, net, u8::try_from(at).unwrap()], 4791))
}

impl Tree {
    /// Hosts below a root, or below leaves of it.
    fn new(net: u8, hosts: u16, leaves: usize, attributes: EdgeAttributes) -> Self {
        let switch = |at| {
            let (give, take) = channel();
            let on_report = Box::new(move |report| give.send(report).unwrap());
            (LocalSwitch::bind(address(net, at), LinkAccess::Udp, LIMITS, on_report).unwrap(), take)
        };
        let switches: Vec<_> = (1..2 + leaves).map(switch).collect();
        let mut ends = Vec::new();
        let host = |rank: u16| {
            let host =
                LocalHost::bind(address(net, 100 + usize::from(rank)), LinkAccess::Udp).unwrap();
            let cfg = HostMemberCfg {
                rank: Rank(rank),
                attributes,
                address: host.address(),
                bound_ns: 30_000_000_000,
            };
            let (id, end) = host.join(cfg, Box::new(|report| panic!("{report:?}"))).unwrap();
            ends.push(end);
            (host, id)
        };
        let hosts: Vec<_> = (0..hosts).map(host).collect();
        let ranks: Vec<Rank> = (0..hosts.len()).map(|r| Rank(u16::try_from(r).unwrap())).collect();
        let install = |at: usize, children: Vec<Child>, has_parent: bool| {
            let (switch, reports) = &switches[at];
            let children = children.into_iter().map(|child| (child, switch.address())).collect();
            let parent = has_parent.then_some(switch.address());
            let part = TreePart { attributes, tenant: 0, children, parent };
            switch.on_command(SwitchCommand::Install(LIFE, part));
            let Ok(SwitchReport::Installed(_, ends)) = reports.recv_timeout(HANG) else { panic!() };
            ends
        };
        let start = |rank: &Rank, parent: EdgeEnd| {
            let (host, id) = &hosts[usize::from(rank.0)];
            let plan = ResumePlan { first: Seq(5), owners: Vec::new() };
            let start = TreeStart { parent: Some(parent), without: None, plan };
            host.on_command(*id, HostCommand::Start(LIFE, start));
            ends[usize::from(rank.0)]
        };
        let hosts_of = |some: &[Rank]| some.iter().map(|rank| Child::Host(*rank)).collect();
        let mut tops = Vec::new();
        if leaves == 0 {
            let root = install(0, hosts_of(&ranks), false);
            tops.extend(ranks.iter().zip(&root.children).map(|(rank, end)| start(rank, *end)));
        } else {
            let parts: Vec<_> = ranks.chunks(ranks.len().div_ceil(leaves)).collect();
            let below = |part: &&[Rank]| Child::Switch(part.to_vec());
            let root = install(0, parts.iter().map(below).collect(), false);
            for (nth, part) in parts.iter().enumerate() {
                let mine = install(1 + nth, hosts_of(part), true);
                let children = part.iter().zip(&mine.children);
                let children = children.map(|(rank, end)| start(rank, *end)).collect();
                let ends = EdgeEnds { children, parent: Some(root.children[nth]) };
                switches[1 + nth].0.on_command(SwitchCommand::Start(LIFE, Seq(5), ends));
                tops.push(mine.parent.unwrap());
            }
        }
        let ends = EdgeEnds { children: tops, parent: None };
        switches[0].0.on_command(SwitchCommand::Start(LIFE, Seq(5), ends));
        Self { switches, hosts }
    }

    /// Every station loses so many of a million datagrams.
    fn lose(&self, ppm: u32) {
        for (seed, (switch, _)) in (1..).zip(&self.switches) {
            switch.set_loss(LinkLoss { ppm, seed });
        }
        for (seed, (host, _)) in (100..).zip(&self.hosts) {
            host.set_loss(LinkLoss { ppm, seed });
        }
    }

    /// All ranks call an operation so many times, each in a thread of its own; the times of rank 0.
    fn allreduce(&self, count: usize, times: usize) -> Vec<Duration> {
        let reduction = Reduction::new(Operator::Sum, ElementType::I32).unwrap();
        let ranks = i32::try_from(self.hosts.len()).unwrap();
        let one = |rank: i32, host: &LocalHost, id: MemberId| {
            let value = |at: i32| at.wrapping_mul(3) + rank;
            let all = 0..i32::try_from(count).unwrap();
            let input: Vec<u8> = all.clone().flat_map(|at| value(at).to_le_bytes()).collect();
            let sum = |at: i32| ranks * at.wrapping_mul(3) + ranks * (ranks - 1) / 2;
            let wanted: Vec<u8> = all.flat_map(|at| sum(at).to_le_bytes()).collect();
            let call = |_| {
                let start = Instant::now();
                let collective = Collective::Allreduce(reduction);
                let operation = host.submit(id, collective, &input).unwrap();
                let result = host.wait(id, operation, HANG).unwrap().unwrap();
                let took = start.elapsed();
                assert!(*result == wanted, "rank {rank}, {count} elements");
                took
            };
            (0..times).map(call).collect::<Vec<_>>()
        };
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (rank, (host, id)) in (0..).zip(&self.hosts) {
                threads.push(scope.spawn(move || one(rank, host, *id)));
            }
            let mut all = threads.into_iter().map(|thread| thread.join().unwrap());
            let first = all.next().unwrap();
            all.for_each(drop);
            first
        })
    }
}

#[test]
fn eight_hosts_below_three_switches_get_the_sum() {
    let tree = Tree::new(1, 8, 2, EdgeAttributes::DEFAULT);
    for count in [1, 1000, 200_000] {
        tree.allreduce(count, 3);
    }
    for (switch, reports) in &tree.switches {
        let view = switch.view();
        assert_eq!(view.parts[0].counts.violations, 0, "{view:?}");
        assert!(reports.try_recv().is_err());
        switch.on_command(SwitchCommand::Remove(LIFE.communicator));
        let view = switch.view();
        assert_eq!((view.memory, view.edges, view.parts.len()), (0, 0, 0));
    }
}

#[test]
fn a_lost_datagram_in_a_hundred_changes_no_sum() {
    let tree = Tree::new(5, 4, 2, EdgeAttributes::DEFAULT);
    tree.lose(10_000);
    for count in [1, 1000, 200_000] {
        tree.allreduce(count, 10);
    }
    let repeats: u64 = tree.switches.iter().map(|(s, _)| s.view().port.repeats).sum();
    assert!(repeats > 0, "something was lost");
}

/// `cargo test --release -p inc-net --test loopback measure -- --ignored --nocapture`
#[test]
#[ignore = "a measurement; prints times"]
fn measure() {
    for (net, hosts) in [(2, 2), (3, 4), (4, 8)] {
        let tree = Tree::new(net, hosts, 0, EdgeAttributes::DEFAULT);
        let median = |ppm| {
            tree.lose(ppm);
            let mut times = tree.allreduce(256 << 10, 50);
            times.sort_unstable();
            times[times.len() / 2]
        };
        let (all, lossy) = (median(0), median(10_000));
        println!("n={hosts}  1 MiB: {all:?}, with 1 % loss {lossy:?}");
        tree.lose(0);
        for (count, times) in
            [(1, 3000), (256, 3000), (1024, 2000), (16 << 10, 500), (256 << 10, 50)]
        {
            let mut times = tree.allreduce(count, times);
            times.sort_unstable();
            let at = |part: usize| times[(times.len() - 1) * part / 100];
            println!("n={hosts} {:8} B: p50 {:?}, p90 {:?}", 4 * count, at(50), at(90));
        }
    }
}
