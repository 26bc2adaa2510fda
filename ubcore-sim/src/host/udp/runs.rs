//! Packets that wait to be sent.
//!
//! *Owns*: their bytes, in the order of sending, grouped into runs. *Takes*: what the core writes into the buffer
//! that it gets. *Gives*: runs. *Must not*: send.
//!
//! A run is one packet, or several of equal size to one destination: what segmentation offload sends by one call.

use std::net::SocketAddr;

use rustix::net::SocketAddrAny;

use super::DATAGRAM_MAX;
use crate::ports::{RUN_BYTES, RUN_MAX, Transmit};

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes and size of each run that packets of these lengths make, to one of two nodes.
    fn made(packets: &[(u8, usize, usize, Company)]) -> Vec<(usize, usize)> {
        let mut runs = PacketRuns::new();
        for &(node, len, size, company) in packets {
            assert!(!runs.is_full() && runs.room().len() >= RUN_BYTES);
            let to = SocketAddr::from(([10, 0, 0, node], 4791));
            let eid = crate::host::ip_eid(to.ip());
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
                let eid = crate::host::ip_eid(to.ip());
                let packet = Transmit { to: eid, port: 0, source_port: 4791, len, size: len };
                runs.push(to, &packet, Company::Any);
            }
            assert!(runs.is_full(), "{count} of {len}");
            assert_eq!(runs.parts().0.len(), 1);
            runs.clear();
        }
    }
}
