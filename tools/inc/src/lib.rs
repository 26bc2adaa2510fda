//! What the programs of in-network computing have in common.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fs;
use std::net::Ipv4Addr;

use clap::Args;
use inc::tree_document::read_tree;
use inc_net::drive::LinkAccess;
use inc_net::raw::{
    EthernetAddress, RawAccess, RawSocketKind, neighbour, neighbours_of, raw_socket_kind,
};

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
    /// With --raw, a tree as YAML (`switches`), whose MAC addresses are those of the stations; --neighbour goes before it
    #[arg(long, value_name = "FILE", value_parser = neighbours, requires = "raw")]
    neighbours: Option<Neighbours>,
}

/// MAC addresses of a file.
type Neighbours = HashMap<Ipv4Addr, EthernetAddress>;

fn neighbours(file: &str) -> Result<Neighbours, String> {
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    Ok(neighbours_of(&read_tree(&text).map_err(|error| error.to_string())?))
}

impl LinkArgs {
    /// What was asked for.
    #[must_use]
    pub fn access(&self) -> LinkAccess {
        let mut neighbours = self.neighbours.clone().unwrap_or_default();
        neighbours.extend(self.neighbour.iter().copied());
        self.raw.map_or(LinkAccess::Udp, |kind| LinkAccess::Raw(RawAccess { kind, neighbours }))
    }
}
