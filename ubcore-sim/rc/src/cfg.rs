//! What an endpoint is opened with, and memory as it sees it.
//!
//! - owns: the values that both sides agree on outside the wire, and their ranges; the questions about memory.
//! - must not: say where bytes lie; a *place* is the number of the memory's owner.

use urma_packet::{Psn, Tpn, packetizer::Packetizer};

use crate::RcTime;

/// Settings of a connection. Each side has its own; numbers, PSNs and path MTU must fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RcCfg {
    /// Queue pair number of this endpoint: DestQP of the packets that it takes.
    pub local_qpn: Tpn,
    /// Queue pair number of the peer.
    pub remote_qpn: Tpn,
    /// PSN of the first request sent; from the system's generator where it guards anything.
    pub send_psn: Psn,
    /// PSN of the first request expected: the peer's `send_psn`.
    pub receive_psn: Psn,
    /// Partition key of all packets.
    pub pkey: u16,
    /// Payload of a packet in bytes: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: usize,
    /// Rounds of repeated requests without progress before the connection fails, 0 to 7.
    pub retry_count: u8,
    /// Times that a request is sent again after "receiver not ready", 0 to 6; 7 for no limit.
    pub rnr_retry: u8,
    /// Time after which an unanswered request is sent again; 0: never.
    pub ack_timeout: RcTime,
    /// Timer code in the "receiver not ready" responses of this endpoint, 0 to 31.
    pub min_rnr_timer: u8,
    /// READs and atomics of this endpoint that may be in flight at once, at least 1.
    pub max_rd_atomic: u8,
    /// READs and atomics of the peer whose results this endpoint keeps; 0 refuses them.
    pub max_dest_rd_atomic: u8,
    /// Requests that may be outstanding, and receives that may be posted.
    pub queue_depth: usize,
    /// Packets in flight at once, 1 to 65536.
    pub window: u32,
    /// An acknowledgement is asked for in at least every so many packets, and sent after as many
    /// without being asked for.
    pub ack_interval: u32,
}

/// Most PSNs between the oldest request without acknowledgement and the newest one: half of what
/// their comparison allows.
pub(crate) const PSNS_MAX: u32 = 1 << 22;
/// Longest message in bytes.
pub(crate) const MESSAGE_MAX: u32 = 1 << 31;
/// Value of `rnr_retry` that sets no limit.
pub(crate) const RNR_UNLIMITED: u8 = 7;

impl RcCfg {
    /// Settings with which Linux (rxe) opens a connection, between two queue pairs.
    #[must_use]
    pub fn new([local_qpn, remote_qpn]: [Tpn; 2], [send_psn, receive_psn]: [Psn; 2]) -> Self {
        Self {
            local_qpn,
            remote_qpn,
            send_psn,
            receive_psn,
            pkey: 0xffff,
            path_mtu: 1024,
            retry_count: 7,
            rnr_retry: RNR_UNLIMITED,
            ack_timeout: 67_108_864,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            queue_depth: 128,
            window: 128,
            ack_interval: 16,
        }
    }

    /// Checks that every value is in its range.
    ///
    /// # Errors
    /// The first value that is out of its range.
    pub fn check(&self) -> Result<(), RcCfgError> {
        let ranges = [
            ("path_mtu", self.path_mtu.is_power_of_two() && (256..=4096).contains(&self.path_mtu)),
            ("retry_count", self.retry_count <= 7),
            ("rnr_retry", self.rnr_retry <= RNR_UNLIMITED),
            ("min_rnr_timer", self.min_rnr_timer <= 31),
            ("max_rd_atomic", self.max_rd_atomic >= 1),
            ("queue_depth", (1..=65_536).contains(&self.queue_depth)),
            ("window", (1..=65_536).contains(&self.window)),
            // A window without a packet that asks for an acknowledgement would wait for the timer.
            ("ack_interval", (1..=self.window).contains(&self.ack_interval)),
        ];
        match ranges.into_iter().find(|(_, fits)| !fits) {
            Some((field, _)) => Err(RcCfgError { field }),
            None => Ok(()),
        }
    }

    /// Packets of a message of `len` bytes.
    pub(crate) fn packets(&self, len: u32) -> u32 {
        let mtu = u32::try_from(self.path_mtu).unwrap_or(u32::MAX);
        len.div_ceil(mtu).max(1)
    }

