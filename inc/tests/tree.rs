//! Trees of switches and hosts under loss, doubling and reordering: every answer is the exact reduction.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]
#![expect(clippy::cast_possible_truncation, reason = "low bits of random numbers and of chunks")]

use std::collections::{BTreeMap, VecDeque};

use inc::control::ResumePlan;
use inc::edge::Framing;
use inc::element::{ElementType, Operator, Reduction};
use inc::member::{GroupMember, MemberCfg, OperationId};
use inc::slots::{Child, CommunicatorSlots, CommunicatorSlotsCfg, To};
use inc::wire::{Collective, IncHeader, Rank, Seq, TreeEpoch};

#[path = "support/random.rs"]
mod random;
#[path = "support/tree.rs"]
mod trees;

use random::Random;
use trees::Tree;

/// A switch with up to four children, some of which are switches, down to `depth`.
fn random_tree(random: &mut Random, depth: u32, ranks: &mut u16) -> Tree {
    let children = 1 + random.below(4);
    let child = |random: &mut Random, ranks: &mut u16| {
        if depth > 1 && random.below(2) == 0 {
            return random_tree(random, depth - 1, ranks);
        }
        *ranks += 1;
        Tree::Host(*ranks - 1)
    };
    Tree::Switch((0..children).map(|_| child(random, ranks)).collect())
}

/// Another tree with the same ranks, in this order.
fn tree_of(random: &mut Random, depth: u32, mut ranks: &[Rank]) -> Tree {
    let mut children = Vec::new();
    while !ranks.is_empty() {
        let len = 1 + usize::try_from(random.below(ranks.len() as u64)).unwrap();
        let (some, rest) = ranks.split_at(len);
        match some {
            [rank] if random.below(2) == 0 => children.push(Tree::Host(rank.0)),
            some if depth > 1 => children.push(tree_of(random, depth - 1, some)),
            some => children.extend(some.iter().map(|rank| Tree::Host(rank.0))),
        }
        ranks = rest;
    }
    Tree::Switch(children)
}

/// One end of an edge: a switch's child or parent, or a host.
#[derive(Clone, Copy, Debug)]
enum End {
    Host(usize),
    /// Of a switch, its child with this index.
    FromChild(usize, usize),
    FromParent(usize),
}

struct Switch {
    slots: CommunicatorSlots,
    /// What is at the other end of each child's edge.
    children: Vec<End>,
    /// This switch as its parent's child.
    parent: Option<End>,
}

struct Host {
    /// Its edge to the switch.
    up: End,
    member: GroupMember,
    submitted: usize,
    /// Calls that it submits before the first of them is over.
    ahead: usize,
    results: Vec<Vec<u8>>,
}

/// What all hosts call, one after the other.
struct Call {
    collective: Collective,
    inputs: Vec<Vec<u8>>,
}

const WINDOW: u32 = 4;
const DATA_MAX: usize = 96;
const RTO: u64 = 1000;
const BOUND: u64 = 1 << 40;

struct World {
    random: Random,
    /// Those of each life.
    trees: Vec<Tree>,
    epoch: TreeEpoch,
    switches: Vec<Switch>,
    hosts: Vec<Host>,
    calls: Vec<Call>,
    now: u64,
    /// Messages on their way, by arrival.
    flying: BTreeMap<(u64, u64), (End, Vec<u8>)>,
    flown: u64,
    violations: u64,
    doubled: u64,
    loss_ppm: u64,
    doubled_ppm: u64,
}

