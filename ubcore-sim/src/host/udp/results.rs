//! What became of the packets that were given to the system.
//!
//! *Owns*: counts, destinations to which the system does not send. *Takes*: the result of each call. *Gives*: why packets
//! were refused, once for each destination. *Must not*: send.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
};

use rustix::{io::Errno, net::sockopt};
use udma_abi::RawEid;

use crate::host::ip_eid;

/// Results of the calls that send on one socket.
#[derive(Debug)]
pub(super) struct SendResults {
    /// Address of the socket.
    own: SocketAddr,
    /// Packets that the system took.
    pub(super) sent: u64,
    /// Packets that it did not take.
    pub(super) dropped: u64,
    /// Packets that it did not take for their length, of those.
    pub(super) dropped_long: u64,
    /// System calls that sent, or tried to.
    pub(super) calls: u64,
    /// Where datagrams were too long, and the most bytes that pass.
    pub(super) too_long: Vec<(RawEid, usize)>,
    /// Where the system does not send.
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
        // A lost datagram is what the transport above is made for.
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

/// Destinations that cannot be sent to, noted in one call.
const CUT_MAX: usize = 64;
/// Destinations whose MTU is asked for in one call.
const TOO_LONG_MAX: usize = 64;
