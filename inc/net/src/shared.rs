//! A UDP port that a station shares with others: its packets come and go by two bounded queues.
//!
//! - owns: the queues, what waits in them, the QPNs that the station has.
//! - takes: packets from the owner of the port, by any thread of it; packets of the station. gives: each to the other side.
//! - must not: wait; know what else the owner does with its port.
//!
//! Who drives the station lets the owner receive and send in between ([`PortOwner::exchange`]), so that no thread has to be
//! woken while an operation is under way. A thread that sleeps is woken by the packet that finds the queue empty.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inc::port::{PortDatagram, QpnShare};
use urma_packet::{ROCE_PORT, Tpn};

use crate::udp::{PACKET_MAX, RUN_MAX, UdpCounts};
use crate::waker::Waker;

/// Packets that wait for a station at most, if nothing else is said.
const PACKETS_MAX: usize = 4096;
/// Bytes that wait in one direction at most.
const BYTES_MAX: usize = 8 << 20;

/// Who has a UDP port of this machine, and gives each packet of `RoCEv2` to the user that has its QPN.
pub trait PortOwner: Send + Sync + std::fmt::Debug {
    /// Where packets for the port come to.
    fn address(&self) -> SocketAddr;

    /// Packets for a QPN go to these queues from now on, and what waits in them is sent. `false`: the number is in use.
    fn add(&self, qpn: Tpn, queues: Arc<PortQueues>) -> bool;

    /// Packets for a QPN go to no one any more.
    fn remove(&self, qpn: Tpn);

    /// Receives and sends now, without a wait; all of it bounded. A thread that finds another one at it leaves it to that one.
    fn exchange(&self);
}

/// A port that stations may share.
#[derive(Debug, Clone)]
pub struct SharedPort {
    owner: Arc<dyn PortOwner>,
    packets: usize,
}

/// The queues between a station and the owner of its port.
#[derive(Debug)]
pub struct PortQueues {
    state: Mutex<WaitingPackets>,
    waker: Waker,
}

#[derive(Debug)]
struct WaitingPackets {
    arrived: PacketQueue,
    /// The thread that drives the station lets the owner receive, and looks into the queue afterwards.
    is_looking: bool,
    /// Packets that found the queue full.
    dropped: u64,
    leaving: PacketQueue,
    /// The station has more to send than there was room for.
    is_held: bool,
}

/// Packets with the addresses that they come from or go to, one behind the other.
#[derive(Debug)]
struct PacketQueue {
    bytes: Vec<u8>,
    packets: Vec<(SocketAddr, usize)>,
    /// Packets and bytes that were taken out.
    taken: (usize, usize),
    most: usize,
}

/// The QPNs of a station at a shared port. Dropped, it gives all back.
#[derive(Debug)]
struct SharedQpns {
    owner: Arc<dyn PortOwner>,
    queues: Arc<PortQueues>,
    claimed: Mutex<BTreeSet<u32>>,
}

/// A station's side of a shared port.
#[derive(Debug)]
pub(crate) struct SharedLink {
    owner: Arc<dyn PortOwner>,
    queues: Arc<PortQueues>,
    qpns: Arc<SharedQpns>,
    /// What has arrived and is being taken.
    taking: PacketQueue,
    sending: Box<[u8]>,
    counts: UdpCounts,
    was_other_port: bool,
}

impl SharedPort {
    /// The port of an owner.
    #[must_use]
    pub fn new(owner: Arc<dyn PortOwner>) -> Self {
        Self { owner, packets: PACKETS_MAX }
    }

    /// So many packets wait for a station at most; those that find no room are lost.
    #[must_use]
    pub fn with_room(self, packets: usize) -> Self {
        Self { packets, ..self }
    }

    /// Where packets for the port come to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.owner.address()
    }
}

impl PartialEq for SharedPort {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.owner, &other.owner) && self.packets == other.packets
    }
}

impl Eq for SharedPort {}

