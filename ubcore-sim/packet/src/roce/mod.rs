//! The standard InfiniBand opcodes over RoCEv2, and the congestion notification packet.
//!
//! - owns: the opcode table, the extension headers, whole packets.
//! - takes: UDP payloads or values. gives: the other.
//! - must not: run a transport; segments of a message are judged one by one.

mod headers;
mod opcode;
mod packet;

pub use headers::{Aeth, AtomicAckEth, AtomicEth, Deth, Feth, Ieth, ImmDt, Rdeth, Reth, Syndrome};
pub use opcode::{CNP, Headers, PacketLayout, PayloadRule};
pub use packet::{RoceExt, RoceHeader, RocePacket};

/// Opcodes of the reliable connected transport; the numbers before the transport is added.
pub mod rc {
    /// First packet of a SEND.
    pub const SEND_FIRST: u8 = 0x00;
    /// Middle packet of a SEND.
    pub const SEND_MIDDLE: u8 = 0x01;
    /// Last packet of a SEND.
    pub const SEND_LAST: u8 = 0x02;
    /// Last packet of a SEND with immediate.
    pub const SEND_LAST_IMM: u8 = 0x03;
    /// SEND in one packet.
    pub const SEND_ONLY: u8 = 0x04;
    /// SEND with immediate in one packet.
    pub const SEND_ONLY_IMM: u8 = 0x05;
    /// First packet of a WRITE.
    pub const WRITE_FIRST: u8 = 0x06;
    /// Middle packet of a WRITE.
    pub const WRITE_MIDDLE: u8 = 0x07;
    /// Last packet of a WRITE.
    pub const WRITE_LAST: u8 = 0x08;
    /// Last packet of a WRITE with immediate.
    pub const WRITE_LAST_IMM: u8 = 0x09;
    /// WRITE in one packet.
    pub const WRITE_ONLY: u8 = 0x0a;
    /// WRITE with immediate in one packet.
    pub const WRITE_ONLY_IMM: u8 = 0x0b;
    /// READ request, without payload.
    pub const READ_REQUEST: u8 = 0x0c;
    /// First packet of a READ response.
    pub const READ_RESPONSE_FIRST: u8 = 0x0d;
    /// Middle packet of a READ response; has no AETH.
    pub const READ_RESPONSE_MIDDLE: u8 = 0x0e;
    /// Last packet of a READ response.
    pub const READ_RESPONSE_LAST: u8 = 0x0f;
    /// READ response in one packet.
    pub const READ_RESPONSE_ONLY: u8 = 0x10;
    /// Acknowledgement, positive or negative.
    pub const ACKNOWLEDGE: u8 = 0x11;
    /// Acknowledgement with the old value of an atomic.
    pub const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
    /// Compare and swap of 8 bytes.
    pub const COMPARE_SWAP: u8 = 0x13;
    /// Fetch and add of 8 bytes.
    pub const FETCH_ADD: u8 = 0x14;
    /// Resynchronisation; reliable datagrams only.
    pub const RESYNC: u8 = 0x15;
    /// Last packet of a SEND with invalidate.
    pub const SEND_LAST_INV: u8 = 0x16;
    /// SEND with invalidate in one packet.
    pub const SEND_ONLY_INV: u8 = 0x17;
    /// FLUSH: makes earlier writes persistent or visible.
    pub const FLUSH: u8 = 0x1c;
    /// ATOMIC WRITE of 8 bytes.
    pub const ATOMIC_WRITE: u8 = 0x1d;
}

/// Added to the numbers of [`rc`]: reliable connection.
pub const TRANSPORT_RC: u8 = 0x00;
/// Unreliable connection (0x00 to 0x0b only).
pub const TRANSPORT_UC: u8 = 0x20;
/// Transport code of reliable datagrams.
pub const TRANSPORT_RD: u8 = 0x40;
/// Unreliable datagram (SEND_ONLY and SEND_ONLY_IMM only).
pub const TRANSPORT_UD: u8 = 0x60;

#[cfg(test)]
mod tests;
