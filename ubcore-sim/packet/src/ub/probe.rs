//! Probes of the path MTU: TPPETH.
//!
//! - owns: the layout, and which lengths a probe may have. takes: bytes or a [`PathProbe`].
//! - gives: the other. must not: know which length is worth asking about.

use zerocopy::byteorder::network_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ext::{MemoryAccess, Notify};
use super::losses::Repeat;
use super::request::{BTAH_LEN, Target};
use crate::codec::{Reader, Writer, reserved};
use crate::{BTH_LEN, ICRC_LEN, Mtu, PacketError};

/// Bytes of a data packet besides its payload, at most: every header that a packet with payload on a TP
/// may have, and the ICRC. A path MTU is payload; packets of it are so much longer.
pub const DATA_OVERHEAD: usize = FIRST_OVERHEAD + Repeat::LEN;
/// The same of a packet that is sent for the first time.
const FIRST_OVERHEAD: usize =
    BTH_LEN + BTAH_LEN + Target::LEN + MemoryAccess::LEN + TOKEN_LEN + Notify::LEN + ICRC_LEN;
/// Bytes of a TVETAH.
const TOKEN_LEN: usize = 4;

const _: () = assert!(DATA_OVERHEAD == 84);

/// Bytes of a probe without padding.
const PROBE_MIN: usize = BTH_LEN + PathProbe::LEN + ICRC_LEN;

/// Body of PROBE, which is padded to the length it asks about, and of PROBE_ECHO, which is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathProbe {
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

impl PathProbe {
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
