//! Switches and hosts behind their addresses, on links that lose, double and reorder datagrams.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use inc::control::{
    CommunicatorId, EdgeEnds, HostCommand, HostReport, InstallError, ResumePlan, SwitchCommand,
    SwitchReport, TreeLife, TreePart, TreeStart,
};
use inc::edge::{EdgeAttributes, EdgeEnd, Framing, MessageMode, Reliability};
use inc::element::{ElementType, Operator, Reduction};
use inc::host::{Host, HostMemberCfg, MemberId};
use inc::member::OperationError;
use inc::slots::{Child, To};
use inc::switch::{Switch, SwitchLimits, memory_of};
use inc::wire::{AbortReason, Collective, Rank, Seq, TreeEpoch};
use urma_packet::IcrcFlow;

#[path = "support/random.rs"]
mod random;
#[path = "support/tree.rs"]
mod trees;

use random::Random;
use trees::Tree;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const LIMITS: SwitchLimits = SwitchLimits { memory: 1 << 30, communicators: 100 };
const ID: CommunicatorId = CommunicatorId(7);
const FIRST: Seq = Seq(u32::MAX - 20);

/// Small messages of three packets, so that all is seen in a short time.
const SMALL: EdgeAttributes =
    EdgeAttributes { path_mtu: 256, packets: 3, window: 8, ..EdgeAttributes::DEFAULT };

/// Links with one-way times of 1 to 20 us.
struct Net {
    random: Random,
    now: u64,
    flying: BTreeMap<(u64, u64), (SocketAddr, SocketAddr, Vec<u8>)>,
    flown: u64,
    /// The latest arrival between two stations.
    last: HashMap<(SocketAddr, SocketAddr), u64>,
    loss_ppm: u64,
    /// Stations whose datagrams go nowhere.
    cut: Vec<SocketAddr>,
}

struct World {
    net: Net,
    switches: Vec<Option<Switch>>,
    hosts: Vec<(Host, MemberId)>,
    /// Ends of the hosts' edges in the next life.
    ends: Vec<EdgeEnd>,
    attributes: EdgeAttributes,
    epoch: TreeEpoch,
    reports: Vec<(usize, SwitchReport)>,
    host_reports: Vec<(usize, HostReport)>,
}

fn switch_at(index: usize) -> SocketAddr {
    SocketAddr::from(([10, 1, 0, u8::try_from(index).unwrap()], 4791))
}

fn host_at(index: usize) -> SocketAddr {
    SocketAddr::from(([10, 2, 0, u8::try_from(index).unwrap()], 4791))
}

fn source_of(seed: u64) -> Box<dyn FnMut() -> u64 + Send> {
    let mut random = Random(seed);
    Box::new(move || random.next())
}

impl Net {
    fn send(&mut self, source: SocketAddr, dest: SocketAddr, bytes: &[u8]) {
        if self.random.is_one_of(self.loss_ppm) || self.cut.contains(&source) {
            return;
        }
        let copies = 1 + u64::from(self.random.is_one_of(self.loss_ppm));
        for _ in 0..copies {
            let mut at = self.now + 1000 + self.random.below(19_000);
            // A link keeps the order but seldom.
            if !self.random.is_one_of(self.loss_ppm) {
                let last = self.last.entry((source, dest)).or_default();
                at = at.max(*last + 1);
                *last = at;
            }
            self.flown += 1;
            self.flying.insert((at, self.flown), (source, dest, bytes.to_vec()));
        }
    }
}

impl World {
    fn new(seed: u64, hosts: usize, attributes: EdgeAttributes) -> Self {
        let net = Net {
            random: Random(seed),
            now: 0,
            flying: BTreeMap::new(),
            flown: 0,
            last: HashMap::new(),
            loss_ppm: 0,
            cut: Vec::new(),
        };
        let (mut all, mut ends) = (Vec::new(), Vec::new());
        for index in 0..hosts {
            let seed = seed << 8 | index as u64;
            let mut host = Host::new([seed, !seed].map(source_of));
            let rank = Rank(u16::try_from(index).unwrap());
            let cfg =
                HostMemberCfg { rank, attributes, address: host_at(index), bound_ns: 30 * SECOND };
            let (id, end) = host.join(0, cfg).unwrap();
            all.push((host, id));
            ends.push(end);
        }
        Self {
            net,
            switches: Vec::new(),
            hosts: all,
            ends,
            attributes,
            epoch: TreeEpoch(u16::MAX),
            reports: Vec::new(),
            host_reports: Vec::new(),
        }
    }

