//! Base transport header: the first 12 bytes of every RoCEv2 packet.
//!
//! - owns: the BTH layout (InfiniBand Architecture Specification 1.7, 9.2).
//! - takes: 12 bytes or a [`Bth`]. gives: the other. must not: judge opcodes.

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codec::{Reader, from_be24, reserved, to_be24};
use crate::{PacketError, Psn, Tpn};

/// Bits of byte 8.
const ACK_REQ: u8 = 0x80;
pub(crate) const REPEATED: u8 = 0x40;

/// Bytes of a BTH.
pub const BTH_LEN: usize = size_of::<BthWire>();
const _: () = assert!(BTH_LEN == 12);

/// Checked view of a BTH: the length is right, nothing else is known.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BthWire {
    opcode: u8,
    bits: u8,
    pkey: U16,
    congestion: u8,
    dest: [u8; 3],
    ack: u8,
    psn: [u8; 3],
}

impl BthWire {
    /// The view of the first 12 bytes.
    ///
    /// # Errors
    /// [`PacketError::Truncated`].
    pub fn new_checked(bytes: &[u8]) -> Result<&Self, PacketError> {
        Reader::new(bytes).take()
    }
}

/// Congestion marks of a packet; a switch may change them in flight (outside the ICRC).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Congestion {
    /// Forward mark: a switch on the path had congestion.
    pub forward: bool,
    /// Backward mark: the receiver of the other direction met congestion.
    pub backward: bool,
}

/// Values of a BTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bth {
    /// Opcode; its tables are in [`crate::roce`] and [`crate::TpOpcode`].
    pub opcode: u8,
    /// SE: the receiver should raise an event (standard opcodes only).
    pub solicited: bool,
    /// MigReq: path migration state (standard opcodes only; both values occur).
    pub mig_req: bool,
    /// Pad bytes after the payload, 0..=3.
    pub pad: u8,
    /// TVer: 0 for the standard opcodes, the wire version for URMA's.
    pub version: u8,
    /// Partition key; 0xffff is the default partition.
    pub pkey: u16,
    /// Congestion marks FECN and BECN.
    pub congestion: Congestion,
    /// Destination queue pair or TPN.
    pub dest: Tpn,
    /// The receiver should acknowledge this packet soon.
    pub ack_req: bool,
    /// A REPETH follows (URMA's data packets only).
    pub repeated: bool,
    /// Packet sequence number, 24 bits, per TP or queue pair.
    pub psn: Psn,
}

impl Bth {
    /// Values of the first 12 bytes.
    ///
    /// # Errors
    /// [`PacketError::Truncated`], [`PacketError::Reserved`].
    pub fn parse(bytes: &[u8]) -> Result<Self, PacketError> {
        let wire = BthWire::new_checked(bytes)?;
        reserved("BTH", u32::from(wire.congestion & 0x3f))?;
        reserved("BTH", u32::from(wire.ack & 0x3f))?;
        Ok(Self {
            opcode: wire.opcode,
            solicited: wire.bits & 0x80 != 0,
            mig_req: wire.bits & 0x40 != 0,
            pad: wire.bits >> 4 & 3,
            version: wire.bits & 0xf,
            pkey: wire.pkey.get(),
            congestion: Congestion {
                forward: wire.congestion & 0x80 != 0,
                backward: wire.congestion & 0x40 != 0,
            },
            dest: Tpn::from_low_bits(from_be24(wire.dest)),
            ack_req: wire.ack & ACK_REQ != 0,
            repeated: wire.ack & REPEATED != 0,
            psn: Psn::new(from_be24(wire.psn)),
        })
    }

    /// The 12 bytes. `pad` and `version` are cut to their fields.
    #[must_use]
    pub fn to_wire(&self) -> BthWire {
        BthWire {
            opcode: self.opcode,
            bits: u8::from(self.solicited) << 7
                | u8::from(self.mig_req) << 6
                | (self.pad & 3) << 4
                | self.version & 0xf,
            pkey: U16::new(self.pkey),
            congestion: u8::from(self.congestion.forward) << 7
                | u8::from(self.congestion.backward) << 6,
            dest: to_be24(self.dest.value()),
            ack: u8::from(self.ack_req) << 7 | u8::from(self.repeated) << 6,
            psn: to_be24(self.psn.value()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; 12] = [0xc0, 0x31, 0xff, 0xff, 0x80, 1, 2, 3, 0xc0, 4, 5, 6];

    #[test]
    fn every_bit_has_its_field() {
        let bth = Bth::parse(&BYTES).expect("valid");
        assert_eq!((bth.opcode, bth.pad, bth.version, bth.pkey), (0xc0, 3, 1, 0xffff));
        assert!(bth.congestion.forward && !bth.congestion.backward && bth.ack_req);
        assert!(bth.repeated);
        assert_eq!((bth.dest.value(), bth.psn.value()), (0x01_0203, 0x04_0506));
        assert_eq!(bth.to_wire().as_bytes(), BYTES);
    }

    #[test]
    fn reserved_bits_are_refused() {
        for (at, bit) in [(4, 0x20), (4, 1), (8, 0x20), (8, 1)] {
            let mut bytes = BYTES;
            bytes[at] |= bit;
            assert_eq!(Bth::parse(&bytes).map_err(|e| e.reason()), Err("reserved"));
        }
    }

    #[test]
    fn eleven_bytes_are_not_enough() {
        let short = PacketError::Truncated { needed: 12, have: 11 };
        assert_eq!(Bth::parse(&BYTES[..11]), Err(short));
    }
}
