//! RC jetties that speak the standard RoCEv2 opcodes (`RcWire::Roce`): one `urma-rc` connection each.
//!
//! *Owns*: connections by jetty number, the dispatch of packets to them. *Takes*: bindings, requests from mail,
//! packets, time. *Gives*: completions, completed receives, packets. *Must not*: answer or store a packet of another
//! node than the bound one; send to a jetty that is not bound.
//!
//! The queue pair number is the jetty number. A connection lasts from bind to unbind; after a failure both sides
//! unbind and bind again.

mod connection;
mod key;
mod memory;
mod numbered;
mod path_mtu;
mod request;

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

/// Packets between queues of this node that are moved in one step.
const OWN_PER_STEP: usize = 256;
/// Most connections without a jetty whose answers wait to be sent.
const LEAVING_MAX: usize = 64;
/// Longest packet in bytes: a path MTU of 4096 and all headers.
const PACKET_MAX: usize = 4096 + 128;

/// The connections of all RC jetties of a node.
#[derive(Debug, Default)]
pub(crate) struct StandardJetties {
    by_id: BTreeMap<u32, Connection>,
    /// Unbound connections, until their last answers are sent.
    leaving: Vec<Connection>,
    keys: RemoteKeys,
    /// Jetty whose packet was sent last: the next one in the order follows.
    last_sent: u32,
    /// There may be something to send.
    unsent: bool,
    /// Buffer for a packet between two queues of this node.
    packet: Vec<u8>,
}

impl StandardJetties {
    /// Whether there are no connections.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty() && self.leaving.is_empty()
    }

    /// Whether jetty `id` has a connection.
    pub(crate) fn has(&self, id: u32) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Opens the connection of jetty `id`; `false`: the numbers are not possible for queue pairs.
    pub(crate) fn open(&mut self, work: &ExchangeContext<'_>, id: u32, pair: BoundPair) -> bool {
        let Some(connection) = Connection::open(work, id, pair) else { return false };
        self.by_id.insert(id, connection);
        true
    }

    /// Closes the connection of jetty `id`; outstanding requests end as flushed.
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

    /// Flushes the outstanding requests of a jetty that left READY; the peer is no longer answered.
    pub(crate) fn end(&mut self, work: &mut ExchangeContext<'_>, id: u32) {
        if let Some(connection) = self.by_id.get_mut(&id) {
            connection.close(work);
        }
    }

    /// Forgets the requests of a queue that dropped them.
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

    /// Moves packets between queues of this node, and checks timers. Returns whether anything was done.
    pub(crate) fn carry_own_packets(&mut self, work: &mut ExchangeContext<'_>) -> bool {
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
            // This node computed the ICRC for itself.
            if let Some(Ok(packet)) = bytes.get(..len).map(RocePacket::parse) {
                self.on_packet(work, work.core.tables.cfg.eid, &packet);
            }
            self.packet = bytes;
        }
        moved != 0
    }

    /// Writes the next packet from this node to itself to `packet`.
    fn next_own(&mut self, work: &mut ExchangeContext<'_>) -> Option<usize> {
        let Self { by_id, leaving, keys, packet, .. } = self;
        let own = work.core.tables.cfg.eid;
        packet.resize(PACKET_MAX, 0);
        let mut all = by_id.values_mut().chain(leaving).filter(|c| c.peer() == own);
        all.find_map(|connection| connection.poll_transmit(work, keys, packet))
    }

    /// Writes the next packet to another node to the front of `buf`.
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

    /// Deadline of the next step.
    pub(crate) fn deadline(&self) -> Deadline {
        if self.unsent {
            return Some(0);
        }
        self.by_id.values().filter_map(Connection::deadline).min()
    }
}
