//! Arrivals: which peer they are from, handshakes, messages outside of a TP.
//!
//! *Owns*: the checks before a TP gets a packet. *Takes*: datagrams with their source. *Gives*: what arrived. *Must
//! not*: answer a packet that violates the format; store or change anything for one that proves nothing.

use udma_abi::{Nanos, RawEid, counters::Counter};
use urma_packet::{
    Body, CloseReason, HandshakeBody, Packet, PacketError, PacketHeader, Psn, RefuseReason,
    RequestHeader, Tpn,
};

use super::{PeerTp, TpEndpoint, moves::Attempt};
use crate::context::tables::Tables;
use crate::ports::{Backlog, NodeAddr, RUN_ID_MAX, Route};
use crate::transport::{
    Agreed, Doubt, Handshake, HandshakeEvent, HandshakeState, Received, refusal,
};

/// Result of a datagram.
#[derive(Debug)]
pub(crate) enum EndpointEvent<'a> {
    /// Nothing more to do: it was only counted or answered.
    Nothing,
    /// A packet for the TP of this peer, or its handshake: there may be pieces in order, and packets to send.
    Packet(RawEid),
    /// A message outside of any TP. [`TpEndpoint::note_datagram`] follows if it reached a receive.
    Message { number: Psn, header: RequestHeader, payload: &'a [u8] },
    /// An unknown node that receives at its address asks for a TP: [`TpEndpoint::refuse`] follows, or
    /// [`TpEndpoint::add`] and [`TpEndpoint::on_handshake`].
    Connect(PacketHeader),
    /// The peer has a new TP, maybe in place of another one.
    Opened(Agreed),
    /// The peer closed the TP. [`PeerTp::pop`] gives what was received in order before, then
    /// [`TpEndpoint::drop_closed`] follows.
    Closed(CloseReason),
}

/// When and from which node a datagram came; where it is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reception<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) now: Nanos,
    /// EID of the node, as far as known.
    pub(crate) from: RawEid,
    /// The route on which it came.
    pub(crate) route: Route,
}

impl<'a> Reception<'a> {
    pub(crate) const fn new(tables: &'a Tables, now: Nanos, route: Route) -> Self {
        Self { tables, now, from: route.to, route }
    }
}

