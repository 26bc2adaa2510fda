//! Datagrams taken apart: what arrived, once ICRC and format are right.
//!
//! *Owns*: the kinds of arrivals, the ICRC of both directions. *Takes*: bytes with their source.
//! *Gives*: arrivals, or the counter of what was wrong. *Must not*: depend on a TP or a peer.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use udma_abi::{RawEid, counters::Counter};
use urma_packet::{
    Body, IcrcFlow, Packet, PacketError, PacketHeader, Psn, ROCE_PORT, RequestHeader, UmHeader,
};

/// What a datagram brings.
#[derive(Debug)]
pub(crate) enum DatagramContent<'a> {
    /// A message outside any TP.
    Message { ends: UmHeader, number: Psn, header: RequestHeader, payload: &'a [u8] },
    /// Of the handshake of a TP.
    Handshake(PacketHeader),
    /// Packet of a TP, data or acknowledgement.
    OfTp(Packet<'a>),
}

/// Checks a datagram of node `from` to node `to`, BTH to ICRC.
pub(crate) fn take_apart(
    from: RawEid,
    to: RawEid,
    bytes: &[u8],
) -> Result<DatagramContent<'_>, Counter> {
    let packet = Packet::open(bytes, &flow(from, to)).map_err(|error| {
        let is_icrc = matches!(error, PacketError::Icrc { .. });
        if is_icrc { Counter::DropIcrc } else { Counter::DropMalformed }
    })?;
    let header = packet.header;
    Ok(match header.body {
        Body::UmSend(ends, request) => DatagramContent::Message {
            ends,
            number: header.psn,
            header: request,
            payload: packet.payload,
        },
        Body::Connect(_)
        | Body::Challenge(_)
        | Body::Accept(_)
        | Body::Refuse(_)
        | Body::Close(_) => DatagramContent::Handshake(header),
        Body::Request(_) | Body::Response(_) | Body::Ack(_) | Body::Nak(_) => {
            DatagramContent::OfTp(packet)
        }
    })
}

/// Both ends of a packet as its ICRC sees them: inside a node, both ports are 4791.
pub(crate) fn flow(from: RawEid, to: RawEid) -> IcrcFlow {
    let end = |eid: RawEid| SocketAddr::new(IpAddr::V6(Ipv6Addr::from(eid.0)), ROCE_PORT);
    IcrcFlow::new(end(from), end(to))
}
