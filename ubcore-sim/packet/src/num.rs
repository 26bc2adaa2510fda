//! The numbers that packets carry, each a type of its own.
//!
//! - owns: widths and ranges. takes: integers. gives: values known to fit their field.
//! - must not: depend on the place of a number in a packet.

use std::fmt;

use crate::PacketError;

/// A node's endpoint id: 16 bytes in network order (an IPv6 or IPv4-mapped address).
pub type WireEid = [u8; 16];

macro_rules! bounded {
    ($(#[$meta:meta])* $name:ident, $bits:literal, $field:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(u32);

        impl $name {
            /// Width of the field in bits.
            pub const BITS: u32 = $bits;
            /// Largest value that fits the field.
            pub const MAX: Self = Self((1 << $bits) - 1);

            /// The value if it fits the field.
            #[must_use]
            pub const fn new(value: u32) -> Option<Self> {
                if value >> $bits == 0 { Some(Self(value)) } else { None }
            }

            /// The low bits of `value`.
            #[must_use]
            pub const fn from_low_bits(value: u32) -> Self {
                Self(value & Self::MAX.0)
            }

            /// Returns the number, without the bits that other fields share.
            #[must_use]
            pub const fn value(self) -> u32 {
                self.0
            }

            /// The value of a wire field that is wider than the number.
            pub(crate) fn parse(value: u32) -> Result<Self, PacketError> {
                Self::new(value).ok_or(PacketError::field($field, u64::from(value)))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

bounded!(
    /// Number of a jetty, JFS, JFR or jetty group: 20 bits.
    JettyId, 20, "jetty id"
);
bounded!(
    /// Segment token id as the hardware counts it (the tid): 20 bits. URMA's token_id is this << 8.
    TokenId, 20, "TokenID"
);
bounded!(
    /// Number of a transport path at its receiver (standard RoCE: queue pair number): 24 bits.
    Tpn, 24, "TPN"
);

/// Packet sequence number: 24 bits, compared by the sign of the difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    const MASK: u32 = 0x00ff_ffff;

    /// The number modulo 2^24.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value & Self::MASK)
    }

    /// Returns the number, without the bits that other fields share.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The number `count` packets later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// Signed count of packets from `earlier` to `self`: negative when `self` is the older one.
    #[must_use]
    pub const fn distance_from(self, earlier: Self) -> i32 {
        // Shifting the 24-bit difference to the top makes its sign the sign of the number.
        (self.0.wrapping_sub(earlier.0) << 8).cast_signed() >> 8
    }

    /// True when `self` comes before `other` (they are at most 2^23 - 1 apart).
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        self.distance_from(other) < 0
    }
}

/// Access secret of a segment or jetty. Never printed.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenValue(pub u32);

impl fmt::Debug for TokenValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenValue(..)")
    }
}

crate::codec::wire_enum! {
    /// Bound of a path MTU: payload bytes of every packet of a message but the last are at most so many.
    Mtu, "MTU code" {
        /// Packets with at most 256 payload bytes.
        B256 = 0,
        /// Packets with at most 512 payload bytes.
        B512 = 1,
        /// Packets with at most 1024 payload bytes.
        B1024 = 2,
        /// Packets with at most 2048 payload bytes.
        B2048 = 3,
        /// Packets with at most 4096 payload bytes.
        B4096 = 4,
        /// Packets with at most 8192 payload bytes.
        B8192 = 5,
    }
}

impl Mtu {
    /// The largest one: no packet carries more payload.
    pub const MAX: Self = Self::B8192;

    /// The smallest one: packets with so much payload pass every path.
    pub const MIN: Self = Self::B256;

    /// Returns the most payload bytes of a packet.
    #[must_use]
    pub const fn bytes(self) -> usize {
        256 << self.code()
    }

    /// The MTU of exactly `bytes`.
    #[must_use]
    pub fn from_bytes(bytes: usize) -> Option<Self> {
        Self::ALL.iter().copied().find(|mtu| mtu.bytes() == bytes)
    }

    /// Whether packets of some path carry `bytes` of payload each: a multiple of four from 256 to 8192.
    #[must_use]
    pub fn may_be(bytes: usize) -> bool {
        bytes.is_multiple_of(4) && (Self::MIN.bytes()..=Self::MAX.bytes()).contains(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psn_compares_across_the_wrap() {
        let last = Psn::new(0x00ff_ffff);
        assert!(last.is_before(Psn::new(0)));
        assert!(!Psn::new(0).is_before(last));
        assert_eq!(Psn::new(3).distance_from(Psn::new(0x00ff_fffe)), 5);
        assert_eq!(last.plus(2), Psn::new(1));
        assert_eq!(Psn::new(7).distance_from(Psn::new(7)), 0);
        assert!(!Psn::new(7).is_before(Psn::new(7)));
    }

    #[test]
    fn ids_refuse_one_beyond() {
        assert_eq!(JettyId::new(0xf_ffff), Some(JettyId::MAX));
        assert_eq!(JettyId::new(0x10_0000), None);
        assert_eq!(Tpn::new(0x0100_0000), None);
        assert_eq!(TokenId::from_low_bits(0x1f_ffff), TokenId::MAX);
    }

    #[test]
    fn a_path_mtu_is_a_multiple_of_four_in_its_range() {
        for bytes in [256, 260, 1392, 4096, 8188, 8192] {
            assert!(Mtu::may_be(bytes), "{bytes}");
        }
        for bytes in [0, 4, 252, 255, 1393, 1394, 1395, 8193, 8196, usize::MAX] {
            assert!(!Mtu::may_be(bytes), "{bytes}");
        }
        assert_eq!(Mtu::from_bytes(4096), Some(Mtu::B4096));
        assert_eq!(Mtu::from_bytes(4097), None);
        assert!(Mtu::from_code(6).is_err());
    }

    #[test]
    fn a_token_value_is_never_printed() {
        assert_eq!(format!("{:?}", TokenValue(0xdead)), "TokenValue(..)");
    }
}
