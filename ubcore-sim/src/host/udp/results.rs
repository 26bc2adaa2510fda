//! Results of sends.
//!
//! *Owns*: counts, destinations to which the system does not send. *Takes*: the result of each call. *Gives*: why
//! packets were refused, once for each destination. *Must not*: send.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
};

use rustix::{io::Errno, net::sockopt};
use udma_abi::RawEid;

use crate::host::ip_eid;

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
