//! RC jetties that speak the standard RoCEv2 opcodes (`RcWire::Roce`): one `urma-rc` connection each.
//!
//! The queue pair number is the jetty number. A connection lasts from bind to unbind; after a failure both sides
//! unbind and bind again. Must not answer or store a packet of another node than the bound one, or one with a wrong
//! ICRC.

mod connection;
mod memory;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    ops::Bound,
};

use connection::Connection;
use memory::RemoteKeys;
use udma_abi::{CqeStatus, Nanos, RawEid, Sqe, counters::Counter};
use urma_packet::{Bth, IcrcFlow, ROCE_PORT, roce::RocePacket};

use crate::{
    endpoint::Reception,
    engine::{core::DeviceCore, mail::Handed},
    exchange::{Exchange, ExchangeContext, ExchangeParts},
    ports::{Deadline, Transmit},
};

pub(crate) use connection::BoundPair;

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

/// A set of values by number.
#[derive(Debug)]
struct Numbered<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { values: Vec::new(), free: Vec::new() }
    }
}

impl<T> Numbered<T> {
    /// Adds a value; returns its number.
    fn add(&mut self, value: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.values[number as usize] = Some(value);
            return number;
        }
        let number = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        self.values.push(Some(value));
        number
    }

    fn get(&self, number: u32) -> Option<&T> {
        self.values.get(number as usize)?.as_ref()
    }

    /// Removes a value and returns it.
    fn take(&mut self, number: u64) -> Option<T> {
        let number = u32::try_from(number).ok()?;
        let value = self.values.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(value)
    }

    /// Removes every value, so that all numbers are free.
    fn clear(&mut self) {
        self.values.clear();
        self.free.clear();
    }
}

impl Exchange {
    /// Opens the connection of jetty `id`.
    pub(crate) fn bind_standard(&mut self, core: &DeviceCore, id: u32, pair: BoundPair) -> bool {
        let ExchangeParts { standard, work, .. } = self.split(core, 0);
        standard.open(&work, id, pair)
    }

    /// Closes the connection of jetty `id`, if it has one.
    pub(crate) fn unbind_standard(&mut self, core: &DeviceCore, id: u32) {
        let ExchangeParts { standard, mut work, .. } = self.split(core, 0);
        standard.close(&mut work, id);
    }

    /// Flushes the connection of jetty `id`, which left READY but stays bound.
    pub(crate) fn end_standard(&mut self, core: &DeviceCore, id: u32) {
        let ExchangeParts { standard, mut work, .. } = self.split(core, 0);
        standard.end(&mut work, id);
    }

    pub(crate) fn purge_standard(&mut self, core: &DeviceCore, id: u32) {
        let ExchangeParts { standard, mut work, .. } = self.split(core, 0);
        standard.purge(&mut work, id);
    }

    /// Takes a request of jetty `id`.
    ///
    /// # Errors
    /// The status with which the request ends at once.
    pub(crate) fn post_standard(
        &mut self,
        core: &DeviceCore,
        now: Nanos,
        (id, handed): (u32, &Handed),
    ) -> Result<(), CqeStatus> {
        let ExchangeParts { standard, mut work, .. } = self.split(core, now);
        standard.post(&mut work, id, handed)
    }

    /// Steps the connections. Returns whether anything was done.
    pub(crate) fn step_standard(&mut self, core: &DeviceCore, now: Nanos) -> bool {
        if self.standard.is_empty() {
            return false;
        }
        let ExchangeParts { standard, mut work, .. } = self.split(core, now);
        standard.carry_own_packets(&mut work)
    }

    /// Takes a datagram of the standard opcodes that came from UDP port `port`. Returns whether a step is due.
    pub(crate) fn on_standard(
        &mut self,
        core: &DeviceCore,
        by: Reception<'_>,
        (port, bytes): (u16, &[u8]),
    ) -> bool {
        let drop = |counter| {
            by.tables.count(counter);
            false
        };
        // Queue pairs have the address of port 0 only.
        if by.route.port != 0 {
            return drop(Counter::DropUnknownTp);
        }
        let Ok(bth) = Bth::parse(bytes) else { return drop(Counter::DropMalformed) };
        // The number first: an ICRC costs more than a lookup in the map.
        if !self.standard.has(bth.dest.value()) {
            return drop(Counter::DropUnknownTp);
        }
        let end = |eid: RawEid, port| SocketAddr::new(IpAddr::V6(Ipv6Addr::from(eid.0)), port);
        let flow = IcrcFlow::new(end(by.from, port), end(by.tables.cfg.eid, ROCE_PORT));
        if flow.verify_any_id(bytes).is_err() {
            return drop(Counter::DropIcrc);
        }
        let Ok(packet) = RocePacket::parse(bytes) else { return drop(Counter::DropMalformed) };
        let ExchangeParts { standard, mut work, .. } = self.split(core, by.now);
        standard.on_packet(&mut work, by.from, &packet);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Numbered;

    #[test]
    fn a_number_is_given_again_after_its_value_was_taken() {
        let mut values = Numbered::default();
        assert_eq!([values.add('a'), values.add('b')], [0, 1]);
        assert_eq!(values.take(0), Some('a'));
        assert_eq!((values.take(0), values.get(0)), (None, None));
        assert_eq!([values.add('c'), values.add('d')], [0, 2]);
        assert_eq!(values.get(1), Some(&'b'));
        assert_eq!(values.take(u64::MAX), None);
        values.clear();
        assert_eq!(values.add('e'), 0);
    }
}
