//! Endpoints of the standard opcodes that share the UDP port of a node.
//!
//! *Owns*: which endpoint has which queue pair number, and counts of dropped datagrams. *Takes*: datagrams with a
//! standard opcode, from any port. *Gives*: packets with a right ICRC to their endpoint, its packets to the link.
//! *Must not*: pass a packet to two endpoints; store or answer anything for an unknown number.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use udma_abi::{Nanos, RawEid};
use urma_mem::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use urma_packet::{Bth, IcrcFlow, ROCE_PORT, Tpn, roce::RocePacket};

use super::eid_ip;
use crate::ports::{Deadline, Transmit};

/// An endpoint at the port of a node. Any thread that steps the node calls it, one at a time; it must neither block
/// nor call the node.
pub trait PortEndpoint: Send + Debug {
    /// Takes a packet for its queue pair, with a right ICRC, from any host. `bytes` is the same packet as received,
    /// BTH to ICRC.
    fn on_packet(&mut self, now: Nanos, from: SocketAddr, packet: &RocePacket<'_>, bytes: &[u8]);

    /// Writes the next packet, sealed for port 4791 at both ends, to the front of `buf`.
    fn poll_transmit(&mut self, now: Nanos, buf: &mut [u8]) -> Option<Transmit>;

    /// When [`PortEndpoint::poll_transmit`] has to be called although nothing arrived.
    fn deadline(&self) -> Deadline;
}

/// The queue pair number is in use, or is one of the two that RoCEv2 reserves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("queue pair {0} is in use at this port, or reserved: choose another number")]
pub struct QpnInUse(pub u32);

/// Counts of datagrams dropped before they reached an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StandardDrops {
    /// For a queue pair without an endpoint.
    pub unknown: u64,
    /// With a wrong ICRC.
    pub icrc: u64,
    /// That violate the format.
    pub malformed: u64,
}

/// Endpoints of one port, by queue pair number.
#[derive(Debug)]
pub(super) struct StandardEndpoints {
    eid: RawEid,
    by_qpn: Mutex<BTreeMap<u32, Box<dyn PortEndpoint>>>,
    /// Endpoint that sent last: the next higher number is asked first.
    sent: AtomicU32,
    /// Number of endpoints in the map: if there are none, nothing is locked.
    count: AtomicUsize,
    unknown: AtomicU64,
    icrc: AtomicU64,
    malformed: AtomicU64,
}

/// Result for a datagram of the standard family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StandardResult {
    /// An endpoint got it.
    Taken,
    /// It was dropped, and counted.
    Dropped,
    /// No endpoint here has its queue pair.
    NotHere,
}

