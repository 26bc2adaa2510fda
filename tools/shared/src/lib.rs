//! What the command-line tools share.
//!
//! *Owns*: manual pages and completions, the log, how text is shown, the signals that end a program. *Takes*: options of a command line. *Gives*:
//! files. *Must not*: depend on a tool.
#![forbid(unsafe_code)]

mod ends;
mod log;
mod pages;
mod shown;

pub use ends::Ends;
pub use log::{LogLevel, LogSetup, log};
pub use pages::generate_if_asked;
pub use shown::{clear, say, say_error, shown, shown_lines};
pub use urma_mem::environment::{ignored, variable};
