//! Names of things in the fabric: EIDs, ids, addresses, tokens.
//!
//! *Owns*: the layout of `urma_types.h`, what a `char` is. *Must not*: do anything.

#[expect(
    clippy::disallowed_types,
    reason = "C programs share this memory: it is atomic_ulong"
)]
use core::sync::atomic::AtomicU64;

use core::ffi::c_char;

use super::layout::c_structs;

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

c_structs! {
    /// What urma_init is told; both members may be 0.
    #[derive(Clone, Copy)]
    struct urma_init_attr_t[16] {
        0 => token: u64,
        8 => uasid: u32,
    }

    /// Number of users of an object.
    #[expect(clippy::disallowed_types, reason = "C programs share this memory: atomic_ulong")]
    struct urma_ref_t[8] {
        0 => atomic_cnt: AtomicU64,
    }

    #[derive(Clone, Copy)]
    struct urma_guid_t[16] {
        0 => raw: [u8; 16],
    }

    #[derive(Clone, Copy)]
    struct urma_token_t[4] {
        0 => token: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_jetty_id_t[24] {
        0 => eid: urma_eid_t,
        16 => uasid: u32,
        20 => id: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_eid_info_t[24] {
        0 => eid: urma_eid_t,
        16 => eid_index: u32,
    }

    /// Address of memory anywhere in the fabric.
    #[repr(packed)]
    #[derive(Clone, Copy)]
    struct urma_ubva_t[28] {
        0 => eid: urma_eid_t,
        16 => uasid: u32,
        20 => va: u64,
    }
}

c_structs! {
    /// Entity identifier: 16 bytes in network order, aligned as two words.
    #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
    struct urma_eid_t[16] {
        0 => words: [u64; 2],
    }
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

/// Id of a send queue.
pub type urma_jfs_id_t = urma_jetty_id_t;
/// Id of a receive queue.
pub type urma_jfr_id_t = urma_jetty_id_t;
/// Id of a completion queue.
pub type urma_jfc_id_t = urma_jetty_id_t;
