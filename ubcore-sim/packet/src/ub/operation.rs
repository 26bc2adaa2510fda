//! What a request asks for.
//!
//! - owns: which extension header and which payload rule each request opcode has.
//! - takes: an opcode and the bytes after TVETAH, or a [`RequestOp`]. gives: the other.
//! - must not: depend on flags, addresses or queues.

use zerocopy::byteorder::network_endian::U64;

use super::ext::{AtomicOperands, IMM_LEN, Invalidate, Notify, WriteImm, take_imm};
use super::opcode::{AtomicOp, ResponseOp, TaOpcode};
use crate::PacketError;
use crate::codec::{Reader, Writer};

/// What a request asks for, with the operands of its extension header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOp {
    /// Message to a jetty.
    Send,
    /// Message with a 64-bit immediate.
    SendImm(u64),
    /// Message that invalidates a token of the target.
    SendInvalidate(Invalidate),
    /// Writes the payload to memory.
    Write,
    /// Write that consumes a receive and delivers the immediate.
    WriteImm(WriteImm),
    /// Write, then an 8-byte store.
    WriteNotify(Notify),
    /// Write, then an atomic 8-byte add.
    WriteAtomicAdd(Notify),
    /// Reads memory; the response carries the bytes.
    Read,
    /// Atomic operation with its operands; the response carries the old value.
    Atomic(AtomicOp, AtomicOperands),
    /// Makes earlier writes visible.
    FlushDma,
}

impl RequestOp {
    /// Returns the opcode that the request carries in its BTAH.
    #[must_use]
    pub const fn code(&self) -> u8 {
        let opcode = match self {
            Self::Send => TaOpcode::Send,
            Self::SendImm(_) => TaOpcode::SendImm,
            Self::SendInvalidate(_) => TaOpcode::SendInvalidate,
            Self::Write => TaOpcode::Write,
            Self::WriteImm(_) => TaOpcode::WriteImm,
            Self::WriteNotify(_) => TaOpcode::WriteNotify,
            Self::WriteAtomicAdd(_) => TaOpcode::WriteAtomicAdd,
            Self::Read => TaOpcode::Read,
            Self::Atomic(op, _) => return op.code(),
            Self::FlushDma => TaOpcode::FlushDma,
        };
        opcode.code()
    }

    /// True for sends: MAETAH holds an offset, not an address.
    #[must_use]
    pub const fn is_send(&self) -> bool {
        self.rules().0
    }

    /// True when the request consumes a receive of its target, so must name one.
    #[must_use]
    pub const fn is_two_sided(&self) -> bool {
        self.rules().1
    }

    /// True when payload follows the headers (sends and writes).
    #[must_use]
    pub const fn has_payload(&self) -> bool {
        self.rules().2
    }

    /// The response that acknowledges it.
    #[must_use]
    pub const fn answered_by(&self) -> ResponseOp {
        match self {
            Self::Send
            | Self::SendImm(_)
            | Self::SendInvalidate(_)
            | Self::Write
            | Self::WriteImm(_)
            | Self::WriteNotify(_)
            | Self::WriteAtomicAdd(_)
            | Self::FlushDma => ResponseOp::TaAck,
            Self::Read => ResponseOp::ReadResponse,
            Self::Atomic(..) => ResponseOp::AtomicResponse,
        }
    }

    /// Whether it carries a message, takes a receive, carries payload.
    const fn rules(&self) -> (bool, bool, bool) {
        match self {
            Self::Send | Self::SendImm(_) | Self::SendInvalidate(_) => (true, true, true),
            Self::WriteImm(_) => (false, true, true),
            Self::Write | Self::WriteNotify(_) | Self::WriteAtomicAdd(_) => (false, false, true),
            Self::Read | Self::Atomic(..) | Self::FlushDma => (false, false, false),
        }
    }

    pub(super) const fn ext_len(&self) -> usize {
        match self {
            Self::Send | Self::Write | Self::Read | Self::FlushDma => 0,
            Self::SendImm(_) => IMM_LEN,
            Self::WriteImm(_) => WriteImm::LEN,
            Self::SendInvalidate(_) => Invalidate::LEN,
            Self::WriteNotify(_) | Self::WriteAtomicAdd(_) => Notify::LEN,
            Self::Atomic(_, operands) => operands.wire_len(),
        }
    }

    pub(super) fn take(code: u8, reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        if let Ok(op) = AtomicOp::from_code(code) {
            return AtomicOperands::take(reader).map(|operands| Self::Atomic(op, operands));
        }
        match TaOpcode::from_code(code).map_err(|_| PacketError::Opcode(code))? {
            TaOpcode::Send => Ok(Self::Send),
            TaOpcode::SendImm => take_imm(reader).map(Self::SendImm),
            TaOpcode::SendInvalidate => Invalidate::take(reader).map(Self::SendInvalidate),
            TaOpcode::Write => Ok(Self::Write),
            TaOpcode::WriteImm => WriteImm::take(reader).map(Self::WriteImm),
            TaOpcode::WriteNotify => Notify::take(reader).map(Self::WriteNotify),
            TaOpcode::WriteAtomicAdd => Notify::take(reader).map(Self::WriteAtomicAdd),
            TaOpcode::Read => Ok(Self::Read),
            TaOpcode::FlushDma => Ok(Self::FlushDma),
        }
    }

    pub(super) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        match self {
            Self::Send | Self::Write | Self::Read | Self::FlushDma => Ok(()),
            Self::SendImm(imm) => writer.put(&U64::new(*imm)),
            Self::WriteImm(imm) => imm.put(writer),
            Self::SendInvalidate(invalidate) => invalidate.put(writer),
            Self::WriteNotify(notify) | Self::WriteAtomicAdd(notify) => notify.put(writer),
            Self::Atomic(_, operands) => operands.put(writer),
        }
    }
}