/// Makes the switches of a tree, the root first; the index of it.
fn build(
    tree: &Tree,
    switches: &mut Vec<Switch>,
    ups: &mut BTreeMap<u16, End>,
    cfg: (TreeEpoch, Seq),
) -> usize {
    let Tree::Switch(children) = tree else { unreachable!("a root is a switch") };
    let is_root = switches.is_empty();
    let child = |tree: &Tree| match tree {
        Tree::Host(rank) => Child::Host(Rank(*rank)),
        Tree::Switch(_) => Child::Switch(tree.ranks()),
    };
    let cfg_of = CommunicatorSlotsCfg {
        children: children.iter().map(child).collect(),
        has_parent: !is_root,
        window: WINDOW,
        data_max: DATA_MAX,
        epoch: cfg.0,
        first: cfg.1,
        forward_pause_ns: RTO / 2,
        is_ordered: true,
    };
    let me = switches.len();
    let slots = CommunicatorSlots::new(&cfg_of).unwrap();
    switches.push(Switch { slots, children: Vec::new(), parent: None });
    for (index, tree) in children.iter().enumerate() {
        let end = match tree {
            Tree::Host(rank) => {
                ups.insert(*rank, End::FromChild(me, index));
                End::Host(usize::from(*rank))
            }
            Tree::Switch(_) => {
                let below = build(tree, switches, ups, cfg);
                switches[below].parent = Some(End::FromChild(me, index));
                End::FromParent(below)
            }
        };
        switches[me].children.push(end);
    }
    me
}

fn random_call(random: &mut Random, ranks: u16) -> Call {
    let reduction = loop {
        let operator = Operator::ALL[usize::try_from(random.below(12)).unwrap()];
        let element = ElementType::ALL[usize::try_from(random.below(16)).unwrap()];
        if let Some(reduction) = Reduction::new(operator, element) {
            break reduction;
        }
    };
    let root = Rank(u16::try_from(random.below(ranks.into())).unwrap());
    let collective = match random.below(4) {
        0 => Collective::Allreduce(reduction),
        1 => Collective::Reduce(reduction, root),
        2 => Collective::Broadcast(reduction.element(), root),
        _ => Collective::Barrier,
    };
    // None, one, or up to six chunks.
    let size = collective.element_size();
    let most = (6 * DATA_MAX).checked_div(size).map_or(0, |most| random.below(1 + most as u64));
    let len = usize::try_from(most).unwrap() * size;
    let input =
        |random: &mut Random| -> Vec<u8> { (0..len).map(|_| random.next() as u8).collect() };
    Call { collective, inputs: (0..ranks).map(|_| input(random)).collect() }
}

