//! Repair packets of knitting TPs: TPFETH, and code words: what of a packet of data their code covers.
//!
//! - owns: the layout, which numbers there are, which bytes of a packet are covered. takes: bytes, values or packets.
//!   gives: the other.
//! - must not: compute a code, depend on which packets were sent.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, byteorder::network_endian::U16,
};

use super::opcode::{PKEY, WIRE_VERSION};
use crate::{
    BTH_LEN, Bth, Congestion, ICRC_LEN, Mtu, PacketError, Psn, Tpn,
    codec::{Reader, Writer, reserved},
};

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

/// Bytes of a code word before the body of its packet.
pub const WORD_HEAD: usize = 4;

/// What the code covers of `packet`, an unsealed packet of data without REPETH: opcode, pad and length of the body, then
/// the body, which is all between BTH and ICRC. `None`: it is too short for a packet.
#[must_use]
pub fn code_word(packet: &[u8]) -> Option<([u8; WORD_HEAD], &[u8])> {
    let body = packet.get(BTH_LEN..packet.len().checked_sub(ICRC_LEN)?)?;
    let [high, low] = u16::try_from(body.len()).ok()?.to_be_bytes();
    Some(([*packet.first()?, packet.get(1)? >> 4 & 3, high, low], body))
}

/// The unsealed packet of data whose code word, followed by zeros, this is; `None`: no packet has such a one.
#[must_use]
pub fn packet_of_word(word: &[u8], dest: Tpn, psn: Psn) -> Option<Vec<u8>> {
    let (&[opcode, pad, high, low], rest) = word.split_first_chunk()?;
    let (body, zeros) = rest.split_at_checked(u16::from_be_bytes([high, low]).into())?;
    if pad > 3 || zeros.iter().any(|&byte| byte != 0) {
        return None;
    }
    let bth = Bth {
        opcode,
        solicited: false,
        mig_req: false,
        pad,
        version: WIRE_VERSION,
        pkey: PKEY,
        congestion: Congestion { forward: false, backward: false },
        dest,
        ack_req: false,
        repeated: false,
        psn,
    };
    let mut packet = Vec::with_capacity(BTH_LEN + body.len() + ICRC_LEN);
    packet.extend_from_slice(bth.to_wire().as_bytes());
    packet.extend_from_slice(body);
    packet.resize(BTH_LEN + body.len() + ICRC_LEN, 0);
    Some(packet)
}
