//! The bytes of packets that the peer may lack.
//!
//! - owns: packet buffers by sequence. takes: whole datagrams, written into its buffers.
//! - gives: them again. must not: know what became of a packet (that is `urma-recovery`'s).
//!
//! Buffers of acknowledged packets are used again: a steady stream allocates nothing.

use super::ring::Ring;

/// Most buffers that are kept for later packets.
pub(super) const SPARE_MAX: usize = 1024;

/// Packets of a send window, by sequence.
#[derive(Debug)]
pub(super) struct SendStore {
    packets: Ring<Vec<u8>>,
    /// First packet whose place is not free.
    first: u64,
    /// Buffers of acknowledged packets: the most recent one, which is still in the caches, is used first.
    spare: Vec<Vec<u8>>,
}

impl SendStore {
    /// Creates a store of `packets` places.
    pub(super) fn new(packets: u32) -> Self {
        Self { packets: Ring::new(packets), first: 0, spare: Vec::new() }
    }

    /// Lets `write` fill the `len` bytes of packet `seq`, whose place is free. If `write` fails, nothing is stored.
    pub(super) fn store<E>(
        &mut self,
        seq: u64,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(len, 0);
        let written = write(&mut bytes);
        if written.is_ok() {
            self.packets.reserve(self.first, seq);
            *self.packets.at_mut(seq) = bytes;
        } else {
            self.spare.push(bytes);
        }
        written
    }

    /// Bytes of packet `seq`.
    pub(super) fn packet(&self, seq: u64) -> &[u8] {
        self.packets.at(seq)
    }

    pub(super) fn packet_mut(&mut self, seq: u64) -> &mut Vec<u8> {
        self.packets.at_mut(seq)
    }

    /// Frees packets that the peer has acknowledged.
    pub(super) fn free(&mut self, packets: std::ops::Range<u64>) {
        self.first = packets.end;
        for seq in packets {
            let bytes = std::mem::take(self.packet_mut(seq));
            if self.spare.len() < SPARE_MAX {
                self.spare.push(bytes);
            }
        }
    }
}
