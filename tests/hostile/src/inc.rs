//! A switch of in-network computing between hostile children and a hostile parent, and honest hosts beside them.
//!
//! *Owns*: the promises of a switch. *Takes*: steps: packets near those that an edge expects, raw bytes, commands, time.
//! *Gives*: a panic when a promise is broken.
//!
//! What hostile stations send changes nothing of another tenant's communicator, whose sum stays exact. Each packet brings a
//! bounded number of answers. What is sent is well formed, and to stations of the tree. What is removed leaves nothing.

use std::net::SocketAddr;

use inc::{
    control::{
        CommunicatorId, EdgeEnds, HostCommand, ResumePlan, SwitchCommand, SwitchReport, TreeLife,
        TreePart, TreeStart,
    },
    document::{read_map, write_map},
    edge::{EdgeAttributes, EdgeEnd, MessageMode, Reliability, WriteWindow},
    element::{ElementType, Operator, Reduction},
    host::{Host, HostMemberCfg, MemberId},
    slots::Child,
    switch::{Switch, SwitchLimits},
    tree_document::{read_topology, read_tree},
    wire::{AbortReason, Collective, Rank, Seq, TreeEpoch},
};
use urma_packet::{
    Bth, Congestion, IcrcFlow, Psn, Tpn,
    roce::{Aeth, Headers, ImmDt, PacketLayout, Reth, RoceExt, RoceHeader, RocePacket, Syndrome},
};

use crate::Bytes;

const HONEST: TreeLife = TreeLife { communicator: CommunicatorId(1), epoch: TreeEpoch(0) };
const ATTACKED: TreeLife = TreeLife { communicator: CommunicatorId(2), epoch: TreeEpoch(7) };
const FIRST: Seq = Seq(u32::MAX - 1);
const WINDOW: u32 = 4;
/// Datagrams that one step brings at most: all slots of both banks to three stations, in two packets each, and repeats.
const SENT_MAX: usize = 512;

struct World {
    switch: Switch,
    hosts: [(Host, MemberId); 2],
    /// The switch's ends of the hostile edges: two children, then the parent.
    edges: Vec<EdgeEnd>,
    now: u64,
    values: u32,
}

fn switch_at() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 4791))
}

fn station(at: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, at], 4791))
}

/// Attributes that a byte chooses.
fn attributes(choice: u8) -> EdgeAttributes {
    EdgeAttributes {
        reliability: if choice & 1 == 0 { Reliability::Reliable } else { Reliability::Unreliable },
        mode: if choice & 2 == 0 { MessageMode::Send } else { MessageMode::Write },
        path_mtu: 256,
        packets: 2,
        window: WINDOW,
        ..EdgeAttributes::DEFAULT
    }
}

/// Numbers that count, so that each run is the same.
fn counting(mut next: u64) -> Box<dyn FnMut() -> u64 + Send> {
    Box::new(move || {
        next += 0x0100_0001;
        next
    })
}

/// The fuzz target: a switch and any packets.
pub fn inc(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let Some(choice) = bytes.byte() else { return };
    let mut world = World::new(choice);
    while let Some(step) = bytes.byte() {
        match step % 16 {
            0..9 => world.packet(&mut bytes),
            9 => {
                let source = station(bytes.byte().unwrap_or(0) % 8);
                let raw = bytes.take(usize::from(step) * 2);
                world.switch.on_datagram(world.now, source, raw);
            }
            10 | 11 => {
                world.now += u64::from(bytes.short().unwrap_or(1)) * 10_000;
                world.switch.on_time(world.now);
            }
            12 => world.command(bytes.byte().unwrap_or(0), choice),
            _ => world.honest_sum(),
        }
        let sent = world.drain();
        world.answer();
        assert!(sent <= SENT_MAX, "{sent} datagrams by one step");
    }
    world.honest_sum();
    for life in [HONEST, ATTACKED] {
        world.switch.on_command(world.now, SwitchCommand::Remove(life.communicator));
    }
    assert_eq!(world.switch.in_use(), (0, 0), "what is removed leaves nothing");
}

