//! The packet port of a node, shared by posters, pollers and the background thread.
//!
//! *Owns*: the link behind a `Serial`, the reason why there is none, whether any peer uses packets. *Takes*: the
//! device that gives and takes datagrams. *Gives*: exchanges. *Must not*: make a system call before the first packet
//! peer exists; wait for the thread that currently exchanges.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec};
use udma_abi::{Nanos, RawEid, counters::Counter};
use urma_mem::{
    RunResult, Serial,
    sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use urma_packet::{ROCE_PORT, Tpn};

use super::{
    descriptor::ForkGuarded,
    eid_ip,
    faulty::FaultyLink,
    ip_eid,
    link::{DatagramLink, LinkCounts},
    scheduler::moderation::ReceiveModeration,
    scheduler::poll::{Interest, Poll},
    standard::{PortEndpoint, QpnInUse, StandardDrops, StandardEndpoints, StandardResult},
    tap::Tap,
    udp::port_links::PortLinks,
    udp::{Udp, UdpError, UdpOffload},
};
use crate::{
    cfg::RcWire,
    device::SoftwareDevice,
    link::LinkFaults,
    ports::{ArrivedDatagram, Deadline, LinkVisitor, PacketFormat, Transmit},
};

/// Whether the poll set reports datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watch {
    /// The poll set reports each datagram.
    On,
    /// Once for each arrival: pollers read the socket, except during a pause.
    Arrivals,
    /// Not in the set: pollers read the socket, and the kernel has no waiter to wake for a datagram. Checking for
    /// waiters in the set took a sixth of the time of a send.
    Off,
}

/// Settings for the links of a port.
#[derive(Clone, Debug, Default)]
pub struct PortLinkCfg {
    /// Whether the kernel cuts and joins packets.
    pub offload: UdpOffload,
    /// Faults of each link; `None`: no faults.
    pub faults: Option<LinkFaults>,
}

/// The packet link of a node, with its buffers.
#[derive(Debug)]
pub struct PacketPort {
    eid: RawEid,
    /// Addresses of further ports.
    further: Vec<RawEid>,
    link: Serial<Option<Box<dyn DatagramLink>>>,
    /// A duplicate of the link's descriptor, for the poll set: pollers hold the link nearly all the time, so a thread
    /// that waited for it would spin against them.
    watched: Mutex<Option<Arc<ForkGuarded>>>,
    /// Why there is no link.
    refused: Mutex<Option<String>>,
    cfg: PortLinkCfg,
    /// A packet peer is wanted, or appeared by itself.
    active: AtomicBool,
    tap: Tap,
    /// Endpoints of the standard opcodes besides the node.
    standard: StandardEndpoints,
    /// Bytes of the device's last run, which endpoints may send before its next one. Changed by the holder of the
    /// link.
    ahead: AtomicUsize,
    /// Deadline of the next exchange; `Nanos::MAX`: none.
    deadline: AtomicU64,
    moderation: ReceiveModeration,
}

impl PacketPort {
    /// Binds the port of node `eid`, and its `further` ones. If that fails, the node works without packets, the
    /// reason is kept, and each new packet peer tries again.
    #[must_use]
    pub fn bind(eid: RawEid, further: &[RawEid], cfg: PortLinkCfg) -> Self {
        let port = Self { cfg, further: further.to_vec(), ..Self::none(eid, None) };
        if let Err(error) = port.try_bind() {
            tracing::warn!(%error, "this node cannot exchange packets at the moment");
        }
        port
    }

    /// Creates the port of a node that exchanges no packets, for the given reason.
    #[must_use]
    pub fn none(eid: RawEid, reason: Option<String>) -> Self {
        Self {
            eid,
            further: Vec::new(),
            link: Serial::new(None),
            watched: Mutex::new(None),
            refused: Mutex::new(reason),
            cfg: PortLinkCfg::default(),
            active: AtomicBool::new(false),
            tap: Tap::default(),
            standard: StandardEndpoints::new(eid),
            ahead: AtomicUsize::new(0),
            deadline: AtomicU64::new(Nanos::MAX),
            moderation: ReceiveModeration::default(),
        }
    }

    /// When [`PacketPort::exchange`] has to be called at the latest.
    #[must_use]
    pub fn poll_deadline(&self) -> Deadline {
        let at = self.deadline.load(Ordering::Relaxed);
        (at != Nanos::MAX).then_some(at)
    }

