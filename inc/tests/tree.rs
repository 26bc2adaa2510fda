//! Trees of switches and hosts under loss, doubling and reordering: every answer is the exact reduction.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]
#![expect(clippy::cast_possible_truncation, reason = "low bits of random numbers and of chunks")]

use std::collections::{BTreeMap, VecDeque};

use inc::element::{ElementType, Operator, Reduction};
use inc::member::{GroupMember, MemberCfg, OperationId};
use inc::reduce::fold;
use inc::slots::{Child, Communicator, CommunicatorCfg, To};
use inc::wire::{Collective, IncHeader, Rank, Seq, TreeEpoch};

/// A generator (SplitMix64): the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn is_one_of(&mut self, ppm: u64) -> bool {
        self.below(1_000_000) < ppm
    }
}

/// What a tree is made of.
enum Tree {
    Host(u16),
    Switch(Vec<Self>),
}

impl Tree {
    /// A switch with up to four children, some of which are switches, down to `depth`.
    fn random(random: &mut Random, depth: u32, ranks: &mut u16) -> Self {
        let children = 1 + random.below(4);
        let child = |random: &mut Random, ranks: &mut u16| {
            if depth > 1 && random.below(2) == 0 {
                return Self::random(random, depth - 1, ranks);
            }
            *ranks += 1;
            Self::Host(*ranks - 1)
        };
        Self::Switch((0..children).map(|_| child(random, ranks)).collect())
    }

    fn ranks(&self) -> Vec<Rank> {
        match self {
            Self::Host(rank) => vec![Rank(*rank)],
            Self::Switch(children) => children.iter().flat_map(Self::ranks).collect(),
        }
    }

    /// The value of the expression that the tree is.
    fn value(&self, inputs: &[Vec<u8>], reduction: Reduction) -> Vec<u8> {
        match self {
            Self::Host(rank) => inputs[usize::from(*rank)].clone(),
            Self::Switch(children) => {
                let parts: Vec<_> = children.iter().map(|c| c.value(inputs, reduction)).collect();
                let mut out = vec![0; parts[0].len()];
                fold(reduction, parts.iter(), &mut out);
                out
            }
        }
    }
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
    slots: Communicator,
    /// What is at the other end of each child's edge.
    children: Vec<End>,
    /// This switch as its parent's child.
    parent: Option<End>,
}

struct Host {
    /// Its edge to the switch.
    up: End,
    member: GroupMember,
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
    tree: Tree,
    switches: Vec<Switch>,
    hosts: Vec<Host>,
    calls: Vec<Call>,
    now: u64,
    /// Messages on their way, by arrival.
    flying: BTreeMap<(u64, u64), (End, Vec<u8>)>,
    flown: u64,
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
    let cfg_of = CommunicatorCfg {
        children: children.iter().map(child).collect(),
        has_parent: !is_root,
        window: WINDOW,
        data_max: DATA_MAX,
        epoch: cfg.0,
        first: cfg.1,
        forward_pause_ns: RTO / 2,
    };
    let me = switches.len();
    let slots = Communicator::new(&cfg_of).unwrap();
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

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let mut ranks = 0;
        let depth = 1 + u32::try_from(random.below(3)).unwrap();
        let mut tree = Tree::random(&mut random, depth, &mut ranks);
        if ranks == 0 {
            (tree, ranks) = (Tree::Switch(vec![Tree::Host(0)]), 1);
        }
        // Numbers wrap on the way, or not.
        let first =
            if random.below(2) == 0 { Seq(u32::MAX - 9) } else { Seq(random.next() as u32) };
        let epoch = TreeEpoch(random.next() as u16);
        let (mut switches, mut ups) = (Vec::new(), BTreeMap::new());
        build(&tree, &mut switches, &mut ups, (epoch, first));
        let host = |rank| Host {
            up: ups[&rank],
            member: GroupMember::new(MemberCfg {
                rank: Rank(rank),
                window: WINDOW,
                data_max: DATA_MAX,
                epoch,
                first,
                pause_min_ns: RTO,
                bound_ns: BOUND,
            })
            .unwrap(),
            results: Vec::new(),
        };
        let calls = (0..12).map(|_| random_call(&mut random, ranks)).collect();
        let worst = [0, 10_000, 100_000, 300_000][usize::try_from(random.below(4)).unwrap()];
        Self {
            hosts: (0..ranks).map(host).collect(),
            tree,
            switches,
            calls,
            now: 0,
            flying: BTreeMap::new(),
            flown: 0,
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
        let Host { member, results, up } = &mut self.hosts[host];
        while let Some((header, data)) = member.poll_transmit(self.now) {
            out.push([&header.to_bytes()[..], data].concat());
        }
        while let Some(finished) = member.poll_finished() {
            assert_eq!(finished.id, OperationId(results.len() as u64), "in order");
            results.push(finished.result.unwrap());
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
                self.switches[switch].slots.on_parent(&header, data);
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

    /// Runs until every host has every result, within a bound.
    fn run(&mut self) {
        for host in 0..self.hosts.len() {
            for call in &self.calls {
                let input = call.inputs[host].clone().into();
                self.hosts[host].member.submit(0, call.collective, input).unwrap();
            }
            self.host_goes_on(host);
        }
        for _ in 0..2_000_000 {
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

    /// What a host is to get of a call.
    fn expected(&self, host: usize, chunk: &Call) -> Vec<u8> {
        let rank = Rank(u16::try_from(host).unwrap());
        match chunk.collective {
            Collective::Allreduce(reduction) => self.tree.value(&chunk.inputs, reduction),
            Collective::Reduce(reduction, root) if root == rank => {
                self.tree.value(&chunk.inputs, reduction)
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

#[test]
fn every_answer_is_exact_whatever_is_lost_doubled_or_late() {
    let mut doubled = 0;
    for seed in 0..400 {
        let mut world = World::new(seed);
        assert!(!has_empty_switch(&world.tree));
        world.run();
        for (host, state) in world.hosts.iter().enumerate() {
            assert_eq!(state.results.len(), world.calls.len(), "seed {seed}, host {host}");
            for (index, (found, call)) in state.results.iter().zip(&world.calls).enumerate() {
                let wanted = world.expected(host, call);
                assert_eq!(
                    found, &wanted,
                    "seed {seed}, host {host}, call {index}: {:?}",
                    call.collective
                );
            }
        }
        for switch in &world.switches {
            let counts = switch.slots.counts();
            let seen = (counts.violations, counts.aborts, switch.slots.slots_in_use());
            assert_eq!(seen, (0, 0, 0), "seed {seed}: {counts:?}");
            doubled += counts.duplicates;
        }
    }
    assert!(doubled > 1000, "the links were bad");
}
