//! Conversions of numbers that bounds of the parameters keep small.
//!
//! *Owns*: one place for each. *Must not*: wrap: what were too large becomes the largest.

/// A count or index of a table in memory: at most 2^28.
pub(crate) fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A number below the length of a table in memory.
pub(crate) fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Returns the lowest byte of a number.
pub(crate) const fn low_8(number: u64) -> u8 {
    number.to_le_bytes()[0]
}

/// Returns the lowest two bytes of a number.
pub(crate) const fn low_16(number: u64) -> u16 {
    let [low, high, ..] = number.to_le_bytes();
    u16::from_le_bytes([low, high])
}
