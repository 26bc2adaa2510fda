//! Reading header layouts from the front of a slice, writing them into a buffer, and why a packet was refused.
//!
//! Depends on no header. [`PacketError`] is a closed list of seven reasons, used as counter names where packets are
//! dropped.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Reads layouts one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    taken: usize,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, taken: 0 }
    }

    /// The next `T`, or how many bytes were missing (counted from the start).
    #[inline]
    pub(crate) fn take<T>(&mut self) -> Result<&'a T, PacketError>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let Ok((value, rest)) = T::ref_from_prefix(self.rest) else {
            return Err(PacketError::Truncated {
                needed: self.taken + size_of::<T>(),
                have: self.taken + self.rest.len(),
            });
        };
        self.taken += size_of::<T>();
        self.rest = rest;
        Ok(value)
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

/// Writes layouts one after the other. The caller has checked the room: `put` refuses politely.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    buf: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub(crate) const fn new(buf: &'a mut [u8]) -> Self {
        Self { buf, at: 0 }
    }

    #[inline]
    pub(crate) fn put<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), PacketError> {
        let bytes = value.as_bytes();
        let end = self.at + bytes.len();
        let have = self.buf.len();
        let room =
            self.buf.get_mut(self.at..end).ok_or(PacketError::Truncated { needed: end, have })?;
        room.copy_from_slice(bytes);
        self.at = end;
        Ok(())
    }

    pub(crate) const fn written(&self) -> usize {
        self.at
    }
}

/// The three low bytes of `value`, big-endian.
pub(crate) const fn to_be24(value: u32) -> [u8; 3] {
    let [_, a, b, c] = value.to_be_bytes();
    [a, b, c]
}

/// The number in three big-endian bytes.
pub(crate) const fn from_be24([a, b, c]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, a, b, c])
}

/// Refuses set reserved bits, naming the header they are in.
pub(crate) fn reserved(header: &'static str, value: u32) -> Result<(), PacketError> {
    if value == 0 { Ok(()) } else { Err(PacketError::Reserved { header, value }) }
}

/// Pad bytes after `payload_len` bytes.
pub(crate) const fn pad_of(payload_len: usize) -> u8 {
    match payload_len & 3 {
        0 => 0,
        1 => 3,
        2 => 2,
        _ => 1,
    }
}

/// The payload without `pad` zero bytes at its end; the sum must be whole words.
pub(crate) fn split_pad(padded: &[u8], pad: u8) -> Result<&[u8], PacketError> {
    let len = padded.len().checked_sub(usize::from(pad));
    let Some(len) = len.filter(|&len| pad_of(len) == pad) else {
        return Err(PacketError::field("Pad", pad.into()));
    };
    let (payload, zeros) = padded.split_at(len);
    if zeros.iter().any(|&byte| byte != 0) {
        return Err(PacketError::Reserved { header: "pad", value: u32::from(pad) });
    }
    Ok(payload)
}

/// An enum with wire values; unknown ones are refused with the field's name.
macro_rules! wire_enum {
    ($(#[$meta:meta])* $name:ident, $field:literal { $($(#[$vmeta:meta])* $variant:ident = $value:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$vmeta])* $variant = $value,)+ }

        impl $name {
            /// Every value, in the order of their codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The code on the wire.
            #[must_use]
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// The value of a code.
            ///
            /// # Errors
            /// [`PacketError::Field`](crate::PacketError::Field) for codes that are not in the
            /// table.
            pub const fn from_code(code: u8) -> Result<Self, $crate::PacketError> {
                match code {
                    $($value => Ok(Self::$variant),)+
                    _ => Err($crate::PacketError::field($field, code as u64)),
                }
            }
        }
    };
}
pub(crate) use wire_enum;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_counted_from_the_start() {
        let mut reader = Reader::new(&[0; 11]);
        assert!(reader.take::<[u8; 4]>().is_ok() && reader.take::<[u8; 4]>().is_ok());
        let cut = reader.take::<[u8; 4]>();
        assert_eq!(cut, Err(PacketError::Truncated { needed: 12, have: 11 }));
    }
}
