//! The exchange's part for RC jetties that speak the standard opcodes.
//!
//! *Owns*: the turn of each sender. *Takes*: bindings, requests, datagrams. *Gives*: each to the connections. *Must
//! not*: pass a packet with a wrong ICRC to a connection.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use udma_abi::{CqeStatus, Nanos, RawEid, counters::Counter};
use urma_packet::{Bth, IcrcFlow, ROCE_PORT, roce::RocePacket};

use crate::endpoint::Reception;
use crate::engine::core::DeviceCore;
use crate::engine::mail::Handed;
use crate::exchange::standard::BoundPair;
use crate::exchange::{Exchange, ExchangeParts};

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
