//! The links of a node with several ports as one link.
//!
//! *Owns*: a link for each port, a descriptor that is readable when one of theirs is. *Takes*: datagrams with their
//! port. *Gives*: batches with their port. *Must not*: choose the port of a datagram.
//!
//! Runs of datagrams for one port reach its link in one piece, as if it were the only one. The first one for another
//! port is kept until the link of the previous port has sent its run.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use udma_abi::Nanos;

use crate::host::{
    link::{DatagramLink, LinkCounts, OnBatch},
    scheduler::poll::{Interest, Poll},
    udp::{DATAGRAM_MAX, SENDS_PER_CALL},
};
use crate::ports::{Deadline, NodeAddr, Route, Transmit};

/// Links by port number.
#[derive(Debug)]
pub(crate) struct PortLinks {
    links: Vec<Box<dyn DatagramLink>>,
    /// Watches the descriptors of all links.
    poll: Poll,
    /// A datagram that waits for its port's turn.
    kept: Option<Transmit>,
    bytes: Box<[u8]>,
    /// Port of the datagram that was sent last.
    port: u8,
}

impl PortLinks {
    /// Joins the links of the ports 0, 1, ...
    ///
    /// # Errors
    /// Out of descriptors.
    pub(crate) fn new(links: Vec<Box<dyn DatagramLink>>) -> io::Result<Self> {
        let poll = Poll::new()?;
        for (key, link) in (0..).zip(&links) {
            poll.add(link.descriptor(), key, Interest::Read)?;
        }
        let bytes = vec![0; DATAGRAM_MAX].into();
        Ok(Self { links, poll, kept: None, bytes, port: 0 })
    }
}

