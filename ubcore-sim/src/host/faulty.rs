//! A link that is degraded on purpose: what the node sends passes through the decorators of the simulation first.
//!
//! *Owns*: delayed datagrams. *Takes*: a link, and the faults. *Gives*: a link. *Must not*: touch what is received:
//! the other side does that to what it sends.
//!
//! A delayed datagram waits here, and the system never sees a lost one: no privilege and no kernel support is needed.

use std::{net::SocketAddr, os::fd::BorrowedFd};

use udma_abi::Nanos;
use urma_packet::ROCE_PORT;

use super::clock::Clock;
use super::ip_eid;
use super::link::{DatagramLink, LinkCounts, OnBatch};
use super::udp::{DATAGRAM_MAX, SENDS_PER_CALL};
use crate::link::{Datagram, Link, LinkFaults, Rng};
use crate::ports::{Deadline, NodeAddr, Route, Transmit};

/// Sends through decorators, and receives from the link below unchanged.
#[derive(Debug)]
pub(super) struct FaultyLink {
    below: Box<dyn DatagramLink>,
    way: Box<dyn Link>,
    own: NodeAddr,
    /// Read when there is a datagram. If a thread lost its processor after the node read the clock, that time would
    /// count as delay.
    clock: fn() -> Nanos,
    buffer: Box<[u8]>,
}

impl FaultyLink {
    /// Wraps `below`, the link of the node at `own`.
    #[must_use]
    pub(super) fn new(below: Box<dyn DatagramLink>, own: SocketAddr, faults: &LinkFaults) -> Self {
        let way = faults.cfg.build(&mut Rng::new(faults.seed));
        let buffer = vec![0; DATAGRAM_MAX].into();
        let clock = || Clock::default().now();
        Self { below, way, own: ip_eid(own.ip()), clock, buffer }
    }
}

impl Drop for FaultyLink {
    /// Sends delayed datagrams before the node goes.
    fn drop(&mut self) {
        self.clock = || Nanos::MAX;
        while self.send(&mut |_| None) != 0 {}
    }
}

impl DatagramLink for FaultyLink {
    fn send(&mut self, next: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> usize {
        let Self { below, way, own, clock, buffer } = self;
        let mut taken = 0;
        while taken < SENDS_PER_CALL
            && let Some(Transmit { to, len, size, .. }) = next(buffer)
        {
            let now = clock();
            for bytes in buffer.get(..len).unwrap_or_default().chunks(size.max(1)) {
                way.send(now, Datagram { from: *own, to, bytes: bytes.into() });
                taken += 1;
            }
        }
        let now = clock();
        let sent = below.send(&mut |buffer| {
            let Datagram { to, bytes, .. } = way.poll(now)?;
            buffer.get_mut(..bytes.len())?.copy_from_slice(&bytes);
            let len = bytes.len();
            Some(Transmit { to, port: 0, source_port: ROCE_PORT, len, size: len })
        });
        taken.max(sent)
    }

    fn receive(&mut self, on_batch: &mut OnBatch<'_>) -> usize {
        self.below.receive(on_batch)
    }

    fn shield(&mut self, now: Nanos, dropped: u64, tpns: &dyn Fn() -> Vec<u32>) -> Option<Nanos> {
        self.below.shield(now, dropped, tpns)
    }

    fn poll_deadline(&self) -> Deadline {
        self.way.poll_deadline()
    }

    fn packets_kept(&self, mtu: u32) -> usize {
        self.below.packets_kept(mtu)
    }

    fn poll_too_long(&mut self) -> Option<(NodeAddr, usize)> {
        self.below.poll_too_long()
    }

    fn poll_cut(&mut self) -> Option<Route> {
        self.below.poll_cut()
    }

    fn counts(&self) -> LinkCounts {
        self.below.counts()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.below.descriptor()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::host::{
        claim::Claim,
        eid_ip,
        udp::{Udp, UdpOffload},
    };

    thread_local! {
        static NOW: Cell<Nanos> = const { Cell::new(0) };
    }

    /// A link whose clock shows [`NOW`].
    fn faulty(below: Udp, faults: &str) -> FaultyLink {
        let own = below.address();
        let mut link = FaultyLink::new(Box::new(below), own, &faults.parse().unwrap());
        link.clock = || NOW.get();
        link
    }

    /// Sends `count` datagrams, 100 at each of the times 0, 1, ..., over a link with `faults`; what came, by number.
    fn arrivals(faults: &str, count: u32, until: Nanos) -> Vec<u32> {
        let [here, there] = [Claim::random().unwrap(), Claim::random().unwrap()];
        let mut link = faulty(Udp::bind(here.eid(), UdpOffload::On).unwrap(), faults);
        let mut peer = Udp::bind(there.eid(), UdpOffload::On).unwrap();
        let (mut number, mut got) = (0, Vec::new());
        for now in 0..until {
            NOW.set(now);
            let stop = count.min(number + 100);
            link.send(&mut |buffer| {
                let bytes = (number < stop).then(|| number.to_be_bytes())?;
                // As long as a BTH with its ICRC.
                buffer[..16].fill(0);
                buffer[..4].copy_from_slice(&bytes);
                number += 1;
                Some(Transmit {
                    to: there.eid(),
                    port: 0,
                    source_port: ROCE_PORT,
                    len: 16,
                    size: 16,
                })
            });
            while Udp::receive(&mut peer, |_, batch| {
                got.extend(batch.filter_map(|(from, bytes)| {
                    assert_eq!(from.ip(), eid_ip(here.eid()));
                    bytes.first_chunk().map(|number| u32::from_be_bytes(*number))
                }));
            }) != 0
            {}
        }
        got
    }

    #[test]
    fn a_perfect_way_carries_everything() {
        assert_eq!(arrivals("seed=1", 300, 10), (0..300).collect::<Vec<_>>());
    }

    #[test]
    fn a_part_is_lost_the_same_each_time() {
        let first = arrivals("loss=10%,seed=7", 2000, 30);
        assert!((1700..1900).contains(&first.len()), "{} of 2000", first.len());
        assert_eq!(first, arrivals("loss=10%,seed=7", 2000, 30));
        assert_ne!(first, arrivals("loss=10%,seed=8", 2000, 30));
    }

    #[test]
    fn what_is_delayed_comes_at_its_time() {
        assert!(arrivals("delay=50ns", 100, 50).is_empty());
        assert_eq!(arrivals("delay=50ns", 100, 51).len(), 100);
    }

    /// When a datagram is due that was made from the time 1000 until `made`, delayed by 5 us.
    fn due(made: Nanos) -> Deadline {
        let [here, there] = [Claim::random().unwrap(), Claim::random().unwrap()];
        let mut link = faulty(Udp::bind(here.eid(), UdpOffload::On).unwrap(), "delay=5us");
        assert_eq!(link.poll_deadline(), None);
        NOW.set(1000);
        let mut left = 1;
        let sent = link.send(&mut |_| {
            left = i32::checked_sub(left, 1).filter(|left| *left >= 0)?;
            NOW.set(made);
            Some(Transmit { to: there.eid(), port: 0, source_port: ROCE_PORT, len: 16, size: 16 })
        });
        assert_eq!(sent, 1);
        link.poll_deadline()
    }

    #[test]
    fn the_deadline_is_that_of_the_next_on_its_way() {
        assert_eq!(due(1000), Some(6000));
    }

    #[test]
    fn a_thread_that_lost_its_processor_shortens_no_delay() {
        assert_eq!(due(5000), Some(10_000));
    }
}
