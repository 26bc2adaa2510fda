//! Responses: ATAH and what follows it, and the response codes.
//!
//! - owns: ATAH (UB Base Specification 2.0.1, 7.2.2), the RSPST/RSPINFO table and its map to
//!   completion statuses.
//! - takes: bytes that start at the ATAH, or a [`ResponseHeader`]. gives: the other.
//! - must not: decide which response a request gets.

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ext::AtomicValue;
use super::opcode::ResponseOp;
use super::request::{Initiator, InitiatorKind, KIND_RSV, KIND_SHIFT, MT_EN, Target};
use crate::codec::{Reader, Writer, from_be24, reserved, to_be24};
use crate::{JettyId, Mtu, PacketError};

/// Most requests that a TAACK answers beside the one that it names.
pub const EARLIER_MAX: u16 = 1023;
const OVER_EARLIER: u16 = EARLIER_MAX + 1;

/// Bytes of an ATAH.
pub const ATAH_LEN: usize = size_of::<AtahWire>();
const _: () = assert!(ATAH_LEN == 16);

/// The answer to one attempt of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResponseStatus {
    /// The request was executed.
    Ack,
    /// No receive was posted (or its completion queue is full). Send again after the time of the
    /// code: see [`ResponseStatus::rnr_timer_ns`]. 5 bits.
    ReceiverNotReady {
        /// Timer code, 0..=31, as min_rnr_timer of the receive queue.
        timer: u8,
    },
    /// Not the request that the target waits for. Send again from `expected` on.
    OutOfSequence {
        /// TASSN of the next request that the target will take.
        expected: u16,
    },
    /// The message is longer than the receive, or than the target takes.
    Length,
    /// The target does not do what the request asks for.
    Unsupported,
    /// The target lacks the resources.
    NoResources,
    /// The target queue is in reset or in error.
    TargetReset,
    /// There is no such target queue.
    NoTarget,
    /// Token, bounds, rights or life of a segment (or the token of a queue) forbid it. One code:
    /// a stranger does not learn which.
    AccessAbort,
    /// The data at the target is poisoned.
    DataPoison,
}

impl ResponseStatus {
    /// Returns the fields RSPST and RSPINFO of the ATAH.
    #[must_use]
    pub const fn codes(self) -> (u8, u8) {
        match self {
            Self::Ack => (0, 0),
            Self::ReceiverNotReady { timer } => (1, timer & 0x1f),
            Self::OutOfSequence { .. } => (2, 0),
            Self::Length => (3, 1),
            Self::Unsupported => (3, 2),
            Self::NoResources => (4, 1),
            Self::TargetReset => (4, 2),
            Self::NoTarget => (4, 3),
            Self::AccessAbort => (5, 1),
            Self::DataPoison => (6, 1),
        }
    }

    /// The value of `urma_cr_status_t` with which the request ends at its initiator, when this is
    /// the last answer it gets (UMDK release 26.06): not ready ends as RNR_RETRY_CNT_EXC when the
    /// retries are used up, out of sequence as ACK_TIMEOUT.
    #[must_use]
    pub const fn cr_status(self) -> u8 {
        match self {
            Self::Ack => 0,
            Self::Length => 5,
            Self::Unsupported => 6,
            Self::NoResources | Self::TargetReset | Self::NoTarget => 7,
            Self::AccessAbort => 8,
            Self::OutOfSequence { .. } => 9,
            Self::ReceiverNotReady { .. } => 10,
            Self::DataPoison => 16,
        }
    }

    /// True when the initiator sends the request again instead of completing it.
    #[must_use]
    pub const fn is_retry(self) -> bool {
        matches!(self, Self::ReceiverNotReady { .. } | Self::OutOfSequence { .. })
    }

