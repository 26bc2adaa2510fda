//! The address that other hosts reach this one by, and the MTU of the routes to them, as the kernel knows both.
//!
//! Must not send a packet.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{Mutex, PoisonError},
};

use nix::{ifaddrs::getifaddrs, net::if_::InterfaceFlags};
use rustix::net::sockopt;
use udma_abi::RawEid;

use crate::{host::eid_ip, ports::LocalRoutes};

/// The address of this host: the only global one of an interface that is up; of several, the one that the
/// default route prefers as a source, or the first interface's where that is none of them. IPv4 addresses go
/// before IPv6 ones.
#[must_use]
pub fn host_address() -> Option<IpAddr> {
    let Ok(interfaces) = getifaddrs() else { return None };
    let is_used = |flags: InterfaceFlags| {
        flags.contains(InterfaceFlags::IFF_UP) && !flags.contains(InterfaceFlags::IFF_LOOPBACK)
    };
    let found = interfaces.filter(|interface| is_used(interface.flags)).filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| v6.ip().into()))
    });
    choose(&found.collect::<Vec<_>>(), preferred_source)
}

fn choose(found: &[IpAddr], preferred: impl Fn(IpAddr) -> Option<IpAddr>) -> Option<IpAddr> {
    ELSEWHERE.into_iter().find_map(|elsewhere| {
        let is_own =
            |address: &&IpAddr| address.is_ipv4() == elsewhere.is_ipv4() && is_global(**address);
        let global: Vec<IpAddr> = found.iter().filter(is_own).copied().collect();
        let (first, others) = global.split_first()?;
        if others.is_empty() {
            return Some(*first);
        }
        preferred(elsewhere).filter(|source| global.contains(source)).or(Some(*first))
    })
}

/// Whether other hosts may reach it without naming an interface.
fn is_global(address: IpAddr) -> bool {
    let is_of_a_link = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !address.is_loopback() && !address.is_unspecified() && !is_of_a_link
}

/// The source address that the routes choose for packets to `to`. Connecting a UDP socket sends nothing.
fn preferred_source(to: IpAddr) -> Option<IpAddr> {
    let any: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(SocketAddr::new(to, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Addresses that no host has (RFC 5737, RFC 3849): only a default route leads to them.
const ELSEWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

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

    fn chosen(found: &[&str], preferred: Option<&str>) -> Option<String> {
        let found: Vec<IpAddr> = found.iter().map(|text| text.parse().unwrap()).collect();
        let preferred = preferred.map(|text| text.parse().unwrap());
        choose(&found, |to| preferred.filter(|source: &IpAddr| source.is_ipv4() == to.is_ipv4()))
            .map(|address| address.to_string())
    }

    #[test]
    fn the_only_global_address_is_the_hosts() {
        assert_eq!(chosen(&["10.0.0.7"], None).as_deref(), Some("10.0.0.7"));
        let many = ["127.0.0.2", "169.254.1.2", "10.0.0.7", "fe80::1", "::1"];
        assert_eq!(chosen(&many, None).as_deref(), Some("10.0.0.7"));
        assert_eq!(chosen(&["fe80::1", "fd80::2"], None).as_deref(), Some("fd80::2"));
    }

    #[test]
    fn of_several_the_default_route_chooses_and_else_the_first() {
        let two = ["10.0.0.7", "10.1.0.7", "fd80::2"];
        assert_eq!(chosen(&two, Some("10.1.0.7")).as_deref(), Some("10.1.0.7"));
        assert_eq!(chosen(&two, Some("10.9.9.9")).as_deref(), Some("10.0.0.7"));
        assert_eq!(chosen(&two, None).as_deref(), Some("10.0.0.7"));
        assert_eq!(chosen(&["fd80::2", "fd80::3"], Some("fd80::3")).as_deref(), Some("fd80::3"));
    }

    #[test]
    fn without_a_global_address_there_is_none() {
        assert_eq!(chosen(&["127.0.0.1", "169.254.1.2", "::1", "fe80::1"], None), None);
        assert_eq!(chosen(&[], None), None);
    }

    #[test]
    fn the_loopback_interface_has_an_mtu() {
        let eid = |last| ip_eid(IpAddr::from([127, 0, 0, last]));
        let routes = RouteMtu::from(eid(1)).expect("a socket");
        assert!(routes.mtu_to(eid(2)).is_some_and(|mtu| mtu >= 1500));
        assert_eq!(routes.mtu_to(ip_eid("fd80::1".parse().unwrap())), None, "no route");
    }
}