    const fn life(&self) -> TreeLife {
        TreeLife { communicator: ID, epoch: self.epoch }
    }

    /// Installs a tree on fresh switches, and starts it.
    fn plant(&mut self, tree: &Tree, plan: &ResumePlan) {
        let base = self.switches.len();
        let nodes = Node::all(tree);
        let life = self.life();
        let mine: Vec<EdgeEnds> = (base..)
            .zip(&nodes)
            .map(|(index, node)| {
                let mut switch = Switch::new(LIMITS, source_of(index as u64 + 1000));
                let part = self.part(base, index, node);
                switch.on_command(self.net.now, SwitchCommand::Install(life, part));
                let Some(SwitchReport::Installed(_, ends)) = switch.poll_report() else { panic!() };
                self.switches.push(Some(switch));
                ends
            })
            .collect();
        for (at, node) in nodes.iter().enumerate() {
            let mut children = Vec::new();
            for (nth, child) in node.children.iter().enumerate() {
                match child {
                    NodeChild::Host(rank) => {
                        children.push(self.ends[*rank]);
                        let parent = Some(mine[at].children[nth]);
                        let start = TreeStart { parent, without: None, plan: plan.clone() };
                        let (host, id) = &mut self.hosts[*rank];
                        host.on_command(self.net.now, *id, HostCommand::Start(life, start));
                    }
                    NodeChild::Switch(below) => children.push(mine[*below].parent.unwrap()),
                }
            }
            let parent = node.parent.map(|(above, nth)| mine[above].children[nth]);
            let start = SwitchCommand::Start(life, plan.first, EdgeEnds { children, parent });
            self.switches[base + at].as_mut().unwrap().on_command(self.net.now, start);
        }
        self.flush();
    }

    fn part(&self, base: usize, index: usize, node: &Node) -> TreePart {
        let child = |child: &NodeChild| match child {
            NodeChild::Host(rank) => Child::Host(Rank(u16::try_from(*rank).unwrap())),
            NodeChild::Switch(_) => Child::Switch(Vec::new()),
        };
        let mut children: Vec<_> =
            node.children.iter().map(|c| (child(c), switch_at(index))).collect();
        for ((of, _), ranks) in children.iter_mut().zip(&node.below) {
            if let Child::Switch(all) = of {
                all.clone_from(ranks);
            }
        }
        assert!(index >= base);
        let parent = node.parent.map(|_| switch_at(index));
        TreePart { attributes: self.attributes, tenant: 3, children, parent }
    }

    /// Sends all that stations have to send, and takes their reports.
    fn flush(&mut self) {
        let (now, mut buf) = (self.net.now, [0; 4096 + 128]);
        for (index, switch) in self.switches.iter_mut().enumerate() {
            let Some(switch) = switch else { continue };
            while let Some(datagram) = switch.poll_transmit(now, &mut buf) {
                self.net.send(datagram.source, datagram.dest, &buf[..datagram.len]);
            }
            while let Some(report) = switch.poll_report() {
                self.reports.push((index, report));
            }
        }
        for (index, (host, _)) in self.hosts.iter_mut().enumerate() {
            while let Some(datagram) = host.poll_transmit(now, &mut buf) {
                self.net.send(datagram.source, datagram.dest, &buf[..datagram.len]);
            }
            while let Some((_, report)) = host.poll_report() {
                self.host_reports.push((index, report));
            }
        }
    }

    /// The next event; `false`: there is none.
    fn step(&mut self) -> bool {
        let arrival = self.net.flying.keys().next().map(|(at, _)| *at);
        let switches = self.switches.iter().flatten().filter_map(Switch::poll_deadline);
        let hosts = self.hosts.iter().filter_map(|(host, _)| host.poll_deadline());
        let timer = switches.chain(hosts).min();
        let Some(at) = arrival.into_iter().chain(timer).min() else { return false };
        self.net.now = self.net.now.max(at);
        let now = self.net.now;
        if arrival.is_some_and(|arrival| arrival <= at) {
            let (_, (source, dest, bytes)) = self.net.flying.pop_first().unwrap();
            if let Some(index) = (0..self.switches.len()).find(|index| switch_at(*index) == dest) {
                if let Some(switch) = &mut self.switches[index] {
                    switch.on_datagram(now, source, &bytes);
                }
            } else if let Some(index) = (0..self.hosts.len()).find(|index| host_at(*index) == dest)
            {
                self.hosts[index].0.on_datagram(now, source, &bytes);
            }
        } else {
            self.switches.iter_mut().flatten().for_each(|switch| switch.on_time(now));
            self.hosts.iter_mut().for_each(|(host, _)| host.on_time(now));
        }
        self.flush();
        true
    }

