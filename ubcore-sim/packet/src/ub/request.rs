//! Requests: BTAH and what follows it, up to the payload.
//!
//! BTAH and MTETAH (UB Base Specification 2.0.1, 7.2.1 and 7.2.4), the order of headers, and which extension header
//! and payload rule each request opcode has. Does not depend on the BTH: a ring carries the same bytes without one.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    byteorder::network_endian::{U16, U32, U64},
};

use super::{
    ext::{AtomicOperands, IMM_LEN, Invalidate, MemoryAccess, Notify, WriteImm, take_imm},
    opcode::{AtomicOp, ResponseOp, TaOpcode},
};
use crate::{
    JettyId, Mtu, PacketError, TokenValue,
    codec::{Reader, Writer, from_be24, reserved, to_be24, wire_enum},
};

/// Bytes of a BTAH.
pub const BTAH_LEN: usize = size_of::<BtahWire>();
const _: () = assert!(BTAH_LEN == 16);

bitflags::bitflags! {
    /// Flags of one request packet. The values are ours; docs/wire-spec.md lists where each one
    /// stands on the wire.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct RequestFlags: u8 {
        /// Last packet of the message.
        const LAST = 0x80;
        /// First packet of the message.
        const FIRST = 0x40;
        /// The completion on the target's side counts as solicited.
        const SOLICITED = 0x20;
        /// No transaction acknowledgement is wanted.
        const NO_TAACK = 0x10;
        /// `ODR[2]`: completions are reported in order.
        const COMP_ORDER = 0x08;
        /// FCE: starts after all earlier reads and atomics of its queue.
        const FENCE = 0x04;
        /// The request was sent before.
        const RETRY = 0x02;
        /// UD: outside any TP and any sequence; UM sends, and only they.
        const DATAGRAM = 0x01;
    }
}

impl RequestFlags {
    /// A message of one packet.
    pub const ONLY: Self = Self::FIRST.union(Self::LAST);

    /// Flags that every datagram has: one packet, and no answer.
    const OF_DATAGRAM: Self = Self::ONLY.union(Self::NO_TAACK);

    /// The three flags of BTAH byte 11, which have there the values they have here.
    const BYTE_11: Self = Self::ONLY.union(Self::SOLICITED);
}

wire_enum! {
    /// `ODR[1:0]`: when the target may execute the request.
    OrderTag, "ODR" {
        /// The target may execute the request at any time.
        None = 0,
        /// Any time, but later strong ones wait for it.
        Relaxed = 1,
        /// After all earlier relaxed and strong ones.
        Strong = 2,
    }
}

wire_enum! {
    /// INI_RC_Type: what sent the request.
    InitiatorKind, "INI_RC_Type" {
        /// A JFS, which only sends.
        Jfs = 0,
        /// A jetty, which sends and receives.
        Jetty = 1,
    }
}

/// The queue that sent a request and waits for its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Initiator {
    /// Kind of the queue that sent the request.
    pub kind: InitiatorKind,
    /// Number of the queue, 20 bits.
    pub id: JettyId,
}

wire_enum! {
    /// TGT_TC_Type: what a request is for. The codes are those of the hardware's send queue.
    TargetKind, "TGT_TC_Type" {
        /// A JFR, which only receives.
        Jfr = 0,
        /// A jetty, which sends and receives.
        Jetty = 1,
        /// A group of jetties.
        JettyGroup = 2,
    }
}

/// MTETAH: the queue that a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target {
    /// Kind of the queue that the request is for.
    pub kind: TargetKind,
    /// Number of the queue, 20 bits.
    pub id: JettyId,
    /// Which member of a group the initiator would like; 0 leaves the choice.
    pub hint: u8,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct TargetWire {
    hint: u8,
    id: [u8; 3],
}

impl Target {
    /// Bytes of a MTETAH.
    pub const LEN: usize = size_of::<TargetWire>();

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let wire: &TargetWire = reader.take()?;
        let bits = from_be24(wire.id);
        reserved("MTETAH", bits >> 20 & 3)?;
        let [kind, ..] = wire.id;
        Ok(Self {
            kind: TargetKind::from_code(kind >> 6)?,
            id: JettyId::from_low_bits(bits),
            hint: wire.hint,
        })
    }

    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        let id = to_be24(u32::from(self.kind.code()) << 22 | self.id.value());
        writer.put(&TargetWire { hint: self.hint, id })
    }
}

/// A request packet: everything from the BTAH to the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// First, last, solicited and fence flags.
    pub flags: RequestFlags,
    /// Order among the requests of one pair of jetties.
    pub order: OrderTag,
    /// INI_TASSN: number of the request in the sequence of its (initiator, target) pair; the same
    /// in every packet of the message.
    pub tassn: u16,
    /// Queue that sent the request.
    pub initiator: Initiator,
    /// The queue asked; required by two-sided requests.
    pub target: Option<Target>,
    /// Secret of the segment (memory operations) or of the target queue (sends). A write with
    /// immediate shows that of the queue in its extension header.
    pub token: Option<TokenValue>,
    /// Address and length at the target, or position in the message.
    pub access: MemoryAccess,
    /// Operation with its own headers.
    pub op: RequestOp,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct BtahWire {
    opcode: u8,
    bits: u8,
    tassn: U16,
    order: u8,
    kind: u8,
    rsv: U16,
    initiator: [u8; 3],
    flags: u8,
    rsv_low: U32,
}

