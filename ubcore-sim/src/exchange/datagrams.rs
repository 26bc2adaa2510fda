//! Packets in and out: whose they are, ICRC, handshakes, datagrams.
//!
//! *Owns*: the checks before a TP sees a packet. *Takes*: datagrams with their source, room for one.
//! *Gives*: datagrams. *Must not*: answer a packet that breaks a rule of the format.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Bound;

use udma_abi::{Nanos, RawEid, counters::Counter};
use urma_packet::{
    Body, CloseReason, Ends, IcrcFlow, Packet, PacketError, PacketHeader, Psn, ROCE_PORT,
    RequestHeader, Tpn,
};

use super::carrier::{Carrier, Payload};
use super::heard::Heard;
use super::packets::Packets;
use super::peer::{Found, Peer};
use super::receive::Datagram;
use super::respond::Part;
use super::{Exchange, Work};
use crate::device::{Device, limits};
use crate::ports::{NodeAddr, Transmit};
use crate::transport::{HandshakeEvent, Received};

impl Exchange {
    pub(crate) fn on_datagram(&mut self, dev: &Device, now: Nanos, from: NodeAddr, bytes: &[u8]) {
        let packet = match Packet::open(bytes, &flow(from, self.cfg.eid)) {
            Ok(packet) => packet,
            Err(PacketError::Icrc { .. }) => return dev.count(Counter::DropIcrc),
            Err(_) => return dev.count(Counter::DropMalformed),
        };
        let header = &packet.header;
        match &header.body {
            Body::UmSend(ends, request) => {
                let number = header.psn;
                self.on_um(dev, now, (from, ends, number), (request, packet.payload));
            }
            Body::Connect(_) | Body::Accept(_) | Body::Refuse(_) | Body::Close(_) => {
                self.on_handshake(dev, now, from, header);
            }
            Body::Request(_) | Body::Response(_) | Body::Ack(_) | Body::Nak(_) => {
                self.on_tp_packet(dev, now, from, &packet);
            }
        }
    }

    fn on_um(
        &mut self,
        dev: &Device,
        now: Nanos,
        (from, ends, number): (NodeAddr, &Ends, Psn),
        (header, payload): (&RequestHeader, &[u8]),
    ) {
        if ends.source_eid != from.0 || ends.dest_eid != self.cfg.eid.0 {
            return dev.count(Counter::DropUm);
        }
        if !self.is_first(from, number) {
            return dev.count(Counter::RxDuplicate);
        }
        let tpn = self.peers.get(&from).map_or(0, |peer| peer.tpn_of(Datagram::Yes));
        let Self { senders, receives, numbers, cache, bytes, .. } = self;
        let mut work = Work { dev, now, senders, receives, numbers, cache, bytes };
        dev.count_by(Counter::RxPackets, 1);
        work.on_datagram(from, tpn, &Part { header, payload: Payload::Here, bytes: payload });
    }

    /// Whether datagram `number` of a node did not come before.
    fn is_first(&mut self, from: NodeAddr, number: Psn) -> bool {
        let known = self.heard.contains_key(&from);
        if !known && self.heard.len() >= limits::PEERS {
            // More nodes than can be served at a time: one is forgotten.
            self.heard.pop_first();
        }
        self.heard.entry(from).or_insert_with(|| Heard::new(number)).is_new(number)
    }

    fn on_tp_packet(&mut self, dev: &Device, now: Nanos, from: NodeAddr, packet: &Packet<'_>) {
        let dest = packet.header.dest;
        let owner = self.numbers.tps.get(&dest.value()).copied();
        let mut peer = self.peers.get_mut(&from);
        if let Some(peer) = &mut peer {
            peer.on_heard();
        }
        let Some(Carrier::Packets(packets)) = peer.and_then(|p| p.carrier.as_mut()) else {
            return dev.count(Counter::DropUnknownTp);
        };
        let taken = (owner == Some(from)).then(|| packets.on_packet(now, packet, &mut self.pool));
        let Some(Some(received)) = taken else {
            // One such answer per packet, and no more than the queue of datagrams holds.
            packets.push_unknown_tp(dest, self.cfg.incarnation);
            return dev.count(Counter::DropUnknownTp);
        };
        match received {
            Received::InOrder => dev.count_by(Counter::RxPackets, 1),
            Received::OutOfOrder => {
                dev.count_by(Counter::RxPackets, 1);
                dev.count_by(Counter::RxOutOfOrder, 1);
            }
            Received::Acknowledged => {}
            Received::Duplicate => dev.count_by(Counter::RxDuplicate, 1),
            Received::DroppedBeyondGap | Received::DroppedNoBlock | Received::OutsideWindow => {
                dev.count_by(Counter::DropWindow, 1);
            }
            Received::BadAck | Received::NotTaken => dev.count(Counter::DropMalformed),
        }
    }

