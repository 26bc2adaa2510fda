//! What the command-line tools share.
//!
//! *Owns*: manual pages and completions, the log. *Takes*: options of a command line. *Gives*:
//! files. *Must not*: depend on a tool.
#![forbid(unsafe_code)]

mod log;
mod pages;

pub use log::{LogSetup, log};
pub use pages::generate_if_asked;
pub use urma_mem::environment::{ignored, variable};