    fn submit(&mut self, host: usize, collective: Collective, input: &[u8]) {
        let (host, id) = &mut self.hosts[host];
        host.submit(self.net.now, *id, collective, input).unwrap();
        self.flush();
    }

    /// The next results of all hosts.
    fn results(&mut self) -> Vec<Result<Vec<u8>, OperationError>> {
        let mut found: Vec<_> = self.hosts.iter().map(|_| None).collect();
        for _ in 0..4_000_000 {
            for (place, (host, id)) in found.iter_mut().zip(&mut self.hosts) {
                if place.is_none() {
                    *place = host.poll_finished(*id);
                }
            }
            if found.iter().all(Option::is_some) || !self.step() {
                break;
            }
        }
        let result = |finished: inc::member::Finished| finished.result.map(|all| all.to_vec());
        found.into_iter().map(|finished| result(finished.expect("all end"))).collect()
    }

    /// What the members have, and how they go on.
    fn prepare(&mut self) -> ResumePlan {
        self.epoch = TreeEpoch(self.epoch.0.wrapping_add(1));
        let life = self.life();
        let mut reports = Vec::new();
        for (rank, (host, id)) in self.hosts.iter_mut().enumerate() {
            host.on_command(self.net.now, *id, HostCommand::Prepare(life));
            let Some((_, HostReport::Chunks(of, report, end))) = host.poll_report() else {
                panic!()
            };
            assert_eq!(of, life);
            reports.push((Rank(u16::try_from(rank).unwrap()), report));
            self.ends[rank] = end;
        }
        ResumePlan::of(self.attributes.window, &reports).unwrap()
    }
}

enum NodeChild {
    Host(usize),
    Switch(usize),
}

/// A switch of a tree, by its place in the list of all.
struct Node {
    children: Vec<NodeChild>,
    below: Vec<Vec<Rank>>,
    /// The switch above, and which of its children this is.
    parent: Option<(usize, usize)>,
}

impl Node {
    fn all(tree: &Tree) -> Vec<Self> {
        fn walk(tree: &Tree, parent: Option<(usize, usize)>, all: &mut Vec<Node>) -> usize {
            let Tree::Switch(children) = tree else { unreachable!("a root is a switch") };
            let me = all.len();
            let below = children.iter().map(Tree::ranks).collect();
            all.push(Node { children: Vec::new(), below, parent });
            for (nth, child) in children.iter().enumerate() {
                let child = match child {
                    Tree::Host(rank) => NodeChild::Host(usize::from(*rank)),
                    Tree::Switch(_) => NodeChild::Switch(walk(child, Some((me, nth)), all)),
                };
                all[me].children.push(child);
            }
            me
        }
        let mut all = Vec::new();
        walk(tree, None, &mut all);
        all
    }
}

fn sum(element: ElementType) -> Reduction {
    Reduction::new(Operator::Sum, element).unwrap()
}

fn start() -> ResumePlan {
    ResumePlan { first: FIRST, owners: Vec::new() }
}

/// Two leaves with two hosts each below a root.
fn two_leaves() -> Tree {
    let leaf = |a, b| Tree::Switch(vec![Tree::Host(a), Tree::Host(b)]);
    Tree::Switch(vec![leaf(0, 1), leaf(2, 3)])
}

fn values(rank: usize, count: usize) -> Vec<u8> {
    let value = |at: usize| f32::from(u16::try_from(at * 7 + rank * 31).unwrap()) / 3.0;
    (0..count).flat_map(|at| value(at).to_le_bytes()).collect()
}

