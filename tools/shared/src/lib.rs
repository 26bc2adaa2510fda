//! What the command-line tools share.
//!
//! *Owns*: manual pages and completions, the log, how text is shown. *Takes*: options of a command line. *Gives*:
//! files. *Must not*: depend on a tool.
#![forbid(unsafe_code)]

mod log;
mod pages;
mod shown;

pub use log::{LogSetup, log};
pub use pages::generate_if_asked;
pub use shown::{clear, say, say_error, shown, shown_lines};
pub use urma_mem::environment::{ignored, variable};
