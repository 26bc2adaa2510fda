//! Ranks at the UDP ports of URMA nodes, on loopback: with a real controller, switches and ranks at sockets of their own, and
//! with requests of the nodes at the same time.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use inc::edge::{EdgeAttributes, MessageMode, Reliability};
use inc::element::Operator;
use inc::host::{HostMemberCfg, Reducers};
use inc::wire::Rank;
use inc_net::drive::LinkAccess;
use inc_net::group::{Communicator, CommunicatorCfg};
use inc_net::host::LocalHost;
use inc_world::{Network, RANKS, each_rank, wait_until};
use ubcore_sim::host::ip_eid;
use ubcore_sim::ports::{Deadline, Transmit};
use ubcore_sim::{Node, PortEndpoint, QpnInUse};
use urma::{
    Completions, Context, CrStatus, JettyCfg, JettyRecv, JfcCfg, JfrCfg, JfsCfg, Mapping, NodeCfg,
    Opened, PathChoice, Region, SegmentAccess, SegmentCfg, SendOp, SendWr, Token, TransportMode,
};
use urma_mem::sync::{AtomicBool, Ordering};
use urma_packet::roce::{RoceExt, RoceHeader, RocePacket, rc};
use urma_packet::{Bth, IcrcFlow, Tpn};

const SILENCE: Duration = Duration::from_secs(5);
const HANG: Duration = Duration::from_secs(30);

/// A device at the address of a rank, that speaks to others by packets alone.
fn open(network: Network, rank: u8) -> Opened {
    let eid = Some(ip_eid(network.host(rank)));
    urma::open_node(NodeCfg { eid, path: PathChoice::Packets, ..NodeCfg::default() }).unwrap()
}

fn shared(node: &Arc<Node>) -> LinkAccess {
    LinkAccess::Shared(inc_node::at(node))
}

/// What rank 2 puts into an element.
fn value(rank: u8, at: i64) -> i64 {
    at.wrapping_mul(0x0123_4567_89ab) + i64::from(rank) * 77
}

/// All ranks reduce vectors of these lengths, and compare each element.
fn sums_are_exact(communicator: &Communicator, lengths: &[i64]) {
    let rank = u8::try_from(communicator.rank().0).unwrap();
    for &count in lengths {
        let mine: Vec<i64> = (0..count).map(|at| value(rank, at)).collect();
        let sum = communicator.allreduce(&mine, Operator::Sum).unwrap();
        let of = |at| (0..RANKS).fold(0, |sum: i64, rank| sum.wrapping_add(value(rank, at)));
        assert!(sum.iter().copied().eq((0..count).map(of)), "rank {rank}, {count} elements");
    }
}

/// Writes from one device to another one, each of 64 KiB, until it is to end; how many there were.
fn write_until(is_over: &AtomicBool, from: &Context, to: &Context) -> u64 {
    const LEN: u32 = 64 << 10;
    let jetty = |context: &Context, completions: &Completions| {
        let (mode, jfc) = (TransportMode::Rm, completions.jfc());
        let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, 16), jfc };
        context.create_jetty(&JettyCfg::new(JfsCfg::new(mode, 16), jfc, recv)).unwrap()
    };
    let mut completions = from.create_completions(&JfcCfg::new(64)).unwrap();
    let others = to.create_completions(&JfcCfg::new(64)).unwrap();
    let (mut sender, peer) = (jetty(from, &completions), jetty(to, &others));
    let [mine, theirs] = [(); 2].map(|()| Region::private(LEN.try_into().unwrap()).unwrap());
    let guarded = SegmentCfg::new(SegmentAccess::REMOTE_ALL).with_token(Token::new(0x5eed));
    let exported = to.register(&theirs, &guarded, None).unwrap();
    let local = from.register(&mine, &SegmentCfg::new(SegmentAccess::LOCAL_ONLY), None).unwrap();
    let target = from.import_jetty(&peer.remote()).unwrap();
    let access = SegmentAccess::REMOTE_ALL;
    let remote = from.import_segment(&exported.remote(), access, Mapping::None).unwrap();
    let places = [0, LEN / 2, LEN - 8].map(|at| usize::try_from(at).unwrap());
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        count += 1;
        for at in places {
            mine.store_u64(at, count + at as u64).unwrap();
        }
        let op = SendOp::Write { src: &[local.sge(0, LEN)], dst: remote.at(0) };
        sender.post_send(&[SendWr::new(op, &target, count)]).unwrap();
        let done = completions.wait(Some(HANG)).unwrap().expect("a completion in time");
        assert_eq!(done.success().unwrap().status, CrStatus::Success);
        for at in places {
            assert_eq!(theirs.load_u64(at).unwrap(), count + at as u64);
        }
    }
    count
}