fn started(rank: u16, epoch: TreeEpoch, first: Seq) -> GroupMember {
    let mut member = GroupMember::new(MemberCfg {
        rank: Rank(rank),
        window: WINDOW,
        data_max: DATA_MAX,
        framing: Framing::Inc,
        pause_min_ns: RTO,
        repeats_early: true,
        bound_ns: BOUND,
    })
    .unwrap();
    member.start(epoch, ResumePlan { first, owners: Vec::new() });
    member
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let mut ranks = 0;
        let depth = 1 + u32::try_from(random.below(3)).unwrap();
        let mut tree = random_tree(&mut random, depth, &mut ranks);
        if ranks == 0 {
            (tree, ranks) = (Tree::Switch(vec![Tree::Host(0)]), 1);
        }
        // Numbers wrap on the way, or not.
        let first =
            if random.below(2) == 0 { Seq(u32::MAX - 9) } else { Seq(random.next() as u32) };
        let epoch = TreeEpoch(random.next() as u16);
        let (mut switches, mut ups) = (Vec::new(), BTreeMap::new());
        build(&tree, &mut switches, &mut ups, (epoch, first));
        let calls = (0..12).map(|_| random_call(&mut random, ranks)).collect();
        let mut host = |rank| Host {
            up: ups[&rank],
            member: started(rank, epoch, first),
            submitted: 0,
            ahead: 1 + usize::try_from(random.below(12)).unwrap(),
            results: Vec::new(),
        };
        let hosts = (0..ranks).map(&mut host).collect();
        let worst = [0, 10_000, 100_000, 300_000][usize::try_from(random.below(4)).unwrap()];
        Self {
            hosts,
            trees: vec![tree],
            epoch,
            switches,
            calls,
            now: 0,
            flying: BTreeMap::new(),
            flown: 0,
            violations: 0,
            doubled: 0,
            loss_ppm: worst,
            doubled_ppm: worst,
            random,
        }
    }

    /// Puts a message on an edge, which loses, doubles and delays.
    fn send(&mut self, to: End, message: Vec<u8>) {
        if self.random.is_one_of(self.loss_ppm) {
            return;
        }
        let copies = 1 + u64::from(self.random.is_one_of(self.doubled_ppm));
        for _ in 0..copies {
            let at = self.now + 1 + self.random.below(200);
            self.flown += 1;
            self.flying.insert((at, self.flown), (to, message.clone()));
        }
    }

    /// Sends what a host has to send, and keeps what is over.
    fn host_goes_on(&mut self, host: usize) {
        let mut out = Vec::new();
        let Host { member, results, up, submitted, ahead } = &mut self.hosts[host];
        while let Some(finished) = member.poll_finished() {
            assert_eq!(finished.id, OperationId(results.len() as u64), "in order");
            results.push(finished.result.unwrap().to_vec());
        }
        while let Some(call) = self.calls.get(*submitted)
            && *submitted < results.len() + *ahead
        {
            *submitted += 1;
            member.submit(self.now, call.collective, &call.inputs[host]).unwrap();
        }
        while let Some(header) = member.poll_transmit(self.now) {
            let data = &member.data_of(header.seq)[..header.data_len()];
            out.push([&header.to_bytes()[..], data].concat());
        }
        let up = *up;
        for message in out {
            self.send(up, message);
        }
    }

    fn receive(&mut self, end: End, message: &[u8]) {
        let (header, data) = IncHeader::parse(message).unwrap();
        match end {
            End::Host(host) => {
                self.hosts[host].member.on_message(self.now, &header, data);
                self.host_goes_on(host);
            }
            End::FromChild(switch, child) => {
                self.switches[switch].slots.on_child(self.now, child, &header, data);
                self.drain(switch);
            }
            End::FromParent(switch) => {
                self.switches[switch].slots.on_parent(self.now, &header, data);
                self.drain(switch);
            }
        }
    }

    fn drain(&mut self, switch: usize) {
        let mut out = VecDeque::new();
        while let Some(transmit) = self.switches[switch].slots.poll_transmit() {
            let message = [&transmit.header.to_bytes()[..], transmit.data].concat();
            out.push_back((transmit.to, message));
        }
        for (to, message) in out {
            let end = match to {
                To::Child(index) => self.switches[switch].children[index],
                To::Parent => self.switches[switch].parent.unwrap(),
            };
            self.send(end, message);
        }
    }

    /// The tree is lost; another one takes over.
    fn replace_tree(&mut self) {
        let reports: Vec<_> = (0..)
            .zip(&mut self.hosts)
            .map(|(rank, host)| (Rank(rank), host.member.prepare()))
            .collect();
        let plan = ResumePlan::of(WINDOW, &reports).unwrap();
        self.count();
        let ranks = self.trees[0].ranks();
        let depth = 1 + u32::try_from(self.random.below(3)).unwrap();
        let tree = tree_of(&mut self.random, depth, &ranks);
        self.epoch = TreeEpoch(self.epoch.0.wrapping_add(1));
        let mut ups = BTreeMap::new();
        self.switches.clear();
        build(&tree, &mut self.switches, &mut ups, (self.epoch, plan.first));
        self.trees.push(tree);
        // What is on its way to the hosts still arrives.
        self.flying.retain(|_, (end, _)| matches!(end, End::Host(_)));
        for host in 0..self.hosts.len() {
            let up = ups[&u16::try_from(host).unwrap()];
            self.hosts[host].up = up;
            self.hosts[host].member.start(self.epoch, plan.clone());
            self.host_goes_on(host);
        }
    }

    /// Adds up what the switches counted.
    fn count(&mut self) {
        for switch in &self.switches {
            let counts = switch.slots.counts();
            self.violations += counts.violations + counts.aborts;
            self.doubled += counts.duplicates;
        }
    }

    /// Runs until every host has every result, within a bound. A tree is lost every so many events.
    fn run(&mut self, lost_every: Option<u64>) {
        for host in 0..self.hosts.len() {
            self.host_goes_on(host);
        }
        let mut next = lost_every.unwrap_or(u64::MAX);
        for event in 0..2_000_000 {
            if event == next && self.trees.len() < 6 {
                self.replace_tree();
                next += 1 + self.random.below(2 * lost_every.unwrap_or(1));
            }
            let deadlines = self.hosts.iter().map(|host| host.member.poll_deadline());
            let timer = deadlines.enumerate().filter_map(|(host, at)| Some((at?, host))).min();
            let arrival = self.flying.keys().next().map(|(at, _)| *at);
            match (arrival, timer) {
                (None, None) => return,
                (Some(at), timer) if timer.is_none_or(|(timer, _)| at <= timer) => {
                    self.now = at;
                    let (_, (end, message)) = self.flying.pop_first().unwrap();
                    self.receive(end, &message);
                }
                (_, timer) => {
                    let (at, host) = timer.unwrap();
                    self.now = at;
                    self.hosts[host].member.on_time(at);
                    self.host_goes_on(host);
                }
            }
        }
        panic!("not done: {:?}", self.hosts.iter().map(|h| h.results.len()).collect::<Vec<_>>());
    }

    /// What a host is to get of a call, by a tree.
    fn expected(&self, tree: &Tree, host: usize, chunk: &Call) -> Vec<u8> {
        let rank = Rank(u16::try_from(host).unwrap());
        match chunk.collective {
            Collective::Allreduce(reduction) => tree.value(&chunk.inputs, reduction),
            Collective::Reduce(reduction, root) if root == rank => {
                tree.value(&chunk.inputs, reduction)
            }
            Collective::Broadcast(_, root) if root != rank => {
                chunk.inputs[usize::from(root.0)].clone()
            }
            Collective::Reduce(..) | Collective::Broadcast(..) | Collective::Barrier => Vec::new(),
        }
    }
}

