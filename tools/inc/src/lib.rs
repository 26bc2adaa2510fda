//! What the programs of in-network computing have in common.
#![forbid(unsafe_code)]

use std::net::Ipv4Addr;

use clap::Args;
use inc_net::drive::LinkAccess;
use inc_net::raw::{EthernetAddress, RawAccess, RawSocketKind, neighbour, raw_socket_kind};

/// How a station's datagrams go to the link.
#[derive(Debug, Args)]
pub struct LinkArgs {
    /// Sends and takes whole Ethernet frames, past the operating system's UDP and IP: needs CAP_NET_RAW and IPv4; by AF_XDP where it
    /// can be had, which needs CAP_NET_ADMIN and CAP_BPF as well (any), by it alone (xdp), or by packet sockets (packet)
    #[arg(
        long,
        value_name = "SOCKETS",
        value_parser = raw_socket_kind,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "any"
    )]
    raw: Option<RawSocketKind>,
    /// With --raw, the MAC address of a station, where the system's neighbour table is not to be asked; may be given more than once
    #[arg(long, value_name = "IP=MAC", value_parser = neighbour, requires = "raw")]
    neighbour: Vec<(Ipv4Addr, EthernetAddress)>,
}

impl LinkArgs {
    /// What was asked for.
    #[must_use]
    pub fn access(&self) -> LinkAccess {
        let neighbours = self.neighbour.iter().copied().collect();
        self.raw.map_or(LinkAccess::Udp, |kind| LinkAccess::Raw(RawAccess { kind, neighbours }))
    }
}
