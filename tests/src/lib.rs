//! What the tests of the whole stack have in common.
//!
//! *Owns*: [`world`], two nodes that can talk; [`sim`], the same stack in virtual time.
//! *Must not*: hold a test.
#![forbid(unsafe_code)]

pub mod sim;
pub mod world;