    /// A message whose next packet is the `index`-th from 0.
    pub(crate) fn cut_at(&self, index: u32) -> Packetizer {
        Packetizer::at(index, u32::try_from(self.path_mtu).unwrap_or(u32::MAX))
    }
}

/// A value of [`RcCfg`] that is out of its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection is not opened: {field} is out of its range")]
pub struct RcCfgError {
    /// Name of the field.
    pub field: &'static str,
}

/// What a peer wants to do with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RcAccess {
    /// Bytes are sent to it: READ.
    Read,
    /// Its bytes are stored: WRITE.
    Write,
    /// Eight bytes change at once: CAS, FADD.
    Atomic,
}

/// An atomic on 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RcAtomic {
    /// Stores `swap` if the value is `compare`.
    CompareSwap {
        /// Value that the old one must have.
        compare: u64,
        /// Value that is stored then.
        swap: u64,
    },
    /// Adds to the value, modulo 2^64.
    FetchAdd {
        /// Number that is added.
        add: u64,
    },
}

impl RcAtomic {
    /// The value after the operation on `old`.
    #[must_use]
    pub const fn apply(self, old: u64) -> u64 {
        match self {
            Self::CompareSwap { compare, swap } if compare == old => swap,
            Self::CompareSwap { .. } => old,
            Self::FetchAdd { add } => old.wrapping_add(add),
        }
    }
}

/// Memory of an endpoint's owner. A place is a number that the owner gives out: in requests and
/// receives for local memory, by [`RcMemory::resolve`] for a peer's address.
pub trait RcMemory {
    /// Place of `len` bytes (at least 1) at `va` of the region with `rkey`, if the region exists,
    /// holds all of them and allows `access`. Asked before each packet's bytes move.
    fn resolve(&self, rkey: u32, va: u64, len: u32, access: RcAccess) -> Option<u64>;

    /// Fills `into` with the bytes at `place`; `false`: they cannot be read.
    fn load(&self, place: u64, into: &mut [u8]) -> bool;

    /// Stores `bytes` at `place`; `false`: nothing was stored, they cannot be written.
    fn store(&mut self, place: u64, bytes: &[u8]) -> bool;

    /// Changes the number of 8 bytes at `place` at once, in the byte order of this machine; its old
    /// value. `None`: nothing was changed.
    fn update(&mut self, place: u64, atomic: RcAtomic) -> Option<u64>;

    /// Withdraws the region with `rkey`; `false`: there is none, or the peer may not withdraw it.
    fn invalidate(&mut self, rkey: u32) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cfg() -> RcCfg {
        RcCfg::new([Tpn::from_low_bits(1), Tpn::from_low_bits(2)], [Psn::new(0); 2])
    }

    fn refused(change: impl Fn(&mut RcCfg)) -> Option<&'static str> {
        let mut cfg = cfg();
        change(&mut cfg);
        cfg.check().err().map(|error| error.field)
    }

    #[test]
    fn every_value_has_a_range() {
        assert_eq!(cfg().check(), Ok(()));
        assert_eq!(refused(|cfg| cfg.path_mtu = 1000), Some("path_mtu"));
        assert_eq!(refused(|cfg| cfg.path_mtu = 8192), Some("path_mtu"));
        assert_eq!(refused(|cfg| cfg.path_mtu = 128), Some("path_mtu"));
        assert_eq!(refused(|cfg| cfg.retry_count = 8), Some("retry_count"));
        assert_eq!(refused(|cfg| cfg.rnr_retry = 8), Some("rnr_retry"));
        assert_eq!(refused(|cfg| cfg.min_rnr_timer = 32), Some("min_rnr_timer"));
        assert_eq!(refused(|cfg| cfg.max_rd_atomic = 0), Some("max_rd_atomic"));
        assert_eq!(refused(|cfg| cfg.queue_depth = 0), Some("queue_depth"));
        assert_eq!(refused(|cfg| cfg.window = 0), Some("window"));
        assert_eq!(refused(|cfg| cfg.ack_interval = 129), Some("ack_interval"));
        assert_eq!(refused(|cfg| cfg.ack_interval = 0), Some("ack_interval"));
    }

    #[test]
    fn an_empty_message_has_one_packet() {
        let lens = [0, 1, 1024, 1025, MESSAGE_MAX].map(|len| cfg().packets(len));
        assert_eq!(lens, [1, 1, 1, 2, 1 << 21]);
    }
}
