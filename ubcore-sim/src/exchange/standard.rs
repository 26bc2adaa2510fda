//! RC jetties that speak the standard RoCEv2 opcodes (`RcWire::Roce`): a connection of `urma-rc` each.
//!
//! *Owns*: connections by the number of their jetty, which packet is for which. *Takes*: bindings, requests
//! from mail, packets, time. *Gives*: ends, completed receives, packets. *Must not*: answer or keep
//! anything for a packet of another node than the bound one; speak to a jetty that is not bound.
//!
//! The queue pair number is the number of the jetty. A connection lasts from bind to unbind; once it failed,
//! both sides unbind and bind again.

mod connection;
mod key;
mod memory;
mod numbered;
mod path_mtu;
mod request;
mod side;

use std::collections::BTreeMap;
use std::ops::Bound;

use udma_abi::{CqeStatus, RawEid, Sqe, counters::Counter};
use urma_packet::{ROCE_PORT, roce::RocePacket};

pub(crate) use connection::BoundPair;
use connection::Connection;
use key::RemoteKeys;

use crate::engine::mail::Handed;
use crate::exchange::context::ExchangeContext;
use crate::ports::{Deadline, Transmit};

/// Packets between queues of this node that one step moves.
const OWN_PER_STEP: usize = 256;
/// Connections without a jetty whose answers wait to be sent.
const LEAVING_MAX: usize = 64;
/// Longest packet in bytes: a path MTU of 4096 and all headers.
const PACKET_MAX: usize = 4096 + 128;

/// Connections of all RC jetties of a node.
#[derive(Debug, Default)]
pub(crate) struct StandardJetties {
    by_id: BTreeMap<u32, Connection>,
    /// Connections that were unbound, until their last answers are sent.
    leaving: Vec<Connection>,
    keys: RemoteKeys,
    /// Jetty whose packet was sent last: the next one follows it.
    last_sent: u32,
    /// Something may be to send.
    unsent: bool,
    /// The packet between two queues of this node.
    packet: Vec<u8>,
}

impl StandardJetties {
    /// Whether there is nothing to look after.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty() && self.leaving.is_empty()
    }

    /// Whether jetty `id` is bound here.
    pub(crate) fn has(&self, id: u32) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Opens the connection of jetty `id`; `false`: the numbers cannot be those of queue pairs.
    pub(crate) fn open(&mut self, work: &ExchangeContext<'_>, id: u32, pair: BoundPair) -> bool {
        let Some(connection) = Connection::open(work, id, pair) else { return false };
        self.by_id.insert(id, connection);
        true
    }

    /// Ends the connection of jetty `id`; what is outstanding ends as flushed.
    pub(crate) fn close(&mut self, work: &mut ExchangeContext<'_>, id: u32) {
        let Some(mut connection) = self.by_id.remove(&id) else { return };
        connection.close(work);
        if connection.has_answers() {
            if self.leaving.len() == LEAVING_MAX {
                self.leaving.remove(0);
            }
            self.leaving.push(connection);
            self.unsent = true;
        }
    }

    /// The jetty left READY: what is outstanding ends as flushed, and the peer is not answered any more.
    pub(crate) fn end(&mut self, work: &mut ExchangeContext<'_>, id: u32) {
        if let Some(connection) = self.by_id.get_mut(&id) {
            connection.close(work);
        }
    }

    /// The queue forgot what it handed over.
    pub(crate) fn purge(&mut self, work: &mut ExchangeContext<'_>, id: u32) {
        if let Some(connection) = self.by_id.get_mut(&id) {
            connection.forget_requests();
            connection.close(work);
        }
    }

    pub(crate) fn post(
        &mut self,
        work: &mut ExchangeContext<'_>,
        id: u32,
        handed: &Handed,
    ) -> Result<(), CqeStatus> {
        let sqe = Sqe::decode(&handed.words).map_err(|_| CqeStatus::LocOperation)?;
        let connection = self.by_id.get_mut(&id).ok_or(CqeStatus::LocOperation)?;
        self.unsent = true;
        connection.post(&work.core.tables, handed, &sqe)
    }

    pub(crate) fn on_packet(
        &mut self,
        work: &mut ExchangeContext<'_>,
        from: RawEid,
        packet: &RocePacket<'_>,
    ) {
        let id = packet.header.bth.dest.value();
        match self.by_id.get_mut(&id) {
            None => work.core.tables.count(Counter::DropUnknownTp),
            Some(connection) if connection.peer() != from => {
                work.core.tables.count(Counter::DropUnproven);
            }
            Some(connection) => {
                connection.on_packet(work, &mut self.keys, packet);
                self.unsent = true;
            }
        }
    }

    /// Moves packets between queues of this node, and looks at timers. Whether anything was done.
    pub(crate) fn step(&mut self, work: &mut ExchangeContext<'_>) -> bool {
        if self.deadline().is_some_and(|at| at <= work.now) {
            self.unsent = true;
        }
        self.leaving.retain(Connection::has_answers);
        let mut moved = 0;
        while moved < OWN_PER_STEP
            && let Some(len) = self.next_own(work)
        {
            moved += 1;
            let bytes = std::mem::take(&mut self.packet);
            // Sealed by this node for itself.
            if let Some(Ok(packet)) = bytes.get(..len).map(RocePacket::parse) {
                self.on_packet(work, work.core.tables.cfg.eid, &packet);
            }
            self.packet = bytes;
        }
        moved != 0
    }

    /// The next packet from this node to itself, in `packet`.
    fn next_own(&mut self, work: &mut ExchangeContext<'_>) -> Option<usize> {
        let Self { by_id, leaving, keys, packet, .. } = self;
        let own = work.core.tables.cfg.eid;
        packet.resize(PACKET_MAX, 0);
        let mut all = by_id.values_mut().chain(leaving).filter(|c| c.peer() == own);
        all.find_map(|connection| connection.poll_transmit(work, keys, packet))
    }

    /// The next packet to another node, at the front of `buf`.
    pub(crate) fn poll_transmit(
        &mut self,
        work: &mut ExchangeContext<'_>,
        buf: &mut [u8],
    ) -> Option<Transmit> {
        if !self.unsent {
            return None;
        }
        let Self { by_id, leaving, keys, last_sent, .. } = self;
        let own = work.core.tables.cfg.eid;
        let mut send = |connection: &mut Connection| {
            let to = Some(connection.peer()).filter(|to| *to != own)?;
            let len = connection.poll_transmit(work, keys, buf)?;
            Some(Transmit { to, port: 0, source_port: ROCE_PORT, len, size: len })
        };
        if let Some(sent) = leaving.iter_mut().find_map(&mut send) {
            return Some(sent);
        }
        let after = (Bound::Excluded(*last_sent), Bound::Unbounded);
        let up_to = (Bound::Unbounded, Bound::Included(*last_sent));
        let found = [after, up_to].into_iter().find_map(|range| {
            by_id.range_mut(range).find_map(|(id, connection)| Some((*id, send(connection)?)))
        });
        match found {
            Some((id, sent)) => {
                self.last_sent = id;
                Some(sent)
            }
            None => {
                self.unsent = false;
                None
            }
        }
    }

    /// Whether there may be something to send.
    pub(crate) fn has_work(&self) -> bool {
        self.unsent
    }

    /// When a step is due.
    pub(crate) fn deadline(&self) -> Deadline {
        if self.unsent {
            return Some(0);
        }
        self.by_id.values().filter_map(Connection::deadline).min()
    }
}
