//! C and C++ programs against an installed library: compiled with what `pkg-config` says, run.
//!
//! *Owns*: scratch prefixes, how a program is compiled and run and for how long. *Takes*: C sources.
//! *Gives*: what programs said. *Must not*: know what a program is about.
#![forbid(unsafe_code)]

mod compiler;
mod prefix;
mod program;

pub use compiler::{CLANG, Compiler, GCC, GXX};
pub use prefix::{Prefix, built, root, scratch, target, xtask};
pub use program::{Running, Said, finish, start};
