//! The world around the device: the only rooms with threads, sockets and clocks.
//!
//! *Owns*: the claim of an EID, connections to nodes on this host, the UDP socket, the background
//! thread, memory made shareable, interrupts by descriptor. *Takes*: requests of the sans-IO core
//! ([`crate::ports`]). *Gives*: peers, datagrams and time to it. *Must not*: interpret a packet, a
//! ring or a table.

pub mod claim;
pub mod clock;
pub mod descriptor;
mod faulty;
mod inquiry;
pub mod inspect;
pub mod interrupt;
pub mod link;
pub mod memory;
pub mod obstacle;
pub mod peer;
pub mod port;
pub mod scheduler;
pub mod shared;
pub mod slots;
pub mod standard;
pub mod tap;
pub mod udp;

use std::net::{IpAddr, Ipv6Addr};

use udma_abi::RawEid;

pub use udp::port_owner::loopback_owners;

/// The address that an EID stands for: IPv4 when it is IPv4-mapped.
#[must_use]
pub fn eid_ip(eid: RawEid) -> IpAddr {
    Ipv6Addr::from(eid.0).to_canonical()
}

/// The EID of an address; IPv4 becomes IPv4-mapped.
#[must_use]
pub fn ip_eid(address: IpAddr) -> RawEid {
    match address {
        IpAddr::V4(v4) => RawEid(v4.to_ipv6_mapped().octets()),
        IpAddr::V6(v6) => RawEid(v6.octets()),
    }
}