impl World {
    fn new(choice: u8) -> Self {
        let limits = SwitchLimits { memory: 1 << 20, communicators: 4 };
        let mut switch = Switch::new(limits, counting(5));
        let attributes = attributes(0);
        let mut ends = Vec::new();
        let hosts = [0, 1].map(|rank| {
            let mut host = Host::new([1000, 2000].map(|from| counting(from + u64::from(rank))));
            let address = station(100 + rank);
            let cfg =
                HostMemberCfg { rank: Rank(rank.into()), attributes, address, bound_ns: u64::MAX };
            let (id, end) = host.join(0, cfg).expect("two members fit");
            ends.push(end);
            (host, id)
        });
        let part = TreePart {
            attributes,
            tenant: 1,
            children: vec![
                (Child::Host(Rank(0)), switch_at()),
                (Child::Host(Rank(1)), switch_at()),
            ],
            parent: None,
        };
        let mine = installed(&mut switch, HONEST, part);
        let theirs = EdgeEnds { children: ends, parent: None };
        switch.on_command(0, SwitchCommand::Start(HONEST, FIRST, theirs));
        let mut world = Self { switch, hosts, edges: Vec::new(), now: 0, values: 0 };
        for ((host, id), end) in world.hosts.iter_mut().zip(mine.children) {
            let plan = ResumePlan { first: FIRST, owners: Vec::new() };
            let start = TreeStart { parent: Some(end), without: None, plan };
            host.on_command(0, *id, HostCommand::Start(HONEST, start));
        }
        world.install(choice);
        world
    }

    /// The tree whose other stations are hostile.
    fn install(&mut self, choice: u8) {
        let part = TreePart {
            attributes: attributes(choice),
            tenant: 2,
            children: vec![
                (Child::Host(Rank(0)), switch_at()),
                (Child::Switch(vec![Rank(1), Rank(2)]), switch_at()),
            ],
            parent: (choice & 4 == 0).then_some(switch_at()),
        };
        let mine = installed(&mut self.switch, ATTACKED, part);
        let there = |at: u8| EdgeEnd {
            address: station(at),
            qpn: Tpn::from_low_bits(0x500 + u32::from(at)),
            first_psn: Psn::new(0x00ff_fffd),
            window: WriteWindow { base: 0x1000, key: 3 },
        };
        let theirs =
            EdgeEnds { children: vec![there(0), there(1)], parent: mine.parent.map(|_| there(2)) };
        self.switch.on_command(self.now, SwitchCommand::Start(ATTACKED, FIRST, theirs));
        self.edges = mine.children.into_iter().chain(mine.parent).collect();
    }

    /// A packet of a hostile station, near what its edge expects, with a right ICRC.
    fn packet(&mut self, bytes: &mut Bytes<'_>) {
        let mut next = || bytes.byte().unwrap_or(0);
        let (at, what, near, odd) = (next(), next(), next(), next());
        let at = at % 3;
        let Some(edge) = self.edges.get(usize::from(at)).or_else(|| self.edges.first()).copied()
        else {
            return;
        };
        let standard = [0x00, 0x01, 0x03, 0x05, 0x06, 0x07, 0x09, 0x0b, 0x11, 0x04, 0x02, 0x0a];
        let opcode = standard.get(usize::from(what & 15)).copied().unwrap_or(what);
        let opcode = opcode | if what & 0x40 == 0 { 0 } else { 0x20 };
        let Ok(layout) = PacketLayout::of(opcode) else { return };
        let seq = FIRST.plus(u32::from(near & 15)).back(u32::from(near >> 7) * 9);
        let mut payload = vec![next(), next(), next(), next()];
        // Mostly headers that are some.
        if odd & 1 == 0 {
            payload[0] = 0x10 | (payload[0] % 4 + 1);
            payload[1] = (payload[1] % 4) << 4 | payload[1] >> 6;
            payload[2] %= 13;
        }
        payload.extend(seq.0.to_be_bytes());
        payload.extend(if odd & 2 == 0 { [0, 7] } else { [next(), next()] });
        payload.extend([0, next() % 64, 0, next() % 2, 0, next() % 3]);
        let len = usize::from(next()) + if odd & 4 == 0 { 0 } else { 256 };
        payload.extend(bytes.take(len));
        if odd & 8 != 0 {
            // As long as its header says, of I32.
            payload.resize(16 + 4 * usize::from(payload[11]), 1);
        }
        payload.truncate(256);
        let psn = Psn::new(0x00ff_fffd).plus(u32::from(near & 7) + u32::from(odd >> 6));
        let has = |header| layout.headers.contains(header);
        let places = u64::from(seq.0) % u64::from(2 * WINDOW);
        let ext = RoceExt {
            reth: has(Headers::RETH).then(|| Reth {
                va: edge.window.base + places * 512 + u64::from(odd & 16),
                rkey: edge.window.key ^ u32::from(odd & 32),
                dma_len: 512,
            }),
            imm: has(Headers::IMM).then_some(ImmDt { value: seq.0 ^ u32::from(odd >> 7) }),
            aeth: has(Headers::AETH).then(|| Aeth {
                syndrome: Syndrome::from_code(odd).unwrap_or(Syndrome::PsnSequence),
                msn: near.into(),
            }),
            ..RoceExt::default()
        };
        let bth = Bth {
            opcode,
            solicited: false,
            mig_req: false,
            pad: 0,
            version: 0,
            pkey: 0xffff,
            congestion: Congestion::default(),
            dest: edge.qpn,
            ack_req: odd & 64 != 0,
            repeated: false,
            psn,
        };
        let flow = IcrcFlow::new(station(at), switch_at());
        let mut packet = vec![0; 1024];
        let header = RoceHeader { bth, ext };
        if let Ok(len) = header.emit(&payload, &flow, &mut packet) {
            self.switch.on_datagram(self.now, station(at), &packet[..len]);
        }
    }