    /// Whether packets are in use.
    #[inline]
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Whether [`PacketPort::exchange`] has to be called at `now`.
    #[inline]
    #[must_use]
    pub fn is_due(&self, now: Nanos) -> bool {
        self.is_active() || self.deadline.load(Ordering::Relaxed) <= now
    }

    /// Why no packets can be exchanged.
    #[must_use]
    pub fn refused(&self) -> Option<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes the port ready for a packet peer.
    ///
    /// # Errors
    /// The reason why there is no socket, in words.
    pub fn ready_for_peer(&self) -> Result<(), String> {
        if let Some(reason) = self.refused() {
            self.try_bind().map_err(|error| format!("{reason}; now: {error}"))?;
        }
        self.active.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Adds an endpoint of the standard opcodes, which gets the packets for `qpn` from any host. The endpoint takes
    /// part in each exchange; [`PacketPort::send`] sends what it has in between.
    ///
    /// # Errors
    /// [`QpnInUse`].
    pub fn add_endpoint(&self, qpn: Tpn, endpoint: Box<dyn PortEndpoint>) -> Result<(), QpnInUse> {
        self.standard.add(qpn, endpoint)?;
        // From now on polls read the socket.
        self.active.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Removes an endpoint and returns it. Packets for its number are then dropped and counted.
    pub fn remove_endpoint(&self, qpn: Tpn) -> Option<Box<dyn PortEndpoint>> {
        self.standard.remove(qpn)
    }

    /// Counts of dropped datagrams with standard opcodes.
    #[must_use]
    pub fn standard_drops(&self) -> StandardDrops {
        self.standard.drops()
    }

    /// Number of packets with `mtu` bytes of payload that the link stores until they are received; `None`: there is
    /// no link.
    #[must_use]
    pub fn packets_kept(&self, mtu: u32) -> Option<usize> {
        self.link.with_blocking(|link| link.as_ref().map(|link| link.packets_kept(mtu))).value
    }

    /// Receives what has arrived, lets the device work, sends what it gives; all bounded. Returns whether there was
    /// anything. If another thread is doing so, the work is left to that thread. If nothing arrived and no timer is
    /// due, there is nothing to send. Polls receive a stream at intervals.
    pub fn exchange(&self, device: &SoftwareDevice, now: Nanos, by: LinkVisitor) -> bool {
        let mut count = 0;
        // The other thread may not check again soon.
        let receives = by == LinkVisitor::Thread || self.moderation.may_receive(now);
        let run = self.link.run(|link| {
            let Some(link) = link else { return };
            let mut stepped = false;
            let mut received = 0;
            if receives {
                received = self.receive(link.as_mut(), device, (now, by), &mut stepped);
            }
            if received > 0 {
                // A datagram that proves nothing must not make each later poll a system call.
                if !self.is_active() && device.has_packet_peers() {
                    self.active.store(true, Ordering::Relaxed);
                    device.sign().raise();
                }
                if stepped && device.has_left() {
                    device.step(now);
                }
            }
            // The step of a poll leaves timers to the next one.
            let sends = match (stepped, by) {
                (true, LinkVisitor::Poll) => self.is_link_due(now) || device.has_transmit(),
                _ => received > 0 || self.may_send(device, now),
            };
            count += received;
            if sends {
                count += self.send_on(link.as_mut(), device, now);
            } else if received > 0 {
                let shield = self.shield(link.as_mut(), device, now);
                self.set_deadline(link.as_ref(), shield);
            }
        });
        count > 0 || run == RunResult::WorkLeft
    }

    /// Passes what has arrived to the device, bounded. Returns how many datagrams there were; `stepped` is set if the
    /// device made a step.
    fn receive(
        &self,
        link: &mut dyn DatagramLink,
        device: &SoftwareDevice,
        (now, by): (Nanos, LinkVisitor),
        stepped: &mut bool,
    ) -> usize {
        let mut bytes = 0;
        let received = link.receive(&mut |port, backlog, batch| {
            let admitted = batch.filter_map(|(from, datagram)| {
                bytes += datagram.len();
                self.admit(device, now, (port, from), datagram)
            });
            *stepped |= device.on_datagrams_at(now, (port, backlog, by), admitted);
        });
        self.moderation.on_received(now, bytes);
        received
    }

    /// Whether there may be something to send, or a timer, though nothing arrived.
    fn may_send(&self, device: &SoftwareDevice, now: Nanos) -> bool {
        self.is_link_due(now) || device.is_due(now)
    }

    /// Whether the link or an endpoint of the standard opcodes may have something to send.
    fn is_link_due(&self, now: Nanos) -> bool {
        self.deadline.load(Ordering::Relaxed) <= now || !self.standard.is_empty()
    }

    /// Whether work was left to a thread that has not done it yet.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.link.is_marked()
    }

    /// Sends what the device gives, bounded. Returns how many datagrams there were. If another thread is doing so,
    /// the work is left to that thread.
    pub fn send(&self, device: &SoftwareDevice, now: Nanos) -> usize {
        let mut count = 0;
        // The next poll or tick does the work that is left.
        let _ = self.link.run(|link| {
            if let Some(link) = link {
                count += self.send_on(link.as_mut(), device, now);
            }
        });
        count
    }

    /// Sends what the device gives before the link closes, up to `most` batches. Waits for a thread that has the
    /// link: what [`PacketPort::send`] would leave to that thread would be lost with the link.
    pub fn send_last(&self, device: &SoftwareDevice, now: Nanos, most: usize) {
        let _ = self.link.with_blocking(|link| {
            let Some(link) = link else { return };
            for _ in 0..most {
                if self.send_on(link.as_mut(), device, now) == 0 {
                    break;
                }
            }
        });
    }

    /// Waits for a datagram, at most for `most`. Other threads use the link meanwhile.
    pub fn wait(&self, most: Duration) {
        let Some(link) = self.watched().clone() else { return };
        if let Ok(most) = Timespec::try_from(most) {
            // An interrupted wait ends early.
            let _ = rustix::event::poll(&mut [PollFd::new(&*link, PollFlags::IN)], Some(&most));
        }
    }

    fn watched(&self) -> MutexGuard<'_, Option<Arc<ForkGuarded>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what the device gives, and again after it has learned that something was too long.
    fn send_all(&self, link: &mut dyn DatagramLink, device: &SoftwareDevice, now: Nanos) -> usize {
        let mut count = 0;
        for _ in 0..SENDS_MAX {
            let mut has_more = true;
            count += link.send(&mut |buffer| {
                if !has_more {
                    return None;
                }
                let (transmit, more) = self.transmit(device, now, buffer)?;
                has_more = more;
                Some(transmit)
            });
            let mut is_learned = false;
            while let Some((to, ip_mtu)) = link.poll_too_long() {
                device.on_too_long(now, to, ip_mtu);
                is_learned = true;
            }
            while let Some(route) = link.poll_cut() {
                device.on_cut(now, route);
                is_learned = true;
            }
            if !is_learned {
                break;
            }
        }
        count
    }

    /// Counts of the link; `None`: there is no link, or another thread is using it.
    #[must_use]
    pub fn counts(&self) -> Option<LinkCounts> {
        self.link.try_with(|link| link.as_ref().map(|link| link.counts()))?.value
    }

    /// Receiver of copies of the packets.
    #[must_use]
    pub fn tap(&self) -> &Tap {
        &self.tap
    }

    /// Returns how many datagrams there were.
    fn send_on(&self, link: &mut dyn DatagramLink, device: &SoftwareDevice, now: Nanos) -> usize {
        // Before anything is sent: a peer that learns of a new TP may use it at once.
        let shield = self.shield(link, device, now);
        let count = self.send_all(link, device, now);
        self.set_deadline(link, shield);
        count
    }

    fn shield(&self, link: &mut dyn DatagramLink, device: &SoftwareDevice, now: Nanos) -> Deadline {
        let tpns = || device.tpns().into_iter().map(|(tpn, _)| tpn).collect();
        link.shield(now, device.dropped(), &tpns)
    }

    fn set_deadline(&self, link: &dyn DatagramLink, shield: Deadline) {
        let timers = [shield, link.poll_deadline(), self.standard.deadline()];
        let deadline = timers.into_iter().flatten().min();
        self.deadline.store(deadline.unwrap_or(Nanos::MAX), Ordering::Relaxed);
    }

    fn admit<'a>(
        &self,
        device: &SoftwareDevice,
        now: Nanos,
        (port, sender): (u8, SocketAddr),
        bytes: &'a [u8],
    ) -> Option<ArrivedDatagram<'a>> {
        let from = ip_eid(sender.ip().to_canonical());
        let format = PacketFormat::of(bytes);
        let arrival = ArrivedDatagram { from, source_port: sender.port(), format, bytes };
        if format == PacketFormat::Standard {
            let result = self.standard.on_datagram(now, sender, bytes);
            if result == StandardResult::NotHere && device.cfg().rc == RcWire::Roce {
                self.tap.on_packet(from, self.eid, bytes);
                return Some(arrival);
            }
            if result == StandardResult::NotHere {
                self.standard.count_unknown();
            }
            if result == StandardResult::Taken {
                self.tap.on_packet(from, self.address(port), bytes);
            } else {
                // Only counters in which a flood shows.
                device.count(Counter::DropMalformed);
            }
            return None;
        }
        if sender.port() != ROCE_PORT && !device.faults().sender_unproven() {
            // Any user of a host may bind another port of a node's address.
            device.count(Counter::DropUnproven);
            return None;
        }
        self.tap.on_packet(from, self.address(port), bytes);
        Some(arrival)
    }

    /// Returns the next datagram to send, and whether more may follow it. Device and endpoints take turns: after a
    /// run of the device the endpoints may send as many bytes.
    fn transmit(
        &self,
        device: &SoftwareDevice,
        now: Nanos,
        buffer: &mut [u8],
    ) -> Option<(Transmit, bool)> {
        let ahead = self.ahead.load(Ordering::Relaxed);
        let in_turn = (ahead != 0).then(|| self.standard.poll_transmit(now, buffer)).flatten();
        let (transmit, has_more) = if let Some(transmit) = in_turn {
            self.ahead.store(ahead.saturating_sub(transmit.len), Ordering::Relaxed);
            (transmit, true)
        } else if let Some((transmit, has_more)) = device.poll_transmit_more(now, buffer) {
            let has_endpoints = !self.standard.is_empty();
            self.ahead.store(if has_endpoints { transmit.len } else { 0 }, Ordering::Relaxed);
            (transmit, has_more || has_endpoints)
        } else {
            (self.standard.poll_transmit(now, buffer)?, true)
        };
        let packets = buffer.get(..transmit.len).unwrap_or(&[]);
        for packet in packets.chunks(transmit.size.max(1)) {
            self.tap.on_packet(self.address(transmit.port), transmit.to, packet);
        }
        Some((transmit, has_more))
    }

    /// EID address of a port.
    fn address(&self, port: u8) -> RawEid {
        let further = usize::from(port).checked_sub(1).and_then(|at| self.further.get(at));
        *further.unwrap_or(&self.eid)
    }

    /// Closes the link for good.
    pub fn close(&self) {
        self.active.store(false, Ordering::Relaxed);
        let watched = self.watched().take();
        // A waiting thread holds it for some 100 us. The address is free when this returns.
        let is_held = || watched.as_ref().is_some_and(|watched| Arc::strong_count(watched) > 1);
        for _ in (0..CLOSE_YIELDS_MAX).take_while(|_| is_held()) {
            std::thread::yield_now();
        }
        drop(watched);
        let _ = self.link.with_blocking(Option::take);
        self.deadline.store(Nanos::MAX, Ordering::Relaxed);
    }

    /// Changes whether the poll set reports datagrams.
    pub(super) fn watch(&self, poll: &Poll, key: u64, wanted: Watch, is: &mut Watch) {
        let watched = self.watched();
        let Some(link) = watched.as_deref() else { return };
        let enters = |interest| {
            // Not in the set: this is the first time, or pollers have read the socket so far.
            poll.modify(link, key, interest).or_else(|_| poll.add(link, key, interest)).is_ok()
        };
        let has_changed = match wanted {
            Watch::On => enters(Interest::Read),
            Watch::Arrivals => enters(Interest::EdgeTriggered),
            Watch::Off => {
                // Not in the set is what is wanted.
                let _ = poll.remove(link);
                true
            }
        };
        if has_changed {
            *is = wanted;
        }
    }

    fn try_bind(&self) -> Result<(), UdpError> {
        let bound = self.open_links().and_then(|link| Ok((self.duplicate(&*link)?, link)));
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        match bound {
            Ok((watched, link)) => {
                *refused = None;
                *self.watched() = Some(Arc::new(watched));
                let _ = self.link.with_blocking(|slot| *slot = Some(link));
                Ok(())
            }
            Err(error) => {
                *refused = Some(error.to_string());
                Err(error)
            }
        }
    }

    /// Opens a link for each port, or for the only one.
    fn open_links(&self) -> Result<Box<dyn DatagramLink>, UdpError> {
        let first = self.open_link(self.eid)?;
        if self.further.is_empty() {
            return Ok(first);
        }
        let further = self.further.iter().map(|address| self.open_link(*address));
        let links = std::iter::once(Ok(first)).chain(further).collect::<Result<_, _>>()?;
        let joined = PortLinks::new(links).map_err(|error| self.refusal(error))?;
        Ok(Box::new(joined))
    }

    /// Duplicates the descriptor of the link.
    fn duplicate(&self, link: &dyn DatagramLink) -> Result<ForkGuarded, UdpError> {
        let duplicate = link.descriptor().try_clone_to_owned().and_then(ForkGuarded::new);
        duplicate.map_err(|error| self.refusal(error))
    }

    fn refusal(&self, error: std::io::Error) -> UdpError {
        UdpError::Os { address: SocketAddr::new(eid_ip(self.eid), ROCE_PORT), error }
    }

    fn open_link(&self, address: RawEid) -> Result<Box<dyn DatagramLink>, UdpError> {
        let link = Udp::bind(address, self.cfg.offload)?;
        let own = link.address();
        let link: Box<dyn DatagramLink> = Box::new(link);
        let Some(faults) = &self.cfg.faults else { return Ok(link) };
        tracing::warn!(%own, ?faults, "what this node sends is made worse on purpose");
        Ok(Box::new(FaultyLink::new(link, own, faults)))
    }
}

