//! What the command-line tools share.
//!
//! *Owns*: the composition of device and driver, manual pages and completions, the log. *Takes*:
//! wishes of a command line. *Gives*: an open context; files. *Must not*: know what a tool does.
#![forbid(unsafe_code)]

mod log;
mod open;
mod pages;

pub use log::{Log, log};
pub use open::{OpenError, Opened, Pings, open};
pub use pages::generate_if_asked;
