//! `liburma_common.so.0`: the helper functions that public URMA programs link beside liburma.
//!
//! *Owns*: text to numbers, huge pages, the rate of the cycle counter. *Takes*: C strings and
//! addresses. *Gives*: 0 or a negated errno, as UMDK release 26.06 does. *Must not*: know URMA.
#![expect(unsafe_code, reason = "functions that C programs call, with C pointers")]

mod clock;
mod huge;
mod text;

pub use clock::get_cpu_mhz;
pub use huge::{ub_hugefree, ub_hugemalloc};
pub use text::{
    ub_str_to_bool, ub_str_to_int, ub_str_to_u8, ub_str_to_u16, ub_str_to_u32, ub_str_to_u64,
};