// BTAH byte 1: TAver 2, EE 2, TV_EN, Poison, Target_Hint, UD.
const TAVER_SHIFT: u32 = 6;
const EE_POISON: u8 = 0x34;
const TV_EN: u8 = 0x08;
const TARGET_HINT: u8 = 0x02;
const UD: u8 = 0x01;
// BTAH byte 4: No_TAACK, ODR 3, MT_EN, FCE, Retry, Alloc.
const NO_TAACK: u8 = 0x80;
const ODR_COMP: u8 = 0x40;
const ODR_SHIFT: u32 = 4;
pub(super) const MT_EN: u8 = 0x08;
const FCE: u8 = 0x04;
const RETRY: u8 = 0x02;
const ALLOC: u8 = 0x01;
// BTAH byte 5: E, INI_RC_Type 2, reserved 5.
pub(super) const KIND_SHIFT: u32 = 5;
pub(super) const KIND_RSV: u8 = 0x9f;

impl BtahWire {
    fn check(&self) -> Result<(), PacketError> {
        if self.bits >> TAVER_SHIFT != 0 {
            return Err(PacketError::Version(self.bits >> TAVER_SHIFT));
        }
        reserved("BTAH", u32::from(self.bits & EE_POISON))?;
        reserved("BTAH", u32::from(self.order & ALLOC))?;
        reserved("BTAH", u32::from(self.kind & KIND_RSV))?;
        reserved("BTAH", u32::from(self.rsv.get()) | self.rsv_low.get())?;
        reserved("BTAH", u32::from(self.flags & !RequestFlags::BYTE_11.bits()))
    }

    fn flags(&self) -> RequestFlags {
        let mut flags = RequestFlags::from_bits_truncate(self.flags);
        flags.set(RequestFlags::DATAGRAM, self.bits & UD != 0);
        flags.set(RequestFlags::NO_TAACK, self.order & NO_TAACK != 0);
        flags.set(RequestFlags::COMP_ORDER, self.order & ODR_COMP != 0);
        flags.set(RequestFlags::FENCE, self.order & FCE != 0);
        flags.set(RequestFlags::RETRY, self.order & RETRY != 0);
        flags
    }

    fn initiator(&self) -> Result<Initiator, PacketError> {
        Ok(Initiator {
            kind: InitiatorKind::from_code(self.kind >> KIND_SHIFT & 3)?,
            id: JettyId::parse(from_be24(self.initiator))?,
        })
    }
}

