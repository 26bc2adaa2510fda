//! The C API as Rust sees it: a mirror of the headers.
//!
//! *Owns*: layouts and numbers of the public structs, for the release that the crate is built for.
//! *Must not*: do anything; know anything of the project.
//!
//! Names are those of C, so that a fact is found by its name on both sides. Every size and offset
//! is asserted by the compiler where it is written; a test compares what is written with the
//! golden data, and another compiles the same data against the headers (on x86-64, which the golden
//! data is of). Numbers that a C caller chooses are integers, never Rust enumerations; `bool` is
//! `u8` for the same reason. Unions without a name in C are members called `u` here, and of the type
//! `parent_u`.
//!
//! Two releases exist in this mirror. What differs between them is in `v26_06` or
//! `v25_12_0_b081`; the feature `abi-25-12-0-b081` chooses. Flags that only the newer one has read
//! as 0 in the older one.

#![expect(non_camel_case_types, reason = "the names of C")]
#![expect(missing_docs, reason = "the headers say what the members are")]
#![expect(
    missing_debug_implementations,
    reason = "pointers and unions that a C caller filled have no safe text"
)]

mod base;
mod context;
mod device;
mod jetty;
mod jfc;
mod jfr;
mod jfs;
mod layout;
mod opcode;
mod ops;
mod perf;
mod provider;
mod segment;
mod tp;
mod types;
mod ubagg;
mod udma_ctl;
mod uvs;
#[cfg(feature = "abi-25-12-0-b081")]
mod v25_12_0_b081;
#[cfg(not(feature = "abi-25-12-0-b081"))]
mod v26_06;
mod wr;

pub use base::*;
pub use context::*;
pub use device::*;
pub use jetty::*;
pub use jfc::*;
pub use jfr::*;
pub use jfs::*;
pub use opcode::*;
pub use ops::*;
pub use perf::*;
pub use provider::*;
pub use segment::*;
pub use tp::*;
pub use types::*;
pub use ubagg::*;
pub use udma_ctl::*;
pub use uvs::*;
#[cfg(feature = "abi-25-12-0-b081")]
pub use v25_12_0_b081::*;
#[cfg(not(feature = "abi-25-12-0-b081"))]
pub use v26_06::*;
pub use wr::*;

#[cfg(test)]
mod tests;