impl TpEndpoint {
    /// Takes a datagram, BTH to ICRC, and completes its source.
    pub(crate) fn on_datagram<'a>(
        &mut self,
        by: &mut Reception<'_>,
        bytes: &'a [u8],
    ) -> EndpointEvent<'a> {
        let own = self.cfg.address(by.route.port);
        let front = self.flows[1].of(by.route.to, own, bytes.len());
        let packet = match front.and_then(|front| front.verify_id_up_to(bytes, RUN_ID_MAX)) {
            Err(error) if !by.tables.faults.icrc_unchecked() => Err(error),
            _ => Packet::parse(bytes),
        };
        let packet = match packet {
            Ok(packet) => packet,
            Err(error) => {
                let is_icrc = matches!(error, PacketError::Icrc { .. });
                by.tables.count(if is_icrc { Counter::DropIcrc } else { Counter::DropMalformed });
                return EndpointEvent::Nothing;
            }
        };
        let header = packet.header;
        if self.has_routes {
            by.from = self.node_of(by.route, &header);
        }
        let by = *by;
        match &header.body {
            Body::Request(_)
            | Body::Response(_)
            | Body::Pack
            | Body::Ack(_)
            | Body::Nak(_)
            | Body::Losses(_)
            | Body::Tail(_)
            | Body::Repair(_) => {
                self.on_tp_packet(by, &packet);
                EndpointEvent::Packet(by.from)
            }
            Body::Probe(_) | Body::ProbeEcho(_) => {
                self.on_probe(by, &header);
                EndpointEvent::Packet(by.from)
            }
            Body::Connect(terms) if !self.screen(by, terms) => EndpointEvent::Nothing,
            Body::Connect(_) if !self.tps.contains_key(&by.from) => EndpointEvent::Connect(header),
            Body::Connect(_)
            | Body::Challenge(_)
            | Body::Accept(_)
            | Body::Refuse(_)
            | Body::Close(_) => self.on_handshake(by, &header),
            Body::UmSend(ends, request) => {
                let is_its_address = ends.source_eid == by.from.0 && self.is_route(by);
                let wrong = if !is_its_address || ends.dest_eid != self.cfg.eid.0 {
                    Counter::DropUm
                } else if self.recent.has(by.from, header.psn) {
                    Counter::RxDuplicate
                } else {
                    by.tables.counts.add(Counter::RxPackets, 1);
                    let (number, header, payload) = (header.psn, *request, packet.payload);
                    return EndpointEvent::Message { number, header, payload };
                };
                by.tables.count(wrong);
                EndpointEvent::Packet(by.from)
            }
        }
    }

    /// The node that a packet claims to be from. The checks that follow show whether its address is one of that
    /// node's.
    fn node_of(&self, route: Route, header: &PacketHeader) -> RawEid {
        match &header.body {
            Body::Connect(terms) | Body::Accept(terms) => RawEid(terms.source_eid),
            Body::UmSend(ends, _) => RawEid(ends.source_eid),
            Body::Close(close) if close.reason == CloseReason::UnknownTp => {
                let is_it = |tp: &PeerTp| {
                    let HandshakeState::Open(held) = tp.handshake.state() else { return false };
                    tp.may_come(route) && held.peer_tpn == close.source_tpn
                };
                let found = self.tps.iter().find(|(_, tp)| is_it(tp));
                found.map_or(route.to, |(peer, _)| *peer)
            }
            Body::Request(_)
            | Body::Response(_)
            | Body::Pack
            | Body::Ack(_)
            | Body::Nak(_)
            | Body::Challenge(_)
            | Body::Refuse(_)
            | Body::Close(_)
            | Body::Probe(_)
            | Body::ProbeEcho(_)
            | Body::Losses(_)
            | Body::Tail(_)
            | Body::Repair(_) => *self.numbers.tps.get(&header.dest.value()).unwrap_or(&route.to),
        }
    }

    /// Whether packets of the node may come on that route.
    fn is_route(&self, by: Reception<'_>) -> bool {
        let is_further = || self.tps.get(&by.from).is_some_and(|tp| tp.has_route(by.route));
        by.route == Route::direct(by.from) || is_further()
    }

    /// Notes whether more datagrams wait than those that follow.
    pub(crate) fn on_backlog(&mut self, now: Nanos, backlog: Backlog) {
        self.replies.on_backlog(now, backlog);
    }

    /// Notes that message `number` of the node reached a receive: another one with this number is a duplicate.
    pub(crate) fn note_datagram(&mut self, from: NodeAddr, number: Psn) {
        self.recent.note(from, number);
    }

    /// Takes a probe of a TP's path, or the echo of one, from the peer of that TP.
    fn on_probe(&mut self, by: Reception<'_>, header: &PacketHeader) {
        let Reception { tables, now, from, .. } = by;
        let is_owner = self.numbers.tps.get(&header.dest.value()) == Some(&from);
        let tp = self.tps.get_mut(&from).filter(|tp| is_owner && tp.takes(by.route, header.dest));
        let Some(tp) = tp else { return tables.count(Counter::DropUnknownTp) };
        if let Body::Probe(probe) = &header.body {
            return tp.on_probe(by.route, *probe);
        }
        let Body::ProbeEcho(echo) = &header.body else { return };
        if !tp.on_echo(now, by.route, echo) {
            tables.count(Counter::DropUnproven);
        }
    }

    fn on_tp_packet(&mut self, by: Reception<'_>, packet: &Packet<'_>) {
        let Reception { tables, now, from, .. } = by;
        let dest = packet.header.dest;
        let is_owner = self.numbers.tps.get(&dest.value()) == Some(&from);
        let peer = self.tps.get_mut(&from).filter(|tp| is_owner && tp.takes(by.route, dest));
        let received = peer.and_then(|tp| tp.on_packet((now, by.route), packet, &mut self.pool));
        let Some(received) = received else {
            // A notice is shorter than any packet that has a place in a sequence.
            if packet.header.body.is_sequenced() {
                self.replies.push_notice(now, by.route, Handshake::unknown_tp(dest));
            }
            return tables.count(Counter::DropUnknownTp);
        };
        match received {
            Received::InOrder => tables.counts.add(Counter::RxPackets, 1),
            Received::OutOfOrder => {
                tables.counts.add(Counter::RxPackets, 1);
                tables.counts.add(Counter::RxOutOfOrder, 1);
            }
            Received::Acknowledged => {}
            Received::Duplicate => tables.counts.add(Counter::RxDuplicate, 1),
            Received::DroppedBeyondGap | Received::DroppedNoBlock | Received::OutsideWindow => {
                tables.counts.add(Counter::DropWindow, 1);
            }
            Received::Unmatched => tables.count(Counter::DropUnmatched),
            Received::BadReport => tables.count(Counter::BadReport),
            Received::BadTail => tables.count(Counter::BadTail),
            Received::BadRepeat => tables.count(Counter::BadRepeat),
            Received::BadRepair => tables.count(Counter::BadRepair),
            Received::BadAck | Received::NotAccepted => tables.count(Counter::DropMalformed),
        }
    }

    /// Takes a packet of the handshake; a CONNECT only if its sender receives at its address.
    pub(crate) fn on_handshake(
        &mut self,
        by: Reception<'_>,
        header: &PacketHeader,
    ) -> EndpointEvent<'static> {
        let Reception { now, from, .. } = by;
        let Self { tps, numbers, pool, has_routes, .. } = self;
        let Some(tp) = tps.get_mut(&from) else {
            self.on_unexpected(by, header);
            return EndpointEvent::Packet(from);
        };
        let mut offer = |kept| numbers.offer_beside(from, kept);
        let attempt = tp.attempt_of((now, by.route), header, &mut offer);
        if attempt == Attempt::Own {
            tp.replies = Some(by.route);
        }
        let event = match tp.on_handshake(attempt, header, &mut offer) {
            HandshakeEvent::NotExpected => {
                self.on_unexpected(by, header);
                return EndpointEvent::Packet(from);
            }
            HandshakeEvent::Doubted => {
                tp.handshake.verify(now, Doubt::Hint, numbers.random());
                return EndpointEvent::Packet(from);
            }
            HandshakeEvent::Nothing => EndpointEvent::Packet(from),
            HandshakeEvent::Proven => {
                tp.proven_at = now;
                EndpointEvent::Packet(from)
            }
            HandshakeEvent::Opened(new) => {
                tp.drop_tp(pool);
                if by.route.to == from {
                    tp.learn(&self.cfg, from, &new);
                    *has_routes |= tp.routes.is_some();
                }
                tp.on_opened_at(now, by.route, &new);
                numbers.tps.retain(|_, owner| *owner != from);
                numbers.tps.insert(new.local_tpn.value(), from);
                EndpointEvent::Opened(new)
            }
            HandshakeEvent::Closed(reason) => EndpointEvent::Closed(reason),
        };
        tp.received = true;
        event
    }

    /// Handles a handshake packet that shows nothing which only the peer has.
    fn on_unexpected(&mut self, by: Reception<'_>, header: &PacketHeader) {
        let Reception { tables, now, from, .. } = by;
        tables.count(Counter::DropUnproven);
        let is_held = self.numbers.tps.get(&header.dest.value()) == Some(&from);
        if matches!(header.body, Body::Accept(_)) && !is_held {
            // The peer holds a TP that this side does not: it asks, and is refused.
            self.replies.push_notice(now, by.route, Handshake::unknown_tp(header.dest));
        }
    }

    /// Whether the handshake accepts a CONNECT: its sender receives at its address.
    fn screen(&mut self, by: Reception<'_>, terms: &HandshakeBody) -> bool {
        let Reception { tables, now, from, route } = by;
        let ends = (terms.source_eid, terms.dest_eid);
        // Further addresses are those of the life that named them.
        let is_life = |tp: &PeerTp| tp.has_route(route) && tp.is_life(terms.incarnation);
        let is_its_route = route == Route::direct(from) || self.tps.get(&from).is_some_and(is_life);
        if ends != (from.0, self.cfg.eid.0) || from == self.cfg.eid || !is_its_route {
            tables.count(Counter::DropUnproven);
            return false;
        }
        let pair = self.tps.get(&from).map(|tp| &tp.handshake);
        let addresses = [route.to, self.cfg.address(route.port)];
        if !tables.faults.sender_unproven()
            && let Some(reply) = self.challenger.screen(now, terms, addresses, pair)
        {
            if self.replies.may_challenge() {
                tables.count(Counter::Challenges);
                self.reply(tables, route, reply);
            } else {
                tables.count(Counter::DropUnproven);
            }
            return false;
        }
        true
    }

    /// Answers the CONNECT of a node for which there is no place.
    pub(crate) fn refuse(&mut self, by: Reception<'_>, connect: &PacketHeader) {
        if let Body::Connect(terms) = &connect.body {
            self.reply(by.tables, by.route, refusal(terms, RefuseReason::Resources, 0));
        }
    }

    fn reply(&mut self, tables: &Tables, to: Route, reply: PacketHeader) {
        if !self.replies.push(to, reply) {
            tables.count(Counter::DropUnproven);
        }
    }
}

const _: () = assert!(Tpn::BITS == 24);
