//! Virtual machines for tests.
//!
//! *Owns*: packages in a cache ([`packages`]), the file system that a machine boots ([`archive`]), its process and
//! the lines of its console ([`console`]), the result that it prints ([`console`]), machines with VFIO ([`vfio`]), the
//! other end of their cable ([`wire`]).
//! *Takes*: a folder. *Gives*: a machine. *Must not*: install anything; need privileges.
#![forbid(unsafe_code)]

pub mod archive;
pub mod console;
pub mod packages;
pub mod vfio;
pub mod wire;

pub use packages::Missing;
