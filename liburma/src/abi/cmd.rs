//! Arguments of the commands of device files.
//!
//! *Owns*: the layout of `urma_cmd.h`, by subject. *Must not*: do anything.

mod jetty;
mod jfc;
mod jfr;
mod jfs;
mod other;
mod seg;

pub use jetty::*;
pub use jfc::*;
pub use jfr::*;
pub use jfs::*;
pub use other::*;
pub use seg::*;