impl DatagramLink for PortLinks {
    fn send(&mut self, next: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> usize {
        let Self { links, kept, bytes, port, .. } = self;
        let mut taken = 0;
        let mut is_empty = false;
        while !is_empty && taken < SENDS_PER_CALL {
            *port = kept.as_ref().map_or(*port, |kept| kept.port);
            let Some(link) = links.get_mut(usize::from(*port)) else {
                // A datagram for a port that does not exist.
                (*kept, *port) = (None, 0);
                continue;
            };
            let is_sent = link.send(&mut |buffer| {
                if let Some(first) = kept.take() {
                    buffer.get_mut(..first.len)?.copy_from_slice(bytes.get(..first.len)?);
                    return Some(first);
                }
                let transmit = next(buffer);
                let Some(transmit) = transmit else {
                    is_empty = true;
                    return None;
                };
                if transmit.port == *port {
                    return Some(transmit);
                }
                bytes.get_mut(..transmit.len)?.copy_from_slice(buffer.get(..transmit.len)?);
                *kept = Some(transmit);
                None
            });
            taken += is_sent;
            is_empty |= is_sent == 0 && kept.is_none();
        }
        // Delayed datagrams of the others: their time may have come.
        for (number, link) in links.iter_mut().enumerate() {
            if number != usize::from(*port) {
                taken += link.send(&mut |_| None);
            }
        }
        taken
    }

    fn receive(&mut self, on_batch: &mut OnBatch<'_>) -> usize {
        let links = (0..).zip(&mut self.links);
        links
            .map(|(port, link)| link.receive(&mut |_, more, batch| on_batch(port, more, batch)))
            .sum()
    }

    fn shield(&mut self, now: Nanos, dropped: u64, tpns: &dyn Fn() -> Vec<u32>) -> Option<Nanos> {
        let links = self.links.iter_mut();
        links.filter_map(|link| link.shield(now, dropped, tpns)).min()
    }

    fn poll_deadline(&self) -> Deadline {
        let kept = self.kept.map(|_| 0);
        self.links.iter().filter_map(|link| link.poll_deadline()).chain(kept).min()
    }

    fn packets_kept(&self, mtu: u32) -> usize {
        self.links.iter().map(|link| link.packets_kept(mtu)).min().unwrap_or(0)
    }

    fn poll_too_long(&mut self) -> Option<(NodeAddr, usize)> {
        self.links.iter_mut().find_map(|link| link.poll_too_long())
    }

    fn poll_cut(&mut self) -> Option<Route> {
        let links = (0..).zip(&mut self.links);
        links.into_iter().find_map(|(port, link)| Some(Route { port, ..link.poll_cut()? }))
    }

    fn counts(&self) -> LinkCounts {
        self.links.iter().map(|link| link.counts()).fold(LinkCounts::default(), |sum, one| {
            LinkCounts {
                sent: sum.sent + one.sent,
                send_dropped: sum.send_dropped + one.send_dropped,
                received: sum.received + one.received,
                send_calls: sum.send_calls + one.send_calls,
            }
        })
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.poll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use urma_packet::ROCE_PORT;

    use super::*;
    use crate::host::{
        claim::Claim,
        eid_ip,
        scheduler::poll::ReadyList,
        udp::{Udp, UdpOffload},
    };

    /// Two nodes of two ports each: what one sends by turns comes to the right port from the right one.
    #[test]
    fn datagrams_go_by_their_port_and_come_with_it() {
        let claims: Vec<Claim> = (0..4).map(|_| Claim::random().unwrap()).collect();
        let links = |at: usize| {
            let bind = |claim: &Claim| -> Box<dyn DatagramLink> {
                Box::new(Udp::bind(claim.eid(), UdpOffload::On).unwrap())
            };
            PortLinks::new(claims[at..at + 2].iter().map(bind).collect()).unwrap()
        };
        let (mut here, mut there) = (links(0), links(2));
        let watch = Poll::new().unwrap();
        watch.add(there.descriptor(), 7, Interest::Read).unwrap();
        let ports = [0, 0, 1, 0, 1, 1, 1, 0, 9, 1, 0];
        let mut number = 0;
        for _ in 0..4 {
            here.send(&mut |buffer| {
                let port: u8 = *ports.get(number)?;
                // As long as a BTH with its ICRC.
                buffer[..16].fill(0);
                buffer[0] = u8::try_from(number).unwrap();
                number += 1;
                let to = claims[2 + usize::from(port % 2)].eid();
                Some(Transmit { to, port, source_port: ROCE_PORT, len: 16, size: 16 })
            });
        }
        let mut ready = ReadyList::default();
        watch.wait(&mut ready, Some(std::time::Duration::from_secs(5))).unwrap();
        assert_eq!(ready.keys().collect::<Vec<_>>(), [7]);
        let mut got = Vec::new();
        for _ in 0..1000 {
            there.receive(&mut |port, _, batch| {
                got.extend(batch.map(|(from, bytes)| {
                    let sender = claims[usize::from(port)].eid();
                    assert_eq!(from, SocketAddr::new(eid_ip(sender), ROCE_PORT));
                    (bytes[0], port)
                }));
            });
        }
        got.sort_unstable();
        let all = (0..).zip(ports).filter(|(_, port)| *port < 2);
        assert_eq!(got, all.collect::<Vec<(u8, u8)>>());
        watch.wait(&mut ready, Some(std::time::Duration::ZERO)).unwrap();
        assert_eq!(ready.keys().count(), 0);
    }

    /// A link that answers with numbers of its own.
    #[derive(Debug)]
    struct Numbered {
        number: u64,
        too_long: Vec<(NodeAddr, usize)>,
        cut: Vec<Route>,
        events: std::os::fd::OwnedFd,
    }

    impl Numbered {
        fn boxed(number: u64) -> Box<dyn DatagramLink> {
            let to = |last| crate::host::ip_eid([127, 1, 1, last].into());
            let last = u8::try_from(number).unwrap();
            let events = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
            let (too_long, cut) = (vec![(to(last), 1400)], vec![Route { port: 77, to: to(last) }]);
            Box::new(Self { number, too_long, cut, events })
        }
    }

    impl DatagramLink for Numbered {
        fn send(&mut self, _: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> usize {
            0
        }

        fn receive(&mut self, on_batch: &mut OnBatch<'_>) -> usize {
            on_batch(9, crate::ports::Backlog::Empty, &mut std::iter::empty());
            self.number.try_into().unwrap()
        }

        fn shield(&mut self, now: Nanos, _: u64, tpns: &dyn Fn() -> Vec<u32>) -> Option<Nanos> {
            assert_eq!(tpns(), [5]);
            (self.number != 30).then_some(now + self.number)
        }

        fn poll_deadline(&self) -> Deadline {
            (self.number != 30).then_some(self.number)
        }

        fn packets_kept(&self, mtu: u32) -> usize {
            mtu as usize + usize::try_from(self.number).unwrap()
        }

        fn poll_too_long(&mut self) -> Option<(NodeAddr, usize)> {
            self.too_long.pop()
        }

        fn poll_cut(&mut self) -> Option<Route> {
            self.cut.pop()
        }

        fn counts(&self) -> LinkCounts {
            let number = self.number;
            LinkCounts {
                sent: number,
                send_dropped: 2 * number,
                received: 3 * number,
                send_calls: 4 * number,
            }
        }

        fn descriptor(&self) -> BorrowedFd<'_> {
            self.events.as_fd()
        }
    }

    #[test]
    fn several_links_answer_as_one() {
        let mut all = PortLinks::new([30, 20, 40].map(Numbered::boxed).into()).unwrap();
        let mut ports = Vec::new();
        assert_eq!(all.receive(&mut |port, _, _| ports.push(port)), 90);
        assert_eq!(ports, [0, 1, 2]);
        assert_eq!(all.shield(1000, 3, &|| vec![5]), Some(1020), "the first of them");
        assert_eq!((all.poll_deadline(), all.packets_kept(7)), (Some(20), 27));
        let counts = LinkCounts { sent: 90, send_dropped: 180, received: 270, send_calls: 360 };
        assert_eq!(all.counts(), counts);
        let to = |last| crate::host::ip_eid([127, 1, 1, last].into());
        let too_long: Vec<_> = std::iter::from_fn(|| all.poll_too_long()).collect();
        assert_eq!(too_long, [(to(30), 1400), (to(20), 1400), (to(40), 1400)]);
        let cut: Vec<_> = std::iter::from_fn(|| all.poll_cut()).collect();
        let route = |port, last| Route { port, to: to(last) };
        assert_eq!(cut, [route(0, 30), route(1, 20), route(2, 40)]);
    }
}
