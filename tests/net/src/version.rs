//! A node of a later wire version.
//!
//! *Gives*: its answer to a CONNECT. *Must not*: keep anything.

use std::net::UdpSocket;

use urma_packet::{Body, IcrcFlow, Packet, PacketHeader, Psn, RefuseBody, RefuseReason};

/// Answers the first CONNECT at `socket` as a node of a later wire version does. `false`: none came.
///
/// # Panics
/// When the socket has no address.
#[must_use]
pub fn refuse_version(socket: &UdpSocket) -> bool {
    let own = socket.local_addr().expect("it is bound");
    let mut bytes = [0; 2048];
    while let Ok((len, from)) = socket.recv_from(&mut bytes) {
        let Ok(packet) = Packet::open(&bytes[..len], &IcrcFlow::new(from, own)) else { continue };
        let Body::Connect(offer) = packet.header.body else { continue };
        let refusal = RefuseBody {
            reason: RefuseReason::Version,
            version_min: 2,
            version_max: 3,
            state: 0,
            nonce: offer.nonce,
        };
        let header = PacketHeader::new(offer.source_tpn, Psn::new(0), Body::Refuse(refusal));
        let mut answer = [0; 256];
        let len = header.emit(&[], &IcrcFlow::new(own, from), &mut answer);
        let Ok(len) = len else { return false };
        return socket.send_to(&answer[..len], from).is_ok();
    }
    false
}