impl PortQueues {
    fn lock(&self) -> MutexGuard<'_, WaitingPackets> {
        // No method panics between two changes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A packet for a QPN of the station came, from BTH to ICRC. It is lost, and counted, if there is no room.
    pub fn on_packet(&self, from: SocketAddr, packet: &[u8]) {
        let mut state = self.lock();
        let wakes = state.arrived.is_empty() && !state.is_looking;
        if !state.arrived.push(from, packet) {
            state.dropped += 1;
            return;
        }
        drop(state);
        if wakes {
            self.waker.wake();
        }
    }

    /// The next packet of the station, sealed for port 4791 at both ends: written to the front of `buf`, with its destination
    /// and length.
    pub fn poll_transmit(&self, buf: &mut [u8]) -> Option<(SocketAddr, usize)> {
        let mut state = self.lock();
        let (to, packet) = state.leaving.pop()?;
        let len = packet.len();
        // Room for a packet is lent, or what there is to send is lost as on a link.
        buf.get_mut(..len)?.copy_from_slice(packet);
        if state.leaving.is_empty() && std::mem::take(&mut state.is_held) {
            drop(state);
            self.waker.wake();
        }
        Some((to, len))
    }

    /// Whether [`PortQueues::poll_transmit`] has a packet.
    #[must_use]
    pub fn has_transmit(&self) -> bool {
        !self.lock().leaving.is_empty()
    }
}

impl WaitingPackets {
    /// Whether the station may send. If not, it is woken when it may again.
    fn has_room(&mut self) -> bool {
        self.is_held = !self.leaving.has_room(PACKET_MAX);
        !self.is_held
    }
}

impl PacketQueue {
    const fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), packets: Vec::new(), taken: (0, 0), most }
    }

    const fn is_empty(&self) -> bool {
        self.taken.0 == self.packets.len()
    }

    /// Whether a packet of this length fits. What was taken out leaves room when all was.
    fn has_room(&mut self, len: usize) -> bool {
        if self.is_empty() {
            self.clear();
        }
        self.packets.len() < self.most && self.bytes.len() + len <= BYTES_MAX
    }

    fn push(&mut self, address: SocketAddr, packet: &[u8]) -> bool {
        let has_room = self.has_room(packet.len());
        if has_room {
            self.bytes.extend_from_slice(packet);
            self.packets.push((address, packet.len()));
        }
        has_room
    }

    fn pop(&mut self) -> Option<(SocketAddr, &[u8])> {
        let (count, at) = self.taken;
        let &(address, len) = self.packets.get(count)?;
        self.taken = (count + 1, at + len);
        Some((address, self.bytes.get(at..at + len)?))
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.packets.clear();
        self.taken = (0, 0);
    }
}