impl StandardEndpoints {
    pub(super) fn new(eid: RawEid) -> Self {
        Self {
            eid,
            by_qpn: Mutex::default(),
            sent: AtomicU32::new(0),
            count: AtomicUsize::new(0),
            unknown: AtomicU64::new(0),
            icrc: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Box<dyn PortEndpoint>>> {
        self.by_qpn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, qpn: Tpn, endpoint: Box<dyn PortEndpoint>) -> Result<(), QpnInUse> {
        let mut by_qpn = self.lock();
        let number = qpn.value();
        if number < QPN_MIN || by_qpn.contains_key(&number) {
            return Err(QpnInUse(number));
        }
        by_qpn.insert(number, endpoint);
        self.count.store(by_qpn.len(), Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn remove(&self, qpn: Tpn) -> Option<Box<dyn PortEndpoint>> {
        let mut by_qpn = self.lock();
        let removed = by_qpn.remove(&qpn.value());
        self.count.store(by_qpn.len(), Ordering::Relaxed);
        removed
    }

    pub(super) fn drops(&self) -> StandardDrops {
        StandardDrops {
            unknown: self.unknown.load(Ordering::Relaxed),
            icrc: self.icrc.load(Ordering::Relaxed),
            malformed: self.malformed.load(Ordering::Relaxed),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Takes a datagram of the standard family.
    pub(super) fn on_datagram(&self, now: Nanos, from: SocketAddr, bytes: &[u8]) -> StandardResult {
        let drop = |counter: &AtomicU64| {
            counter.fetch_add(1, Ordering::Relaxed);
            StandardResult::Dropped
        };
        let Ok(bth) = Bth::parse(bytes) else { return drop(&self.malformed) };
        // The number first: an ICRC costs more than a lookup in the map.
        if self.is_empty() {
            return StandardResult::NotHere;
        }
        let mut by_qpn = self.lock();
        let Some(endpoint) = by_qpn.get_mut(&bth.dest.value()) else {
            return StandardResult::NotHere;
        };
        let flow = IcrcFlow::new(from, SocketAddr::new(eid_ip(self.eid), ROCE_PORT));
        if flow.verify_any_id(bytes).is_err() {
            return drop(&self.icrc);
        }
        let Ok(packet) = RocePacket::parse(bytes) else { return drop(&self.malformed) };
        endpoint.on_packet(now, from, &packet, bytes);
        StandardResult::Taken
    }

    /// Counts a packet for an unknown queue pair.
    pub(super) fn count_unknown(&self) {
        self.unknown.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes the next packet of any endpoint, round-robin.
    pub(super) fn poll_transmit(&self, now: Nanos, buf: &mut [u8]) -> Option<Transmit> {
        if self.is_empty() {
            return None;
        }
        let mut by_qpn = self.lock();
        let last = self.sent.load(Ordering::Relaxed);
        for numbers in [last.saturating_add(1)..=u32::MAX, 0..=last] {
            for (&number, endpoint) in by_qpn.range_mut(numbers) {
                if let Some(transmit) = endpoint.poll_transmit(now, buf) {
                    self.sent.store(number, Ordering::Relaxed);
                    return Some(transmit);
                }
            }
        }
        None
    }

    pub(super) fn deadline(&self) -> Deadline {
        if self.is_empty() {
            return None;
        }
        self.lock().values().filter_map(|endpoint| endpoint.deadline()).min()
    }
}

/// Lower numbers are special: subnet management, general services.
const QPN_MIN: u32 = 2;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use urma_packet::{
        Psn,
        roce::{RoceExt, RoceHeader},
    };

    use super::*;

    /// An endpoint that keeps what it gets, and sends `out` one after the other.
    #[derive(Debug)]
    struct Noting {
        got: Arc<Mutex<Vec<(Nanos, SocketAddr, u32)>>>,
        out: Vec<usize>,
        due: Deadline,
    }

    impl PortEndpoint for Noting {
        fn on_packet(&mut self, now: Nanos, from: SocketAddr, packet: &RocePacket<'_>, _: &[u8]) {
            self.got.lock().unwrap().push((now, from, packet.header.bth.dest.value()));
        }

        fn poll_transmit(&mut self, _: Nanos, _: &mut [u8]) -> Option<Transmit> {
            let len = self.out.pop()?;
            let to = RawEid([7; 16]);
            Some(Transmit { to, port: 0, source_port: ROCE_PORT, len, size: len })
        }

        fn deadline(&self) -> Deadline {
            self.due
        }
    }

    fn tpn(value: u32) -> Tpn {
        Tpn::new(value).unwrap()
    }

    /// A SEND of eight bytes to `dest`, sealed for the way from `from` to `own`.
    fn packet(dest: u32, (from, own): (SocketAddr, RawEid)) -> Vec<u8> {
        let bth = Bth {
            opcode: 0x04,
            solicited: false,
            mig_req: false,
            pad: 0,
            version: 0,
            pkey: 0xffff,
            congestion: urma_packet::Congestion::default(),
            dest: tpn(dest),
            ack_req: false,
            repeated: false,
            psn: Psn::new(3),
        };
        let mut bytes = vec![0; 64];
        let flow = IcrcFlow::new(from, SocketAddr::new(eid_ip(own), ROCE_PORT));
        let header = RoceHeader { bth, ext: RoceExt::default() };
        let len = header.emit(&[5; 8], &flow, &mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn a_queue_pair_gets_its_packets_and_no_other_ones() {
        let own = crate::host::ip_eid([127, 8, 8, 1].into());
        let all = StandardEndpoints::new(own);
        let from: SocketAddr = "127.8.8.2:4791".parse().unwrap();
        let got = Arc::new(Mutex::new(Vec::new()));
        let noting = || {
            Box::new(Noting { got: Arc::clone(&got), out: Vec::new(), due: None })
                as Box<dyn PortEndpoint>
        };
        assert!(all.is_empty());
        assert_eq!(all.on_datagram(1, from, &packet(2, (from, own))), StandardResult::NotHere);
        for reserved in [0, 1] {
            assert_eq!(all.add(tpn(reserved), noting()), Err(QpnInUse(reserved)));
        }
        assert!(all.is_empty());
        assert_eq!((all.add(tpn(2), noting()), all.add(tpn(9), noting())), (Ok(()), Ok(())));
        assert_eq!(all.add(tpn(9), noting()), Err(QpnInUse(9)));
        assert!(!all.is_empty());
        for (now, dest) in [(11, 2), (12, 9)] {
            let taken = all.on_datagram(now, from, &packet(dest, (from, own)));
            assert_eq!(taken, StandardResult::Taken);
        }
        assert_eq!(*got.lock().unwrap(), [(11, from, 2), (12, from, 9)]);
        assert_eq!(all.on_datagram(13, from, &packet(3, (from, own))), StandardResult::NotHere);
        assert_eq!(all.drops(), StandardDrops::default());
        // Sealed for another address, cut off, and of a rule that is not kept.
        let elsewhere = crate::host::ip_eid([127, 8, 8, 3].into());
        let wrong = packet(9, (from, elsewhere));
        assert_eq!(all.on_datagram(14, from, &wrong), StandardResult::Dropped);
        assert_eq!(all.drops(), StandardDrops { unknown: 0, icrc: 1, malformed: 0 });
        assert_eq!(all.on_datagram(15, from, &[4; 11]), StandardResult::Dropped);
        let mut version = packet(9, (from, own));
        version[1] |= 3;
        let flow = IcrcFlow::new(from, SocketAddr::new(eid_ip(own), ROCE_PORT));
        flow.seal(&mut version).unwrap();
        assert_eq!(all.on_datagram(16, from, &version), StandardResult::Dropped);
        assert_eq!(all.drops(), StandardDrops { unknown: 0, icrc: 1, malformed: 2 });
        all.count_unknown();
        assert_eq!(all.drops(), StandardDrops { unknown: 1, icrc: 1, malformed: 2 });
        assert_eq!(got.lock().unwrap().len(), 2);
        assert!(all.remove(tpn(2)).is_some() && all.remove(tpn(2)).is_none() && !all.is_empty());
        assert_eq!(all.on_datagram(17, from, &packet(2, (from, own))), StandardResult::NotHere);
        assert!(all.remove(tpn(9)).is_some() && all.is_empty());
    }

    #[test]
    fn packets_of_all_endpoints_leave_and_the_first_deadline_counts() {
        let all = StandardEndpoints::new(RawEid([0; 16]));
        let noting = |out: &[usize], due| {
            Box::new(Noting { got: Arc::default(), out: out.to_vec(), due })
                as Box<dyn PortEndpoint>
        };
        assert_eq!((all.deadline(), all.poll_transmit(1, &mut [])), (None, None));
        all.add(tpn(5), noting(&[], None)).unwrap();
        assert_eq!((all.deadline(), all.poll_transmit(1, &mut [])), (None, None));
        all.add(tpn(6), noting(&[61, 62], Some(70))).unwrap();
        all.add(tpn(7), noting(&[71], Some(40))).unwrap();
        assert_eq!(all.deadline(), Some(40));
        let sent = std::iter::from_fn(|| all.poll_transmit(1, &mut []));
        // The one with the lower number has two, and does not go first twice.
        assert_eq!(sent.map(|sent| sent.len).collect::<Vec<_>>(), [62, 71, 61]);
    }
}
