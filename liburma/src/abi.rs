//! The C API as Rust sees it: a mirror of the headers.
//!
//! *Owns*: layouts and numbers of the public structs, for the release that the crate is built for.
//! *Must not*: do anything; know anything of the project.
//!
//! `cargo xtask mirror` makes `shared`, `fabric`, `v26_06` and `v25_12_0_b081` from the golden layouts of
//! both releases and from `mirror.txt`, which says what is mirrored and of which type each member is;
//! `cargo xtask tidy` fails when they are out of date. Names are those of C, so that a fact is found by its
//! name on both sides. Every size and offset is asserted by the compiler where it is written; a test
//! compiles the same data against the headers (on x86-64, which the golden data is of). Numbers that a C
//! caller chooses are integers, never Rust enumerations; `bool` is `u8` for the same reason. Unions without
//! a name in C are members called `u` here, and of the type `parent_u`.
//!
//! The feature `abi-25-12-0-b081` chooses the release. Flags that only the newer one has read as 0 in the
//! older one.

#![expect(non_camel_case_types, reason = "the names of C")]
#![expect(missing_docs, reason = "the headers say what the members are")]
#![expect(
    missing_debug_implementations,
    reason = "pointers and unions that a C caller filled have no safe text"
)]

mod base;
mod fabric;
mod layout;
mod names;
mod providers;
mod shared;
#[cfg(feature = "abi-25-12-0-b081")]
mod v25_12_0_b081;
#[cfg(not(feature = "abi-25-12-0-b081"))]
mod v26_06;

pub use base::*;
pub use fabric::*;
pub use names::*;
pub use providers::*;
pub use shared::*;
#[cfg(feature = "abi-25-12-0-b081")]
pub use v25_12_0_b081::*;
#[cfg(not(feature = "abi-25-12-0-b081"))]
pub use v26_06::*;

#[cfg(test)]
mod tests;