    /// Nanoseconds that a receiver-not-ready timer code asks to wait: the InfiniBand table, as
    /// min_rnr_timer uses it. Only the low 5 bits count.
    #[must_use]
    pub const fn rnr_timer_ns(timer: u8) -> u64 {
        /// InfiniBand Architecture Specification 1.7, table of RNR NAK timer codes, in 10 us.
        const TEN_US: [u64; 32] = [
            65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
            1_024, 1_536, 2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768,
            49_152,
        ];
        TEN_US[(timer & 0x1f) as usize] * 10_000
    }

    /// Shortest timer code that asks to wait at least so many nanoseconds, or the longest.
    #[must_use]
    pub fn rnr_timer_of(ns: u64) -> u8 {
        (1..32).find(|timer| Self::rnr_timer_ns(*timer) >= ns).unwrap_or(0)
    }

    fn from_wire(code: u8, expected: u16) -> Result<Self, PacketError> {
        let (state, info) = (code >> 5, code & 0x1f);
        let status = match (state, info) {
            (1, timer) => Self::ReceiverNotReady { timer },
            (2, 0) => return Ok(Self::OutOfSequence { expected }),
            // Of a TAACK it is a count, which its body checks.
            (0, 0) => return Ok(Self::Ack),
            (3, 1) => Self::Length,
            (3, 2) => Self::Unsupported,
            (4, 1) => Self::NoResources,
            (4, 2) => Self::TargetReset,
            (4, 3) => Self::NoTarget,
            (5, 1) => Self::AccessAbort,
            (6, 1) => Self::DataPoison,
            _ => return Err(PacketError::field("RSPST and RSPINFO", code.into())),
        };
        reserved("ATAH", u32::from(expected))?;
        Ok(status)
    }
}

/// What a response brings along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseBody {
    /// Nothing: TAACK. The only body of a status other than `Ack`.
    None,
    /// Nothing: TAACK of several requests.
    Acks {
        /// Number of requests just before this one in its sequence that are done as well, 1 to
        /// [`EARLIER_MAX`].
        earlier: u16,
    },
    /// RDETAH: a piece of what was read.
    ReadData {
        /// Offset of this packet's payload in the read, in bytes.
        offset: u32,
        /// Bytes of the whole read.
        length: u32,
    },
    /// AVETH: what an atomic found.
    Atomic(AtomicValue),
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ReadDataWire {
    offset: U32,
    length: U32,
}

/// A response packet: everything from the ATAH to the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHeader {
    /// TASSN of the request answered.
    pub tassn: u16,
    /// Queue that sent the request.
    pub initiator: Initiator,
    /// The target as the request named it; distinguishes equal TASSNs of one initiator.
    pub target: Option<Target>,
    /// Result of the request.
    pub status: ResponseStatus,
    /// Data of the response: none, bytes read, or an old value.
    pub body: ResponseBody,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AtahWire {
    opcode: u8,
    bits: u8,
    tassn: U16,
    status: u8,
    kind: u8,
    expected: U16,
    initiator: [u8; 3],
    flags: u8,
    rsv_low: U32,
}

impl ResponseHeader {
    /// The answer `status` to a request, without data.
    #[must_use]
    pub const fn ack(request: &super::RequestHeader, status: ResponseStatus) -> Self {
        let super::RequestHeader { tassn, initiator, target, .. } = *request;
        Self { tassn, initiator, target, status, body: ResponseBody::None }
    }