    fn on_handshake(&mut self, dev: &Device, now: Nanos, from: NodeAddr, header: &PacketHeader) {
        self.admit(from, header);
        let Self { peers, senders, receives, numbers, cache, bytes, pool, .. } = self;
        let Some(peer) = peers.get_mut(&from) else { return dev.count(Counter::DropUnknownTp) };
        let Some(Carrier::Packets(packets)) = &mut peer.carrier else {
            return dev.count(Counter::DropUnknownTp);
        };
        if matches!(&header.body, Body::Close(close) if !packets.is_close_of(close)) {
            return dev.count(Counter::DropOldIncarnation);
        }
        peer.quiet_since = None;
        let event = packets.on_handshake(now, header, &mut || Some(numbers.offer(from)));
        let mut work = Work { dev, now, senders, receives, numbers, cache, bytes };
        match event {
            HandshakeEvent::Nothing | HandshakeEvent::Refused(_) => {}
            HandshakeEvent::NotExpected => dev.count(Counter::DropUnknownTp),
            HandshakeEvent::OldIncarnation => dev.count(Counter::DropOldIncarnation),
            HandshakeEvent::Opened(new) | HandshakeEvent::Replaced { new, .. } => {
                packets.drop_tp(pool);
                packets.on_opened(now, &new);
                work.numbers.tps.retain(|_, owner| *owner != from);
                work.numbers.tps.insert(new.local_tpn.value(), from);
                if peer.incarnation != 0 && peer.incarnation != new.peer_incarnation {
                    peer.on_new_life(&mut work, new.peer_incarnation);
                } else if peer.state != 0 && peer.state != new.peer_state {
                    peer.on_forgotten(&mut work);
                } else {
                    peer.on_carrier_lost();
                }
                peer.incarnation = new.peer_incarnation;
                peer.state = new.peer_state;
                peer.parted = false;
            }
            HandshakeEvent::Closed(old, reason) => {
                // After these the peer repeats nothing.
                peer.parted = matches!(
                    reason,
                    CloseReason::Idle | CloseReason::Shutdown | CloseReason::Timeout
                );
                packets.drop_tp(pool);
                work.numbers.tps.remove(&old.local_tpn.value());
                peer.on_carrier_lost();
            }
        }
        self.wake(dev, now);
    }

    /// A node that asks first becomes known.
    fn admit(&mut self, from: NodeAddr, header: &PacketHeader) {
        let Body::Connect(terms) = &header.body else { return };
        let wanted = terms.source_eid == from.0 && terms.dest_eid == self.cfg.eid.0;
        if !wanted || from == self.cfg.eid {
            return;
        }
        let full = self.peers.len() >= limits::PEERS;
        let state = self.numbers.state();
        let carrier = || Some(Carrier::Packets(Box::new(Packets::new(&self.cfg, from, state))));
        match self.peers.get_mut(&from) {
            Some(peer) if peer.carrier.is_none() => {
                peer.carrier = carrier();
                peer.found = Found::Yes;
            }
            None if !full => {
                let peer = Peer::new(from, Found::Yes, carrier());
                self.peers.insert(from, peer);
            }
            _ => {}
        }
    }

    /// A packet to send; nodes take turns.
    pub(crate) fn poll_transmit(&mut self, now: Nanos, buf: &mut [u8]) -> Option<Transmit> {
        let after = (Bound::Excluded(self.turn), Bound::Unbounded);
        let (own, pool) = (self.cfg.eid, &self.pool);
        let found =
            self.peers.range_mut(after).find_map(|(eid, peer)| transmit(eid, peer, now, buf, pool));
        let found = found.or_else(|| {
            let before = ..=self.turn;
            self.peers.range_mut(before).find_map(|(eid, peer)| transmit(eid, peer, now, buf, pool))
        });
        let (to, len) = found?;
        self.turn = to;
        flow(own, to).seal(buf.get_mut(..len)?).ok()?;
        self.transmitted += 1;
        Some(Transmit { to, source_port: ROCE_PORT, len })
    }
}

fn transmit(
    eid: &RawEid,
    peer: &mut Peer,
    now: Nanos,
    buf: &mut [u8],
    pool: &crate::transport::KnittingPool,
) -> Option<(RawEid, usize)> {
    let Some(Carrier::Packets(packets)) = &mut peer.carrier else { return None };
    packets.poll_transmit(now, buf, pool).map(|len| (*eid, len))
}

/// Both ends of a packet as its ICRC sees them: inside a node, both ports are 4791.
fn flow(from: RawEid, to: RawEid) -> IcrcFlow {
    let end = |eid: RawEid| SocketAddr::new(IpAddr::V6(Ipv6Addr::from(eid.0)), ROCE_PORT);
    IcrcFlow::new(end(from), end(to))
}

const _: () = assert!(Tpn::BITS == 24);
