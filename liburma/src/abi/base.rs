//! EIDs as bytes, and bytes as the `char` of C.
//!
//! *Owns*: what a `char` is, the order of an EID's bytes. *Must not*: know a layout.

use core::ffi::c_char;

use super::urma_eid_t;

/// An EID, as the fabric service spells it.
pub type uvs_eid_t = urma_eid_t;

/// A byte as a `char`, which is signed on x86-64 and not on aarch64.
#[must_use]
pub const fn char_of(byte: u8) -> c_char {
    c_char::from_le_bytes([byte])
}

/// A `char` as a byte.
#[must_use]
pub const fn byte_of(char: c_char) -> u8 {
    let [byte] = char.to_le_bytes();
    byte
}

impl urma_eid_t {
    /// The EID of 16 bytes in network order.
    #[must_use]
    pub fn from_raw(raw: [u8; 16]) -> Self {
        // Words of the machine that lie in memory as the bytes do.
        let both = u128::from_be_bytes(raw);
        let word = |shift: u32| u64::try_from(both >> shift & u128::from(u64::MAX));
        Self { words: [word(64), word(0)].map(|word| word.unwrap_or_default().to_be()) }
    }

    /// Its 16 bytes in network order.
    #[must_use]
    pub fn raw(self) -> [u8; 16] {
        let [high, low] = self.words.map(u64::from_be);
        (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
    }
}
