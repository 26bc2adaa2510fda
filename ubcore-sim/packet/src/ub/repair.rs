//! Repair packets of knitting TPs: TPFETH.
//!
//! - owns: the layout, and which numbers there are. takes: bytes or values. gives: the other.
//! - must not: compute a code, depend on which packets were sent.

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codec::{Reader, Writer, reserved};
use crate::{Mtu, PacketError};

/// Most packets of a group.
pub const REPAIR_GROUP_MAX: u32 = 200;
/// Most repair packets of a group.
pub const REPAIR_NUMBERS: u8 = 56;
/// Bytes of headers and payload of a packet that a repair packet may stand for, at most, beside the payload.
const CODED_OVERHEAD: usize = 128;

/// TPFETH: which packets a repair packet stands for. BTH.PSN is the first packet of the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairBody {
    /// Distance of the last packet of the range from the first.
    pub last: u16,
    /// Distance of the first packet that the code covers from the first of the range.
    pub begin: u16,
    /// Groups of the range: packet i is of group i modulo that.
    pub groups: u16,
    /// Group that it repairs.
    pub group: u16,
    /// Its number among the repair packets of the group.
    pub number: u8,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RepairWire {
    last: U16,
    begin: U16,
    groups: U16,
    group: U16,
    number: u8,
    rsv: [u8; 3],
}

impl RepairBody {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<RepairWire>();

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let wire: &RepairWire = reader.take()?;
        reserved("TPFETH", u32::from(wire.rsv.iter().any(|&byte| byte != 0)))?;
        Ok(Self {
            last: wire.last.get(),
            begin: wire.begin.get(),
            groups: wire.groups.get(),
            group: wire.group.get(),
            number: wire.number,
        })
    }

    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&RepairWire {
            last: U16::new(self.last),
            begin: U16::new(self.begin),
            groups: U16::new(self.groups),
            group: U16::new(self.group),
            number: self.number,
            rsv: [0; 3],
        })
    }

    pub(crate) fn check(&self) -> Result<(), PacketError> {
        let packets = u32::from(self.last) + 1;
        if self.groups == 0 || packets.div_ceil(self.groups.into()) > REPAIR_GROUP_MAX {
            return Err(PacketError::field("Groups", self.groups.into()));
        }
        if self.group >= self.groups || u32::from(self.group) >= packets {
            return Err(PacketError::field("Group", self.group.into()));
        }
        if self.begin > self.last {
            return Err(PacketError::field("Begin", self.begin.into()));
        }
        if self.number >= REPAIR_NUMBERS {
            return Err(PacketError::field("Number", self.number.into()));
        }
        Ok(())
    }

    /// A code word is whole words, longer than nothing and no longer than any packet.
    pub(crate) const fn check_payload(len: usize) -> Result<(), PacketError> {
        let expected = Mtu::MAX.bytes() + CODED_OVERHEAD;
        if len > 0 && len <= expected && len.is_multiple_of(4) {
            Ok(())
        } else {
            Err(PacketError::Length { expected, found: len })
        }
    }
}
