//! Hosts of in-network computing at the UDP port of a URMA node.
//!
//! - owns: nothing. takes: a node. gives: its port to stations of `inc-net`, each QPN of theirs as an endpoint.
//! - must not: know the protocol, nor anything of the device but its endpoints.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::Arc;

use inc_net::shared::{PortOwner, PortQueues, SharedPort};
use ubcore_sim::host::{eid_ip, ip_eid};
use ubcore_sim::ports::{Deadline, Transmit};
use ubcore_sim::{Node, PortEndpoint};
use urma_packet::roce::RocePacket;
use urma_packet::{ROCE_PORT, Tpn};

/// The port of a node, for hosts and switches of in-network computing. The node lives for as long as one of them.
#[must_use]
pub fn at(node: &Arc<Node>) -> SharedPort {
    SharedPort::new(Arc::new(NodePort(Arc::clone(node))))
}

#[derive(Debug)]
struct NodePort(Arc<Node>);

impl PortOwner for NodePort {
    fn address(&self) -> SocketAddr {
        SocketAddr::new(eid_ip(self.0.eid()), ROCE_PORT)
    }

    fn add(&self, qpn: Tpn, queues: Arc<PortQueues>) -> bool {
        self.0.add_endpoint(qpn, Box::new(StationEndpoint(queues))).is_ok()
    }

    fn remove(&self, qpn: Tpn) {
        let _ = self.0.remove_endpoint(qpn);
    }

    fn exchange(&self) {
        self.0.exchange();
    }
}

/// One QPN of a station.
#[derive(Debug)]
struct StationEndpoint(Arc<PortQueues>);

impl PortEndpoint for StationEndpoint {
    fn on_packet(&mut self, _: u64, from: SocketAddr, _: &RocePacket<'_>, bytes: &[u8]) {
        self.0.on_packet(from, bytes);
    }

    fn poll_transmit(&mut self, _: u64, buf: &mut [u8]) -> Option<Transmit> {
        let (to, len) = self.0.poll_transmit(buf)?;
        let to = ip_eid(to.ip());
        Some(Transmit { to, port: 0, source_port: ROCE_PORT, len, size: len })
    }

    fn deadline(&self) -> Deadline {
        // At once.
        self.0.has_transmit().then_some(0)
    }
}
