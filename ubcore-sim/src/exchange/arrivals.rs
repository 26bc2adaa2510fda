//! What the endpoint received: for the peer, or for the queue that a message outside a TP names.
//!
//! *Takes*: arrivals. *Gives*: peers that are new. *Must not*: look at a packet.

use udma_abi::Nanos;
use urma_packet::{PacketHeader, Psn, RequestHeader};

use super::message::{self, MessageProgress};
use super::peer::{Peer, PeerSearch};
use super::piece::Part;
use super::state::Exchange;
use super::target::Unsequenced;
use crate::carrier::{Carrier, piece::Payload};
use crate::endpoint::EndpointEvent;
use crate::engine::base::Base;
use crate::ports::NodeAddr;

impl Exchange {
    /// Takes what came from a node. Returns whether a step is due.
    pub(crate) fn on_arrival(
        &mut self,
        base: &Base,
        now: Nanos,
        from: NodeAddr,
        event: EndpointEvent<'_>,
    ) -> bool {
        match event {
            EndpointEvent::Nothing => return false,
            EndpointEvent::Packet => {}
            EndpointEvent::Message { number, header, payload } => {
                self.on_message(base, now, from, (number, &header, payload));
            }
            EndpointEvent::Connect(header) => return self.on_connect(base, now, from, &header),
            EndpointEvent::Opened(new) => {
                let (peers, mut work, _) = self.split(base, now);
                if let Some(peer) = peers.get_mut(&from) {
                    peer.on_new_tp(&mut work, &new);
                }
            }
            EndpointEvent::Closed(reason) => {
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.on_closed(now, reason);
                }
            }
        }
        true
    }

    /// A node that proved its address wants a TP; it is known from now on if there is a place for it.
    fn on_connect(
        &mut self,
        base: &Base,
        now: Nanos,
        from: NodeAddr,
        header: &PacketHeader,
    ) -> bool {
        if !self.peers.contains_key(&from) && !self.has_place(now) {
            self.endpoint.refuse(&base.tables, from, header);
            return false;
        }
        let peer =
            self.peers.entry(from).or_insert_with(|| Peer::new(from, PeerSearch::Asked, None));
        if peer.line.carrier.is_none() {
            self.endpoint.add(from);
            peer.line.carrier = Some(Carrier::Packets(from));
            peer.found = PeerSearch::Yes;
        }
        let event = self.endpoint.on_handshake(&base.tables, now, from, header);
        self.on_arrival(base, now, from, event)
    }

    fn on_message(
        &mut self,
        base: &Base,
        now: Nanos,
        from: NodeAddr,
        (number, header, payload): (Psn, &RequestHeader, &[u8]),
    ) {
        let tpn = self.peers.get(&from).map_or(0, |peer| peer.tpn_of(Unsequenced::Yes));
        let (_, mut work, _) = self.split(base, now);
        let part = Part { header, payload: Payload::Here, bytes: payload };
        if message::on_datagram(&mut work, from, tpn, &part) == MessageProgress::Receive {
            self.endpoint.note_datagram(from, number);
        }
    }
}
