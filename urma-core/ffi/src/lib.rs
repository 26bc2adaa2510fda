//! The C face of the project: liburma.
//!
//! *Owns*: the rooms of the library. *Gives*: what the headers under `include/` declare.

pub mod abi;
