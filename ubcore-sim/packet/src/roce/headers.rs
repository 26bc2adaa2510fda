//! The standard extension headers.
//!
//! - owns: their layouts (InfiniBand Architecture Specification 1.7, 9.3 to 9.5).
//! - takes: bytes or values. gives: the other. must not: depend on the packets in which they occur.

use zerocopy::byteorder::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::PacketError;
use crate::codec::{Reader, Writer, from_be24, reserved, to_be24};

/// A header of plain integers: its values, its layout, and both directions.
macro_rules! plain_header {
    ($(#[$meta:meta])* $name:ident, $wire:ident { $($(#[$fmeta:meta])* $field:ident: $native:ty => $layout:ty,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name { $($(#[$fmeta])* pub $field: $native,)+ }

        #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        struct $wire { $($field: $layout,)+ }

        impl $name {
            /// Bytes of the header.
            pub const LEN: usize = size_of::<$wire>();

            pub(super) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
                let wire: &$wire = reader.take()?;
                Ok(Self { $($field: wire.$field.get(),)+ })
            }

            pub(super) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
                writer.put(&$wire { $($field: <$layout>::new(self.$field),)+ })
            }
        }
    };
}

plain_header! {
    /// RETH: remote memory of a WRITE, READ, FLUSH or ATOMIC WRITE.
    Reth, RethWire {
        /// Virtual address of the first byte.
        va: u64 => U64,
        /// Remote key of the memory at the target.
        rkey: u32 => U32,
        /// Bytes of the whole message.
        dma_len: u32 => U32,
    }
}

plain_header! {
    /// AtomicETH: an atomic on 8 bytes.
    AtomicEth, AtomicEthWire {
        /// Virtual address, 8-byte aligned.
        va: u64 => U64,
        /// Remote key of the memory at the target.
        rkey: u32 => U32,
        /// New value or addend.
        swap_or_add: u64 => U64,
        /// Value compared with; 0 for an addition.
        compare: u64 => U64,
    }
}

plain_header! {
    /// AtomicAckETH: what the atomic found.
    AtomicAckEth, AtomicAckEthWire {
        /// Value of the target before the atomic.
        original: u64 => U64,
    }
}

plain_header! {
    /// ImmDt: immediate data for the receiver's completion.
    ImmDt, ImmDtWire {
        /// Immediate value, 32 bits.
        value: u32 => U32,
    }
}

plain_header! {
    /// IETH: key to invalidate.
    Ieth, IethWire {
        /// Remote key of the memory at the target.
        rkey: u32 => U32,
    }
}

/// AETH: acknowledgement of the reliable transports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aeth {
    /// What is acknowledged, and how.
    pub syndrome: Syndrome,
    /// Message sequence number, 24 bits.
    pub msn: u32,
}

/// Syndrome of an AETH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syndrome {
    /// Positive; 5-bit credit code, 0x1f when credits are not used.
    Ack {
        /// Credit code, 5 bits.
        credit: u8,
    },
    /// Receiver not ready; 5-bit timer code.
    RnrNak {
        /// Timer code, see [`crate::ResponseStatus::rnr_timer_ns`].
        timer: u8,
    },
    /// Negative: PSN sequence error.
    PsnSequence,
    /// Negative: the responder refuses the request as invalid.
    InvalidRequest,
    /// Negative: remote access error.
    RemoteAccess,
    /// Negative: remote operational error.
    RemoteOperation,
    /// Negative: invalid reliable-datagram request.
    InvalidRdRequest,
}

impl Syndrome {
    /// The byte on the wire. Codes are cut to 5 bits.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ack { credit } => credit & 0x1f,
            Self::RnrNak { timer } => 0x20 | timer & 0x1f,
            Self::PsnSequence => 0x60,
            Self::InvalidRequest => 0x61,
            Self::RemoteAccess => 0x62,
            Self::RemoteOperation => 0x63,
            Self::InvalidRdRequest => 0x64,
        }
    }

    /// The syndrome of a byte.
    ///
    /// # Errors
    /// [`PacketError::Field`].
    pub fn from_code(code: u8) -> Result<Self, PacketError> {
        match code {
            0x00..=0x1f => Ok(Self::Ack { credit: code }),
            0x20..=0x3f => Ok(Self::RnrNak { timer: code & 0x1f }),
            0x60 => Ok(Self::PsnSequence),
            0x61 => Ok(Self::InvalidRequest),
            0x62 => Ok(Self::RemoteAccess),
            0x63 => Ok(Self::RemoteOperation),
            0x64 => Ok(Self::InvalidRdRequest),
            _ => Err(PacketError::field("syndrome", code.into())),
        }
    }
}

impl Aeth {
    /// Bytes of the header.
    pub const LEN: usize = 4;

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let [code, msn @ ..] = *reader.take::<[u8; Self::LEN]>()?;
        Ok(Self { syndrome: Syndrome::from_code(code)?, msn: from_be24(msn) })
    }

    pub(super) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&self.syndrome.code())?;
        writer.put(&to_be24(self.msn))
    }
}

/// DETH: source queue and key of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deth {
    /// Queue key that the receiver checks.
    pub qkey: u32,
    /// Sending queue pair, 24 bits.
    pub source_qp: u32,
}

impl Deth {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let qkey = reader.take::<U32>()?.get();
        let source_qp = reader.take::<U32>()?.get();
        reserved("DETH", source_qp >> 24)?;
        Ok(Self { qkey, source_qp })
    }

    pub(super) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&U32::new(self.qkey))?;
        writer.put(&U32::new(self.source_qp & MASK_24))
    }
}

/// RDETH: end-to-end context of a reliable datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rdeth {
    /// Context number, 24 bits.
    pub context: u32,
}

impl Rdeth {
    /// Bytes of the header.
    pub const LEN: usize = 4;

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let context = reader.take::<U32>()?.get();
        reserved("RDETH", context >> 24)?;
        Ok(Self { context })
    }

    pub(super) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&U32::new(self.context & MASK_24))
    }
}

/// FETH: what a FLUSH makes visible or durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feth {
    /// Placement type bits (0: global visibility, 1: persistence), 4 bits.
    pub placement: u8,
    /// Selectivity (0: a range, 1: a whole region), 2 bits.
    pub selectivity: u8,
}

impl Feth {
    /// Bytes of the header.
    pub const LEN: usize = 4;

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let word = reader.take::<U32>()?.get();
        reserved("FETH", word & !0x3f)?;
        let [.., low] = word.to_be_bytes();
        Ok(Self { placement: low & 0xf, selectivity: low >> 4 })
    }

    pub(super) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        let bits = (self.selectivity & 3) << 4 | self.placement & 0xf;
        writer.put(&U32::new(bits.into()))
    }
}

const MASK_24: u32 = 0x00ff_ffff;
const _: () = assert!(Reth::LEN == 16 && AtomicEth::LEN == 28 && AtomicAckEth::LEN == 8);
