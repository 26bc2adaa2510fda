//! Packets that wait to be sent, and the results of sending them.
//!
//! Bytes in the order of sending, grouped into runs: one packet, or several of equal size to one destination, which
//! segmentation offload sends by one call. Nothing is sent from here.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
};

use rustix::{
    io::Errno,
    net::{SocketAddrAny, sockopt},
};
use udma_abi::RawEid;

use super::DATAGRAM_MAX;
use crate::{
    host::ip_eid,
    ports::{RUN_BYTES, RUN_MAX, Transmit},
};

/// Waiting runs, one after the other in a buffer.
#[derive(Debug)]
pub(super) struct PacketRuns {
    buffer: Box<[u8]>,
    /// Bytes in the buffer.
    len: usize,
    /// Packets in the buffer.
    count: usize,
    runs: Vec<PacketRun>,
}

/// Packets of equal size to one destination.
#[derive(Debug)]
pub(super) struct PacketRun {
    pub(super) to: SocketAddr,
    /// The destination in the system's form.
    pub(super) name: SocketAddrAny,
    /// Size in bytes of each packet except the last, which may be shorter.
    pub(super) size: usize,
    /// Bytes of all packets.
    pub(super) len: usize,
    /// Whether a packet may join.
    is_open: bool,
}

/// Whether a packet may be sent by one call with others: the system may refuse a probe as too long, and with it
/// everything in the same run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Company {
    /// With packets before and after it.
    Any,
    /// Alone, as a run of its own.
    Alone,
}

impl PacketRuns {
    pub(super) fn new() -> Self {
        let buffer = vec![0; RUN_BYTES + DATAGRAM_MAX].into();
        Self { buffer, len: 0, count: 0, runs: Vec::with_capacity(RUN_MAX) }
    }

    /// Room for the next packets, as long as a run.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.len..self.len + DATAGRAM_MAX]
    }

    /// Adds what was written there.
    pub(super) fn push(&mut self, to: SocketAddr, packets: &Transmit, company: Company) {
        let Transmit { len, size, .. } = *packets;
        let (count, is_open) = (packets.packets(), company == Company::Any);
        let joins = |run: &&mut PacketRun| {
            let (is_single, is_full) = (count == 1, run.len + len > RUN_BYTES);
            run.is_open && is_open && is_single && !is_full && run.to == to && len <= run.size
        };
        if let Some(run) = self.runs.last_mut().filter(joins) {
            run.len += len;
            run.is_open = len == run.size && run.len < RUN_MAX * len;
        } else {
            // The last packet of a run may be shorter than the others.
            let is_open = is_open && len == size * count && count < RUN_MAX;
            self.runs.push(PacketRun { to, name: to.into(), size: size.max(1), len, is_open });
        }
        self.len += len;
        self.count += count;
    }

    /// Whether as many packets or bytes wait as one call sends.
    pub(super) fn is_full(&self) -> bool {
        let size = self.runs.last().map_or(0, |run| run.size);
        self.count >= RUN_MAX || self.len + size > RUN_BYTES
    }

    /// The runs, and their bytes.
    pub(super) fn parts(&mut self) -> (&[PacketRun], &mut [u8]) {
        (&self.runs, &mut self.buffer[..self.len])
    }

    pub(super) fn clear(&mut self) {
        self.runs.clear();
        (self.len, self.count) = (0, 0);
    }
}

/// Results of the send calls on one socket.
#[derive(Debug)]
pub(super) struct SendResults {
    /// Address of the socket.
    own: SocketAddr,
    /// Packets that the system accepted.
    pub(super) sent: u64,
    /// Packets that it refused.
    pub(super) dropped: u64,
    /// Packets of these that it refused as too long.
    pub(super) dropped_long: u64,
    /// Number of send system calls, including failed ones.
    pub(super) calls: u64,
    /// Destinations for which datagrams were too long, and the most bytes that pass.
    pub(super) too_long: Vec<(RawEid, usize)>,
    /// Destinations to which the system does not send.
    pub(super) cut: Vec<RawEid>,
}

