//! Numbers of 24, 32 and 48 bits, as the context of a TP in the NIC holds them.
//!
//! - owns: how they are packed. takes: values within their bits. gives: them again.
//! - must not: be used where a value may be larger.

/// A number below 2^24.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct U24([u8; 3]);

impl U24 {
    pub(super) const MAX: u32 = (1 << 24) - 1;

    pub(super) const fn new(value: u32) -> Self {
        let [a, b, c, _] = value.to_le_bytes();
        Self([a, b, c])
    }

    pub(super) const fn get(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_le_bytes([a, b, c, 0])
    }
}

/// A sequence below 2^48.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct U48([u8; 6]);

impl U48 {
    pub(super) const fn new(value: u64) -> Self {
        let [a, b, c, d, e, f, _, _] = value.to_le_bytes();
        Self([a, b, c, d, e, f])
    }

    pub(super) const fn get(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

/// Most packets between the left edge and a sequence that is kept by its low 32 bits.
pub(super) const SPAN_MAX: u64 = 1 << 30;

/// Low bits of a sequence.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the other bits are those of a sequence nearby"
)]
pub(super) const fn low_bits(seq: u64) -> u32 {
    seq as u32
}

/// The sequence with these low bits that is nearest to `edge`.
pub(super) const fn near(edge: u64, low: u32) -> u64 {
    edge.wrapping_add_signed(low.wrapping_sub(low_bits(edge)).cast_signed() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for edge in [0, 5, u64::from(u32::MAX) - 3, 1 << 40] {
            for seq in [edge, edge + 1, edge + 7, edge + SPAN_MAX] {
                assert_eq!(near(edge, low_bits(seq)), seq);
            }
            assert_eq!(near(edge + 9, low_bits(edge)), edge, "also from behind");
            assert_eq!(U48::new(edge).get(), edge);
        }
        assert_eq!(U24::new(U24::MAX).get(), U24::MAX);
    }
}
