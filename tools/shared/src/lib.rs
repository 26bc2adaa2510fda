//! What the command-line tools share.
//!
//! *Owns*: manual pages and completions, the log. *Takes*: wishes of a command line. *Gives*: files. *Must not*: know what a tool does.
#![forbid(unsafe_code)]

mod log;
mod pages;

pub use log::{LogSetup, log};
pub use pages::generate_if_asked;
