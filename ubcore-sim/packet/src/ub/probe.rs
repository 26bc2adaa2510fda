//! Probes of the path MTU: TPPETH.
//!
//! - owns: the layout, and which lengths a probe may have. takes: bytes or a [`Probe`].
//! - gives: the other. must not: know which length is worth asking about.

use zerocopy::byteorder::network_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::packet::{DATA_OVERHEAD, PROBE_MIN};
use crate::codec::{Reader, Writer, reserved};
use crate::{Mtu, PacketError};

/// Body of PROBE, which is padded to the length it asks about, and of PROBE_ECHO, which is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Random; the echo repeats it.
    pub nonce: u64,
    /// Bytes of the probe, BTH to ICRC.
    pub size: u16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ProbeWire {
    nonce: U64,
    size: U16,
    rsv: [u8; 6],
}

impl Probe {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<ProbeWire>();

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let wire: &ProbeWire = reader.take()?;
        reserved("TPPETH", u32::from(wire.rsv.iter().any(|&byte| byte != 0)))?;
        Ok(Self { nonce: wire.nonce.get(), size: wire.size.get() })
    }

    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&ProbeWire {
            nonce: U64::new(self.nonce),
            size: U16::new(self.size),
            rsv: [0; 6],
        })
    }

    /// Bytes of padding behind the header of a probe.
    #[must_use]
    pub fn padding(&self) -> usize {
        usize::from(self.size).saturating_sub(PROBE_MIN)
    }

    pub(crate) fn check(&self) -> Result<(), PacketError> {
        let size = usize::from(self.size);
        if size.is_multiple_of(4) && (PROBE_MIN..=DATA_OVERHEAD + Mtu::MAX.bytes()).contains(&size)
        {
            return Ok(());
        }
        Err(PacketError::field("Size", self.size.into()))
    }
}