#[test]
fn ranks_at_ports_of_nodes_reduce_beside_requests_of_the_nodes() {
    let network = Network(44, 21);
    let controller = network.start_controller(SILENCE);
    let _switches = network.start_switches(controller.switches());
    let devices = [0, 1].map(|rank| open(network, rank));
    let small = EdgeAttributes { path_mtu: 1024, packets: 4, ..EdgeAttributes::DEFAULT };
    let all_attributes = [
        EdgeAttributes::DEFAULT,
        EdgeAttributes { mode: MessageMode::Write, reliability: Reliability::Unreliable, ..small },
    ];
    let is_over = AtomicBool::new(false);
    let [a, b] = [&devices[0].context, &devices[1].context];
    std::thread::scope(|scope| {
        let writers =
            [[a, b], [b, a]].map(|[from, to]| scope.spawn(|| write_until(&is_over, from, to)));
        for attributes in all_attributes {
            let cfg = CommunicatorCfg { attributes, ..CommunicatorCfg::default() };
            each_rank(|rank| {
                let device = devices.get(usize::from(rank));
                let access = device.map_or(LinkAccess::Udp, |device| shared(&device.node));
                let group = network.join_by(controller.hosts(), rank, access);
                let communicator = group.communicator(cfg).unwrap();
                sums_are_exact(&communicator, &[1, 1000, 100_000]);
                (0..100).for_each(|_| sums_are_exact(&communicator, &[3]));
                communicator.barrier().unwrap();
                assert_eq!(communicator.reducers(), Reducers::Switches);
                let counts = group.host().counts().1;
                assert!(counts.sent > 100 && counts.received > 100, "{counts:?}");
            });
        }
        is_over.store(true, Ordering::Relaxed);
        for writer in writers {
            let count = writer.join().unwrap();
            assert!(count > 20, "{count} writes");
        }
    });
}

#[test]
fn ranks_at_ports_of_nodes_reduce_without_switches() {
    let network = Network(44, 22);
    let controller = network.start_controller(SILENCE);
    let nodes: Vec<_> = (0..RANKS).map(|rank| open(network, rank).node).collect();
    each_rank(|rank| {
        let access = shared(&nodes[usize::from(rank)]);
        let group = network.join_by(controller.hosts(), rank, access);
        let communicator = group.communicator(CommunicatorCfg::default()).unwrap();
        sums_are_exact(&communicator, &[1, 1000, 30_000]);
        assert_eq!(communicator.reducers(), Reducers::Members);
    });
}

#[test]
fn packets_that_find_a_queue_full_are_counted_and_sent_again() {
    let network = Network(44, 23);
    let controller = network.start_controller(SILENCE);
    let _switches = network.start_switches(controller.switches());
    let node = open(network, 0).node;
    let dropped = each_rank(|rank| {
        let port = inc_node::at(&node).with_room(8);
        let access = if rank == 0 { LinkAccess::Shared(port) } else { LinkAccess::Udp };
        let group = network.join_by(controller.hosts(), rank, access);
        let communicator = group.communicator(CommunicatorCfg::default()).unwrap();
        sums_are_exact(&communicator, &[100_000, 1, 100_000]);
        group.host().counts().1.dropped
    });
    assert!(dropped[0] > 0 && dropped[1..].iter().all(|count| *count == 0), "{dropped:?}");
}

