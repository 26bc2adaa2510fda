//! The layouts that this library shares with liburma: the same files, not a copy.
//!
//! *Owns*: nothing. *Must not*: do anything. A dependency on liburma would export its functions from
//! here too.
#![expect(non_camel_case_types, reason = "the names of C")]
#![expect(missing_docs, reason = "the headers say what the members are")]
#![expect(
    missing_debug_implementations,
    reason = "pointers and unions that a C caller filled have no safe text"
)]

#[path = "../../src/abi/base.rs"]
mod base;
#[path = "../../src/abi/fabric.rs"]
mod fabric;
#[path = "../../src/abi/layout.rs"]
mod layout;

pub use base::*;
pub use fabric::*;