    /// Bytes from the ATAH to the payload.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        let target = if self.target.is_some() { Target::LEN } else { 0 };
        let body = match &self.body {
            ResponseBody::None | ResponseBody::Acks { .. } => 0,
            ResponseBody::ReadData { .. } => size_of::<ReadDataWire>(),
            ResponseBody::Atomic(value) => value.wire_len(),
        };
        ATAH_LEN + target + body
    }

    /// The header at the front of `bytes`, and the payload after it.
    ///
    /// # Errors
    /// Any [`PacketError`] but `Length` and `Icrc`.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), PacketError> {
        let mut reader = Reader::new(bytes);
        let wire: &AtahWire = reader.take()?;
        if wire.bits >> 6 != 0 {
            return Err(PacketError::Version(wire.bits >> 6));
        }
        reserved("ATAH", u32::from(wire.bits) | wire.rsv_low.get())?;
        reserved("ATAH", u32::from(wire.kind & KIND_RSV))?;
        reserved("ATAH", u32::from(wire.flags & !MT_EN))?;
        let kind = InitiatorKind::from_code(wire.kind >> KIND_SHIFT & 3)?;
        let id = JettyId::parse(from_be24(wire.initiator))?;
        let has_target = wire.flags & MT_EN != 0;
        let target = if has_target { Some(Target::take(&mut reader)?) } else { None };
        let header = Self {
            tassn: wire.tassn.get(),
            initiator: Initiator { kind, id },
            target,
            status: ResponseStatus::from_wire(wire.status, wire.expected.get())?,
            body: ResponseBody::take(wire.opcode, wire.status, wire.expected.get(), &mut reader)?,
        };
        header.check()?;
        Ok((header, reader.rest()))
    }

    /// Writes the header to the front of `buf`; the count of bytes written.
    ///
    /// # Errors
    /// [`PacketError::Truncated`] when `buf` is too short, [`PacketError::Field`] when the fields
    /// contradict each other.
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, PacketError> {
        self.check()?;
        let mut writer = Writer::new(buf);
        writer.put(&self.atah())?;
        if let Some(target) = &self.target {
            target.put(&mut writer)?;
        }
        match &self.body {
            ResponseBody::None | ResponseBody::Acks { .. } => {}
            ResponseBody::ReadData { offset, length } => writer
                .put(&ReadDataWire { offset: U32::new(*offset), length: U32::new(*length) })?,
            ResponseBody::Atomic(value) => value.put(&mut writer)?,
        }
        Ok(writer.written())
    }

    /// Checks that a payload of `len` bytes stays inside what was read.
    ///
    /// # Errors
    /// [`PacketError::Length`].
    pub fn check_piece(&self, len: usize) -> Result<(), PacketError> {
        let room = self.room();
        if len <= room && (len > 0 || room == 0) {
            return Ok(());
        }
        Err(PacketError::Length { expected: room, found: len })
    }

    /// [`ResponseHeader::check_piece`], and the rule of packets: all but the last of a read carry
    /// what may be a path MTU, and none more than the largest one.
    ///
    /// # Errors
    /// [`PacketError::Length`].
    pub fn check_packet(&self, len: usize) -> Result<(), PacketError> {
        self.check_piece(len)?;
        let whole_mtu = Mtu::may_be(len);
        if len <= Mtu::MAX.bytes() && (whole_mtu || len == self.room()) {
            return Ok(());
        }
        Err(PacketError::Length { expected: Mtu::MAX.bytes(), found: len })
    }

    /// Bytes from this packet's offset to the end of the read.
    fn room(&self) -> usize {
        match self.body {
            ResponseBody::ReadData { offset, length } => {
                usize::try_from(length.saturating_sub(offset)).unwrap_or(usize::MAX)
            }
            ResponseBody::None | ResponseBody::Acks { .. } | ResponseBody::Atomic(_) => 0,
        }
    }

    /// The response to each request that this one answers, in the order of their numbers.
    pub fn each(&self) -> impl Iterator<Item = Self> {
        let (earlier, last) = match self.body {
            ResponseBody::Acks { earlier } => (earlier, Self { body: ResponseBody::None, ..*self }),
            ResponseBody::None | ResponseBody::ReadData { .. } | ResponseBody::Atomic(_) => {
                (0, *self)
            }
        };
        (0..=earlier).rev().map(move |back| Self { tassn: last.tassn.wrapping_sub(back), ..last })
    }

    /// Lets the answer to the next request of the sequence join. Whether it does.
    #[must_use]
    pub fn join(&mut self, next: &Self) -> bool {
        let earlier = match self.body {
            ResponseBody::None => 0,
            ResponseBody::Acks { earlier } => earlier,
            ResponseBody::ReadData { .. } | ResponseBody::Atomic(_) => return false,
        };
        let is_next = next.tassn == self.tassn.wrapping_add(1)
            && (next.initiator, next.target) == (self.initiator, self.target);
        let are_acks = (self.status, next.status) == (ResponseStatus::Ack, ResponseStatus::Ack)
            && next.body == ResponseBody::None;
        if !is_next || !are_acks || earlier == EARLIER_MAX {
            return false;
        }
        *self = Self { body: ResponseBody::Acks { earlier: earlier + 1 }, ..*next };
        true
    }

    fn atah(&self) -> AtahWire {
        let (state, info) = self.status.codes();
        let earlier = if let ResponseBody::Acks { earlier } = self.body { earlier } else { 0 };
        let expected = match self.status {
            ResponseStatus::OutOfSequence { expected } => expected,
            ResponseStatus::Ack => earlier,
            ResponseStatus::ReceiverNotReady { .. }
            | ResponseStatus::Length
            | ResponseStatus::Unsupported
            | ResponseStatus::NoResources
            | ResponseStatus::TargetReset
            | ResponseStatus::NoTarget
            | ResponseStatus::AccessAbort
            | ResponseStatus::DataPoison => 0,
        };
        AtahWire {
            opcode: self.body.opcode().code(),
            bits: 0,
            tassn: U16::new(self.tassn),
            status: state << 5 | info,
            kind: self.initiator.kind.code() << KIND_SHIFT,
            expected: U16::new(expected),
            initiator: to_be24(self.initiator.id.value()),
            flags: if self.target.is_some() { MT_EN } else { 0 },
            rsv_low: U32::ZERO,
        }
    }

    /// Rules that join several fields. Both directions obey them.
    fn check(&self) -> Result<(), PacketError> {
        if self.status != ResponseStatus::Ack && self.body != ResponseBody::None {
            return Err(PacketError::field("RSPST", self.status.codes().0.into()));
        }
        if let ResponseBody::Acks { earlier: earlier @ (0 | OVER_EARLIER..) } = self.body {
            return Err(PacketError::field("Earlier", earlier.into()));
        }
        if let ResponseStatus::ReceiverNotReady { timer: timer @ 32.. } = self.status {
            return Err(PacketError::field("RSPINFO", timer.into()));
        }
        if let ResponseBody::ReadData { offset, length } = self.body {
            let empty = offset == 0 && length == 0;
            if offset >= length && !empty {
                return Err(PacketError::field("Offset", offset.into()));
            }
        }
        Ok(())
    }
}