/// Takes and sends nothing.
#[derive(Debug)]
struct Silent;

impl PortEndpoint for Silent {
    fn on_packet(&mut self, _: u64, _: SocketAddr, _: &RocePacket<'_>, _: &[u8]) {}

    fn poll_transmit(&mut self, _: u64, _: &mut [u8]) -> Option<Transmit> {
        None
    }

    fn deadline(&self) -> Deadline {
        None
    }
}

#[test]
fn a_number_is_the_hosts_until_its_member_leaves_or_it_is_over() {
    let network = Network(44, 24);
    let node = open(network, 0).node;
    let here = SocketAddr::new(network.host(0), 4791);
    let other = UdpSocket::bind((network.host(1), 4791)).unwrap();
    let send = |qpn: Tpn| {
        let mut bth = Bth::parse(&[rc::SEND_ONLY, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 5]).unwrap();
        bth.dest = qpn;
        let header = RoceHeader { bth, ext: RoceExt::default() };
        let mut packet = [0; 64];
        let flow = IcrcFlow::new(other.local_addr().unwrap(), here);
        let len = header.emit(b"text", &flow, &mut packet).unwrap();
        other.send_to(&packet[..len], here).unwrap();
    };
    let unknown = || node.standard_drops().unknown;
    let is_in_use = |qpn: Tpn| match node.add_endpoint(qpn, Box::new(Silent)) {
        Ok(()) => {
            assert!(node.remove_endpoint(qpn).is_some());
            false
        }
        Err(error) => {
            assert_eq!(error.to_string(), QpnInUse(qpn.value()).to_string());
            true
        }
    };
    let host = LocalHost::bind(here, shared(&node)).unwrap();
    assert_eq!(host.address(), here);
    let cfg = HostMemberCfg {
        rank: Rank(0),
        attributes: EdgeAttributes::DEFAULT,
        address: host.address(),
        bound_ns: u64::MAX,
    };
    let join = || host.join(cfg, Box::new(|report| panic!("{report:?}"))).unwrap();
    let [(first, left), (_, kept)] = [join(), join()];
    assert!(is_in_use(left.qpn) && is_in_use(kept.qpn));
    // A packet of no open edge is the host's to count, and wakes it.
    send(left.qpn);
    wait_until("the host gets its packet", || host.counts().0.unknown_qpns == 1);
    assert_eq!(unknown(), 0);
    host.leave(first);
    assert!(!is_in_use(left.qpn) && is_in_use(kept.qpn));
    send(left.qpn);
    wait_until("the node drops it", || unknown() == 1);
    assert_eq!(host.counts().0.unknown_qpns, 1);
    drop(host);
    assert!(!is_in_use(kept.qpn));
    send(kept.qpn);
    wait_until("the node drops this, too", || unknown() == 2);
    assert_eq!(Arc::strong_count(&node), 1, "the host kept the node");
}

#[test]
fn a_number_of_another_endpoint_is_passed_over() {
    let network = Network(44, 25);
    let node = open(network, 0).node;
    let host = LocalHost::bind(SocketAddr::new(network.host(0), 4791), shared(&node)).unwrap();
    let cfg = HostMemberCfg {
        rank: Rank(0),
        attributes: EdgeAttributes::DEFAULT,
        address: host.address(),
        bound_ns: u64::MAX,
    };
    let join = || host.join(cfg, Box::new(|report| panic!("{report:?}"))).unwrap().1.qpn;
    let after = |qpn: Tpn, count| Tpn::new(qpn.value() + count).unwrap();
    // A host takes one number after the other.
    let first = join();
    node.add_endpoint(after(first, 1), Box::new(Silent)).unwrap();
    node.add_endpoint(after(first, 2), Box::new(Silent)).unwrap();
    assert_eq!(join(), after(first, 3));
    drop(host);
    for count in [1, 2] {
        assert!(node.remove_endpoint(after(first, count)).is_some(), "it went with the host");
    }
}