impl SendResults {
    pub(super) fn new(own: SocketAddr) -> Self {
        let (too_long, cut) = (Vec::new(), Vec::new());
        Self { own, sent: 0, dropped: 0, dropped_long: 0, calls: 0, too_long, cut }
    }

    /// Counts a call: how many packets it sent, or that it refused `packets` packets to `to`.
    pub(super) fn note(&mut self, to: SocketAddr, packets: usize, sent: Result<usize, &io::Error>) {
        self.calls += 1;
        let error = match sent {
            Ok(count) => {
                self.sent += count as u64;
                return;
            }
            Err(error) => error,
        };
        // The transport above handles lost datagrams.
        tracing::debug!(%to, %error, packets, "datagrams were not sent");
        self.dropped += packets as u64;
        match Errno::from_io_error(error) {
            Some(Errno::MSGSIZE) => {
                self.dropped_long += packets as u64;
                self.note_too_long(to);
            }
            Some(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN) => {
                let to = ip_eid(to.ip());
                if self.cut.len() < CUT_MAX && !self.cut.contains(&to) {
                    self.cut.push(to);
                }
            }
            _ => {}
        }
    }

    /// Asks the system for the MTU to `to`, by a socket that sends nothing.
    fn note_too_long(&mut self, to: SocketAddr) {
        let from = self.own.ip();
        let ask = || -> io::Result<u32> {
            let socket = UdpSocket::bind((from, 0))?;
            socket.connect(to)?;
            let mtu = if to.is_ipv4() { sockopt::ip_mtu } else { sockopt::ipv6_mtu };
            Ok(mtu(&socket)?)
        };
        let to = ip_eid(to.ip());
        let noted = &mut self.too_long;
        let is_new = noted.len() < TOO_LONG_MAX && !noted.iter().any(|(eid, _)| *eid == to);
        if is_new && let Ok(Ok(ip_mtu)) = ask().map(usize::try_from) {
            noted.push((to, ip_mtu));
        }
    }
}

/// Most destinations recorded as unreachable in one call.
const CUT_MAX: usize = 64;
/// Most destinations whose MTU is asked for in one call.
const TOO_LONG_MAX: usize = 64;

#[cfg(test)]
mod tests {

    use super::*;

    /// Bytes and size of each run that packets of these lengths make, to one of two nodes.
    fn made(packets: &[(u8, usize, usize, Company)]) -> Vec<(usize, usize)> {
        let mut runs = PacketRuns::new();
        for &(node, len, size, company) in packets {
            assert!(!runs.is_full() && runs.room().len() >= RUN_BYTES);
            let to = SocketAddr::from(([10, 0, 0, node], 4791));
            let eid = ip_eid(to.ip());
            let packets = Transmit { to: eid, port: 0, source_port: 4791, len, size };
            runs.push(to, &packets, company);
        }
        let (parts, bytes) = runs.parts();
        assert_eq!(bytes.len(), parts.iter().map(|run| run.len).sum::<usize>());
        let made = parts.iter().map(|run| (run.len, run.size)).collect();
        runs.clear();
        assert_eq!(runs.parts().1.len(), 0);
        made
    }

    #[test]
    fn packets_of_one_size_to_one_node_are_one_run_that_a_shorter_one_ends() {
        use Company::Any;
        let single = |node, len| (node, len, len, Any);
        assert_eq!(made(&[single(1, 64), single(1, 64), single(1, 32)]), [(160, 64)]);
        assert_eq!(made(&[single(1, 64), single(1, 32), single(1, 32)]), [(96, 64), (32, 32)]);
        assert_eq!(made(&[single(1, 64), single(1, 65)]), [(64, 64), (65, 65)]);
        assert_eq!(made(&[single(1, 64), single(2, 64)]), [(64, 64), (64, 64)]);
        let run = (1, 300, 100, Any);
        assert_eq!(made(&[run, single(1, 100), run]), [(400, 100), (300, 100)]);
        assert_eq!(made(&[(1, 250, 100, Any), single(1, 50)]), [(250, 100), (50, 50)]);
    }