#[test]
fn all_modes_framings_and_reliabilities_give_the_exact_sum_on_bad_links() {
    let reduction = sum(ElementType::F32);
    let framings = [Framing::Inc, Framing::Plain(reduction)];
    let (modes, reliabilities) =
        ([MessageMode::Send, MessageMode::Write], [Reliability::Reliable, Reliability::Unreliable]);
    let mut refused = 0;
    for (nth, framing) in framings.into_iter().enumerate() {
        for (mode, reliability) in modes.into_iter().flat_map(|m| reliabilities.map(|r| (m, r))) {
            // A message without a header is counted: none may be lost.
            let is_plain = framing != Framing::Inc;
            if is_plain && reliability == Reliability::Unreliable {
                continue;
            }
            let attributes = EdgeAttributes { framing, mode, reliability, ..SMALL };
            let mut world = World::new(nth as u64 + 5, 4, attributes);
            let tree = two_leaves();
            world.plant(&tree, &start());
            world.net.loss_ppm = 30_000;
            for count in [1, 3000, 0, 777] {
                let inputs: Vec<_> = (0..4).map(|rank| values(rank, count)).collect();
                for (rank, input) in inputs.iter().enumerate() {
                    world.submit(rank, Collective::Allreduce(reduction), input);
                }
                let wanted = tree.value(&inputs, reduction);
                for result in world.results() {
                    assert!(
                        result.as_ref() == Ok(&wanted),
                        "{attributes:?}, {count} elements, {:?}",
                        result.map(|all| all.len())
                    );
                }
            }
            let counts: Vec<_> = world.switches.iter().flatten().map(Switch::port_counts).collect();
            refused += counts.iter().map(|c| c.refused.iter().sum::<u64>()).sum::<u64>();
            assert!(world.reports.is_empty() && world.host_reports.is_empty());
            for switch in world.switches.iter().flatten() {
                assert!(switch.parts().all(|part| part.counts.violations == 0));
            }
        }
    }
    assert_eq!(refused, 0, "a link that loses and doubles brings no wrong packet");
}

#[test]
fn a_switch_that_dies_is_replaced_and_the_sum_is_exact() {
    let reduction = sum(ElementType::F32);
    let mut world = World::new(1, 4, SMALL);
    let trees = [two_leaves(), Tree::Switch((0..4).map(Tree::Host).collect())];
    world.plant(&trees[0], &start());
    let inputs: Vec<_> = (0..4).map(|rank| values(rank, 9000)).collect();
    for (rank, input) in inputs.iter().enumerate() {
        world.submit(rank, Collective::Allreduce(reduction), input);
    }
    for _ in 0..1200 {
        assert!(world.step());
    }
    world.switches[0] = None;
    while world.reports.is_empty() {
        assert!(world.step(), "an edge to the dead switch is found dead");
    }
    assert!(world.net.now < SECOND, "{}", world.net.now);
    let (index, SwitchReport::EdgeDead(life, To::Parent)) = world.reports[0] else { panic!() };
    assert!(index == 1 || index == 2);
    assert_eq!(life, world.life());
    let plan = world.prepare();
    assert_ne!(plan.first, FIRST);
    world.plant(&trees[1], &plan);
    let results: Vec<_> = world.results().into_iter().map(Result::unwrap).collect();
    assert!(results.iter().all(|result| *result == results[0]), "the same bits on all ranks");
    let wanted = trees.each_ref().map(|tree| tree.value(&inputs, reduction));
    let chunk = SMALL.chunk_max() / 4 * 4;
    for (at, found) in results[0].chunks(chunk).enumerate() {
        let by = wanted.each_ref().map(|all| all.chunks(chunk).nth(at) == Some(found));
        assert!(by[0] || by[1], "chunk {at}");
    }
    // The old tree's leaves are removed, and leave nothing.
    for index in [1, 2] {
        let switch = world.switches[index].as_mut().unwrap();
        assert_ne!(switch.in_use(), (0, 0));
        switch.on_command(world.net.now, SwitchCommand::Remove(ID));
        assert_eq!(switch.in_use(), (0, 0));
    }
}

#[test]
fn an_abort_reaches_all_ranks_though_data_is_on_its_way() {
    let reduction = sum(ElementType::I32);
    for (mode, reliability) in
        [(MessageMode::Send, Reliability::Reliable), (MessageMode::Write, Reliability::Unreliable)]
    {
        let mut world = World::new(9, 4, EdgeAttributes { mode, reliability, ..SMALL });
        world.plant(&two_leaves(), &start());
        // What was lost cannot be sent again after the abort: its data is gone.
        world.net.loss_ppm = 200_000;
        for rank in 0..4 {
            world.submit(rank, Collective::Allreduce(reduction), &values(rank, 3000));
        }
        for _ in 0..300 {
            assert!(world.step());
        }
        let root = world.switches[0].as_mut().unwrap();
        root.on_command(world.net.now, SwitchCommand::Abort(ID, AbortReason::ShutDown));
        world.flush();
        let error = OperationError::Aborted(AbortReason::ShutDown);
        assert_eq!(world.results(), vec![Err(error); 4]);
        assert!(world.net.now < 500 * MS, "{}", world.net.now);
        assert_eq!(world.reports.len(), 3, "each switch reports it once: {:?}", world.reports);
        assert_eq!(world.host_reports.len(), 4, "{:?}", world.host_reports);
        let HostReport::Aborted(_, _, Some(current)) = world.host_reports[0].1 else { panic!() };
        assert_eq!((current.elements, current.op_id), (3000, 0));
    }
}

