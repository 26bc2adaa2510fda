//! MTU of the routes to other hosts, as the kernel knows it.
//!
//! *Owns*: a socket that sends nothing. *Takes*: a node. *Gives*: the MTU of the interface to it, or a smaller one
//! from an ICMP message. *Must not*: send a packet.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{Mutex, PoisonError},
};

use rustix::net::sockopt;
use udma_abi::RawEid;

use crate::host::eid_ip;
use crate::ports::LocalRoutes;

/// Routes from the address of a node.
#[derive(Debug)]
pub(crate) struct RouteMtu {
    /// A socket in the network namespace in which the node was opened. One question at a time, since it is connected
    /// for each.
    socket: Mutex<UdpSocket>,
}

impl RouteMtu {
    /// Routes from the address `eid`; `None`: the system has no such socket.
    pub(crate) fn from(eid: RawEid) -> Option<Self> {
        let socket = UdpSocket::bind((eid_ip(eid), 0)).ok()?;
        Some(Self { socket: Mutex::new(socket) })
    }
}

impl LocalRoutes for RouteMtu {
    fn mtu_to(&self, node: RawEid) -> Option<u32> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let to = eid_ip(node);
        socket.connect(SocketAddr::new(to, DISCARD)).ok()?;
        let mtu =
            if to.is_ipv4() { sockopt::ip_mtu(&*socket) } else { sockopt::ipv6_mtu(&*socket) };
        mtu.ok()
    }
}

/// A port of the other end; nothing is sent to it.
const DISCARD: u16 = 9;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::host::ip_eid;

    #[test]
    fn the_loopback_interface_has_an_mtu() {
        let eid = |last| ip_eid(IpAddr::from([127, 0, 0, last]));
        let routes = RouteMtu::from(eid(1)).expect("a socket");
        assert!(routes.mtu_to(eid(2)).is_some_and(|mtu| mtu >= 1500));
        assert_eq!(routes.mtu_to(ip_eid("fd80::1".parse().unwrap())), None, "no route");
    }
}