impl RequestHeader {
    /// Bytes from the BTAH to the payload.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        BTAH_LEN
            + if self.target.is_some() { Target::LEN } else { 0 }
            + MemoryAccess::LEN
            + if self.token.is_some() { size_of::<U32>() } else { 0 }
            + self.op.ext_len()
    }

    /// The header at the front of `bytes`, and the payload after it.
    ///
    /// # Errors
    /// Any [`PacketError`] but `Length` and `Icrc`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), PacketError> {
        let mut reader = Reader::new(bytes);
        let wire: &BtahWire = reader.take()?;
        wire.check()?;
        let has_target = wire.order & MT_EN != 0;
        let target = if has_target { Some(Target::take(&mut reader)?) } else { None };
        let access = MemoryAccess::take(&mut reader)?;
        let has_token = wire.bits & TV_EN != 0;
        let token = if has_token { Some(TokenValue(reader.take::<U32>()?.get())) } else { None };
        let header = Self {
            flags: wire.flags(),
            order: OrderTag::from_code(wire.order >> ODR_SHIFT & 3)?,
            tassn: wire.tassn.get(),
            initiator: wire.initiator()?,
            target,
            token,
            access,
            op: RequestOp::take(wire.opcode, &mut reader)?,
        };
        let hinted = target.is_some_and(|target| target.hint != 0);
        if hinted != (wire.bits & TARGET_HINT != 0) {
            return Err(PacketError::field("Target_Hint", u64::from(wire.bits)));
        }
        header.check()?;
        Ok((header, reader.rest()))
    }

    /// Writes the header to the front of `buf`; the count of bytes written.
    ///
    /// # Errors
    /// [`PacketError::Truncated`] when `buf` is too short, [`PacketError::Field`] when the fields
    /// contradict each other.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, PacketError> {
        self.check()?;
        let mut writer = Writer::new(buf);
        writer.put(&self.btah())?;
        if let Some(target) = &self.target {
            target.put(&mut writer)?;
        }
        self.access.put(&mut writer)?;
        if let Some(token) = self.token {
            writer.put(&U32::new(token.0))?;
        }
        self.op.put(&mut writer)?;
        Ok(writer.written())
    }

    /// Checks that a payload of `len` bytes stays inside the message: for pieces of any size, as a
    /// ring carries them.
    ///
    /// # Errors
    /// [`PacketError::Length`].
    pub fn check_piece(&self, len: usize) -> Result<(), PacketError> {
        let rest = self.rest_of_message();
        let exact = if self.op.is_send() {
            self.flags.contains(RequestFlags::LAST)
        } else {
            self.flags.contains(RequestFlags::ONLY)
        };
        // A packet with more to come leaves at least one byte for it.
        let fits = if exact { len == rest } else { len < rest };
        if fits { Ok(()) } else { Err(PacketError::Length { expected: rest, found: len }) }
    }

    /// [`RequestHeader::check_piece`], and the rule of packets: all but the last of a message carry
    /// what may be a path MTU, and none more than the largest one.
    ///
    /// # Errors
    /// [`PacketError::Length`].
    pub fn check_packet(&self, len: usize) -> Result<(), PacketError> {
        self.check_piece(len)?;
        let whole_mtu = Mtu::may_be(len);
        let last = self.flags.contains(RequestFlags::LAST);
        if len <= Mtu::MAX.bytes() && (last || whole_mtu || self.breaks_off(len)) {
            return Ok(());
        }
        Err(PacketError::Length { expected: Mtu::MAX.bytes(), found: len })
    }

    /// Whether this piece, with a payload of `len` bytes, says that the rest of its message will not come.
    #[must_use]
    pub const fn breaks_off(&self, len: usize) -> bool {
        len == 0 && !self.flags.intersects(RequestFlags::ONLY)
    }

    /// Bytes from this packet on, as far as the header shows: that of a write does not show its
    /// start.
    fn rest_of_message(&self) -> usize {
        let length = u64::from(self.access.length);
        let rest = match (self.op.has_payload(), self.op.is_send()) {
            (false, _) => 0,
            (true, true) => length.saturating_sub(self.access.address),
            (true, false) => length,
        };
        usize::try_from(rest).unwrap_or(usize::MAX)
    }

    fn btah(&self) -> BtahWire {
        let has = |flag, bit| if self.flags.contains(flag) { bit } else { 0 };
        let hinted = self.target.is_some_and(|target| target.hint != 0);
        BtahWire {
            opcode: self.op.code(),
            bits: if self.token.is_some() { TV_EN } else { 0 }
                | if hinted { TARGET_HINT } else { 0 }
                | has(RequestFlags::DATAGRAM, UD),
            tassn: U16::new(self.tassn),
            order: has(RequestFlags::NO_TAACK, NO_TAACK)
                | has(RequestFlags::COMP_ORDER, ODR_COMP)
                | self.order.code() << ODR_SHIFT
                | if self.target.is_some() { MT_EN } else { 0 }
                | has(RequestFlags::FENCE, FCE)
                | has(RequestFlags::RETRY, RETRY),
            kind: self.initiator.kind.code() << KIND_SHIFT,
            rsv: U16::ZERO,
            initiator: to_be24(self.initiator.id.value()),
            flags: (self.flags & RequestFlags::BYTE_11).bits(),
            rsv_low: U32::ZERO,
        }
    }

    /// Rules that join several fields. Both directions obey them.
    fn check(&self) -> Result<(), PacketError> {
        let flags = u64::from(self.flags.bits());
        if self.op.is_two_sided() && self.target.is_none() {
            return Err(PacketError::field("MT_EN", 0));
        }
        if !self.op.has_payload() && !self.flags.contains(RequestFlags::ONLY) {
            return Err(PacketError::field("first and last", flags));
        }
        if self.op.is_send() {
            self.check_send()?;
        }
        let datagram = self.flags.contains(RequestFlags::DATAGRAM);
        if datagram && !(self.op.is_send() && self.flags.contains(RequestFlags::OF_DATAGRAM)) {
            return Err(PacketError::field("UD", flags));
        }
        if let RequestOp::Atomic(op, operands) = &self.op {
            self.check_atomic(*op, operands)?;
        }
        Ok(())
    }

    fn check_send(&self) -> Result<(), PacketError> {
        let MemoryAccess { address: offset, token_id, length } = self.access;
        if token_id.value() != 0 {
            return Err(PacketError::field("TokenID", token_id.value().into()));
        }
        let first = self.flags.contains(RequestFlags::FIRST);
        let beyond = offset != 0 && offset >= u64::from(length);
        if beyond || first != (offset == 0) {
            return Err(PacketError::field("Address", offset));
        }
        Ok(())
    }

    fn check_atomic(&self, op: AtomicOp, operands: &AtomicOperands) -> Result<(), PacketError> {
        if self.access.length != operands.size.bytes() {
            return Err(PacketError::field("Length", self.access.length.into()));
        }
        let compares = op == AtomicOp::CompareSwap;
        if (!compares && operands.compare != 0) || (op == AtomicOp::Load && operands.operand != 0) {
            return Err(PacketError::field("operand", op.code().into()));
        }
        Ok(())
    }
}

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
