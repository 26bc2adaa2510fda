//! Why a packet was refused.
//!
//! - owns: the closed list of reasons, used as counter names where packets are dropped.
//! - takes: nothing. gives: [`PacketError`]. must not: grow past seven reasons.

/// A packet, header or buffer that cannot be used, with the value that was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Fewer bytes than the headers (or the buffer to emit into) need. Both in bytes.
    #[error("truncated: {needed} bytes needed, {have} present")]
    Truncated {
        /// Bytes needed from the start of the piece that was looked at.
        needed: usize,
        /// Number of bytes that are present.
        have: usize,
    },
    /// An opcode (of the BTH or of the transaction header) that is not in the tables.
    #[error("unknown opcode {0:#04x}")]
    Opcode(u8),
    /// A version (BTH TVer, TAver, handshake range) that is not spoken here.
    #[error("unknown version {0}")]
    Version(u8),
    /// Reserved bits that are not zero; `header` names the header.
    #[error("reserved bits set in {header}: {value:#x}")]
    Reserved {
        /// Name of the header as in docs/wire-spec.md.
        header: &'static str,
        /// The reserved bits as found.
        value: u32,
    },
    /// A field whose value is out of its range or contradicts another field.
    #[error("{field} has the impossible value {value:#x}")]
    Field {
        /// Name of the field as in docs/wire-spec.md.
        field: &'static str,
        /// The value as found.
        value: u64,
    },
    /// A payload length that the headers forbid. In bytes.
    #[error("payload of {found} bytes, {expected} expected")]
    Length {
        /// Length by the headers (or the largest allowed).
        expected: usize,
        /// Number of bytes that were found.
        found: usize,
    },
    /// The invariant CRC does not match.
    #[error("ICRC {carried:#010x} carried, {computed:#010x} computed")]
    Icrc {
        /// Over the bytes received.
        computed: u32,
        /// As carried in the last four bytes.
        carried: u32,
    },
}

impl PacketError {
    /// Counter names, in the order of [`PacketError::index`].
    pub const REASONS: [&'static str; 7] =
        ["truncated", "opcode", "version", "reserved", "field", "length", "icrc"];

    /// Position of this error's reason in [`PacketError::REASONS`].
    #[must_use]
    pub const fn index(&self) -> usize {
        match self {
            Self::Truncated { .. } => 0,
            Self::Opcode(_) => 1,
            Self::Version(_) => 2,
            Self::Reserved { .. } => 3,
            Self::Field { .. } => 4,
            Self::Length { .. } => 5,
            Self::Icrc { .. } => 6,
        }
    }

    /// The reason's counter name.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        Self::REASONS[self.index()]
    }

    pub(crate) const fn field(field: &'static str, value: u64) -> Self {
        Self::Field { field, value }
    }
}
