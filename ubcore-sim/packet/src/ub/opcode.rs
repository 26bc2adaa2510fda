//! Opcode tables of wire version 1.
//!
//! - owns: BTH opcodes 0xC0.. and the transaction opcodes (UB Base Specification 2.0.1, 7.2.1).
//! - takes: a byte. gives: an opcode or a refusal. must not: give a code two meanings.

use crate::PacketError;
use crate::codec::wire_enum;

/// Wire version, in BTH.TVer of every URMA packet. 0 are the standard opcodes.
pub const WIRE_VERSION: u8 = 1;
/// PKEY of every URMA packet: the default partition.
pub(super) const PKEY: u16 = 0xffff;

/// BTH opcodes of URMA traffic; all others of its range are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TpOpcode {
    /// Request packet: BTAH follows.
    DataReq = 0xc0,
    /// Response packet: ATAH follows.
    DataResp = 0xc1,
    /// Cumulative acknowledgement with an optional bitmap.
    Ack = 0xc2,
    /// Go-back-N: send again from BTH.PSN on.
    Nak = 0xc3,
    /// Asks for a TP.
    Connect = 0xc4,
    /// Grants the TP that a CONNECT asks for.
    Accept = 0xc5,
    /// Refuses it, with the reason.
    Refuse = 0xc6,
    /// Ends a TP; the body shows the close key.
    Close = 0xc7,
    /// Unacknowledged datagram outside any TP; carries the EIDs.
    UmSend = 0xc8,
    /// Asks the sender of a CONNECT to show that it receives at its address.
    Challenge = 0xc9,
    /// As long as a data packet of some path MTU may be; asks whether that passes.
    Probe = 0xca,
    /// A probe of that length arrived.
    ProbeEcho = 0xcb,
    /// Several requests and responses, each behind its length.
    DataPack = 0xcc,
    /// Reports packets that the receiver found missing.
    Losses = 0xcd,
    /// The sender has nothing to send: what was sent before this packet.
    Tail = 0xce,
    /// Makes up for any one packet of its group.
    Repair = 0xcf,
}

impl TpOpcode {
    /// Every opcode; the codes are consecutive.
    pub const ALL: [Self; 16] = [
        Self::DataReq,
        Self::DataResp,
        Self::Ack,
        Self::Nak,
        Self::Connect,
        Self::Accept,
        Self::Refuse,
        Self::Close,
        Self::UmSend,
        Self::Challenge,
        Self::Probe,
        Self::ProbeEcho,
        Self::DataPack,
        Self::Losses,
        Self::Tail,
        Self::Repair,
    ];

    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The opcode of a code.
    ///
    /// # Errors
    /// [`PacketError::Opcode`].
    pub fn from_code(code: u8) -> Result<Self, PacketError> {
        let index = usize::from(code.wrapping_sub(Self::DataReq.code()));
        Self::ALL.get(index).copied().ok_or(PacketError::Opcode(code))
    }
}

wire_enum! {
    /// Transaction opcodes of requests that wire version 1 carries, beside those of [`AtomicOp`].
    ///
    /// 0x02, 0x19 and 0x1A fill unused code points of the UB table (the first two agree with what
    /// the hardware's send queue uses). The codes of the table that are missing here (management,
    /// byte enables, prefetch, writeback) are refused. NOP never leaves its node.
    TaOpcode, "TAOpcode" {
        /// Message to a jetty.
        Send = 0x00,
        /// Send with 64-bit immediate.
        SendImm = 0x01,
        /// Send that also invalidates a token of the target (ours).
        SendInvalidate = 0x02,
        /// Writes the payload to memory.
        Write = 0x03,
        /// Write that consumes a receive and delivers a 64-bit immediate.
        WriteImm = 0x04,
        /// Write followed by an 8-byte store elsewhere.
        WriteNotify = 0x05,
        /// Reads memory; the response carries the bytes.
        Read = 0x06,
        /// Write followed by an atomic 8-byte add elsewhere (ours).
        WriteAtomicAdd = 0x19,
        /// Makes earlier writes of the pair visible before it is answered (ours).
        FlushDma = 0x1a,
    }
}

wire_enum! {
    /// Transaction opcodes of responses.
    ResponseOp, "TAOpcode" {
        /// Response without data: a status only.
        TaAck = 0x11,
        /// Response with data of a read.
        ReadResponse = 0x12,
        /// Response with the old value of an atomic.
        AtomicResponse = 0x13,
    }
}

wire_enum! {
    /// What an atomic does with the value it finds, by its transaction opcode.
    AtomicOp, "TAOpcode" {
        /// Replaces the value by the operand if it equals `compare`.
        CompareSwap = 0x07,
        /// Replaces the value by the operand.
        Swap = 0x08,
        /// Replaces the value by the operand; the old value does not matter, but is returned.
        Store = 0x09,
        /// Leaves the value as it is.
        Load = 0x0a,
        /// Adds the operand, modulo the size.
        FetchAdd = 0x0b,
        /// Subtracts the operand, modulo the size.
        FetchSub = 0x0c,
        /// Replaces the value by its bitwise AND with the operand.
        FetchAnd = 0x0d,
        /// Replaces the value by its bitwise OR with the operand.
        FetchOr = 0x0e,
        /// Replaces the value by its exclusive OR with the operand.
        FetchXor = 0x0f,
    }
}