    fn command(&mut self, what: u8, choice: u8) {
        let id = ATTACKED.communicator;
        match what % 4 {
            0 => {
                let abort = SwitchCommand::Abort(id, AbortReason::Quota);
                self.switch.on_command(self.now, abort);
            }
            1 => self.switch.on_command(self.now, SwitchCommand::Remove(id)),
            _ => {
                while self.switch.poll_report().is_some() {}
                self.install(choice ^ what >> 2);
            }
        }
    }

    /// Takes what the switch sends; datagrams for the honest hosts arrive.
    fn drain(&mut self) -> usize {
        let (mut buf, mut count) = ([0; 1024], 0);
        while let Some(datagram) = self.switch.poll_transmit(self.now, &mut buf) {
            count += 1;
            assert!(count <= SENT_MAX, "more datagrams than any step brings");
            let bytes = &buf[..datagram.len];
            let flow = IcrcFlow::new(datagram.source, datagram.dest);
            RocePacket::open(bytes, &flow).expect("what is sent is well formed");
            let to = (0..3).chain(100..102).find(|at| station(*at) == datagram.dest);
            let to = to.expect("it goes to a station of a tree");
            if to >= 100 {
                let host = &mut self.hosts[usize::from(to - 100)].0;
                host.on_datagram(self.now, datagram.source, bytes);
            }
        }
        count
    }

    /// Takes what the honest hosts send.
    fn answer(&mut self) {
        let mut buf = [0; 1024];
        for (host, _) in &mut self.hosts {
            while let Some(datagram) = host.poll_transmit(self.now, &mut buf) {
                self.switch.on_datagram(self.now, datagram.source, &buf[..datagram.len]);
            }
        }
    }

    /// The honest hosts reduce, and get the exact sum.
    fn honest_sum(&mut self) {
        self.values += 1;
        let reduction = Reduction::new(Operator::Sum, ElementType::I32).expect("a reduction");
        let sum = Collective::Allreduce(reduction);
        let inputs = [1, 2].map(|factor: u32| (self.values * factor).to_le_bytes());
        let mut operations = Vec::new();
        for ((host, id), input) in self.hosts.iter_mut().zip(inputs) {
            operations.push(host.submit(self.now, *id, sum, &input).expect("it begins"));
        }
        let mut results = [None, None];
        for _ in 0..100 {
            self.answer();
            self.drain();
            for ((host, id), result) in self.hosts.iter_mut().zip(&mut results) {
                *result = result.take().or_else(|| host.poll_finished(*id));
            }
            if results.iter().all(Option::is_some) {
                break;
            }
            self.now += 1_000_000;
            self.hosts.iter_mut().for_each(|(host, _)| host.on_time(self.now));
        }
        for (result, operation) in results.into_iter().zip(operations) {
            let finished = result.expect("another tenant's packets stop no operation");
            assert_eq!(finished.id, operation);
            let sum = finished.result.expect("it ends with the sum");
            assert_eq!(*sum, (3 * self.values).to_le_bytes());
        }
    }
}

fn installed(switch: &mut Switch, life: TreeLife, part: TreePart) -> EdgeEnds {
    switch.on_command(0, SwitchCommand::Install(life, part));
    while let Some(report) = switch.poll_report() {
        if let SwitchReport::Installed(_, ends) = report {
            return ends;
        }
    }
    panic!("there is room for it");
}

/// The fuzz target of topologies: any text is a topology or is refused; what is one is written and read again.
pub fn inc_yaml(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    if let Ok(map) = read_topology(text) {
        let written = write_map(&map).expect("a topology is written");
        let again = read_map(&written).expect("what is written is read");
        assert_eq!(write_map(&again).expect("it is written again"), written);
    }
    if let Ok(tree) = read_tree(text) {
        let written = tree.write().expect("a tree is written");
        let again = read_tree(&written).expect("what is written is read");
        assert_eq!(again.write().expect("it is written again"), written);
    }
}
