//! What a switch counts: each event once, over packets of which every one is known.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::net::SocketAddr;

use inc::control::{
    CommunicatorId, EdgeEnds, HostCommand, ResumePlan, SwitchCommand, SwitchReport, TreeLife,
    TreePart, TreeStart,
};
use inc::edge::EdgeAttributes;
use inc::element::{ElementType, Operator, Reduction};
use inc::host::{Host, HostMemberCfg, MemberId};
use inc::port::EdgeTotals;
use inc::slots::Child;
use inc::switch::{Switch, SwitchLimits};
use inc::wire::{Collective, Rank, Seq, TreeEpoch};
use urma_packet::PacketError;

const ATTRIBUTES: EdgeAttributes =
    EdgeAttributes { path_mtu: 256, window: 4, ..EdgeAttributes::DEFAULT };
const SWITCH: SocketAddr = address(1);

const fn address(station: u8) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, station)), 4791)
}

fn counting(mut next: u64) -> Box<dyn FnMut() -> u64 + Send> {
    Box::new(move || {
        next += 0x0100_0001;
        next
    })
}

/// Two hosts below a switch; datagrams are carried by the test.
struct Pair {
    switch: Switch,
    hosts: Vec<(Host, MemberId)>,
}

impl Pair {
    fn new() -> Self {
        let limits = SwitchLimits { memory: 1 << 20, communicators: 4 };
        let mut switch = Switch::new(limits, counting(5));
        let life = TreeLife { communicator: CommunicatorId(1), epoch: TreeEpoch(0) };
        let mut ends = Vec::new();
        let mut hosts: Vec<_> = [0_u8, 1]
            .map(|rank| {
                let mut host = Host::new([1000, 5000].map(|seed| counting(seed + u64::from(rank))));
                let cfg = HostMemberCfg {
                    rank: Rank(rank.into()),
                    attributes: ATTRIBUTES,
                    address: address(10 + rank),
                    bound_ns: u64::MAX,
                };
                let (id, end) = host.join(0, cfg).unwrap();
                ends.push(end);
                (host, id)
            })
            .into();
        let mine = install(&mut switch, life);
        let theirs = EdgeEnds { children: ends, parent: None };
        switch.on_command(0, SwitchCommand::Start(life, Seq(0), theirs));
        for ((host, id), end) in hosts.iter_mut().zip(mine.children) {
            let plan = ResumePlan { first: Seq(0), owners: Vec::new() };
            let start = TreeStart { parent: Some(end), without: None, plan };
            host.on_command(0, *id, HostCommand::Start(life, start));
        }
        Self { switch, hosts }
    }

    /// The datagrams of a rank that begins an allreduce of so many integers.
    fn submit(&mut self, rank: usize, count: usize) -> Vec<Vec<u8>> {
        let sum = Reduction::new(Operator::Sum, ElementType::I32).unwrap();
        let (host, id) = &mut self.hosts[rank];
        host.submit(0, *id, Collective::Allreduce(sum), &vec![1; 4 * count]).unwrap();
        let (mut all, mut buf) = (Vec::new(), [0; 1024]);
        while let Some(datagram) = host.poll_transmit(0, &mut buf) {
            all.push(buf[..datagram.len].to_vec());
        }
        all
    }

    /// A datagram comes to the switch, from the host of a rank.
    fn carry(&mut self, now: u64, rank: u8, datagram: &[u8]) {
        self.switch.on_datagram(now, address(10 + rank), datagram);
    }

    /// Hosts get what the switch sends.
    fn answer(&mut self, now: u64) {
        let mut buf = [0; 1024];
        while let Some(datagram) = self.switch.poll_transmit(now, &mut buf) {
            let to = self.hosts.iter_mut().zip(10..).find(|(_, at)| address(*at) == datagram.dest);
            let ((host, _), _) = to.unwrap();
            host.on_datagram(now, datagram.source, &buf[..datagram.len]);
        }
    }
}

fn install(switch: &mut Switch, life: TreeLife) -> EdgeEnds {
    let children = [0, 1].map(|rank| (Child::Host(Rank(rank)), SWITCH)).into();
    let part = TreePart { attributes: ATTRIBUTES, tenant: 0, children, parent: None };
    switch.on_command(0, SwitchCommand::Install(life, part));
    let Some(SwitchReport::Installed(_, ends)) = switch.poll_report() else { panic!() };
    ends
}

#[test]
fn each_event_is_counted_once() {
    let mut pair = Pair::new();
    // One chunk of each rank; the second one comes whole at the fourth attempt.
    let [first] = &pair.submit(0, 10)[..] else { panic!() };
    let first = first.clone();
    let [second] = &pair.submit(1, 10)[..] else { panic!() };
    let second = second.clone();
    pair.carry(1000, 0, &first);
    let mut damaged = second.clone();
    *damaged.last_mut().unwrap() ^= 1;
    pair.carry(2000, 1, &damaged);
    pair.carry(3000, 9, &second);
    let mut elsewhere = second.clone();
    elsewhere[7] ^= 0xff;
    pair.carry(4000, 1, &elsewhere);
    pair.carry(4500, 1, &second[..11]);
    pair.carry(6001, 1, &second);
    pair.answer(6001);
    // Two chunks of a rank, the later one first: a gap, which is reported once.
    let both = pair.submit(0, 100);
    assert_eq!(both.len(), 2);
    for at in [1, 1, 0, 1] {
        pair.carry(7000, 0, &both[at]);
    }
    let view = pair.switch.parts().next().unwrap();
    let mut edges = EdgeTotals { naks: 1, ..EdgeTotals::default() };
    for reason in ["icrc", "source"] {
        edges.drops[EdgeTotals::REASONS.iter().position(|of| *of == reason).unwrap()] = 1;
    }
    assert_eq!(view.edges, edges, "{:?}", EdgeTotals::REASONS);
    let counts = view.counts;
    assert_eq!((counts.contributions, counts.bytes), (4, 2 * 40 + 400));
    assert_eq!((counts.duplicates, counts.stale, counts.violations, counts.repeats), (0, 0, 0, 0));
    // From 1000 to 6001 ns: longer than the first class, not than the second.
    assert_eq!((counts.chunks.sum_ns, counts.chunks.counts.iter().sum::<u64>()), (5001, 1));
    assert_eq!(counts.chunks.counts[1], 1);
    assert_eq!(view.slots_in_use, 2);
    let strays = pair.switch.strays();
    let truncated = PacketError::REASONS.iter().position(|of| *of == "truncated").unwrap();
    assert_eq!((strays.unknown_qpns, strays.refused[truncated]), (1, 1));
    assert_eq!(strays.refused.iter().sum::<u64>(), 1);
    // All of it is on the port, too, each time once.
    let port = pair.switch.port_counts();
    assert_eq!((port.unknown_qpns, port.wrong_sources, port.naks), (1, 1, 1));
    assert_eq!(port.refused.iter().sum::<u64>(), 2);
    // Another life of the tree goes on counting.
    install(&mut pair.switch, TreeLife { epoch: TreeEpoch(1), ..view.life });
    let again = pair.switch.parts().next().unwrap();
    assert_eq!((again.counts, again.edges), (counts, edges));
    assert_eq!(pair.switch.port_counts(), port);
}
