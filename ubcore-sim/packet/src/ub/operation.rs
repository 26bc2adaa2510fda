//! What a request asks for.
//!
//! - owns: which extension header and which payload rule each request opcode has.
//! - takes: an opcode and the bytes after TVETAH, or a [`RequestOp`]. gives: the other.
//! - must not: know flags, addresses or queues.

use zerocopy::byteorder::network_endian::U64;

use super::ext::{AtomicOperands, IMM_LEN, Invalidate, Notify, WriteImm, take_imm};
use super::opcode::{AtomicOp, TaOpcode};
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
    pub const fn opcode(&self) -> TaOpcode {
        match self {
            Self::Send => TaOpcode::Send,
            Self::SendImm(_) => TaOpcode::SendImm,
            Self::SendInvalidate(_) => TaOpcode::SendInvalidate,
            Self::Write => TaOpcode::Write,
            Self::WriteImm(_) => TaOpcode::WriteImm,
            Self::WriteNotify(_) => TaOpcode::WriteNotify,
            Self::WriteAtomicAdd(_) => TaOpcode::WriteAtomicAdd,
            Self::Read => TaOpcode::Read,
            Self::Atomic(op, _) => op.opcode(),
            Self::FlushDma => TaOpcode::FlushDma,
        }
    }

    /// True for sends: MAETAH holds an offset, not an address.
    #[must_use]
    pub const fn is_send(&self) -> bool {
        matches!(self, Self::Send | Self::SendImm(_) | Self::SendInvalidate(_))
    }

    /// True when the request consumes a receive of its target, so must name one.
    #[must_use]
    pub const fn is_two_sided(&self) -> bool {
        self.is_send() || matches!(self, Self::WriteImm(_))
    }

    /// True when payload follows the headers (sends and writes).
    #[must_use]
    pub const fn has_payload(&self) -> bool {
        !matches!(self, Self::Read | Self::Atomic(..) | Self::FlushDma)
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

    pub(super) fn take(opcode: TaOpcode, reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let atomic = match opcode {
            TaOpcode::Send => return Ok(Self::Send),
            TaOpcode::SendImm => return take_imm(reader).map(Self::SendImm),
            TaOpcode::SendInvalidate => return Invalidate::take(reader).map(Self::SendInvalidate),
            TaOpcode::Write => return Ok(Self::Write),
            TaOpcode::WriteImm => return WriteImm::take(reader).map(Self::WriteImm),
            TaOpcode::WriteNotify => return Notify::take(reader).map(Self::WriteNotify),
            TaOpcode::WriteAtomicAdd => return Notify::take(reader).map(Self::WriteAtomicAdd),
            TaOpcode::Read => return Ok(Self::Read),
            TaOpcode::FlushDma => return Ok(Self::FlushDma),
            TaOpcode::CompareSwap => AtomicOp::CompareSwap,
            TaOpcode::Swap => AtomicOp::Swap,
            TaOpcode::AtomicStore => AtomicOp::Store,
            TaOpcode::AtomicLoad => AtomicOp::Load,
            TaOpcode::FetchAdd => AtomicOp::FetchAdd,
            TaOpcode::FetchSub => AtomicOp::FetchSub,
            TaOpcode::FetchAnd => AtomicOp::FetchAnd,
            TaOpcode::FetchOr => AtomicOp::FetchOr,
            TaOpcode::FetchXor => AtomicOp::FetchXor,
            TaOpcode::TaAck | TaOpcode::ReadResponse | TaOpcode::AtomicResponse => {
                return Err(PacketError::Opcode(opcode.code()));
            }
        };
        AtomicOperands::take(reader).map(|operands| Self::Atomic(atomic, operands))
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