#[test]
fn sizes_that_differ_are_reported_with_both_contributions() {
    let reduction = sum(ElementType::I32);
    let mut world = World::new(2, 4, SMALL);
    world.plant(&two_leaves(), &start());
    for (rank, count) in [(0, 100), (1, 100), (2, 100), (3, 101)] {
        world.submit(rank, Collective::Allreduce(reduction), &values(rank, count));
    }
    let error = OperationError::Aborted(AbortReason::Contradiction);
    assert_eq!(world.results(), vec![Err(error); 4]);
    let found = world.reports.iter().find_map(|(index, report)| match report {
        SwitchReport::Contradiction(_, both) => Some((*index, *both)),
        _ => None,
    });
    let (index, both) = found.unwrap();
    assert_eq!(index, 2, "the leaf of ranks 2 and 3");
    let mut counts = [both.first.count, both.second.count];
    counts.sort_unstable();
    assert_eq!((counts, both.child), ([100, 101], usize::from(both.second.count == 101)));
}

#[test]
fn packets_from_elsewhere_for_no_edge_and_of_a_closed_one_change_nothing() {
    let mut world = World::new(3, 1, SMALL);
    world.plant(&Tree::Switch(vec![Tree::Host(0)]), &start());
    world.submit(0, Collective::Allreduce(sum(ElementType::U8)), &[5; 10]);
    let ((_, _), (source, dest, bytes)) = world.net.flying.pop_first().unwrap();
    assert_eq!((source, dest), (host_at(0), switch_at(0)));
    let switch = world.switches[0].as_mut().unwrap();
    let seen = |switch: &Switch| {
        let (port, part) = (switch.port_counts(), switch.parts().next());
        let contributions = part.map_or(0, |part| part.counts.contributions);
        (port.refused[6], port.wrong_sources, port.unknown_qpns, contributions)
    };
    // The ICRC covers the addresses; from the right one any port is taken.
    switch.on_datagram(0, host_at(1), &bytes);
    assert_eq!(seen(switch), (0, 1, 0, 0));
    let mut changed = bytes.clone();
    changed[20] ^= 1;
    switch.on_datagram(0, source, &changed);
    assert_eq!(seen(switch), (1, 1, 0, 0));
    let mut other = bytes.clone();
    other[7] ^= 1;
    switch.on_datagram(0, source, &other);
    assert_eq!(seen(switch), (1, 1, 1, 0));
    switch.on_datagram(0, source, &bytes);
    assert_eq!(seen(switch), (1, 1, 1, 1));
    switch.on_command(0, SwitchCommand::Remove(ID));
    switch.on_datagram(0, source, &bytes);
    assert_eq!(seen(switch), (1, 1, 2, 0));
}

/// The first datagram of a rank, as a system sends it that numbers its IPv4 packets, and the contributions that a switch
/// takes from it.
fn contributions_of_a_numbered_packet(framing: Framing) -> u64 {
    let mut world = World::new(4, 1, EdgeAttributes { framing, ..SMALL });
    world.plant(&Tree::Switch(vec![Tree::Host(0)]), &start());
    world.submit(0, Collective::Allreduce(sum(ElementType::U8)), &[5; 10]);
    let (_, (source, dest, mut bytes)) = world.net.flying.pop_first().unwrap();
    IcrcFlow::new(source, dest).with_ip_id(0x8123).seal(&mut bytes).unwrap();
    let switch = world.switches[0].as_mut().unwrap();
    switch.on_datagram(0, source, &bytes);
    // One with a changed byte is refused in any case.
    bytes[20] ^= 1;
    switch.on_datagram(0, source, &bytes);
    let refused = switch.port_counts().refused[6];
    let contributions = switch.parts().next().unwrap().counts.contributions;
    assert_eq!(refused + contributions, 2);
    contributions
}

#[test]
fn a_verbs_program_may_number_its_packets_and_our_own_ends_do_not() {
    // Linux rxe gives its packets any Identification, which the ICRC covers and a socket does not show.
    let plain = Framing::Plain(sum(ElementType::U8));
    assert_eq!(contributions_of_a_numbered_packet(plain), 1);
    assert_eq!(contributions_of_a_numbered_packet(Framing::Inc), 0);
}

