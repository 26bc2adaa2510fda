//! Packets in and out: which peer's they are, handshakes, messages outside a TP.
//!
//! *Owns*: the checks before a TP gets a packet. *Takes*: arrivals with their source, room for one packet.
//! *Gives*: datagrams. *Must not*: answer a packet that breaks a rule of the format; keep or change
//! anything for one that proves nothing.

use std::ops::Bound;

use udma_abi::{Nanos, RawEid, counters::Counter};
use urma_packet::HandshakeBody;
use urma_packet::{
    Body, Packet, PacketHeader, Psn, ROCE_PORT, RefuseReason, RequestHeader, Tpn, UmHeader,
};

use super::message::{self, MessageProgress};
use super::peer::{Peer, PeerSearch};
use super::piece::Part;
use super::state::Exchange;
use super::target::Unsequenced;
use crate::carrier::{Carrier, packets::Packets, piece::Payload};
use crate::datagram::{DatagramContent, flow, take_apart};
use crate::engine::base::Base;
use crate::ports::{Backlog, NodeAddr, Transmit};
use crate::transport::{Doubt, Handshake, HandshakeEvent, Received, refusal};

/// Of this many packets one goes to a known node, when answers to unknown nodes wait as well.
const ANSWERS_IN_A_ROW: u64 = 8;

impl Exchange {
    /// Takes a datagram. Returns whether a step is due: it did more than to be counted and answered.
    pub(crate) fn on_datagram(
        &mut self,
        base: &Base,
        now: Nanos,
        from: NodeAddr,
        bytes: &[u8],
    ) -> bool {
        match take_apart(from, self.cfg.eid, bytes) {
            Err(counter) => {
                base.tables.count(counter);
                return false;
            }
            Ok(DatagramContent::Message { ends, number, header, payload }) => {
                self.on_um(base, now, (from, &ends, number), (&header, payload));
            }
            Ok(DatagramContent::Handshake(header)) => {
                if let Body::Connect(terms) = &header.body
                    && !self.accept_terms(base, now, from, terms)
                {
                    return false;
                }
                self.on_handshake(base, now, from, &header);
            }
            Ok(DatagramContent::OfTp(packet)) => self.on_tp_packet(base, now, from, &packet),
        }
        true
    }

    /// Whether more datagrams wait than those that follow.
    pub(crate) fn on_backlog(&mut self, now: Nanos, backlog: Backlog) {
        self.replies.on_backlog(now, backlog);
    }

    /// Whether packets are exchanged with any node.
    pub(crate) fn has_packet_peers(&self) -> bool {
        let is_packets = |peer: &Peer| peer.line.is_packets();
        !self.recent.is_empty() || self.peers.values().any(is_packets)
    }

    fn on_um(
        &mut self,
        base: &Base,
        now: Nanos,
        (from, ends, number): (NodeAddr, &UmHeader, Psn),
        (header, payload): (&RequestHeader, &[u8]),
    ) {
        if ends.source_eid != from.0 || ends.dest_eid != self.cfg.eid.0 {
            return base.tables.count(Counter::DropUm);
        }
        if self.recent.has(from, number) {
            return base.tables.count(Counter::RxDuplicate);
        }
        let tpn = self.peers.get(&from).map_or(0, |peer| peer.tpn_of(Unsequenced::Yes));
        let (_, mut work, ..) = self.split(base, now);
        base.tables.counts.add(Counter::RxPackets, 1);
        let part = Part { header, payload: Payload::Here, bytes: payload };
        if message::on_datagram(&mut work, from, tpn, &part) == MessageProgress::Receive {
            self.recent.note(from, number);
        }
    }

    fn on_tp_packet(&mut self, base: &Base, now: Nanos, from: NodeAddr, packet: &Packet<'_>) {
        let dest = packet.header.dest;
        let is_owner = self.numbers.tps.get(&dest.value()) == Some(&from);
        let peer = self.peers.get_mut(&from).filter(|_| is_owner);
        let taken = peer.and_then(|peer| {
            let received = peer.line.packets()?.on_packet(now, packet, &mut self.pool)?;
            if matches!(received, Received::InOrder | Received::OutOfOrder) {
                peer.on_received();
            }
            Some(received)
        });
        let Some(received) = taken else {
            // A notice is shorter than any packet that takes a place in a sequence.
            if packet.header.body.is_sequenced() {
                self.replies.push_notice(now, from, Handshake::unknown_tp(dest));
            }
            return base.tables.count(Counter::DropUnknownTp);
        };
        match received {
            Received::InOrder => base.tables.counts.add(Counter::RxPackets, 1),
            Received::OutOfOrder => {
                base.tables.counts.add(Counter::RxPackets, 1);
                base.tables.counts.add(Counter::RxOutOfOrder, 1);
            }
            Received::Acknowledged => {}
            Received::Duplicate => base.tables.counts.add(Counter::RxDuplicate, 1),
            Received::DroppedBeyondGap | Received::DroppedNoBlock | Received::OutsideWindow => {
                base.tables.counts.add(Counter::DropWindow, 1);
            }
            Received::BadAck | Received::NotTaken => base.tables.count(Counter::DropMalformed),
        }
    }