/// A tree that has no host below one of its switches is no tree.
fn has_empty_switch(tree: &Tree) -> bool {
    match tree {
        Tree::Host(_) => false,
        Tree::Switch(children) => tree.ranks().is_empty() || children.iter().any(has_empty_switch),
    }
}

/// Checks all results; the number of chunks whose bits are not those of the first tree.
fn check(world: &mut World, seed: u64) -> usize {
    let mut later = 0;
    for (index, call) in world.calls.iter().enumerate() {
        let len = (DATA_MAX / call.collective.element_size().max(1)).max(1)
            * call.collective.element_size().max(1);
        // The tree by which each chunk was reduced, the same one for all ranks.
        let mut by: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (host, state) in world.hosts.iter().enumerate() {
            assert_eq!(state.results.len(), world.calls.len(), "seed {seed}, host {host}");
            let found = &state.results[index];
            let wanted: Vec<_> =
                world.trees.iter().map(|tree| world.expected(tree, host, call)).collect();
            assert_eq!(found.len(), wanted[0].len(), "seed {seed}, host {host}, call {index}");
            for (nth, found) in found.chunks(len).enumerate() {
                let is_its = |tree: &usize| wanted[*tree].chunks(len).nth(nth) == Some(found);
                let all = by.entry(nth).or_insert_with(|| (0..wanted.len()).collect());
                all.retain(is_its);
                assert!(
                    !all.is_empty(),
                    "seed {seed}, host {host}, call {index}, chunk {nth}: {:?}",
                    call.collective
                );
            }
        }
        later += by.values().filter(|trees| !trees.contains(&0)).count();
    }
    let in_use: usize = world.switches.iter().map(|switch| switch.slots.slots_in_use()).sum();
    world.count();
    assert_eq!((world.violations, in_use), (0, 0), "seed {seed}");
    later
}

#[test]
fn every_answer_is_exact_whatever_is_lost_doubled_or_late() {
    let mut doubled = 0;
    for seed in 0..400 {
        let mut world = World::new(seed);
        assert!(!has_empty_switch(&world.trees[0]));
        world.run(None);
        assert_eq!(check(&mut world, seed), 0);
        doubled += world.doubled;
    }
    assert!(doubled > 1000, "the links were bad");
}

#[test]
fn a_tree_that_is_replaced_midway_changes_no_answer_and_all_ranks_have_the_same_bits() {
    let (mut later, mut lost) = (0, 0);
    for seed in 0..400 {
        let mut world = World::new(seed);
        let every = 20 + 7 * (seed % 40);
        world.run(Some(every));
        later += check(&mut world, seed);
        lost += world.trees.len() - 1;
    }
    assert!(lost > 1000 && later > 100, "{lost} trees lost, {later} chunks reduced by later ones");
}
