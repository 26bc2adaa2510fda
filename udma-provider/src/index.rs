//! Order of free-running indices, modulo 2^32.
//!
//! *Gives*: their order. *Must not*: know what they count.

/// Whether free-running index `a` comes before `b`.
#[inline]
pub(crate) fn is_before(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}
