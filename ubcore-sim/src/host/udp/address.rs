//! The address that other hosts reach this one by.
//!
//! *Owns*: the rule which of several it is. *Takes*: the interfaces and routes of the network namespace.
//! *Must not*: send a packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use nix::{ifaddrs::getifaddrs, net::if_::InterfaceFlags};

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
