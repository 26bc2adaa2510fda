//! The C face of the project: liburma.
//!
//! *Owns*: the rooms of the library. *Gives*: what the headers under `include/` declare.
//!
//! Rooms, each of which knows those after it only: `exports` (the symbols), `plug` (devices that a Rust
//! program adds), `face` (the exported functions: checks, dispatch through the provider's tables,
//! book-keeping), `provider` (which drives which device), `udma` (the built-in provider), `convert`
//! (values), `choice` (which release of the C API serves), `log` (lines for callbacks), `perf` (how long
//! calls take), `call` (the door for calls from C), `setting` (the environment), `slab` and `latch`
//! (memory of objects), `abi` (layouts).
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

/// Makes a type that consists of addresses and numbers `Copy`: `copies!(Name<T: Bound>)`. `derive` would ask for
/// `Clone` of the parameters too.
macro_rules! copies {
    ($name:ident<$($param:ident $(: $bound:path)?),*>) => {
        impl<$($param $(: $bound)?),*> Clone for $name<$($param),*> {
            #[inline(always)]
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$($param $(: $bound)?),*> Copy for $name<$($param),*> {}
    };
}

pub mod abi;
mod call;
mod choice;
mod convert;
mod exports;
pub mod face;
mod latch;
mod log;
mod perf;
pub mod plug;
mod provider;
mod setting;
mod slab;
mod udma;

pub use convert::{Zero, zeroed};