#[test]
fn quotas_are_reckoned_at_install_and_given_back() {
    let children = |count: u16| -> Vec<_> {
        (0..count).map(|rank| (Child::Host(Rank(rank)), switch_at(0))).collect()
    };
    let part = |count| TreePart {
        attributes: EdgeAttributes::DEFAULT,
        tenant: 1,
        children: children(count),
        parent: None,
    };
    let life = |id| TreeLife { communicator: CommunicatorId(id), epoch: TreeEpoch(0) };
    // 64 chunks of 4 KiB, 8 children: 0.53 MB, and 2.1 MB for floats.
    let needed = memory_of(&EdgeAttributes::DEFAULT, 8);
    assert_eq!(needed, 2 * 64 * (4096 + 64) + 64 * 8 * 4096);
    let limits = SwitchLimits { memory: 2 * needed, communicators: 2 };
    let mut switch = Switch::new(limits, source_of(1));
    for id in [0, 1] {
        switch.on_command(0, SwitchCommand::Install(life(id), part(8)));
        assert!(matches!(switch.poll_report(), Some(SwitchReport::Installed(..))));
    }
    assert_eq!(switch.in_use(), (2 * needed, 16));
    let mut refusal = |id, part| {
        switch.on_command(0, SwitchCommand::Install(life(id), part));
        let Some(SwitchReport::Refused(_, error)) = switch.poll_report() else { panic!() };
        error
    };
    assert_eq!(refusal(2, part(8)), InstallError::Communicators(2));
    assert!(refusal(2, part(65)).to_string().contains("1 to 64 children"));
    let odd = TreePart {
        attributes: EdgeAttributes { path_mtu: 1000, ..EdgeAttributes::DEFAULT },
        ..part(8)
    };
    assert!(refusal(2, odd).to_string().contains("not 1000"));
    let mut doubled = children(8);
    doubled[3].0 = Child::Host(Rank(0));
    let doubled = TreePart { children: doubled, ..part(8) };
    switch.on_command(0, SwitchCommand::Remove(CommunicatorId(0)));
    assert_eq!(switch.in_use(), (needed, 8));
    let mut refusal = |id, part| {
        switch.on_command(0, SwitchCommand::Install(life(id), part));
        let Some(SwitchReport::Refused(_, error)) = switch.poll_report() else { panic!() };
        error
    };
    assert!(refusal(2, doubled).to_string().contains("rank 0"));
    assert_eq!(
        refusal(2, part(9)),
        InstallError::Memory { needed: needed + 64 * 4096, free: needed }
    );
    // The same communicator in its next life replaces the old one.
    let next = TreeLife { communicator: CommunicatorId(1), epoch: TreeEpoch(1) };
    switch.on_command(0, SwitchCommand::Install(next, part(2)));
    assert!(matches!(switch.poll_report(), Some(SwitchReport::Installed(..))));
    assert_eq!(switch.in_use(), (memory_of(&EdgeAttributes::DEFAULT, 2), 2));
    // What was not installed cannot start.
    let ends = EdgeEnds { children: Vec::new(), parent: None };
    switch.on_command(0, SwitchCommand::Start(next, Seq(0), ends));
    assert!(matches!(switch.poll_report(), Some(SwitchReport::Refused(..))));
    assert_eq!(switch.in_use(), (0, 0));
}

#[test]
fn long_vectors_pass_a_link_that_loses_one_in_a_hundred() {
    let reduction = sum(ElementType::I32);
    for seed in 0..20 {
        let attributes = EdgeAttributes { path_mtu: 256, window: 64, ..EdgeAttributes::DEFAULT };
        let mut world = World::new(seed, 4, attributes);
        let tree = two_leaves();
        world.plant(&tree, &start());
        world.net.loss_ppm = 10_000;
        let inputs: Vec<_> = (0..4).map(|rank| values(rank, 9000)).collect();
        for _ in 0..3 {
            for (rank, input) in inputs.iter().enumerate() {
                world.submit(rank, Collective::Allreduce(reduction), input);
            }
            let wanted = tree.value(&inputs, reduction);
            for result in world.results() {
                assert!(result.as_ref() == Ok(&wanted), "seed {seed}: {:?}", world.reports);
            }
        }
        assert!(world.reports.is_empty() && world.host_reports.is_empty(), "seed {seed}");
    }
}