impl SharedQpns {
    fn claimed(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QpnShare for SharedQpns {
    fn claim(&self, qpn: Tpn) -> bool {
        let is_new = self.owner.add(qpn, Arc::clone(&self.queues));
        if is_new {
            self.claimed().insert(qpn.value());
        }
        is_new
    }

    fn release(&self, qpn: Tpn) {
        if self.claimed().remove(&qpn.value()) {
            self.owner.remove(qpn);
        }
    }
}

impl Drop for SharedQpns {
    fn drop(&mut self) {
        for qpn in std::mem::take(&mut *self.claimed()) {
            self.owner.remove(Tpn::from_low_bits(qpn));
        }
    }
}

impl SharedLink {
    pub(crate) fn new(port: SharedPort, waker: Waker) -> Self {
        let SharedPort { owner, packets } = port;
        let queue = || PacketQueue::new(packets);
        let state = WaitingPackets {
            arrived: queue(),
            is_looking: false,
            dropped: 0,
            leaving: PacketQueue::new(PACKETS_MAX),
            is_held: false,
        };
        let queues = Arc::new(PortQueues { state: Mutex::new(state), waker });
        let qpns = SharedQpns {
            owner: Arc::clone(&owner),
            queues: Arc::clone(&queues),
            claimed: Mutex::default(),
        };
        Self {
            owner,
            queues,
            qpns: Arc::new(qpns),
            taking: queue(),
            sending: vec![0; PACKET_MAX].into(),
            counts: UdpCounts::default(),
            was_other_port: false,
        }
    }

    /// By which the station has QPNs at the port.
    pub(crate) fn qpns(&self) -> Arc<dyn QpnShare> {
        Arc::clone(&self.qpns) as Arc<dyn QpnShare>
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.owner.address()
    }

    pub(crate) fn counts(&self) -> UdpCounts {
        UdpCounts { dropped: self.queues.lock().dropped, ..self.counts }
    }

    /// Gives what has arrived to `take`; whether there was anything.
    pub(crate) fn receive(&mut self, mut take: impl FnMut(SocketAddr, &[u8])) -> bool {
        let mut state = self.queues.lock();
        if state.arrived.is_empty() {
            state.is_looking = true;
            drop(state);
            self.owner.exchange();
            state = self.queues.lock();
            state.is_looking = false;
        }
        std::mem::swap(&mut state.arrived, &mut self.taking);
        drop(state);
        let is_any = !self.taking.is_empty();
        while let Some((from, packet)) = self.taking.pop() {
            self.counts.received += 1;
            self.counts.received_bytes += packet.len() as u64;
            take(from, packet);
        }
        self.taking.clear();
        is_any
    }

    /// Queues what `next` writes into the buffer it is lent, so many packets at most as of one run, and has it sent; whether
    /// there was anything.
    pub(crate) fn send(&mut self, mut next: impl FnMut(&mut [u8]) -> Option<PortDatagram>) -> bool {
        let (mut is_any, mut has_room) = (false, self.queues.lock().has_room());
        for _ in 0..RUN_MAX {
            if !has_room {
                break;
            }
            let Some(datagram) = next(&mut self.sending) else { break };
            is_any = true;
            if datagram.dest.port() != ROCE_PORT {
                self.refuse(datagram.dest);
                continue;
            }
            self.counts.sent += 1;
            self.counts.sent_bytes += datagram.len as u64;
            let mut state = self.queues.lock();
            state.leaving.push(datagram.dest, &self.sending[..datagram.len]);
            has_room = state.has_room();
        }
        if is_any || !has_room {
            self.owner.exchange();
        }
        is_any
    }

    /// The port sends to its like only.
    fn refuse(&mut self, to: SocketAddr) {
        self.counts.refused += 1;
        if !std::mem::replace(&mut self.was_other_port, true) {
            let own = self.owner.address();
            tracing::warn!(%own, %to, "a shared port reaches port {ROCE_PORT} of other stations only");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes nothing by itself.
    #[derive(Debug, Default)]
    struct StillOwner {
        /// Packet that an exchange brings, for the queues of a number.
        brings: Mutex<Option<Arc<PortQueues>>>,
        numbers: Mutex<BTreeSet<u32>>,
    }

    impl PortOwner for StillOwner {
        fn address(&self) -> SocketAddr {
            at(ROCE_PORT)
        }

        fn add(&self, qpn: Tpn, _: Arc<PortQueues>) -> bool {
            self.numbers.lock().unwrap().insert(qpn.value())
        }

        fn remove(&self, qpn: Tpn) {
            assert!(self.numbers.lock().unwrap().remove(&qpn.value()));
        }

        fn exchange(&self) {
            if let Some(queues) = self.brings.lock().unwrap().take() {
                queues.on_packet(at(1), b"brought");
            }
        }
    }

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn link(room: usize) -> (SharedLink, Arc<StillOwner>, Waker) {
        let (owner, waker) = (Arc::<StillOwner>::default(), Waker::new().unwrap());
        let port = SharedPort::new(Arc::<StillOwner>::clone(&owner)).with_room(room);
        (SharedLink::new(port, waker.clone()), owner, waker)
    }

    fn taken(link: &mut SharedLink) -> Vec<(u16, Vec<u8>)> {
        let mut all = Vec::new();
        let is_any = link.receive(|from, packet| all.push((from.port(), packet.to_vec())));
        assert_eq!(is_any, !all.is_empty());
        all
    }

    #[test]
    fn packets_come_in_order_and_those_that_find_no_room_are_counted() {
        let (mut link, _, _) = link(3);
        for round in 1..4 {
            for number in 0..5 {
                link.queues.on_packet(at(number), &vec![7; number.into()]);
            }
            let wanted: Vec<_> = (0..3).map(|number| (number, vec![7; number.into()])).collect();
            assert_eq!(taken(&mut link), wanted);
            assert_eq!(taken(&mut link), []);
            let counts = link.counts();
            assert_eq!((counts.received, counts.dropped), (3 * round, 2 * round));
        }
        for _ in 0..3 {
            link.queues.on_packet(at(1), &vec![0; BYTES_MAX / 2]);
        }
        assert_eq!(
            (taken(&mut link).len(), link.counts().dropped),
            (2, 7),
            "bytes have a bound, too"
        );
    }

    #[test]
    fn the_first_packet_wakes_who_sleeps_and_what_an_exchange_brings_wakes_no_one() {
        let (mut link, owner, waker) = link(3);
        link.queues.on_packet(at(1), b"first");
        assert_eq!(waker.take(), 1);
        link.queues.on_packet(at(1), b"next");
        assert_eq!(waker.take(), 0);
        assert_eq!(taken(&mut link).len(), 2);
        *owner.brings.lock().unwrap() = Some(Arc::clone(&link.queues));
        assert_eq!(taken(&mut link), [(1, b"brought".to_vec())]);
        assert_eq!(waker.take(), 0);
        link.queues.on_packet(at(1), b"first again");
        assert_eq!(waker.take(), 1);
    }

    #[test]
    fn a_station_without_room_keeps_what_it_has_and_is_woken_when_there_is_some() {
        let (mut link, _, waker) = link(3);
        let mut next = 0_u32;
        let mut send = |link: &mut SharedLink| {
            let sent = |buf: &mut [u8]| {
                buf[..4].copy_from_slice(&next.to_le_bytes());
                next += 1;
                Some(PortDatagram { source: at(ROCE_PORT), dest: at(ROCE_PORT), len: 4 })
            };
            (link.send(sent), next)
        };
        while send(&mut link).0 {}
        assert_eq!(send(&mut link), (false, u32::try_from(PACKETS_MAX).unwrap()));
        let mut buf = [0; 8];
        for number in 0..u32::try_from(PACKETS_MAX).unwrap() {
            assert_eq!(waker.take(), 0, "{number}");
            assert!(link.queues.has_transmit());
            assert_eq!(link.queues.poll_transmit(&mut buf), Some((at(ROCE_PORT), 4)));
            assert_eq!(buf[..4], number.to_le_bytes());
        }
        assert!(!link.queues.has_transmit());
        assert_eq!((link.queues.poll_transmit(&mut buf), waker.take()), (None, 1));
        assert!(send(&mut link).0);
    }

    #[test]
    fn packets_to_another_port_are_refused() {
        let (mut link, _, _) = link(3);
        let mut left = [at(9), at(ROCE_PORT), at(9)].into_iter();
        let next = |_: &mut [u8]| {
            left.next().map(|dest| PortDatagram { source: at(ROCE_PORT), dest, len: 4 })
        };
        assert!(link.send(next));
        let counts = link.counts();
        assert_eq!((counts.sent, counts.refused), (1, 2));
        assert_eq!(link.queues.poll_transmit(&mut [0; 4]), Some((at(ROCE_PORT), 4)));
        assert_eq!(link.queues.poll_transmit(&mut [0; 4]), None);
    }

    #[test]
    fn a_link_gives_back_the_numbers_that_are_left() {
        let (link, owner, _) = link(3);
        let qpns = link.qpns();
        let numbers = [5, 6, 7].map(|number| Tpn::new(number).unwrap());
        assert!(numbers.iter().all(|number| qpns.claim(*number)));
        assert!(!qpns.claim(numbers[0]));
        qpns.release(numbers[1]);
        // It is no number of this one any more.
        qpns.release(numbers[1]);
        assert_eq!(*owner.numbers.lock().unwrap(), BTreeSet::from([5, 7]));
        drop((link, qpns));
        assert!(owner.numbers.lock().unwrap().is_empty());
    }
}