    #[test]
    fn nothing_joins_a_packet_that_goes_alone() {
        let of = |company| (1, 100, 100, company);
        let (any, alone) = (of(Company::Any), of(Company::Alone));
        assert_eq!(made(&[any, alone, any, any]), [(100, 100), (100, 100), (200, 100)]);
        assert_eq!(made(&[alone, any]), [(100, 100), (100, 100)]);
    }

    #[test]
    fn a_run_has_the_packets_and_bytes_of_one_call_at_most() {
        let mut runs = PacketRuns::new();
        let to = SocketAddr::from(([10, 0, 0, 1], 4791));
        for (len, count) in [(16, RUN_MAX), (1000, RUN_MAX), (4000, 16), (16_000, 4)] {
            for number in 0..count {
                assert!(!runs.is_full(), "{number} of {len}");
                let eid = ip_eid(to.ip());
                let packet = Transmit { to: eid, port: 0, source_port: 4791, len, size: len };
                runs.push(to, &packet, Company::Any);
            }
            assert!(runs.is_full(), "{count} of {len}");
            assert_eq!(runs.parts().0.len(), 1);
            runs.clear();
        }
    }

    #[test]
    fn what_the_system_refuses_is_counted_by_its_reason() {
        let mut results = SendResults::new("127.0.0.1:0".parse().unwrap());
        let to = |last: u8| SocketAddr::from(([127, 9, 9, last], 4791));
        let eid = |last: u8| ip_eid([127, 9, 9, last].into());
        let counts = |results: &SendResults| {
            (results.calls, results.sent, results.dropped, results.dropped_long)
        };
        results.note(to(1), 1, Ok(3));
        results.note(to(1), 4, Ok(0));
        assert_eq!(counts(&results), (2, 3, 0, 0));
        results.note(to(1), 2, Err(&Errno::NOBUFS.into()));
        assert_eq!(counts(&results), (3, 3, 2, 0));
        assert!(results.too_long.is_empty() && results.cut.is_empty());
        for errno in [Errno::NETUNREACH, Errno::HOSTUNREACH, Errno::NETDOWN] {
            let last = u8::try_from(errno.raw_os_error()).unwrap();
            results.note(to(last), 5, Err(&errno.into()));
            results.note(to(last), 5, Err(&errno.into()));
            assert_eq!(results.cut.pop(), Some(eid(last)), "once");
            assert!(results.cut.is_empty());
        }
        assert_eq!(counts(&results), (9, 3, 32, 0));
        // The loopback interface lets as many bytes pass as a packet of IPv4 has at most, or one more.
        for _ in 0..2 {
            results.note(to(9), 7, Err(&Errno::MSGSIZE.into()));
        }
        assert_eq!(counts(&results), (11, 3, 46, 14));
        let [(to, mtu)] = results.too_long[..] else { panic!("once: {results:?}") };
        assert!(to == eid(9) && (65_535..=65_536).contains(&mtu), "{results:?}");
        assert!(results.cut.is_empty());
    }

    #[test]
    fn so_many_destinations_are_noted_and_no_more() {
        let mut results = SendResults::new("127.0.0.1:0".parse().unwrap());
        for last in 0..100 {
            let to = SocketAddr::from(([127, 9, 8, last], 4791));
            results.note(to, 1, Err(&Errno::NETDOWN.into()));
            results.note(to, 1, Err(&Errno::MSGSIZE.into()));
        }
        assert_eq!((results.cut.len(), results.too_long.len()), (64, 64));
        assert_eq!((results.dropped, results.dropped_long), (200, 100));
    }
}