/// How often the device may replace a datagram by something shorter.
const SENDS_MAX: u32 = 3;
/// Yields of a closing port to threads that wait for a datagram: each may wait some 100 us more.
const CLOSE_YIELDS_MAX: u32 = 10_000;

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, sync::Arc};

    use udma_abi::cmd::{Command, Mode};
    use urma_packet::{
        Ack, Body, Bth, IcrcFlow, PacketHeader, Psn, SackBitmap,
        roce::{RoceExt, RoceHeader, RocePacket},
    };

    use super::*;
    use crate::endpoint::flow;
    use crate::host::{claim::Claim, eid_ip, scheduler::poll::ReadyList};
    use crate::ports::Backlog;
    use crate::tests::{Bench, Sharing};

    #[test]
    fn a_stray_datagram_leaves_polls_without_system_calls() {
        let [claim, other] = [Claim::random().unwrap(), Claim::random().unwrap()];
        let port = PacketPort::bind(claim.eid(), &[], PortLinkCfg::default());
        let bench = Bench::new(1, Sharing::Whole, &|_| ());
        let to = SocketAddr::new(eid_ip(claim.eid()), ROCE_PORT);
        // From another port, and a packet with a wrong ICRC: all count where a flood is looked for.
        for (dropped, from) in [(1, 0), (2, ROCE_PORT)] {
            let stray = UdpSocket::bind((eid_ip(other.eid()), from)).unwrap();
            stray.send_to(&[0xc0; 64], to).unwrap();
            for _ in 0..1_000_000 {
                if bench.dev.dropped() == dropped {
                    break;
                }
                port.exchange(&bench.dev, 1, LinkVisitor::Thread);
            }
            assert_eq!(bench.dev.dropped(), dropped);
        }
        assert_eq!(bench.dev.counter(Counter::DropIcrc), 1);
        assert!(!port.is_active());
        assert!(!port.is_due(1));
        port.ready_for_peer().unwrap();
        assert!(port.is_due(1));
    }

    /// What a poll of a port whose device asks for a TP sends at `now`, where nothing arrives.
    #[test]
    fn a_poll_sends_when_a_timer_is_due_and_not_before() {
        let [claim, other] = [Claim::random().unwrap(), Claim::random().unwrap()];
        let port = PacketPort::bind(claim.eid(), &[], PortLinkCfg::default());
        let mut bench = Bench::new(1, Sharing::Whole, &|cfg| cfg.eid = claim.eid());
        let sent = || port.counts().unwrap().sent;
        port.exchange(&bench.dev, 1000, LinkVisitor::Poll);
        assert_eq!(sent(), 0);
        bench.submit(Command::Connect { eid: other.eid(), mode: Mode::Rm });
        bench.dev.step(1000);
        bench.dev.on_packet_peer(1000, other.eid());
        bench.dev.step(1000);
        port.exchange(&bench.dev, 1000, LinkVisitor::Poll);
        assert_eq!(sent(), 1, "the request for a TP");
        bench.dev.step(1000);
        let due = bench.dev.poll_deadline().unwrap();
        assert!(due > 1000 && !bench.dev.is_due(due - 1) && bench.dev.is_due(due));
        port.exchange(&bench.dev, due - 1, LinkVisitor::Poll);
        assert_eq!(sent(), 1);
        port.exchange(&bench.dev, due, LinkVisitor::Poll);
        assert_eq!(sent(), 2, "the same again: nothing answers");
    }

    #[test]
    fn what_a_poll_took_leaves_the_rest_of_a_step_due_at_once() {
        let [claim, other] = [Claim::random().unwrap(), Claim::random().unwrap()];
        let mut bench = Bench::new(1, Sharing::Whole, &|cfg| cfg.eid = claim.eid());
        bench.submit(Command::Connect { eid: other.eid(), mode: Mode::Rm });
        bench.dev.step(1000);
        bench.dev.on_packet_peer(1000, other.eid());
        bench.dev.step(1000);
        let mut buf = vec![0; 1 << 16];
        assert!(bench.dev.poll_transmit(1000, &mut buf).is_some(), "the request for a TP");
        bench.dev.step(1000);
        // An acknowledgement of a TP that there is not: no answer.
        let [here, there] = [claim.eid(), other.eid()];
        let ack = Body::Ack(Ack {
            window: 1,
            congestion: false,
            trigger: Psn::new(0),
            received: SackBitmap::default(),
        });
        let header = PacketHeader::new(Tpn::new(77).unwrap(), Psn::new(0), ack);
        let len = header.emit_headers(0, &mut buf).unwrap().total;
        flow(there, here).seal(&mut buf[..len]).unwrap();
        for by in [LinkVisitor::Thread, LinkVisitor::Poll] {
            assert!(!bench.dev.is_due(1000));
            let datagrams = std::iter::once(ArrivedDatagram::of_node(there, &buf[..len]));
            assert!(bench.dev.on_datagrams_at(1000, (0, Backlog::Empty, by), datagrams));
            assert_eq!(bench.dev.is_due(1000), by == LinkVisitor::Poll);
        }
        bench.dev.step(1000);
        assert!(!bench.dev.is_due(1000));
    }

    #[test]
    fn polls_let_a_stream_gather_and_another_thread_does_not() {
        let [claim, other] = [Claim::random().unwrap(), Claim::random().unwrap()];
        let port = PacketPort::bind(claim.eid(), &[], PortLinkCfg::default());
        let bench = Bench::new(1, Sharing::Whole, &|_| ());
        let to = SocketAddr::new(eid_ip(claim.eid()), ROCE_PORT);
        let peer = UdpSocket::bind((eid_ip(other.eid()), 0)).unwrap();
        let send = || peer.send_to(&[0xc0; 60_000], to).unwrap();
        let is_taken = |now, by| {
            let before = bench.dev.dropped();
            port.exchange(&bench.dev, now, by);
            bench.dev.dropped() > before
        };
        for _ in 0..5 {
            send();
            assert!(is_taken(1000, LinkVisitor::Poll));
        }
        send();
        assert!(!is_taken(1000, LinkVisitor::Poll), "more comes soon");
        assert!(is_taken(1000, LinkVisitor::Thread), "it may not look again soon");
        send();
        assert!(!is_taken(2000, LinkVisitor::Poll));
        assert!(is_taken(1_000_000, LinkVisitor::Poll));
    }

    /// What a set that the port is in finds at once.
    fn found(poll: &Poll) -> usize {
        let mut ready = ReadyList::default();
        poll.wait(&mut ready, Some(Duration::ZERO)).unwrap();
        ready.keys().count()
    }

    #[test]
    fn a_watched_port_shows_what_waits_and_one_left_to_polls_does_not() {
        let [claim, other] = [Claim::random().unwrap(), Claim::random().unwrap()];
        let port = PacketPort::bind(claim.eid(), &[], PortLinkCfg::default());
        let to = SocketAddr::new(eid_ip(claim.eid()), ROCE_PORT);
        UdpSocket::bind((eid_ip(other.eid()), 0)).unwrap().send_to(&[0; 64], to).unwrap();
        let (poll, mut is) = (Poll::new().unwrap(), Watch::Off);
        let steps = [
            (Watch::On, [1, 1]),
            (Watch::Off, [0, 0]),
            (Watch::Off, [0, 0]),
            (Watch::Arrivals, [1, 0]),
            (Watch::On, [1, 1]),
        ];
        for (wanted, shown) in steps {
            port.watch(&poll, 7, wanted, &mut is);
            assert_eq!((is, [found(&poll), found(&poll)]), (wanted, shown));
        }
        port.close();
        assert_eq!(found(&poll), 0, "the socket is closed");
        drop(UdpSocket::bind(to).unwrap());
    }

    #[test]
    fn a_watch_changes_while_a_poll_holds_the_link() {
        let claim = Claim::random().unwrap();
        let port = Arc::new(PacketPort::bind(claim.eid(), &[], PortLinkCfg::default()));
        let (changed, changes) = std::sync::mpsc::channel();
        let _ = port.link.with_blocking(|_| {
            let port = Arc::clone(&port);
            std::thread::spawn(move || {
                let poll = Poll::new().unwrap();
                port.watch(&poll, 7, Watch::On, &mut Watch::Off);
                changed.send(()).unwrap();
            });
            changes.recv_timeout(Duration::from_secs(5)).expect("no wait for the link");
        });
    }

    #[test]
    fn a_thread_that_waits_for_datagrams_leaves_the_link_to_others() {
        let [claim, other] = [Claim::random().unwrap(), Claim::random().unwrap()];
        let port = Arc::new(PacketPort::bind(claim.eid(), &[], PortLinkCfg::default()));
        let waiter = Arc::clone(&port);
        let waits = std::thread::spawn(move || waiter.wait(Duration::from_secs(30)));
        let is_waiting = || port.watched().as_ref().is_some_and(|link| Arc::strong_count(link) > 1);
        while !is_waiting() && !waits.is_finished() {
            std::thread::yield_now();
        }
        for _ in 0..10_000 {
            assert!(port.link.try_with(|_| ()).is_some());
            assert!(is_waiting());
        }
        let to = SocketAddr::new(eid_ip(claim.eid()), ROCE_PORT);
        UdpSocket::bind((eid_ip(other.eid()), 0)).unwrap().send_to(&[0; 64], to).unwrap();
        waits.join().unwrap();
    }

    /// Takes every packet for its number, and answers each with one.
    #[derive(Debug)]
    struct Echo {
        eid: RawEid,
        taken: Arc<Mutex<Vec<Bth>>>,
        waiting: Option<RawEid>,
    }

    impl PortEndpoint for Echo {
        fn on_packet(&mut self, _: Nanos, from: SocketAddr, packet: &RocePacket<'_>, bytes: &[u8]) {
            assert_eq!(RocePacket::parse(bytes), Ok(*packet));
            self.taken.lock().unwrap().push(packet.header.bth);
            self.waiting = Some(ip_eid(from.ip().to_canonical()));
        }

        fn poll_transmit(&mut self, _: Nanos, buf: &mut [u8]) -> Option<Transmit> {
            let to = self.waiting.take()?;
            let len = standard(9).emit(b"back", &flow(self.eid, to), buf).unwrap();
            Some(Transmit { to, port: 0, source_port: ROCE_PORT, len, size: len })
        }

        fn deadline(&self) -> Deadline {
            Some(77)
        }
    }

    /// Sends so many packets of a length, and takes nothing.
    #[derive(Debug)]
    struct Bulk {
        left: usize,
        len: usize,
    }

    impl PortEndpoint for Bulk {
        fn on_packet(&mut self, _: Nanos, _: SocketAddr, _: &RocePacket<'_>, _: &[u8]) {}

        fn poll_transmit(&mut self, _: Nanos, _: &mut [u8]) -> Option<Transmit> {
            self.left = self.left.checked_sub(1)?;
            let (to, len) = (RawEid([9; 16]), self.len);
            Some(Transmit { to, port: 0, source_port: ROCE_PORT, len, size: len })
        }

        fn deadline(&self) -> Deadline {
            None
        }
    }

    /// A device with a request for a TP to each of eight peers, beside an endpoint with packets: whose leave when.
    #[test]
    fn endpoints_send_as_many_bytes_as_the_device_while_both_have_something() {
        let order = |left: usize, len: usize| {
            let port = PacketPort::none(RawEid([1; 16]), None);
            let mut bench = Bench::new(1, Sharing::Whole, &|_| ());
            for peer in 1..=8 {
                let eid = ip_eid([127, 9, 9, peer].into());
                bench.submit(Command::Connect { eid, mode: Mode::Rm });
                bench.dev.step(1000);
                bench.dev.on_packet_peer(1000, eid);
                bench.dev.step(1000);
            }
            port.add_endpoint(Tpn::new(8).unwrap(), Box::new(Bulk { left, len })).unwrap();
            let mut buffer = vec![0; 1 << 16];
            let (mut shown, mut devices_len) = (String::new(), 0);
            while let Some((sent, has_more)) = port.transmit(&bench.dev, 1000, &mut buffer) {
                assert!(has_more, "{shown}");
                let is_endpoints = sent.to == RawEid([9; 16]);
                shown.push(if is_endpoints { 'e' } else { 'd' });
                devices_len = if is_endpoints { devices_len } else { sent.len };
            }
            (shown, devices_len)
        };
        let (shown, len) = order(0, 1);
        assert_eq!(shown, "dddddddd");
        assert_eq!(order(10, len).0, "dedededededededeee");
        // Two of half the length, and one of twice the length, are a turn.
        assert_eq!(order(10, len / 2).0, "deedeedeedeedeeddd");
        assert_eq!(order(4, len * 2).0, "dededededddd");
    }

    fn standard(qpn: u32) -> RoceHeader {
        let mut bth = Bth::parse(&[4, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 5]).unwrap();
        bth.dest = Tpn::new(qpn).unwrap();
        RoceHeader { bth, ext: RoceExt::default() }
    }

    /// Datagrams of two hosts through the port of a node: its endpoint gets its own, from any port.
    #[test]
    fn standard_packets_reach_the_endpoint_of_their_queue_pair() {
        let [claim, other] = [Claim::random().unwrap(), Claim::random().unwrap()];
        let port = PacketPort::bind(claim.eid(), &[], PortLinkCfg::default());
        let bench = Bench::new(1, Sharing::Whole, &|_| ());
        let to = SocketAddr::new(eid_ip(claim.eid()), ROCE_PORT);
        let peer = UdpSocket::bind((eid_ip(other.eid()), ROCE_PORT)).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let any = UdpSocket::bind((eid_ip(other.eid()), 0)).unwrap();
        let send = |socket: &UdpSocket, qpn, seal: SocketAddr| {
            let mut buf = [0; 64];
            let len = standard(qpn).emit(b"text", &IcrcFlow::new(seal, to), &mut buf).unwrap();
            socket.send_to(&buf[..len], to).unwrap();
        };
        let wait = |is_over: &dyn Fn() -> bool| {
            (0..1_000_000).take_while(|_| !is_over()).for_each(|_| {
                port.exchange(&bench.dev, 1, LinkVisitor::Thread);
            });
            assert!(is_over());
        };
        send(&peer, 8, peer.local_addr().unwrap());
        wait(&|| port.standard_drops().unknown == 1);
        assert!(!port.is_active());
        let taken = Arc::new(Mutex::new(Vec::new()));
        let echo = || Box::new(Echo { eid: claim.eid(), taken: taken.clone(), waiting: None });
        let qpn = Tpn::new(8).unwrap();
        port.add_endpoint(qpn, echo()).unwrap();
        assert_eq!(port.add_endpoint(qpn, echo()), Err(QpnInUse(8)));
        assert_eq!(port.add_endpoint(Tpn::new(1).unwrap(), echo()), Err(QpnInUse(1)));
        assert!(port.is_active());
        // Another number, a wrong ICRC (that of another sender), then two that are right.
        send(&peer, 9, peer.local_addr().unwrap());
        send(&peer, 8, to);
        send(&peer, 8, peer.local_addr().unwrap());
        send(&any, 8, any.local_addr().unwrap());
        wait(&|| taken.lock().unwrap().len() == 2);
        assert_eq!(port.standard_drops(), StandardDrops { unknown: 2, icrc: 1, malformed: 0 });
        assert_eq!(port.poll_deadline(), Some(77));
        let mut back = [0; 64];
        let (len, from) = peer.recv_from(&mut back).unwrap();
        let opened = RocePacket::open(&back[..len], &flow(claim.eid(), other.eid())).unwrap();
        assert_eq!((opened.payload, from), (&b"back"[..], to));
        assert!(port.remove_endpoint(qpn).is_some());
        send(&peer, 8, peer.local_addr().unwrap());
        wait(&|| port.standard_drops().unknown == 3);
        assert_eq!(taken.lock().unwrap().len(), 2);
    }
}
