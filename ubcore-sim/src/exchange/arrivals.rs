//! Dispatch of what the endpoint received: to a peer, or to the queue that a message outside of a TP names.
//!
//! *Takes*: arrivals. *Gives*: new peers. *Must not*: look at a packet.

use udma_abi::Nanos;
use urma_packet::PacketHeader;

use crate::carrier::piece::Payload;
use crate::endpoint::{EndpointEvent, Reception};
use crate::engine::core::DeviceCore;
use crate::exchange::ack_delay::Answers;
use crate::exchange::peers::peer::{FormTaken, Peer};
use crate::exchange::state::{Exchange, ExchangeParts};
use crate::exchange::target::fragment::{RequestFragment, RequestSource};
use crate::exchange::target::lookups;
use crate::exchange::target::message::{self, MessageProgress};
use crate::exchange::target::object::Unsequenced;

impl Exchange {
    /// Takes an arrival from a node. Returns whether a step is due.
    pub(crate) fn on_arrival(
        &mut self,
        core: &DeviceCore,
        by: Reception<'_>,
        event: EndpointEvent<'_>,
    ) -> bool {
        let ExchangeParts { peers, mut work, inbox, .. } = self.split(core, by.now);
        match event {
            EndpointEvent::Nothing => return false,
            EndpointEvent::Packet(eid) => {
                if let Some(peer) = peers.get_mut(&eid) {
                    peer.has_arrival = true;
                }
            }
            EndpointEvent::Message { number, header, payload } => {
                let tpn = peers.get(&by.from).map_or(0, |peer| peer.tpn_of(Unsequenced::Yes));
                let part =
                    RequestFragment { header: &header, payload: Payload::Here, bytes: payload };
                if work.core.tables.contexts().is_some() {
                    // Counted at once: nothing answers it that could be delayed.
                    lookups::look_up(&mut work, RequestSource { eid: by.from, tpn }, &header);
                }
                let progress = message::on_datagram(&mut work, by.from, tpn, &part);
                if progress == MessageProgress::Receive {
                    self.endpoint.note_datagram(by.from, number);
                }
            }
            EndpointEvent::Connect(header) => return self.on_connect(core, by, &header),
            EndpointEvent::Opened(new) => {
                let was_shut = peers.get_mut(&by.from).is_some_and(|peer| {
                    let was_shut = peer.is_shut;
                    peer.on_new_tp(&mut work, &new);
                    was_shut
                });
                // A node that did not announce its close may be the old or a new life: an import may be of either.
                if was_shut {
                    self.end_former_paths(core, by.from);
                }
            }
            EndpointEvent::Closed(reason) => {
                if let Some(peer) = peers.get_mut(&by.from) {
                    // Responses before the CLOSE complete their requests as usual.
                    peer.take_last_messages(&mut work, inbox);
                    peer.on_closed(&mut work, reason);
                }
                self.endpoint.drop_closed(by.from, reason);
            }
        }
        true
    }

    /// Accepts a node that has proven its address and asks for a TP as a peer, if there is a place for it.
    fn on_connect(&mut self, core: &DeviceCore, by: Reception<'_>, connect: &PacketHeader) -> bool {
        if !self.peers.contains_key(&by.from) && !self.has_place(core, by.now, Some(by.from)) {
            self.endpoint.refuse(by, connect);
            return false;
        }
        self.peers.entry(by.from).or_insert_with(|| Peer::since(by.now, by.from, None));
        self.on_packet_peer(by.from);
        let event = self.endpoint.on_handshake(by, connect);
        self.on_arrival(core, by, event)
    }
}

impl Exchange {
    /// Takes the message that a poll found, if nothing else had to be done before it and the program usually comes
    /// back soon. Returns whether it did.
    #[inline]
    pub(crate) fn take_alone(&mut self, core: &DeviceCore, now: Nanos) -> bool {
        if self.ack_delay.answers() != Answers::MayWait || !core.tables.has_message_lane() {
            return false;
        }
        let Some(from) = self.peers.awaited() else { return false };
        let ExchangeParts { peers, mut work, .. } = self.split(core, now);
        let taken = peers.get_mut(&from).and_then(|peer| peer.take_alone(&mut work));
        match taken {
            None => return false,
            Some(FormTaken::Answer) => self.turns.on_turn(),
            Some(FormTaken::Other) => self.turns.on_other(),
        }
        self.ack_delay.on_taken(now);
        true
    }
}
