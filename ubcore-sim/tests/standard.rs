//! Two endpoints of the standard opcodes share the ports of two nodes.
#![forbid(unsafe_code)]

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard},
};

use ubcore_sim::{
    Node, NodeCfg, PortEndpoint,
    ports::{Deadline, Transmit},
};
use udma_abi::RawEid;
use urma_packet::{IcrcFlow, Psn, ROCE_PORT, Tpn, roce::RocePacket};
use urma_rc::{
    RcAccess, RcAtomic, RcCfg, RcCompletion, RcEndpoint, RcMemory, RcOperation, RcRemote,
    RcRequest, RcStatus,
};

/// Bytes that any key may reach.
#[derive(Debug)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn range(&self, place: u64, len: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(place).ok()?;
        (start + len <= self.0.len()).then_some(start..start + len)
    }
}

impl RcMemory for Bytes {
    fn resolve(&self, _: u32, va: u64, len: u32, _: RcAccess) -> Option<u64> {
        self.range(va, usize::try_from(len).ok()?).map(|_| va)
    }

    fn load(&self, place: u64, into: &mut [u8]) -> bool {
        let range = self.range(place, into.len());
        range.map(|range| into.copy_from_slice(&self.0[range])).is_some()
    }

    fn store(&mut self, place: u64, bytes: &[u8]) -> bool {
        let range = self.range(place, bytes.len());
        range.map(|range| self.0[range].copy_from_slice(bytes)).is_some()
    }

    fn update(&mut self, _: u64, _: RcAtomic) -> Option<u64> {
        None
    }

    fn invalidate(&mut self, _: u32) -> bool {
        false
    }
}

/// An endpoint with its memory, for the port and for the test.
#[derive(Debug)]
struct Side {
    rc: RcEndpoint,
    memory: Bytes,
    ends: [RawEid; 2],
}

#[derive(Debug, Clone)]
struct Shared(Arc<Mutex<Side>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Side> {
        self.0.lock().expect("no test panicked")
    }
}

impl PortEndpoint for Shared {
    fn on_packet(&mut self, now: u64, _: SocketAddr, packet: &RocePacket<'_>, _: &[u8]) {
        let Side { rc, memory, .. } = &mut *self.lock();
        rc.on_packet(now, packet, memory);
    }

    fn poll_transmit(&mut self, now: u64, buf: &mut [u8]) -> Option<Transmit> {
        let Side { rc, memory, ends } = &mut *self.lock();
        let end = |eid: RawEid| SocketAddr::new(IpAddr::V6(Ipv6Addr::from(eid.0)), ROCE_PORT);
        let flow = IcrcFlow::new(end(ends[0]), end(ends[1]));
        let len = rc.poll_transmit(now, memory, &flow, buf)?;
        Some(Transmit { to: ends[1], port: 0, source_port: ROCE_PORT, len, size: len })
    }

    fn deadline(&self) -> Deadline {
        self.lock().rc.deadline()
    }
}

fn side([own, peer]: [&Node; 2], qpns: [u32; 2], bytes: Vec<u8>) -> Shared {
    let [local, remote] = qpns.map(Tpn::from_low_bits);
    let cfg = RcCfg::new([local, remote], [Psn::new(qpns[0]), Psn::new(qpns[1])]);
    let rc = RcEndpoint::open(cfg).expect("in range");
    let shared = Shared(Arc::new(Mutex::new(Side {
        rc,
        memory: Bytes(bytes),
        ends: [own.eid(), peer.eid()],
    })));
    own.add_endpoint(local, Box::new(shared.clone())).expect("a free number");
    shared
}

fn complete(nodes: [&Node; 2], side: &Shared, operation: RcOperation, len: u32) -> RcCompletion {
    let request = RcRequest { id: 1, operation, place: 0, len, fence: false, solicited: false };
    side.lock().rc.post(request).expect("room");
    for _ in 0..10_000_000 {
        nodes.iter().for_each(|node| node.exchange());
        if let Some(done) = side.lock().rc.poll_completion() {
            return done;
        }
    }
    panic!("no completion: {:?}", side.lock().rc.counts());
}

#[test]
fn two_endpoints_exchange_through_the_ports_of_nodes() {
    let nodes = [Node::open(NodeCfg::default()).unwrap(), Node::open(NodeCfg::default()).unwrap()];
    let [a, b] = [&*nodes[0], &*nodes[1]];
    let len = 100_000_u32;
    let pattern: Vec<u8> = (0..len).map(|at| (at * 7).to_le_bytes()[0]).collect();
    let here = side([a, b], [0x21, 0x22], pattern.clone());
    let there = side([b, a], [0x22, 0x21], vec![0; pattern.len()]);
    let remote = RcRemote { va: 0, rkey: 1 };
    assert_eq!(complete([a, b], &here, RcOperation::Write(remote), len).status, RcStatus::Success);
    assert_eq!(there.lock().memory.0, pattern);
    here.lock().memory.0.fill(0);
    assert_eq!(complete([a, b], &here, RcOperation::Read(remote), len).status, RcStatus::Success);
    assert_eq!(here.lock().memory.0, pattern);
    // Without an endpoint there, its packets are dropped and counted.
    assert!(b.remove_endpoint(Tpn::from_low_bits(0x22)).is_some());
    let before = b.standard_drops().unknown;
    let write = RcOperation::Write(remote);
    let request =
        RcRequest { id: 2, operation: write, place: 0, len: 8, fence: false, solicited: false };
    here.lock().rc.post(request).unwrap();
    let is_dropped = (0..1_000_000).any(|_| {
        a.exchange();
        b.exchange();
        b.standard_drops().unknown > before
    });
    assert!(is_dropped);
}