impl ResponseBody {
    /// Returns the opcode that the response carries in its ATAH.
    #[must_use]
    pub const fn opcode(&self) -> ResponseOp {
        match self {
            Self::None | Self::Acks { .. } => ResponseOp::TaAck,
            Self::ReadData { .. } => ResponseOp::ReadResponse,
            Self::Atomic(_) => ResponseOp::AtomicResponse,
        }
    }

    /// Of the ATAH: its opcode, RSPST with RSPINFO, and bytes 6 and 7.
    fn take(
        code: u8,
        status: u8,
        earlier: u16,
        reader: &mut Reader<'_>,
    ) -> Result<Self, PacketError> {
        let op = ResponseOp::from_code(code).map_err(|_| PacketError::Opcode(code))?;
        if status == 0 && op != ResponseOp::TaAck {
            reserved("ATAH", earlier.into())?;
        }
        match op {
            ResponseOp::ReadResponse => {
                let wire: &ReadDataWire = reader.take()?;
                Ok(Self::ReadData { offset: wire.offset.get(), length: wire.length.get() })
            }
            ResponseOp::AtomicResponse => AtomicValue::take(reader).map(Self::Atomic),
            ResponseOp::TaAck if status == 0 && earlier != 0 => Ok(Self::Acks { earlier }),
            ResponseOp::TaAck => Ok(Self::None),
        }
    }
}