    fn on_handshake(&mut self, base: &Base, now: Nanos, from: NodeAddr, header: &PacketHeader) {
        let (peers, mut work, _, pool) = self.split(base, now);
        let Some(peer) = peers.get_mut(&from) else {
            return self.on_unexpected(base, now, from, header);
        };
        let Some(Carrier::Packets(packets)) = &mut peer.line.carrier else {
            return self.on_unexpected(base, now, from, header);
        };
        let event = packets.on_handshake(now, header, &mut || work.numbers.offer(from));
        match event {
            HandshakeEvent::NotExpected => return self.on_unexpected(base, now, from, header),
            HandshakeEvent::Doubted => {
                packets.handshake.verify(now, Doubt::Hint, work.numbers.random());
                return;
            }
            HandshakeEvent::Nothing | HandshakeEvent::Proven | HandshakeEvent::Refused(_) => {}
            HandshakeEvent::Opened(new) | HandshakeEvent::Replaced { new, .. } => {
                packets.drop_tp(pool);
                packets.on_opened(now, &new);
                work.numbers.tps.retain(|_, owner| *owner != from);
                work.numbers.tps.insert(new.local_tpn.value(), from);
                peer.on_new_tp(&mut work, &new);
            }
            HandshakeEvent::Closed(old, reason) => {
                packets.drop_tp(pool);
                work.numbers.tps.remove(&old.local_tpn.value());
                peer.on_closed(now, reason);
            }
        }
        peer.on_received();
    }

    /// A handshake packet that shows nothing which only the peer has.
    fn on_unexpected(&mut self, base: &Base, now: Nanos, from: NodeAddr, header: &PacketHeader) {
        base.tables.count(Counter::DropUnproven);
        let is_held = self.numbers.tps.get(&header.dest.value()) == Some(&from);
        if matches!(header.body, Body::Accept(_)) && !is_held {
            // The peer holds a TP that this side does not: it asks, and is refused.
            self.replies.push_notice(now, from, Handshake::unknown_tp(header.dest));
        }
    }

    /// Whether the handshake takes a CONNECT: its sender receives at its address, and is known from
    /// now on.
    fn accept_terms(
        &mut self,
        base: &Base,
        now: Nanos,
        from: NodeAddr,
        terms: &HandshakeBody,
    ) -> bool {
        let ends = (terms.source_eid, terms.dest_eid);
        if ends != (from.0, self.cfg.eid.0) || from == self.cfg.eid {
            base.tables.count(Counter::DropUnproven);
            return false;
        }
        let pair = self.peers.get_mut(&from).and_then(|peer| peer.line.packets());
        let pair = pair.map(|packets| &packets.handshake);
        if !base.tables.faults.sender_unproven()
            && let Some(reply) = self.challenger.screen(now, terms, pair)
        {
            if self.replies.may_challenge() {
                base.tables.count(Counter::Challenges);
                self.reply(base, from, reply);
            } else {
                base.tables.count(Counter::DropUnproven);
            }
            return false;
        }
        if !self.peers.contains_key(&from) && !self.has_place(now) {
            self.reply(base, from, refusal(terms, RefuseReason::Resources, 0));
            return false;
        }
        let peer =
            self.peers.entry(from).or_insert_with(|| Peer::new(from, PeerSearch::Asked, None));
        if peer.line.carrier.is_none() {
            let packets = Packets::new(&self.cfg, from, self.numbers.state());
            peer.line.carrier = Some(Carrier::Packets(Box::new(packets)));
            peer.found = PeerSearch::Yes;
        }
        true
    }

    fn reply(&mut self, base: &Base, to: NodeAddr, reply: PacketHeader) {
        if !self.replies.push(to, reply) {
            base.tables.count(Counter::DropUnproven);
        }
    }

    /// A packet to send; nodes take turns, and with them answers to nodes that are not known.
    pub(crate) fn poll_transmit(&mut self, now: Nanos, buf: &mut [u8]) -> Option<Transmit> {
        // To look at all nodes costs more than an answer: not before each of them.
        let found = if self.transmitted.is_multiple_of(ANSWERS_IN_A_ROW) {
            self.poll_peers(now, buf).or_else(|| self.replies.poll(buf))
        } else {
            self.replies.poll(buf).or_else(|| self.poll_peers(now, buf))
        };
        let (to, len) = found?;
        flow(self.cfg.eid, to).seal(buf.get_mut(..len)?).ok()?;
        self.transmitted += 1;
        Some(Transmit { to, source_port: ROCE_PORT, len })
    }

    fn poll_peers(&mut self, now: Nanos, buf: &mut [u8]) -> Option<(NodeAddr, usize)> {
        let after = (Bound::Excluded(self.turn), Bound::Unbounded);
        let pool = &self.pool;
        let found =
            self.peers.range_mut(after).find_map(|(eid, peer)| transmit(eid, peer, now, buf, pool));
        let found = found.or_else(|| {
            let before = ..=self.turn;
            self.peers.range_mut(before).find_map(|(eid, peer)| transmit(eid, peer, now, buf, pool))
        });
        let (to, len) = found?;
        self.turn = to;
        Some((to, len))
    }
}

fn transmit(
    eid: &RawEid,
    peer: &mut Peer,
    now: Nanos,
    buf: &mut [u8],
    pool: &crate::transport::KnittingPool,
) -> Option<(RawEid, usize)> {
    let Some(Carrier::Packets(packets)) = &mut peer.line.carrier else { return None };
    packets.poll_transmit(now, buf, pool).map(|len| (*eid, len))
}

const _: () = assert!(Tpn::BITS == 24);
