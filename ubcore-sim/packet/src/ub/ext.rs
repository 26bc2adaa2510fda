//! Extension headers between the transaction header and the payload.
//!
//! - owns: MAETAH (UB Base Specification 2.0.1, 7.2.3) and our IMMETH, WIMMETH, NOTIFYETH, INVETH,
//!   ATOMETH, AVETH, RDETAH.
//! - takes: their bytes or values. gives: the other. must not: depend on the opcode they belong to.

use zerocopy::byteorder::network_endian::{U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codec::{Reader, Writer, from_be24, reserved, wire_enum};
use crate::{PacketError, TokenId, TokenValue};

/// MAETAH: memory access, or the position in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryAccess {
    /// Memory operations: target address of the first byte of this packet. Sends: offset of this
    /// packet in the message, in bytes.
    pub address: u64,
    /// Segment of the address; 0 in sends.
    pub token_id: TokenId,
    /// Bytes of the whole message (read: bytes asked for; atomics: bytes of the operand).
    pub length: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AccessWire {
    address: U64,
    token_id: U32,
    length: U32,
}

impl MemoryAccess {
    /// Bytes of a MAETAH.
    pub const LEN: usize = size_of::<AccessWire>();

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let wire: &AccessWire = reader.take()?;
        Ok(Self {
            address: wire.address.get(),
            token_id: TokenId::parse(wire.token_id.get())?,
            length: wire.length.get(),
        })
    }

    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&AccessWire {
            address: U64::new(self.address),
            token_id: U32::new(self.token_id.value()),
            length: U32::new(self.length),
        })
    }
}

/// NOTIFYETH: the 8 bytes stored (or added) elsewhere after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notify {
    /// Address of the 8 bytes.
    pub address: u64,
    /// Segment of the address.
    pub token_id: TokenId,
    /// Secret of that segment.
    pub token: TokenValue,
    /// Value stored or added.
    pub data: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct NotifyWire {
    address: U64,
    token_id: U32,
    token: U32,
    data: U64,
}

impl Notify {
    /// Bytes of a NOTIFYETH.
    pub const LEN: usize = size_of::<NotifyWire>();

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let wire: &NotifyWire = reader.take()?;
        Ok(Self {
            address: wire.address.get(),
            token_id: TokenId::parse(wire.token_id.get())?,
            token: TokenValue(wire.token.get()),
            data: wire.data.get(),
        })
    }

    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&NotifyWire {
            address: U64::new(self.address),
            token_id: U32::new(self.token_id.value()),
            token: U32::new(self.token.0),
            data: U64::new(self.data),
        })
    }
}

/// INVETH: the token of the target that a send invalidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invalidate {
    /// Token index of the segment, 20 bits.
    pub token_id: TokenId,
    /// Token value that guards the segment.
    pub token: TokenValue,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct InvalidateWire {
    token_id: U32,
    token: U32,
}

impl Invalidate {
    /// Bytes of an INVETH.
    pub const LEN: usize = size_of::<InvalidateWire>();

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let wire: &InvalidateWire = reader.take()?;
        let token_id = TokenId::parse(wire.token_id.get())?;
        Ok(Self { token_id, token: TokenValue(wire.token.get()) })
    }

    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        let token_id = U32::new(self.token_id.value());
        writer.put(&InvalidateWire { token_id, token: U32::new(self.token.0) })
    }
}

/// WIMMETH: what a write with immediate delivers, and to a queue of which secret. TVETAH has that
/// of the segment, so both are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteImm {
    /// Immediate for the receiver's completion, 64 bits.
    pub imm: u64,
    /// Secret of the target queue, when one is shown.
    pub token: Option<TokenValue>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct WriteImmWire {
    imm: U64,
    shown: U32,
    token: U32,
}

/// TT_EN, the top bit of the word before the token.
const TT_EN: u32 = 1 << 31;

