//! What no bytes of a peer or a driver may do: the bodies of the fuzz targets.
//!
//! *Owns*: one plain function per target. *Takes*: arbitrary bytes, read as a list of steps. *Gives*:
//! nothing, or a panic that names the broken promise. *Must not*: need a fuzzer; `cargo test` calls
//! the same functions with bounded random bytes.
#![forbid(unsafe_code)]

mod bytes;
pub mod device;
mod driver;
pub mod inc;
pub mod inc_session;
pub mod rc;
pub mod shared_ring;

pub use bytes::Bytes;
