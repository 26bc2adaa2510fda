//! Opcode tables of wire version 1.
//!
//! - owns: BTH opcodes 0xC0.. and the transaction opcodes (UB Base Specification 2.0.1, 7.2.1).
//! - takes: a byte. gives: an opcode or a refusal. must not: give a code two meanings.

use crate::PacketError;
use crate::codec::wire_enum;

/// Wire version, in BTH.TVer of every URMA packet. 0 are the standard opcodes.
pub const WIRE_VERSION: u8 = 1;

/// BTH opcodes of URMA traffic. 0xCA is kept for a keep-alive; it and all others are refused.
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
}

impl TpOpcode {
    /// Every opcode; the codes are consecutive.
    pub const ALL: [Self; 10] = [
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
    /// Transaction opcodes that wire version 1 carries.
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
        /// Stores an operand if the old value equals another one; returns the old value.
        CompareSwap = 0x07,
        /// Stores the operand and returns the old value.
        Swap = 0x08,
        /// Stores the operand as one access.
        AtomicStore = 0x09,
        /// Returns the value as one access.
        AtomicLoad = 0x0a,
        /// Adds the operand and returns the old value.
        FetchAdd = 0x0b,
        /// Subtracts the operand and returns the old value.
        FetchSub = 0x0c,
        /// Stores the bitwise AND with the operand and returns the old value.
        FetchAnd = 0x0d,
        /// Stores the bitwise OR with the operand and returns the old value.
        FetchOr = 0x0e,
        /// Fetch and exclusive or.
        FetchXor = 0x0f,
        /// Response without data: a status only.
        TaAck = 0x11,
        /// Response with data of a read.
        ReadResponse = 0x12,
        /// Response with the old value of an atomic.
        AtomicResponse = 0x13,
        /// Write followed by an atomic 8-byte add elsewhere (ours).
        WriteAtomicAdd = 0x19,
        /// Makes earlier writes of the pair visible before it is answered (ours).
        FlushDma = 0x1a,
    }
}

/// What an atomic does with the value it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    /// Replace it if it equals `compare`.
    CompareSwap,
    /// Replaces the value by the operand.
    Swap,
    /// Replace it, the old value does not matter (answered all the same).
    Store,
    /// Leaves the value as it is.
    Load,
    /// Adds the operand, modulo the size.
    FetchAdd,
    /// Subtracts the operand, modulo the size.
    FetchSub,
    /// Replaces the value by its bitwise AND with the operand.
    FetchAnd,
    /// Replaces the value by its bitwise OR with the operand.
    FetchOr,
    /// Replaces the value by its exclusive OR with the operand.
    FetchXor,
}

impl AtomicOp {
    /// Every atomic, in the order of their codes.
    pub const ALL: [Self; 9] = [
        Self::CompareSwap,
        Self::Swap,
        Self::Store,
        Self::Load,
        Self::FetchAdd,
        Self::FetchSub,
        Self::FetchAnd,
        Self::FetchOr,
        Self::FetchXor,
    ];

    /// Returns the opcode that a request for this operation carries.
    #[must_use]
    pub const fn opcode(self) -> TaOpcode {
        match self {
            Self::CompareSwap => TaOpcode::CompareSwap,
            Self::Swap => TaOpcode::Swap,
            Self::Store => TaOpcode::AtomicStore,
            Self::Load => TaOpcode::AtomicLoad,
            Self::FetchAdd => TaOpcode::FetchAdd,
            Self::FetchSub => TaOpcode::FetchSub,
            Self::FetchAnd => TaOpcode::FetchAnd,
            Self::FetchOr => TaOpcode::FetchOr,
            Self::FetchXor => TaOpcode::FetchXor,
        }
    }
}
