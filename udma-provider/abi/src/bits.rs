//! Bit fields of a 64-bit word.
//!
//! *Owns*: shifting and masking, once. *Must not*: know what a field means.

/// `width` bits of `word` from bit `low` (0 = least significant).
#[inline]
pub(crate) const fn field(word: u64, low: u32, width: u32) -> u64 {
    (word >> low) & mask(width)
}

/// `value` placed at bit `low`; bits beyond `width` are cut off.
#[inline]
pub(crate) const fn place(value: u64, low: u32, width: u32) -> u64 {
    (value & mask(width)) << low
}

/// One bit as a `bool`.
#[inline]
pub(crate) const fn flag(word: u64, bit: u32) -> bool {
    (word >> bit) & 1 == 1
}

#[inline]
const fn mask(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// The low 32 bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
pub(crate) const fn low32(word: u64) -> u32 {
    word as u32
}

/// A field of at most 32 bits as `u32`.
#[inline]
pub(crate) const fn field32(word: u64, low: u32, width: u32) -> u32 {
    low32(field(word, low, width))
}

/// A field of at most 8 bits as `u8`.
#[expect(clippy::cast_possible_truncation, reason = "callers ask for at most 8 bits")]
#[inline]
pub(crate) const fn field8(word: u64, low: u32, width: u32) -> u8 {
    field(word, low, width) as u8
}

/// A field of at most 16 bits as `u16`.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "callers ask for at most 16 bits")]
pub(crate) const fn field16(word: u64, low: u32, width: u32) -> u16 {
    field(word, low, width) as u16
}