impl WriteImm {
    /// Bytes of a WIMMETH.
    pub const LEN: usize = size_of::<WriteImmWire>();

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let wire: &WriteImmWire = reader.take()?;
        let (shown, token) = (wire.shown.get(), wire.token.get());
        reserved("WIMMETH", shown & !TT_EN)?;
        let is_shown = shown & TT_EN != 0;
        reserved("WIMMETH", if is_shown { 0 } else { token })?;
        Ok(Self { imm: wire.imm.get(), token: is_shown.then_some(TokenValue(token)) })
    }

    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&WriteImmWire {
            imm: U64::new(self.imm),
            shown: U32::new(if self.token.is_some() { TT_EN } else { 0 }),
            token: U32::new(self.token.map_or(0, |token| token.0)),
        })
    }
}

/// Bytes of an IMMETH.
pub(crate) const IMM_LEN: usize = size_of::<U64>();

pub(crate) fn take_imm(reader: &mut Reader<'_>) -> Result<u64, PacketError> {
    Ok(reader.take::<U64>()?.get())
}

wire_enum! {
    /// Bytes that an atomic works on.
    OperandSize, "operand size" {
        /// Operands of 4 bytes.
        B4 = 4,
        /// Operands of 8 bytes.
        B8 = 8,
        /// Operands of 16 bytes.
        B16 = 16,
    }
}

impl OperandSize {
    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self as u32
    }

    const fn holds(self, value: u128) -> bool {
        match self {
            Self::B4 => value >> 32 == 0,
            Self::B8 => value >> 64 == 0,
            Self::B16 => true,
        }
    }

    /// Bytes of one value on the wire: 4-byte operands travel in eight.
    const fn wire_bytes(self) -> usize {
        match self {
            Self::B4 | Self::B8 => 8,
            Self::B16 => 16,
        }
    }

    fn take_value(self, reader: &mut Reader<'_>) -> Result<u128, PacketError> {
        let value = match self {
            Self::B4 | Self::B8 => u128::from(reader.take::<U64>()?.get()),
            Self::B16 => reader.take::<U128>()?.get(),
        };
        if self.holds(value) { Ok(value) } else { Err(too_wide(value)) }
    }

    fn put_value(self, value: u128, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        if !self.holds(value) {
            return Err(too_wide(value));
        }
        let bytes = value.to_be_bytes();
        writer.put(&bytes[16 - self.wire_bytes()..])
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let wire: &SizeWire = reader.take()?;
        reserved("operand size word", from_be24(wire.rsv) | wire.rsv_low.get())?;
        Self::from_code(wire.size)
    }

    fn put(self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&SizeWire { size: self.code(), rsv: [0; 3], rsv_low: U32::ZERO })
    }
}

fn too_wide(value: u128) -> PacketError {
    let shown = u64::try_from(value).unwrap_or(u64::MAX);
    PacketError::field("operand", shown)
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct SizeWire {
    size: u8,
    rsv: [u8; 3],
    rsv_low: U32,
}

/// ATOMETH: operands of an atomic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicOperands {
    /// Size of the operands and of the target.
    pub size: OperandSize,
    /// New value, addend or mask; 0 for a load.
    pub operand: u128,
    /// Value compared with; 0 unless the atomic is a compare and swap.
    pub compare: u128,
}

impl AtomicOperands {
    /// Bytes of this ATOMETH: 24, or 40 for 16-byte operands.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        size_of::<SizeWire>() + 2 * self.size.wire_bytes()
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let size = OperandSize::take(reader)?;
        let operand = size.take_value(reader)?;
        Ok(Self { size, operand, compare: size.take_value(reader)? })
    }

    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        self.size.put(writer)?;
        self.size.put_value(self.operand, writer)?;
        self.size.put_value(self.compare, writer)
    }
}

/// AVETH: what an atomic found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicValue {
    /// Size of the operands and of the target.
    pub size: OperandSize,
    /// Value of the target before the atomic.
    pub value: u128,
}

impl AtomicValue {
    /// Bytes of this AVETH: 16, or 24 for 16-byte operands.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        size_of::<SizeWire>() + self.size.wire_bytes()
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let size = OperandSize::take(reader)?;
        Ok(Self { size, value: size.take_value(reader)? })
    }

    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        self.size.put(writer)?;
        self.size.put_value(self.value, writer)
    }
}

const _: () = assert!(MemoryAccess::LEN == 16 && Notify::LEN == 24 && Invalidate::LEN == 8);
