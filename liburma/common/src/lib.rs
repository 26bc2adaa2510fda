//! `liburma_common.so.0`: the helper functions that public URMA programs link beside liburma.
//!
//! *Owns*: text to numbers, huge pages, the rate of the cycle counter, searches in bitmaps, hashes of
//! bytes, removal from a hash map. *Takes*: C strings and addresses. *Gives*: what UMDK release 26.06
//! gives: 0 or a negated errno, a number. *Must not*: know URMA.
#![expect(unsafe_code, reason = "functions that C programs call, with C pointers")]

mod bits;
mod clock;
mod huge;
mod map;
mod text;

pub use bits::{
    ub_find_first_bit, ub_find_first_zero_bit, ub_find_next_bit, ub_find_next_zero_bit,
};
pub use clock::get_cpu_mhz;
pub use huge::{ub_hugefree, ub_hugemalloc};
pub use map::{Hmap, HmapNode, ub_hash_bytes, ub_hmap_remove};
pub use text::{
    ub_str_to_bool, ub_str_to_int, ub_str_to_u8, ub_str_to_u16, ub_str_to_u32, ub_str_to_u64,
};
